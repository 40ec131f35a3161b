"""A turn that a filter runs again is still one turn: its state and its bill go on."""

from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
import trio
from attrs import evolve

from agentrt.agent.agent import Agent
from agentrt.core.chat import Usage
from agentrt.core.context import STOP_KEY, Context
from agentrt.core.errors import ServerError
from agentrt.core.history import find_history_faults
from agentrt.core.messages import UserMessage
from agentrt.core.options import TurnOptions
from agentrt.core.outcomes import Approve, TurnCompleted, TurnFailed, TurnPaused
from agentrt.events.types import RunUsage
from agentrt.filters.base import Filter, IterationCall, ToolUse, TurnCall, hook
from agentrt.testing import Say, ScriptedModel, call
from agentrt.tools.base import ToolResult, tool

USAGE = Usage(provider="p", model="m", total_tokens=10)


@tool
async def count(context: Context) -> ToolResult:
    """Add one to the counter."""
    await trio.lowlevel.checkpoint()
    number = context.values.get("counter", 0) + 1
    return ToolResult(content=str(number), writes={"counter": number})


def again() -> Filter:
    """Run each turn once more."""

    @hook
    async def turn(call: TurnCall) -> AsyncIterator[None]:
        yield
        if isinstance(call.response, TurnCompleted):
            more = [UserMessage(id="more", content="go on")]
            call.request = evolve(call.request, messages=more, resume=None)
            await call.rerun()

    return Filter(name="again", turn=turn)


def script(*ends: Any) -> list[Any]:
    """Counts once, then says each of `ends`, with another count between."""
    steps: list[Any] = []
    for end in ends:
        steps.extend([Say(calls=(call("count", id="1"),), usage=USAGE), end])
    return steps


def agent(*steps: Any, **more: Any) -> Agent:
    filters = [again(), *more.pop("filters", ())]
    return Agent(model=ScriptedModel(steps), tools=[count], filters=filters, **more)


async def test_what_tools_wrote_is_there_in_the_next_pass() -> None:
    """X6"""
    made = agent(*script("a", "b"), values={"counter": 4})
    outcome = await made.run("go")
    assert isinstance(outcome, TurnCompleted)
    assert [record.content for record in outcome.calls] == ["5", "6"]


async def test_values_that_came_with_the_turn_do_not_undo_what_was_written() -> None:
    made = agent(*script("a", "b"))
    outcome = await made.run("go", values={"counter": 7})
    assert isinstance(outcome, TurnCompleted)
    assert [record.content for record in outcome.calls] == ["8", "9"]


async def test_usage_is_that_of_all_passes() -> None:
    told: list[RunUsage] = []

    def listen(event: Any) -> None:
        if isinstance(event, RunUsage):
            told.append(event)

    outcome = await agent(*script("a", "b")).run("go", emit=listen)
    assert isinstance(outcome, TurnCompleted)
    twice = evolve(USAGE, total_tokens=20)
    assert outcome.usage == (twice,)
    assert [event.usage for event in told] == [(USAGE,), (twice,)]


async def test_a_pass_that_fails_tells_what_ran_before() -> None:
    outcome = await agent(*script("a", ServerError("down"))).run("go")
    assert isinstance(outcome, TurnFailed)
    assert [record.content for record in outcome.calls] == ["1", "2"]


async def test_without_a_memory_the_next_pass_still_knows_the_first() -> None:
    made = agent(*script("a", "b"), memory=None)
    await made.run(UserMessage(id="u", content="go"))
    assert isinstance(made.model, ScriptedModel)
    seen = [message.text for message in made.model.requests[-1].messages]
    assert seen == ["go", "", "1", "a", "go on", "", "2"]
    ids = [message.id for message in made.model.requests[-1].messages]
    assert len(set(ids)) == len(ids)


async def test_what_stopped_a_pass_does_not_stop_the_next() -> None:
    @hook
    async def stop(use: ToolUse) -> AsyncIterator[None]:
        yield
        if use.response.content == "1":
            writes: Mapping[str, Any] = {**use.response.writes, STOP_KEY: "stop"}
            use.response = evolve(use.response, writes=writes)

    counts = Say(calls=(call("count"),))
    made = agent(counts, counts, "b", filters=[Filter(name="stop", tool=stop)])
    outcome = await made.run("go")
    assert isinstance(outcome, TurnCompleted)
    assert (outcome.text, outcome.stopped_by) == ("b", "")


@pytest.mark.parametrize("memory", [True, False])
async def test_a_pass_after_a_resume_goes_on_with_its_state(memory: bool) -> None:
    """X6: over a pause."""
    asks = evolve(count, name="ask", sensitive=True)
    steps: list[Any] = [
        Say(calls=(call("count"),)),
        call("ask"),
        "a",
        call("count"),
        "b",
    ]
    more: dict[str, Any] = {} if memory else {"memory": None}
    made = Agent(
        model=ScriptedModel(steps), tools=[count, asks], filters=[again()], **more
    )
    paused = await made.run("go", conversation_id="c")
    assert isinstance(paused, TurnPaused)
    outcome = await made.resume("c", {paused.interrupts[0].id: Approve()})
    assert isinstance(outcome, TurnCompleted)
    assert [record.content for record in outcome.calls] == ["1", "2", "3"]
    assert len({record.id for record in outcome.calls}) == 3


async def test_a_pass_after_a_resume_keeps_the_options_of_the_turn() -> None:
    asks = evolve(count, sensitive=True)
    model = ScriptedModel([call("count"), "a", "b"])
    made = Agent(model=model, tools=[asks], filters=[again()])
    options = TurnOptions(system="Be brief.")
    paused = await made.run("go", conversation_id="c", options=options)
    assert isinstance(paused, TurnPaused)
    await made.resume("c", {paused.interrupts[0].id: Approve()})
    assert [request.system for request in model.requests] == ["Be brief."] * 3


async def test_a_tool_choice_holds_for_the_first_call_of_all_passes() -> None:
    """Else a pass after an answer, or after a pause, would have to call again."""
    asks = evolve(count, sensitive=True)
    options = TurnOptions(tool_choice="required")
    model = ScriptedModel(["a", "b", call("count"), "c", "d"])
    made = Agent(model=model, tools=[asks], filters=[again()])
    await made.run("go", options=options)
    paused = await made.run("go", conversation_id="c", options=options)
    assert isinstance(paused, TurnPaused)
    await made.resume("c", {paused.interrupts[0].id: Approve()})
    choices = [request.tool_choice for request in model.requests]
    assert choices == ["required", None, "required", None, None]


async def test_another_turn_begins_anew() -> None:
    made = agent(*script("a", "b"), *script("c", "d"))
    for _ in range(2):
        outcome = await made.run("go", conversation_id="c")
        assert isinstance(outcome, TurnCompleted)
        assert [record.content for record in outcome.calls] == ["1", "2"]


async def test_an_iteration_that_is_run_again_leaves_a_balanced_history() -> None:
    """X5: nothing is stored twice, and no call of the first attempt stays open."""

    @hook
    async def again(call: IterationCall) -> AsyncIterator[None]:
        yield
        if call.request.index == 0:
            await call.rerun()

    @tool
    async def add() -> str:
        """Add."""
        await trio.lowlevel.checkpoint()
        return "2"

    agent = Agent(
        model=ScriptedModel([call("add"), call("add"), "done"]),
        tools=[add],
        filters=[Filter(name="again", iteration=again)],
    )
    outcome = await agent.run("go", conversation_id="c")
    assert isinstance(outcome, TurnCompleted)
    history = await agent.history("c")
    assert find_history_faults(history) == []
    kinds = [type(message).__name__ for message in history]
    assert kinds == ["UserMessage"] + ["AssistantMessage", "ToolMessage"] * 2 + [
        "AssistantMessage"
    ]
