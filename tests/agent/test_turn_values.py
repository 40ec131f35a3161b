"""What a turn hook keeps for its turn is there in the hooks within, over pauses too."""

from collections.abc import AsyncIterator
from typing import Any

import trio
from attrs import evolve

from agentrt.agent.agent import Agent
from agentrt.core.converter import from_json, to_json
from agentrt.core.messages import UserMessage
from agentrt.core.outcomes import Approve, PauseSnapshot, TurnCompleted, TurnPaused
from agentrt.filters.base import (
    ChatCall,
    Filter,
    Resumption,
    TurnCall,
    TurnRequest,
    hook,
)
from agentrt.stores.in_memory import InMemoryPauseStore
from agentrt.testing import ScriptedModel, call
from agentrt.tools.base import tool

KEY = "agentrt/topic"


@tool(sensitive=True)
async def ask() -> str:
    """Ask."""
    await trio.lowlevel.checkpoint()
    return "asked"


def topic(seen: list[Any]) -> Filter:
    """Keeps what a turn is about, and looks at it around each model call."""

    @hook
    async def turn(call: TurnCall) -> AsyncIterator[None]:
        request = call.request
        if request.resume is None and not request.is_rerun:
            call.request = request.keeping(KEY, request.messages[-1].text)
        yield

    @hook
    async def chat(call: ChatCall) -> AsyncIterator[None]:
        seen.append(call.context.values.get(KEY))
        yield

    return Filter(name="topic", turn=turn, chat=chat)


def again() -> Filter:
    """Runs each turn once more."""

    @hook
    async def turn(call: TurnCall) -> AsyncIterator[None]:
        yield
        if isinstance(call.response, TurnCompleted):
            call.request = call.request.again(UserMessage(content="once more"))
            await call.rerun()

    return Filter(name="again", turn=turn)


async def test_it_is_there_in_each_model_call_also_in_those_of_a_rerun() -> None:
    for order in (1, -1):
        seen: list[Any] = []
        filters = [again(), topic(seen)][::order]
        agent = Agent(model=ScriptedModel(["a", "b"]), filters=filters)
        await agent.run("tea")
        assert seen == ["tea", "tea"]


async def test_it_ends_with_the_turn() -> None:
    seen: list[Any] = []
    agent = Agent(model=ScriptedModel(["a", "b"]), filters=[topic(seen)])
    await agent.run("tea", conversation_id="c")
    await agent.run("coffee", conversation_id="c", values={KEY: "given"})
    assert seen == ["tea", "coffee"]


async def test_it_survives_a_pause_that_was_written_down() -> None:
    seen: list[Any] = []
    agent = Agent(
        model=ScriptedModel([call("ask"), "done"]), tools=[ask], filters=[topic(seen)]
    )
    paused = await agent.run("tea", conversation_id="c")
    assert isinstance(paused, TurnPaused)
    snapshot = await agent.paused("c")
    assert snapshot is not None
    text = to_json(snapshot, PauseSnapshot)
    pauses = InMemoryPauseStore()
    await pauses.save(from_json(text, PauseSnapshot))
    await evolve(agent, pauses=pauses).resume("c", {paused.interrupts[0].id: Approve()})
    assert seen == ["tea", "tea"]


def test_a_request_that_asks_again_is_marked_and_resumes_nothing() -> None:
    more = UserMessage(content="again")
    snapshot: Any = None
    resumption = Resumption(snapshot=snapshot, answers={})
    request = TurnRequest(resume=resumption, values={KEY: "tea"})
    expected = TurnRequest(messages=(more,), values={KEY: "tea"}, is_rerun=True)
    assert request.again(more) == expected


def test_what_several_filters_keep_does_not_collide() -> None:
    request = TurnRequest().keeping("agentrt/a", 1).keeping("agentrt/b", 2)
    assert request.values == {"agentrt/a": 1, "agentrt/b": 2}
