"""A turn as a stream of events: read, left, stopped, and what it raises."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio
import trio.testing
from attrs import define, field

from agentrt.agent.agent import Agent
from agentrt.agent.turn_stream import TurnStream
from agentrt.core.chat import ChatRequest, Usage
from agentrt.core.errors import SessionBusyError
from agentrt.core.history import find_history_faults
from agentrt.core.messages import AssistantMessage
from agentrt.core.outcomes import Approve, TurnCancelled, TurnCompleted, TurnPaused
from agentrt.events import types as e
from agentrt.filters.base import Filter, TurnCall, hook
from agentrt.models.function import FunctionModel
from agentrt.runtime.runtime import open_runtime
from agentrt.stores.in_memory import InMemoryChatMemory
from agentrt.testing import Say, ScriptedModel, call, cancel_sweep, no_leftovers
from agentrt.tools.base import tool

USED = Usage(provider="scripted", model="model", total_tokens=5)


@tool
async def add(a: int) -> int:
    """Add one."""
    await trio.lowlevel.checkpoint()
    return a + 1


@tool(sensitive=True)
async def delete() -> str:
    """Delete."""
    await trio.lowlevel.checkpoint()
    return "deleted"


def agent(*steps: Any, **options: Any) -> Agent:
    return Agent(model=ScriptedModel(steps), tools=[add, delete], **options)


async def test_a_turn_is_read_event_by_event() -> None:
    made = agent(call("add", a=1), Say(text=["it ", "is 2"]))
    async with no_leftovers(), made.stream("go") as stream:
        events = [event async for event in stream]
    outcome = stream.outcome
    assert isinstance(outcome, TurnCompleted)
    assert (outcome.text, len(outcome.calls)) == ("it is 2", 1)
    texts = [event.text for event in events if isinstance(event, e.MessageDelta)]
    assert texts == ["it ", "is 2"]
    assert isinstance(events[0], e.IterationStarted)


async def test_a_stream_has_the_events_of_a_run_between_its_first_and_last() -> None:
    """As the guide says; their ids are each one's own."""
    steps = [call("add", a=1), Say(text=["it ", "is 2"], usage=USED)]
    async with agent(*steps).stream("go") as stream:
        streamed = [event.tag async for event in stream]
    async with open_runtime(agent(*steps)) as runtime:
        run = await runtime.start_run("c", "go")
        await run.wait()
        told = runtime._events.ring("c").after(0, limit=1000)
    first, *between, last = [envelope.event.tag for envelope in told]
    assert (first, between, last) == ("run/started", streamed, "run/finished")


async def test_a_turn_that_raised_has_no_outcome_and_says_so() -> None:
    def fail(request: ChatRequest) -> str:
        raise ValueError("sk-SECRET")

    made = Agent(model=FunctionModel(fail))
    async with made.stream("go") as stream:
        with pytest.raises(ValueError, match="sk-SECRET"):
            async for _ in stream:
                pass
        for _ in range(2):
            with pytest.raises(RuntimeError, match=r"it raised ValueError$"):
                _ = stream.outcome
        assert [event async for event in stream] == []


async def test_a_turn_runs_ahead_of_its_reader() -> None:
    made = agent(call("add", a=1), "done")
    async with made.stream("go") as stream:
        await trio.testing.wait_all_tasks_blocked()
        assert isinstance(stream.outcome, TurnCompleted)
        assert [event async for event in stream]


async def test_an_outcome_is_there_at_the_end_and_not_before() -> None:
    made = agent(Say(before=trio.sleep_forever))
    async with made.stream("go") as stream:
        with pytest.raises(RuntimeError, match="the turn has not ended"):
            _ = stream.outcome


async def test_leaving_the_stream_stops_the_turn_and_keeps_what_was_said() -> None:
    """U13, U3, U19"""
    made = agent(Say(text=["half", " more"], delay_seconds=0.01))
    async with no_leftovers(), made.stream("go", conversation_id="c") as stream:
        async for event in stream:
            if isinstance(event, e.MessageDelta):
                break
    assert isinstance(stream.outcome, TurnCancelled)
    last = (await made.history("c"))[-1]
    assert isinstance(last, AssistantMessage)
    assert (last.text, last.partial) == ("half", True)


async def test_a_stop_ends_the_stream_with_an_outcome() -> None:
    """B60: what ran and what was said are told."""
    made = agent(call("add", id="1", a=1), Say(text=["half", "x"], delay_seconds=0.01))
    async with made.stream("go") as stream:
        async for event in stream:
            if isinstance(event, e.MessageDelta):
                stream.stop("enough")
                stream.stop("again")
    outcome = stream.outcome
    assert isinstance(outcome, TurnCancelled)
    assert (outcome.reason, outcome.text) == ("enough", "half")
    assert [(each.name, each.arguments) for each in outcome.calls] == [
        ("add", {"a": 1})
    ]


async def test_a_stop_after_the_end_changes_nothing() -> None:
    async with agent("done").stream("go") as stream:
        assert [event async for event in stream]
        stream.stop()
    assert isinstance(stream.outcome, TurnCompleted)


async def test_the_second_half_of_a_turn_streams_too() -> None:
    """B60"""
    made = agent(call("delete", id="d"), "gone")
    async with made.stream("go", conversation_id="c") as stream:
        assert [event async for event in stream]
    assert isinstance(stream.outcome, TurnPaused)
    async with made.stream_resume("c", {"d": Approve()}) as stream:
        tags = [event.tag async for event in stream]
    assert isinstance(stream.outcome, TurnCompleted)
    assert tags[0] == "tool/result"
    assert "message/delta" in tags


async def read_into(tags: list[str], stream: TurnStream) -> None:
    async for event in stream:
        tags.append(event.tag)  # noqa: PERF401  what came before an error is kept


def failing() -> Filter:
    @hook
    async def turn(call: TurnCall) -> AsyncIterator[None]:
        yield
        raise ValueError("a bug in a filter")

    return Filter(name="failing", turn=turn)


async def test_what_the_turn_raises_comes_where_it_is_read() -> None:
    made = agent("done", filters=[failing()])
    seen: list[str] = []
    async with made.stream("go") as stream:
        with pytest.raises(ValueError, match="a bug in a filter"):
            await read_into(seen, stream)
    assert "message/delta" in seen


async def test_what_the_turn_raises_is_not_lost_when_nobody_reads() -> None:
    with pytest.raises(ValueError, match="a bug in a filter"):
        async with agent("done", filters=[failing()]).stream("go"):
            await trio.testing.wait_all_tasks_blocked()


async def test_what_the_block_raises_is_raised_plain() -> None:
    made = agent(Say(before=trio.sleep_forever))
    with pytest.raises(KeyError):
        async with no_leftovers(), made.stream("go"):
            raise KeyError("mine")


async def test_a_conversation_has_one_stream_at_a_time() -> None:
    made = agent(Say(before=trio.sleep_forever))
    async with made.stream("go", conversation_id="c") as stream:
        await stream.__anext__()
        with pytest.raises(SessionBusyError):
            async with made.stream("go", conversation_id="c") as other:
                await other.__anext__()


@define
class World:
    memory: InMemoryChatMemory = field(factory=InMemoryChatMemory)
    added: list[int] = field(factory=list)

    async def scenario(self) -> None:
        made = Agent(
            model=ScriptedModel([[call("add", a=1), call("add", a=2)], "done"]),
            tools=[add],
            memory=self.memory,
        )
        async with made.stream("go", conversation_id="c") as stream:
            async for event in stream:
                if isinstance(event, e.ToolReturned):
                    self.added.append(len(self.added))

    async def check(self) -> None:
        assert find_history_faults(await self.memory.history("c")) == []


def test_a_stream_survives_a_cancel_anywhere() -> None:
    report = cancel_sweep(World, World.scenario, World.check)
    print(report)
    assert report.runs > 50
