"""Stored pauses: old ones go on, hostile ones are refused and stay where they are."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from agentrt.agent.agent import Agent
from agentrt.agent.pause import find_snapshot_faults
from agentrt.core.context import Context
from agentrt.core.converter import snapshot_from_json, snapshot_to_json
from agentrt.core.errors import SnapshotError
from agentrt.core.history import find_history_faults
from agentrt.core.messages import (
    AssistantMessage,
    Message,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from agentrt.core.options import TurnOptions
from agentrt.core.outcomes import (
    Approve,
    Decision,
    Deny,
    Interrupt,
    PauseSnapshot,
    Reply,
    TurnCompleted,
    TurnPaused,
)
from agentrt.models.retry import RetryPolicy
from agentrt.runtime.run import RunOptions
from agentrt.runtime.runtime import open_runtime
from agentrt.stores.in_memory import InMemoryChatMemory, InMemoryPauseStore
from agentrt.testing import ScriptedModel, call
from agentrt.tools.base import ToolResult, tool

FOLDER = Path(__file__).parent / "snapshots"
ANSWERS: dict[str, Decision] = {
    "approval": Approve(),
    "environment": Deny(),
    "external": Reply(content="blue"),
}
WORDS = {
    "approval": "deleted",
    "environment": "error: the disk is full",
    "external": "blue",
}
OLD = sorted((FOLDER / "old").glob("*.json"))


@tool(sensitive=True)
async def delete(path: str, force: bool = False) -> str:
    """Delete."""
    await trio.lowlevel.checkpoint()
    return f"deleted {path}"


@tool
async def read(path: str) -> str:
    """Read."""
    raise AssertionError("it ran before the pause")


def agent(snapshot: PauseSnapshot | None, **options: Any) -> Agent:
    pauses = options.pop("pauses", InMemoryPauseStore())
    if snapshot is not None:
        pauses._pauses["c"] = snapshot
    return Agent(
        model=ScriptedModel(["done", "done"]),
        tools=[delete, read],
        pauses=pauses,
        **options,
    )


@pytest.mark.parametrize("path", OLD, ids=lambda path: path.stem)
async def test_a_pause_of_an_older_version_goes_on(path: Path) -> None:
    """B57"""
    snapshot = snapshot_from_json(await trio.Path(path).read_text())
    memory = InMemoryChatMemory()
    asked: list[Message] = [
        UserMessage(content="please"),
        snapshot.message,
        *snapshot.results,
    ]
    await memory.append("c", asked)
    made = agent(snapshot, memory=memory)
    answers = {each.id: ANSWERS[each.kind] for each in snapshot.interrupts}
    outcome = await made.resume("c", answers)
    assert isinstance(outcome, TurnCompleted)
    history = await made.history("c")
    assert find_history_faults(history) == []
    results = {m.call_id: m.text for m in history if isinstance(m, ToolMessage)}
    for each in snapshot.interrupts:
        assert results[each.id].startswith(WORDS[each.kind])


def test_there_are_pauses_of_every_version() -> None:
    versions = {json.loads(path.read_text())["version"] for path in OLD}
    assert versions == {1, 2}


CALL = ToolCall(id="a", name="delete", arguments={"path": "/x"})
OTHER = ToolCall(id="b", name="read", arguments={"path": "/x"})
RESULT = ToolMessage(call_id="b", name="read", content="seen")
ASKS = Interrupt(id="a", reason="?", call=CALL)
GOOD = PauseSnapshot(
    id="p",
    conversation_id="c",
    run_id="r",
    message=AssistantMessage(id="m", tool_calls=(CALL, OTHER)),
    results=(RESULT,),
    interrupts=(ASKS,),
    remaining=3,
)

HOSTILE: dict[str, tuple[PauseSnapshot, str]] = {
    "of another conversation": (
        evolve(GOOD, conversation_id="other"),
        "it is of conversation 'other'",
    ),
    "asking nothing": (evolve(GOOD, interrupts=()), "it asks nothing"),
    "with a call that was not made": (
        evolve(GOOD, interrupts=(ASKS, evolve(ASKS, id="z"))),
        "call 'z' is not in its message",
    ),
    "with a result that nobody asked for": (
        evolve(GOOD, results=(RESULT, evolve(RESULT, call_id="z"))),
        "call 'z' is not in its message",
    ),
    "with a call that was left out": (
        evolve(GOOD, results=()),
        "call 'b' has no answer to come",
    ),
    "with a result for what is asked": (
        evolve(GOOD, results=(RESULT, evolve(RESULT, call_id="a"))),
        "call 'a' is there twice",
    ),
    "asking twice": (
        evolve(GOOD, interrupts=(ASKS, ASKS)),
        "call 'a' is there twice",
    ),
    "approving another tool": (
        evolve(GOOD, interrupts=(evolve(ASKS, call=evolve(CALL, name="read")),)),
        "interrupt 'a' asks about another call",
    ),
    "with another call's id": (
        evolve(GOOD, interrupts=(evolve(ASKS, call=evolve(CALL, id="b")),)),
        "interrupt 'a' asks about another call",
    ),
    "failed without a result": (
        evolve(GOOD, interrupts=(evolve(ASKS, kind="environment"),)),
        "interrupt 'a' of kind 'environment' does not fit",
    ),
    "with a result before it was approved": (
        evolve(GOOD, interrupts=(evolve(ASKS, result=evolve(RESULT, call_id="a")),)),
        "interrupt 'a' of kind 'approval' does not fit",
    ),
    "with the result of another call": (
        evolve(GOOD, interrupts=(evolve(ASKS, kind="environment", result=RESULT),)),
        "interrupt 'a' holds the result of another call",
    ),
    "without a budget": (evolve(GOOD, remaining=-1), "it counts below 0"),
}


@pytest.mark.parametrize("name", HOSTILE)
async def test_a_pause_that_makes_no_sense_is_refused(name: str) -> None:
    snapshot, words = HOSTILE[name]
    made = agent(snapshot)
    for _ in range(2):  # refusing loses nothing
        with pytest.raises(SnapshotError, match=words):
            await made.resume("c", {"a": Approve()})
    with pytest.raises(SnapshotError, match="start over it with discard_pause"):
        await made.run("something else", conversation_id="c")
    assert await made.discard_pause("c")
    assert isinstance(await made.run("go on", conversation_id="c"), TurnCompleted)


def test_a_pause_that_makes_sense_has_no_faults() -> None:
    assert find_snapshot_faults(GOOD, "c") == []
    assert snapshot_from_json(snapshot_to_json(GOOD)) == GOOD


def change(**fields: Any) -> Callable[[dict[str, Any]], None]:
    return lambda raw: raw.update(fields)


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (change(version=3), r"\$.version is 3, expected 1 to 2"),
        (change(version=0), r"\$.version is 0, expected 1 to 2"),
        (change(version="1"), r"\$.version is '1', expected 1 to 2"),
        (change(version=True), r"\$.version is True, expected 1 to 2"),
        (change(remaining="3"), "expected int, got '3'"),
        (change(remaining=None), "expected int, got None"),
        (change(message=None), "message"),
        (change(interrupts={"a": 1}), "interrupts"),
        (change(more="than there is"), "more"),
        (lambda raw: raw.pop("message"), "message"),
        (lambda raw: raw["interrupts"][0].update(kind="root"), "root"),
        (lambda raw: raw["message"].update(content=7), "expected a text or a list"),
        (
            lambda raw: raw["results"][0].update(is_error="no"),
            "expected bool, got 'no'",
        ),
    ],
)
def test_a_pause_of_the_wrong_form_says_where(
    spoil: Callable[[Any], None], words: str
) -> None:
    raw = json.loads(snapshot_to_json(GOOD))
    spoil(raw)
    with pytest.raises(ValueError, match=words):
        snapshot_from_json(json.dumps(raw))


@pytest.mark.parametrize(
    "text", ["", "{", "null", "[]", "7", '"x"', "[" * 100_000, '{"version": 1}']
)
def test_what_is_no_pause_at_all_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"it is no JSON|\$.version is|does not fit"):
        snapshot_from_json(text)


EMPTY: st.SearchStrategy[Any] = st.sampled_from([None, [], {}])
JUNK = EMPTY | st.booleans() | st.integers() | st.text()


@given(st.data())
def test_no_change_of_a_pause_breaks_the_reader(data: st.DataObject) -> None:
    """Whatever is put in place of any part: it loads, or is refused in words."""
    raw = json.loads(snapshot_to_json(GOOD))
    spots = list(_spots(raw))
    holder, key = data.draw(st.sampled_from(spots))
    holder[key] = data.draw(JUNK)
    try:
        snapshot = snapshot_from_json(json.dumps(raw))
    except ValueError:
        return
    assert isinstance(find_snapshot_faults(snapshot, "c"), list)


def _spots(value: Any) -> Any:
    """Every place in a JSON value, as its holder and its key."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in items:
        yield value, key
        if isinstance(item, dict | list):
            yield from _spots(item)


async def test_a_conversation_can_be_read_though_its_pause_cannot() -> None:
    broken = evolve(GOOD, interrupts=())
    async with open_runtime(agent(broken)) as runtime:
        status = await runtime.status("c")
        assert (status.phase.value, status.interrupts) == ("idle", ())
        with pytest.raises(SnapshotError):
            await runtime.start_run("c", "go on")
        run = await runtime.start_run("c", "go on", RunOptions(discard_pause=True))
        assert isinstance(await run.wait(), TurnCompleted)


async def test_live_objects_of_the_agent_come_again_after_a_pause(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """B57: what a pause keeps is only data, and what is lost is told."""
    seen: list[Any] = []
    connection = object()

    @tool
    async def write() -> ToolResult:
        """Write a live object, and data."""
        await trio.lowlevel.checkpoint()
        return ToolResult(writes={"live": object(), "n": 1})

    @tool
    async def look(context: Context) -> str:
        """Look at the state."""
        await trio.lowlevel.checkpoint()
        seen.append(dict(context.values))
        return "seen"

    pauses = InMemoryPauseStore()
    steps: list[Any] = [
        call("write"),
        call("delete", id="d", path="/"),
        call("look"),
        "ok",
    ]
    made = Agent(
        model=ScriptedModel(steps),
        tools=[write, look, delete],
        values={"db": connection},
        options={"retry": RetryPolicy()},
        pauses=pauses,
    )
    turn = TurnOptions(options={"retry": RetryPolicy(), "seed": 1})
    paused = await made.run("go", conversation_id="c", options=turn)
    assert isinstance(paused, TurnPaused)
    snapshot = await pauses.load("c")
    assert snapshot is not None
    assert snapshot_from_json(snapshot_to_json(snapshot)) == snapshot
    assert snapshot.options.options == {"seed": 1}
    assert [record.message for record in caplog.records] == [
        "value 'live' is of type object, which no pause can keep: lost",
        "options ['retry'] are no data, which no pause can keep: lost",
    ]
    await made.resume("c", {"d": Approve()})
    assert seen == [{"db": connection, "n": 1}]
