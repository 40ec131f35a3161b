"""Runs that outlive whoever started them: starts, stops, readers, and the end."""

import logging
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
import trio
import trio.testing
from attrs import define, field

from agentrt.agent.agent import Agent
from agentrt.core.errors import (
    AnswerError,
    DeadlineError,
    NotPausedError,
    RuntimeClosedError,
    SessionBusyError,
    SessionPausedError,
    SessionStateError,
    UnknownAgentError,
)
from agentrt.core.messages import UserMessage, tool_calls_of
from agentrt.core.outcomes import (
    Approve,
    Deny,
    PauseSnapshot,
    TurnCancelled,
    TurnCompleted,
    TurnFailed,
    TurnPaused,
)
from agentrt.events import types as e
from agentrt.filters.base import Filter, TurnCall, hook
from agentrt.runtime.phases import Phase
from agentrt.runtime.registry import AgentRegistry
from agentrt.runtime.run import RunOptions
from agentrt.runtime.runtime import Runtime, open_runtime
from agentrt.stores.in_memory import InMemoryEventStore, InMemoryPauseStore
from agentrt.testing import (
    Say,
    ScriptedModel,
    call,
    check_stream,
    no_leftovers,
    read_stream,
)
from agentrt.tools.base import tool
from tests.flow.worlds import RecordingStore


@pytest.fixture(autouse=True)
def _quiet() -> None:
    logging.getLogger("agentrt").setLevel(logging.CRITICAL)


@tool(sensitive=True)
async def delete() -> str:
    """Delete."""
    await trio.lowlevel.checkpoint()
    return "deleted"


def agent(*steps: Any, **more: Any) -> Agent:
    return Agent(model=ScriptedModel(steps), tools=[delete], **more)


FOREVER = Say(text="hm", before=trio.sleep_forever)


def terminals(store: RecordingStore) -> Sequence[str]:
    return [
        envelope.event.tag
        for envelope in store.everything
        if isinstance(envelope.event, e.TerminalEvent)
    ]


async def test_a_stop_right_after_the_start_is_not_lost() -> None:
    store = RecordingStore()
    async with no_leftovers(), open_runtime(agent(FOREVER), events=store) as runtime:
        run = await runtime.start_run("c", "go")
        assert runtime.stop("c", reason="changed my mind")
        assert not runtime.stop("c"), "it was asked before"
        outcome = await run.wait()
    assert outcome == TurnCancelled(reason="changed my mind")
    assert terminals(store) == ["run/cancelled"]
    check_stream(store.everything)


async def test_what_the_user_said_is_kept_when_the_run_is_stopped_at_once() -> None:
    made = agent(FOREVER)
    async with open_runtime(made) as runtime:
        run = await runtime.start_run("c", "go")
        runtime.stop("c")
        await run.wait()
        assert [m.text for m in await made.history("c")] == ["go"]


@define
class Slow(InMemoryPauseStore):
    """A pause store that takes its time."""

    gate: trio.Event = field(factory=trio.Event)

    async def load(self, conversation_id: str) -> PauseSnapshot | None:
        await self.gate.wait()
        return await super().load(conversation_id)


async def test_a_start_that_is_cancelled_before_it_returns_starts_nothing() -> None:
    slow = Slow()
    store = RecordingStore()
    made = agent("hi", pauses=slow)
    async with no_leftovers(), open_runtime(made, events=store) as runtime:
        with trio.CancelScope() as scope:
            scope.cancel()
            await runtime.start_run("c", "go")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(runtime.start_run, "c", "go")
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        assert store.everything == []
        slow.gate.set()
        run = await runtime.start_run("c", "go")
        assert isinstance(await run.wait(), TurnCompleted)


async def test_the_starter_may_leave_and_the_run_goes_on() -> None:
    """U17, U18"""
    gate = trio.Event()
    async with open_runtime(agent(Say(text="done", before=gate.wait))) as runtime:
        runs: list[Any] = []
        with trio.CancelScope() as scope:
            runs.append(await runtime.start_run("c", "go"))
            scope.cancel()
            await runs[0].wait()
        gate.set()
        assert isinstance(await runs[0].wait(), TurnCompleted)


async def test_a_second_start_is_refused_with_the_id_of_what_runs() -> None:
    """P3"""
    async with open_runtime(agent(FOREVER)) as runtime:
        run = await runtime.start_run("c", "go")
        with pytest.raises(SessionBusyError) as caught:
            await runtime.start_run("c", "go")
        assert caught.value.run_id == run.id


async def test_superseding_stops_the_run_before_the_next_begins() -> None:
    store = RecordingStore()
    async with open_runtime(agent(FOREVER, "done"), events=store) as runtime:
        first = await runtime.start_run("c", "go")
        await trio.testing.wait_all_tasks_blocked()
        second = await runtime.start_run("c", "on", RunOptions(on_busy="supersede"))
        assert await first.wait() == TurnCancelled(reason="superseded")
        assert isinstance(await second.wait(), TurnCompleted)
    assert terminals(store) == ["run/cancelled", "run/finished"]
    check_stream(store.everything)


@pytest.mark.parametrize(
    ("run_id", "stops"), [(None, True), ("label", True), ("other", False)]
)
async def test_a_stop_may_name_the_run(run_id: str | None, stops: bool) -> None:
    async with open_runtime(agent(FOREVER)) as runtime:
        run = await runtime.start_run("c", "go", RunOptions(label="label"))
        assert runtime.stop("c", run_id) == stops
        assert runtime.stop("c", run.id) != stops


async def test_there_is_nothing_to_stop_where_nothing_runs() -> None:
    async with open_runtime(agent("hi")) as runtime:
        assert not runtime.stop("c")
        run = await runtime.start_run("c", "go")
        await run.wait()
        assert not runtime.stop("c")


async def test_the_runs_deadline_names_itself(
    autojump_clock: trio.testing.MockClock,
) -> None:
    store = RecordingStore()
    async with open_runtime(agent(FOREVER), events=store) as runtime:
        run = await runtime.start_run("c", "go", RunOptions(deadline_seconds=2.0))
        outcome = await run.wait()
    assert isinstance(outcome, TurnFailed)
    assert isinstance(outcome.error, DeadlineError)
    assert outcome.message == "the run deadline of 2 s fired and cut the run"
    (last,) = [x.event for x in store.everything if isinstance(x.event, e.RunFailed)]
    assert (last.message, last.error_code) == (outcome.message, "deadline")


async def test_a_bug_in_one_run_ends_that_run_alone() -> None:
    """X3: and it is no retryable error of a provider."""

    @hook
    async def bug(call: TurnCall) -> AsyncIterator[None]:
        if call.context.conversation_id == "bad":
            raise KeyError("bug")
        yield

    gate = trio.Event()
    made = agent(
        Say(text="fine", before=gate.wait), filters=[Filter(name="b", turn=bug)]
    )
    async with open_runtime(made) as runtime:
        good = await runtime.start_run("good", "go")
        bad = await runtime.start_run("bad", "go")
        outcome = await bad.wait()
        assert isinstance(outcome, TurnFailed)
        assert (outcome.code, outcome.retryable) == ("internal", False)
        gate.set()
        assert isinstance(await good.wait(), TurnCompleted)


async def test_leaving_by_an_exception_gives_it_plain_and_each_run_its_end() -> None:
    """P2, P4"""
    store = RecordingStore()
    made = agent(FOREVER, FOREVER)
    async with no_leftovers():
        with pytest.raises(KeyError, match="mine"):  # noqa: PT012  that is the case
            async with open_runtime(made, events=store) as runtime:
                for conversation in ("c", "d"):
                    await runtime.start_run(conversation, "go")
                await trio.testing.wait_all_tasks_blocked()
                raise KeyError("mine")
    assert terminals(store) == ["run/cancelled", "run/cancelled"]
    for conversation in ("c", "d"):
        check_stream([x for x in store.everything if x.conversation_id == conversation])


async def test_leaving_stops_what_runs() -> None:
    store = RecordingStore()
    async with no_leftovers():
        async with open_runtime(agent(FOREVER), events=store) as runtime:
            run = await runtime.start_run("c", "go")
        assert run.is_over
    (last,) = [x.event for x in store.everything if isinstance(x.event, e.RunCancelled)]
    assert last.reason == "the runtime was closed"


async def test_a_closed_runtime_takes_no_more_runs() -> None:
    async with open_runtime(agent("hi")) as runtime:
        run = await runtime.start_run("c", "go")
        await run.wait()
        await runtime.close()
        await runtime.close()
        with pytest.raises(RuntimeClosedError):
            await runtime.start_run("c", "go")
        with pytest.raises(RuntimeClosedError):
            await runtime.resume("c", {})
        assert await read_stream(runtime.subscribe("never seen")) == []


async def test_a_start_that_waits_while_the_runtime_closes_is_refused() -> None:
    slow = Slow()
    made = agent("hi", pauses=slow)
    raised: list[Exception] = []

    async def start(runtime: Runtime) -> None:
        try:
            await runtime.start_run("c", "go")
        except RuntimeClosedError as error:
            raised.append(error)

    async with trio.open_nursery() as nursery, open_runtime(made) as runtime:
        nursery.start_soon(start, runtime)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(runtime.close)
        await trio.testing.wait_all_tasks_blocked()
        slow.gate.set()
        await trio.testing.wait_all_tasks_blocked()
        assert len(raised) == 1


async def test_a_reader_gets_the_last_event_and_then_the_end() -> None:
    got: list[Sequence[Any]] = []

    async def read(runtime: Runtime) -> None:
        got.append(await read_stream(runtime.subscribe("c", since=0)))

    async with trio.open_nursery() as nursery, open_runtime(agent(FOREVER)) as runtime:
        nursery.start_soon(read, runtime)
        await trio.testing.wait_all_tasks_blocked()
        await runtime.start_run("c", "go")
        await trio.testing.wait_all_tasks_blocked()
    (envelopes,) = got
    check_stream(envelopes)
    assert isinstance(envelopes[-1].event, e.RunCancelled)


async def test_a_reader_may_come_before_the_conversation() -> None:
    got: list[Any] = []

    async def read(runtime: Runtime) -> None:
        async for reading in runtime.subscribe("c"):
            got.append(reading)  # noqa: PERF401  it is looked at on the way

    async with trio.open_nursery() as nursery, open_runtime(agent("hi")) as runtime:
        nursery.start_soon(read, runtime)
        await trio.testing.wait_all_tasks_blocked()
        assert got == [e.Resync(conversation_id="c", seq=0, messages=())]
        run = await runtime.start_run("c", "go")
        await run.wait()
        await trio.testing.wait_all_tasks_blocked()
        check_stream(got[1:])


@pytest.mark.parametrize("since", [99, None])
async def test_a_number_that_was_never_given_is_a_gap(since: int | None) -> None:
    """P1, P7, U20"""
    async with open_runtime(agent("hi")) as runtime:
        run = await runtime.start_run("c", "go")
        await run.wait()
        first = await anext(aiter(runtime.subscribe("c", since=since)))
        assert isinstance(first, e.Resync)
        status = await runtime.status("c")
        assert first.seq == status.seq
        assert [m.text for m in first.messages] == ["go", "hi"]


async def test_a_reader_that_fell_behind_the_ring_is_told() -> None:
    """P7"""
    store = InMemoryEventStore(max_events=3)
    async with open_runtime(agent("hi"), events=store) as runtime:
        reader = runtime.subscribe("c", since=0)
        run = await runtime.start_run("c", "go")
        await run.wait()
        readings = await reader.batch()
        assert [type(each) for each in readings] == [e.Resync]
        assert readings[0].seq == store.head("c")


async def test_cancelling_a_read_loses_nothing() -> None:
    async with open_runtime(agent("hi")) as runtime:
        reader = runtime.subscribe("c", since=0)
        with trio.CancelScope() as scope:
            scope.cancel()
            await reader.batch()
        run = await runtime.start_run("c", "go")
        await run.wait()
        envelopes: Any = await reader.batch()
        check_stream(envelopes)


async def test_eviction_keeps_numbers_and_history(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """P1"""
    store = RecordingStore()
    made = agent("one", "two")
    async with open_runtime(made, events=store, idle_seconds=10) as runtime:
        first = await runtime.start_run("c", "go")
        await first.wait()
        late = runtime.subscribe("c", since=2)
        head = store.head("c")
        await trio.sleep(20)
        assert runtime._sessions == {}
        status = await runtime.status("c")
        assert (status.seq, status.phase) == (head, Phase.IDLE)
        (gap,) = await late.batch()
        assert isinstance(gap, e.Resync)
        assert [m.text for m in gap.messages] == ["go", "one"]
        second = await runtime.start_run("c", "on")
        await second.wait()
    check_stream(store.everything)


async def test_a_conversation_that_is_read_is_not_evicted(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async def read(runtime: Runtime) -> None:
        await read_stream(runtime.subscribe("c"))

    idle = open_runtime(agent("one"), idle_seconds=10)
    async with trio.open_nursery() as nursery, idle as runtime:
        nursery.start_soon(read, runtime)
        await trio.sleep(100)
        assert list(runtime._sessions) == ["c"]


async def test_a_pause_survives_eviction(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """U30"""
    store = RecordingStore()
    made = agent(call("delete", id="d"), "done")
    async with open_runtime(made, events=store, idle_seconds=10) as runtime:
        run = await runtime.start_run("c", "go")
        assert isinstance(await run.wait(), TurnPaused)
        await trio.sleep(20)
        status = await runtime.status("c")
        assert (status.phase, [i.id for i in status.interrupts]) == (
            Phase.PAUSED,
            ["d"],
        )
        resumed = await runtime.resume("c", {"d": Approve()})
        assert isinstance(await resumed.wait(), TurnCompleted)
    check_stream(store.everything)


async def test_a_pause_refuses_a_start_and_stays_unless_it_is_discarded() -> None:
    store = RecordingStore()
    made = agent(call("delete", id="d"), "on")
    async with open_runtime(made, events=store) as runtime:
        run = await runtime.start_run("c", "go")
        await run.wait()
        with pytest.raises(SessionPausedError):
            await runtime.start_run("c", "on")
        with pytest.raises(AnswerError):
            await runtime.resume("c", {"x": Deny()})
        assert (await runtime.status("c")).phase is Phase.PAUSED
        after = await runtime.start_run("c", "on", RunOptions(discard_pause=True))
        assert isinstance(await after.wait(), TurnCompleted)
        with pytest.raises(NotPausedError):
            await runtime.resume("c", {"d": Approve()})
    check_stream(store.everything)


async def test_forgetting_ends_readers_and_keeps_the_number() -> None:
    """P1"""
    store = RecordingStore()
    made = agent(FOREVER, "again")
    got: list[Sequence[Any]] = []

    async def read(runtime: Runtime, since: int | None) -> None:
        got.append(await read_stream(runtime.subscribe("c", since=since)))

    async with open_runtime(made, events=store) as runtime:
        with trio.fail_after(5):
            async with trio.open_nursery() as nursery:
                run = await runtime.start_run("c", "go")
                for since in (0, None):
                    nursery.start_soon(read, runtime, since)
                await trio.testing.wait_all_tasks_blocked()
                await runtime.forget("c")
        assert await run.wait() == TurnCancelled(reason="forgotten")
        for readings in got:
            last = readings[-1]
            assert isinstance(last, e.Envelope)
            assert isinstance(last.event, e.RunCancelled)
        head = store.head("c")
        assert await made.history("c") == ()
        again = await runtime.start_run("c", "hello")
        assert again.since == head
        await again.wait()
    check_stream(store.everything)


async def test_a_reader_who_was_away_when_it_was_forgotten_reads_on_to_the_end() -> (
    None
):
    async with open_runtime(agent("one", "two")) as runtime:
        reader = runtime.subscribe("c", since=0)
        run = await runtime.start_run("c", "go")
        await run.wait()
        first = await anext(aiter(reader))
        assert first.seq == 1
        await runtime.forget("c")
        rest = await read_stream(reader)
        assert isinstance(rest[-1], e.Envelope)
        assert isinstance(rest[-1].event, e.RunFinished)


async def test_agents_are_chosen_by_name() -> None:
    store = RecordingStore()
    both = [agent("from a", name="a"), agent("from b", name="b")]
    async with open_runtime(both, events=store) as runtime:
        assert runtime.agents.ids == ("a", "b")
        texts = []
        for number, name in enumerate(["a", "b"]):
            options = RunOptions(agent=name, label=name)
            run = await runtime.start_run(f"c{number}", "go", options)
            outcome = await run.wait()
            assert isinstance(outcome, TurnCompleted)
            texts.append(outcome.text)
        with pytest.raises(UnknownAgentError, match="no agent 'x'; there are 'a', 'b'"):
            await runtime.start_run("c", "go", RunOptions(agent="x"))
        with pytest.raises(UnknownAgentError):
            runtime.subscribe("c", agent="x")
    assert texts == ["from a", "from b"]
    started = [x.event for x in store.everything if isinstance(x.event, e.RunStarted)]
    assert [(event.agent, event.label) for event in started] == [("a", "a"), ("b", "b")]


async def test_a_pause_of_another_agent_is_not_lost() -> None:
    """P5, P6: a conversation has one open pause, whoever opened it."""
    store = RecordingStore()
    both = [agent("hi", name="a"), agent(call("delete", id="d"), "done", name="b")]
    async with open_runtime(both, events=store) as runtime:
        run = await runtime.start_run("c", "go", RunOptions(agent="b"))
        assert isinstance(await run.wait(), TurnPaused)
        with pytest.raises(SessionStateError, match="is with agent 'b'"):
            await runtime.start_run("c", "go", RunOptions(agent="a"))
        resumed = await runtime.resume("c", {"d": Approve()}, RunOptions(agent="b"))
        assert isinstance(await resumed.wait(), TurnCompleted)
    check_stream(store.everything)


def test_the_first_agent_is_the_default_one_unless_another_is_named_so() -> None:
    a, b, default = agent(name="a"), agent(name="b"), agent()
    assert AgentRegistry([a, b]).get("default") is a
    assert AgentRegistry([a, default]).get("default") is default


def test_a_registry_has_agents_and_each_name_once() -> None:
    with pytest.raises(ValueError, match="there is no agent"):
        AgentRegistry([])
    with pytest.raises(ValueError, match="two agents are named 'default'"):
        AgentRegistry([agent(), agent()])


async def test_message_ids_that_a_client_uses_again_are_replaced() -> None:
    """U20: what the user says is never taken for what was said before."""
    made = agent("one", "two")
    async with open_runtime(made) as runtime:
        for text in ("first", "second"):
            said = [UserMessage(id="1", content=text), UserMessage(id="1", content="!")]
            run = await runtime.start_run("c", said)
            await run.wait()
        history = await made.history("c")
        assert [m.text for m in history] == ["first", "!", "one", "second", "!", "two"]
        assert len({m.id for m in history}) == 6
        resync = await anext(aiter(runtime.subscribe("c")))
        assert isinstance(resync, e.Resync)
        assert list(resync.messages) == list(history)


async def test_a_second_answer_to_a_pause_finds_nothing_to_resume() -> None:
    """X24"""
    made = agent(call("delete", id="d"), "done")
    async with open_runtime(made) as runtime:
        run = await runtime.start_run("c", "go")
        await run.wait()
        outcomes: list[str] = []

        async def answer() -> None:
            try:
                resumed = await runtime.resume("c", {"d": Approve()})
            except (SessionBusyError, NotPausedError) as error:
                outcomes.append(error.code)
            else:
                await resumed.wait()
                outcomes.append("ran")

        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(answer)
        assert outcomes.count("ran") == 1


async def test_readers_see_the_arguments_that_a_person_put_in() -> None:
    """X22: with the result, in a resync, and in the history alike."""

    @tool(sensitive=True)
    async def wipe(name: str) -> str:
        """Wipe."""
        await trio.lowlevel.checkpoint()
        return f"wiped {name}"

    asks = [call("wipe", id="w1", name="x"), call("wipe", id="w2", name="y")]
    made = Agent(model=ScriptedModel([asks, "done"]), tools=[wipe])
    store = RecordingStore()
    edited = {"name": "z"}
    async with open_runtime(made, events=store) as runtime:
        run = await runtime.start_run("c", "go")
        await run.wait()
        answers = {"w1": Approve(), "w2": Approve(arguments=edited)}
        resumed = await runtime.resume("c", answers)
        await resumed.wait()
        resync = await anext(aiter(runtime.subscribe("c")))
        history = await made.history("c")
    told = [each.event for each in store.everything]
    given = {t.call_id: t.edited_arguments for t in told if type(t) is e.ToolReturned}
    assert given == {"w1": None, "w2": edited}
    assert isinstance(resync, e.Resync)
    assert list(resync.messages) == list(history)
    assert [c.arguments["name"] for c in tool_calls_of(history[1])] == ["x", "z"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"max_threads": 0}, "max_threads is 0, expected 1 or more"),
        ({"idle_seconds": -1}, "idle_seconds is -1, expected 0 or more"),
        ({"agents": []}, "agent"),
    ],
)
async def test_a_runtime_that_cannot_be_is_refused_plainly(
    options: dict[str, Any], words: str
) -> None:
    given = {"agents": Agent(model=ScriptedModel([])), **options}
    with pytest.raises(ValueError, match=words):
        async with open_runtime(**given):
            pass


@pytest.mark.parametrize("word", ["supersed", "", None, True])
def test_what_to_do_when_busy_is_one_of_two_words(word: Any) -> None:
    with pytest.raises(ValueError, match="expected 'reject' or 'supersede'"):
        RunOptions(on_busy=word)
