"""Calls that wait for something else than an approval: an environment, a browser."""

from collections.abc import Sequence
from typing import Any

import pytest
import trio
from attrs import define, field

from agentrt.agent.agent import Agent
from agentrt.core.converter import from_json, to_json
from agentrt.core.errors import AnswerError, ToolError
from agentrt.core.history import find_history_faults
from agentrt.core.messages import Message, ToolMessage
from agentrt.core.outcomes import (
    Approve,
    Decision,
    Deny,
    PauseSnapshot,
    Reply,
    Retry,
    TurnCompleted,
    TurnPaused,
)
from agentrt.events.types import Event, ToolReturned
from agentrt.runtime.run import RunOptions
from agentrt.runtime.runtime import open_runtime
from agentrt.stores.in_memory import InMemoryPauseStore
from agentrt.testing import ScriptedModel, call, check_stream
from agentrt.tools.base import Tool, tool


@define
class Disk:
    """Full until somebody makes room."""

    is_full: bool = True
    writes: list[str] = field(factory=list)

    def tools(self) -> Sequence[Tool]:
        @tool
        async def save(name: str) -> str:
            """Save a file."""
            await trio.lowlevel.checkpoint()
            self.writes.append(name)
            if self.is_full:
                raise ToolError("the disk is full", kind="environment")
            return f"saved {name}"

        @tool
        async def look() -> str:
            """Look."""
            await trio.lowlevel.checkpoint()
            self.writes.append("look")
            return "seen"

        return [save, look]


def agent(disk: Disk, *steps: Any, **options: Any) -> Agent:
    script = steps or ([call("save", id="s", name="x"), call("look", id="l")], "done")
    options.setdefault("pause_on_environment", True)
    return Agent(model=ScriptedModel(script), tools=disk.tools(), **options)


def results(history: Sequence[Message]) -> Sequence[str]:
    return [message.text for message in history if isinstance(message, ToolMessage)]


async def pause(made: Agent, **options: Any) -> TurnPaused:
    outcome = await made.run("go", conversation_id="c", **options)
    assert isinstance(outcome, TurnPaused)
    return outcome


async def test_a_failure_of_the_environment_pauses_and_the_rest_is_kept() -> None:
    """B52"""
    disk = Disk()
    events: list[Event] = []
    made = agent(disk)
    paused = await pause(made, emit=events.append)
    (interrupt,) = paused.interrupts
    assert (interrupt.id, interrupt.kind) == ("s", "environment")
    assert interrupt.reason == "'save' failed: error: the disk is full"
    assert results(await made.history("c")) == ["seen"]
    told = [event.call_id for event in events if isinstance(event, ToolReturned)]
    assert told == ["l"]


async def test_a_retry_makes_only_the_failed_call_again() -> None:
    """B52: one result for each call, both tries in the records."""
    disk = Disk()
    made = agent(disk)
    await pause(made)
    disk.is_full = False
    outcome = await made.resume("c", {"s": Retry()})
    assert isinstance(outcome, TurnCompleted)
    assert sorted(disk.writes) == ["look", "x", "x"]
    history = await made.history("c")
    assert results(history) == ["seen", "saved x"]
    assert find_history_faults(history) == []
    records = [(each.id, each.status) for each in outcome.calls]
    assert records == [("l", "ok"), ("s", "error"), ("s", "ok")]


async def test_a_retry_that_fails_again_pauses_again() -> None:
    disk = Disk()
    made = agent(disk)
    first = await pause(made)
    again = await made.resume("c", {"s": Retry()})
    assert isinstance(again, TurnPaused)
    assert again.pause_id != first.pause_id
    disk.is_full = False
    assert isinstance(await made.resume("c", {"s": Approve()}), TurnCompleted)
    assert results(await made.history("c")) == ["seen", "saved x"]


async def test_a_denied_retry_tells_the_model_what_failed() -> None:
    disk = Disk()
    made = agent(disk)
    await pause(made)
    outcome = await made.resume("c", {"s": Deny()})
    assert isinstance(outcome, TurnCompleted)
    assert results(await made.history("c")) == ["seen", "error: the disk is full"]
    assert [(each.id, each.status) for each in outcome.calls] == [
        ("l", "ok"),
        ("s", "error"),
    ]


async def test_without_the_option_the_model_reads_the_error() -> None:
    """B52: proceeding is the default."""
    made = agent(Disk(), pause_on_environment=False)
    assert isinstance(await made.run("go", conversation_id="c"), TurnCompleted)
    assert results(await made.history("c")) == ["error: the disk is full", "seen"]


async def test_a_reply_is_no_answer_to_a_failed_environment() -> None:
    """B59: and the pause is not lost by it."""
    made = agent(Disk())
    await pause(made)
    with pytest.raises(AnswerError, match="takes Retry, Approve, Deny, got Reply"):
        await made.resume("c", {"s": Reply(content="never mind")})
    assert await made.is_paused("c")


async def test_what_failed_is_not_forgotten_when_the_user_goes_on() -> None:
    """P8: the call ran, and its result says so."""
    disk = Disk()
    script: list[Any] = [[call("save", id="s", name="x")], "done"]
    async with open_runtime(agent(disk, *script)) as runtime:
        run = await runtime.start_run("c", "go")
        assert isinstance(await run.wait(), TurnPaused)
        options = RunOptions(discard_pause=True)
        run = await runtime.start_run("c", "something else", options)
        assert isinstance(await run.wait(), TurnCompleted)
        history = await runtime.agents.get("default").history("c")
        assert results(history) == ["error: the disk is full"]
        store = runtime._events
        check_stream(store.ring("c").after(0, limit=1000))


async def test_a_pause_of_both_kinds_asks_in_call_order() -> None:
    @tool(sensitive=True)
    async def delete() -> str:
        """Delete."""
        await trio.lowlevel.checkpoint()
        return "deleted"

    disk = Disk()
    script: list[Any] = [[call("delete", id="d"), call("save", id="s", name="x")], "ok"]
    made = Agent(
        model=ScriptedModel(script),
        tools=[delete, *disk.tools()],
        pause_on_environment=True,
    )
    paused = await pause(made)
    kinds = [(each.id, each.kind) for each in paused.interrupts]
    assert kinds == [("d", "approval"), ("s", "environment")]
    disk.is_full = False
    answers: dict[str, Decision] = {"d": Deny(reason="no"), "s": Retry()}
    assert isinstance(await made.resume("c", answers), TurnCompleted)
    assert results(await made.history("c")) == [
        "This call was denied by the user: no",
        "saved x",
    ]


async def test_a_pause_of_the_environment_is_only_data() -> None:
    """B57: another process takes it up."""
    disk, store = Disk(), InMemoryPauseStore()
    made = agent(disk, pauses=store)
    await pause(made)
    snapshot = await store.load("c")
    text = to_json(snapshot, PauseSnapshot)
    assert from_json(text, PauseSnapshot) == snapshot


PICK = Tool(
    name="pick_color",
    description="Ask the person at the screen for a color.",
    parameters={"type": "object", "properties": {"of": {"type": "string"}}},
)


def browser_agent(**options: Any) -> Agent:
    script: list[Any] = [call("pick_color", id="p", of="wall"), "painted"]
    return Agent(model=ScriptedModel(script), tools=[PICK], **options)


async def test_a_tool_without_a_function_waits_for_its_result() -> None:
    """B62"""
    made = browser_agent()
    paused = await pause(made)
    (interrupt,) = paused.interrupts
    assert (interrupt.kind, interrupt.call.arguments) == ("external", {"of": "wall"})
    await made.resume("c", {"p": Reply(content="blue")})
    assert results(await made.history("c")) == ["blue"]


async def test_an_external_result_is_given_and_not_approved() -> None:
    made = browser_agent()
    await pause(made)
    with pytest.raises(AnswerError, match="takes Reply, Deny, got Approve"):
        await made.resume("c", {"p": Approve()})


async def test_a_closed_dialog_is_no_success() -> None:
    """B62: and the model is told."""
    made = browser_agent()
    await pause(made)
    await made.resume("c", {"p": Deny()})
    (result,) = [m for m in await made.history("c") if isinstance(m, ToolMessage)]
    assert (result.is_error, result.text) == (True, "This call was denied by the user.")


async def test_an_external_tool_called_wrongly_asks_nobody() -> None:
    script: list[Any] = [call("pick_color", id="p", of=[1]), "sorry"]
    made = Agent(model=ScriptedModel(script), tools=[PICK])
    outcome = await made.run("go", conversation_id="c")
    assert isinstance(outcome, TurnCompleted)
    (result,) = results(await made.history("c"))
    assert "$.of" in result
