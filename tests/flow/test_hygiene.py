"""What users of other runtimes suffer, and must not here: each kind once.

Cited are the numbers of the collection that the tests were written from.
"""

import contextvars
import logging
import threading
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
import trio
import trio.testing
from attrs import define, field

from agentrt.agent.agent import Agent
from agentrt.agent.approval import Ruling, Verdict
from agentrt.agent.delegation import delegate_tool
from agentrt.agent.subagents import SubagentLimits, Subagents
from agentrt.agent.team import team_filter
from agentrt.core.context import Context
from agentrt.core.errors import ServerError, ToolError
from agentrt.core.history import find_history_faults
from agentrt.core.messages import Message, ToolMessage
from agentrt.core.outcomes import (
    Approve,
    TurnCancelled,
    TurnCompleted,
    TurnFailed,
    TurnPaused,
)
from agentrt.events import types as e
from agentrt.filters.base import ChatCall, Filter, ToolRequest, TurnCall, hook
from agentrt.models.chat_model import ProviderModel
from agentrt.models.retry import RetryPolicy
from agentrt.runtime.runtime import open_runtime
from agentrt.stores.in_memory import InMemoryChatMemory, InMemoryPauseStore
from agentrt.testing import Say, ScriptedModel, call, check_stream, no_leftovers
from agentrt.tools.base import Tool, tool
from tests.models.providers import StepProvider


@pytest.fixture(autouse=True)
def _quiet() -> None:
    logging.getLogger("agentrt").setLevel(logging.CRITICAL)


def results(history: Sequence[Message]) -> Sequence[str]:
    return [message.text for message in history if isinstance(message, ToolMessage)]


@define
class Cleaning:
    """Tools that take a while to clean up after themselves."""

    cleaned: list[str] = field(factory=list)
    running: int = 0

    def tool(self, name: str, error: Exception | None = None, **options: Any) -> Tool:
        @tool(name=name, **options)
        async def made(context: Context) -> str:
            """Hang, or fail when the others hang."""
            self.running += 1
            try:
                if error is not None:
                    await trio.testing.wait_all_tasks_blocked()
                    raise error
                await trio.sleep_forever()
            finally:
                with trio.move_on_after(1, shield=True):
                    await trio.sleep(0.6)
                    self.cleaned.append(context.call_id)
                self.running -= 1
            return ""

        return made


BATCH = [call("hang", id=name) for name in "abc"]


async def test_a_cancelled_turn_ends_when_its_tools_have_cleaned_up(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """U1, U5, U6: every cleanup is done when control returns, and nothing is left."""
    world = Cleaning()
    agent = Agent(model=ScriptedModel([BATCH]), tools=[world.tool("hang")])
    async with no_leftovers():
        with trio.move_on_after(5):
            await agent.run("go", conversation_id="c")
        assert sorted(world.cleaned) == ["a", "b", "c"]
    assert find_history_faults(await agent.history("c")) == []


async def test_a_failing_turn_ends_when_its_tools_have_cleaned_up(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """U2: one way out for every cause."""
    world = Cleaning()
    fatal = world.tool("fatal", ValueError("boom"), fatal=True)
    agent = Agent(
        model=ScriptedModel([[*BATCH, call("fatal", id="f")]]),
        tools=[world.tool("hang"), fatal],
    )
    async with no_leftovers():
        with pytest.raises(ValueError, match="boom"):
            await agent.run("go", conversation_id="c")
        assert sorted(world.cleaned) == ["a", "b", "c", "f"]
    assert find_history_faults(await agent.history("c")) == []


async def test_a_stop_is_told_when_the_work_has_stopped(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """U7, U8: not before, and however often it is asked for."""
    world = Cleaning()
    agent = Agent(model=ScriptedModel([BATCH]), tools=[world.tool("hang")])
    async with open_runtime(agent) as runtime:
        run = await runtime.start_run("c", "go")
        await trio.sleep(1)
        assert runtime.stop("c")
        for _ in range(3):
            assert not runtime.stop("c")
            await trio.testing.wait_all_tasks_blocked()
            assert world.running == 3
            assert not run.is_over
        assert isinstance(await run.wait(), TurnCancelled)
        assert world.running == 0


async def test_a_stop_reaches_every_step(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """U9, U11: a tool that only waits, in the third iteration."""

    @tool
    async def quick() -> str:
        """Be quick."""
        await trio.lowlevel.checkpoint()
        return "ok"

    world = Cleaning()
    steps: list[Any] = [call("quick"), call("quick"), call("hang", id="h")]
    agent = Agent(model=ScriptedModel(steps), tools=[quick, world.tool("hang")])
    async with open_runtime(agent) as runtime:
        run = await runtime.start_run("c", "go")
        await trio.sleep(1)
        runtime.stop("c", reason="enough")
        outcome = await run.wait()
    assert isinstance(outcome, TurnCancelled)
    assert [each.status for each in outcome.calls] == ["ok", "ok", "cut"]


async def test_only_the_cancellation_leaves_a_cancelled_turn() -> None:
    """U4: no broken channel, no group of odds and ends."""
    agent = Agent(model=ScriptedModel([Say(before=trio.sleep_forever)]))
    seen: list[type[BaseException]] = []

    async def turn() -> None:
        try:
            await agent.run("go", emit=lambda event: None)
        except BaseException as error:
            seen.append(type(error))
            raise

    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(turn)
            await trio.testing.wait_all_tasks_blocked()
            scope.cancel()
    assert seen == [trio.Cancelled]


async def test_a_guard_that_trips_ends_the_model_call_beside_it() -> None:
    """U12: both are in one nursery, which the guard's filter owns."""
    cut: list[str] = []

    async def talk() -> None:
        try:
            await trio.sleep_forever()
        finally:
            cut.append("model")

    @hook
    async def guard(call: ChatCall) -> AsyncIterator[None]:
        async def watch() -> None:
            await trio.testing.wait_all_tasks_blocked()
            raise ToolError("that may not be asked")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch)
            yield

    agent = Agent(
        model=ScriptedModel([Say(before=talk)]),
        filters=[Filter(name="guard", chat=guard)],
    )
    async with no_leftovers():
        outcome = await agent.run("go")
    assert isinstance(outcome, TurnFailed)
    assert (outcome.message, cut) == ("that may not be asked", ["model"])


async def test_a_team_has_ended_before_the_turn_has() -> None:
    """U16: nobody works on for an agent that has handed over."""
    world = Cleaning()
    busy = Agent(
        model=ScriptedModel([call("hang", id="h")]),
        name="busy",
        tools=[world.tool("hang")],
    )
    steps: list[Any] = [call("spawn_agent", agent="busy", task="x"), "done"]
    agent = Agent(model=ScriptedModel(steps), filters=[team_filter([busy])])
    assert isinstance(await agent.run("go"), TurnCompleted)
    assert world.running == 0


async def test_a_run_has_one_start_and_one_end_whatever_it_does() -> None:
    """U21, U22, U14: also over a pause, and nothing comes after the end."""

    @tool(sensitive=True)
    async def delete() -> str:
        """Delete."""
        raise ServerError("down")

    agent = Agent(
        model=ScriptedModel([call("delete", id="d"), ServerError("down")]),
        tools=[delete],
    )
    async with open_runtime(agent) as runtime:
        run = await runtime.start_run("c", "go")
        assert isinstance(await run.wait(), TurnPaused)
        run = await runtime.resume("c", {"d": Approve()})
        assert isinstance(await run.wait(), TurnFailed)
        envelopes = runtime._events.ring("c").after(0, limit=1000)
    check_stream(envelopes)
    starts = [x for x in envelopes if isinstance(x.event, e.RunStarted)]
    ends = [x for x in envelopes if isinstance(x.event, e.TerminalEvent)]
    assert (len(starts), len(ends)) == (2, 2)
    assert envelopes[-1] is ends[-1]


async def test_every_event_names_its_run_and_its_message() -> None:
    """U23"""
    agent = Agent(model=ScriptedModel([Say(text=["a", "b"]), "c"]))
    async with open_runtime(agent) as runtime:
        runs = []
        for _ in range(2):
            run = await runtime.start_run("c", "go")
            await run.wait()
            runs.append(run.id)
        envelopes = runtime._events.ring("c").after(0, limit=1000)
    assert list(dict.fromkeys(x.run_id for x in envelopes)) == runs
    ids = [x.event.message_id for x in envelopes if isinstance(x.event, e.MessageDelta)]
    assert (len(ids), len(set(ids))) == (3, 2)


async def test_a_pause_cannot_be_overwritten_by_a_later_turn() -> None:
    """U31: while it is open nothing else runs that could save an older one."""

    @tool(sensitive=True)
    async def delete() -> str:
        """Delete."""
        await trio.lowlevel.checkpoint()
        return "deleted"

    pauses = InMemoryPauseStore()
    agent = Agent(
        model=ScriptedModel([call("delete", id="d"), "done"]),
        tools=[delete],
        pauses=pauses,
    )
    async with open_runtime(agent) as runtime:
        run = await runtime.start_run("c", "go")
        await run.wait()
        first = await pauses.load("c")
        resumed = await runtime.resume("c", {"d": Approve()})
        await resumed.wait()
        assert first is not None
        assert await pauses.load("c") is None
        assert await pauses.take("c", first.id) is None


async def test_what_is_open_is_data_and_not_the_order_of_messages() -> None:
    """U32: something else at the end of the history hides no question."""

    @tool(sensitive=True)
    async def delete() -> str:
        """Delete."""
        await trio.lowlevel.checkpoint()
        return "deleted"

    memory = InMemoryChatMemory()
    agent = Agent(
        model=ScriptedModel([call("delete", id="d"), "done"]),
        tools=[delete],
        memory=memory,
    )
    await agent.run("go", conversation_id="c")
    note = ToolMessage(call_id="elsewhere", name="x", content="late")
    await memory.append("c", [note])
    assert await agent.is_paused("c")
    outcome = await agent.resume("c", {"d": Approve()})
    assert isinstance(outcome, TurnCompleted)
    assert "deleted" in results(await agent.history("c"))


async def test_a_sibling_that_crashes_takes_no_question_along() -> None:
    """U34, U26, U28: what all calls come to is known before the turn decides."""
    ran: list[str] = []

    @tool(sensitive=True)
    async def delete(context: Context) -> str:
        """Delete."""
        await trio.lowlevel.checkpoint()
        ran.append(context.call_id)
        return "deleted"

    @tool
    async def crash() -> str:
        """Crash."""
        await trio.lowlevel.checkpoint()
        raise RuntimeError("bug")

    batch = [call("delete", id="x"), call("crash", id="y"), call("delete", id="z")]
    agent = Agent(model=ScriptedModel([batch, "done"]), tools=[delete, crash])
    paused = await agent.run("go", conversation_id="c")
    assert isinstance(paused, TurnPaused)
    assert [each.id for each in paused.interrupts] == ["x", "z"]
    await agent.resume("c", {"x": Approve(), "z": Approve()})
    assert sorted(ran) == ["x", "z"]
    history = await agent.history("c")
    assert sorted(results(history)) == ["deleted", "deleted", "error: bug"]
    assert find_history_faults(history) == []


async def test_a_guard_that_trips_after_a_tool_ran_forgets_no_effect() -> None:
    """U37, U39: what was done is kept, whatever rejects the answer."""

    @tool
    async def pay() -> str:
        """Pay."""
        await trio.lowlevel.checkpoint()
        return "paid"

    @hook
    async def guard(call: TurnCall) -> AsyncIterator[None]:
        yield
        raise ToolError("this answer may not be shown")

    agent = Agent(
        model=ScriptedModel([call("pay"), "secret"]),
        tools=[pay],
        filters=[Filter(name="guard", turn=guard)],
    )
    with pytest.raises(ToolError):
        await agent.run("go", conversation_id="c")
    assert results(await agent.history("c")) == ["paid"]


async def test_numbers_and_versions_are_integers() -> None:
    """U38: nothing is decided by comparing times."""
    agent = Agent(model=ScriptedModel(["hi"]))
    async with open_runtime(agent, clock=lambda: 0.0) as runtime:
        run = await runtime.start_run("c", "go")
        await run.wait()
        seqs = [x.seq for x in runtime._events.ring("c").after(0, limit=100)]
    assert seqs == list(range(1, len(seqs) + 1))


WHO: contextvars.ContextVar[str] = contextvars.ContextVar("WHO", default="nobody")


def spans(seen: list[str]) -> Filter:
    """Sets a variable on the way in and puts it back on the way out, in every hook."""

    def span(name: str) -> Any:
        @hook
        async def around(call: Any) -> AsyncIterator[None]:
            token = WHO.set(name)
            try:
                yield
            finally:
                WHO.reset(token)
                seen.append(name)

        return around

    return Filter(
        name="spans",
        turn=span("turn"),
        iteration=span("iteration"),
        chat=span("chat"),
        tool=span("tool"),
    )


@pytest.mark.parametrize("ends", ["well", "cut"])
async def test_a_span_is_closed_by_the_task_that_opened_it(
    ends: str, autojump_clock: trio.testing.MockClock
) -> None:
    """U44, B43: and tools see what surrounds them, one alone or several."""
    seen: list[str] = []

    @tool
    async def look() -> str:
        """Look."""
        if ends == "cut":
            await trio.sleep_forever()
        await trio.lowlevel.checkpoint()
        return WHO.get()

    steps: list[Any] = [call("look"), [call("look"), call("look")], "done"]
    agent = Agent(model=ScriptedModel(steps), tools=[look], filters=[spans(seen)])
    with trio.move_on_after(1):
        await agent.run("go", conversation_id="c")
    assert set(seen) == {"turn", "iteration", "chat", "tool"}
    assert WHO.get() == "nobody"
    if ends == "well":
        assert results(await agent.history("c")) == ["tool", "tool", "tool"]


def test_an_agent_serves_one_event_loop_after_another() -> None:
    """U46: it holds nothing that belongs to a loop."""
    provider = StepProvider(["one", "two"])
    agent = Agent(model=ProviderModel(provider=provider, model_id="m"))
    for text in ("one", "two"):
        outcome = trio.run(agent.run, "go")
        assert isinstance(outcome, TurnCompleted)
        assert outcome.text == text


@pytest.mark.parametrize("ends", ["well", "badly", "cut"])
async def test_a_conversation_without_an_id_leaves_nothing(ends: str) -> None:
    """X9, B53, U43"""
    memory = InMemoryChatMemory()
    step: Any = {"well": "hi", "badly": ServerError("down")}.get(ends)
    step = step or Say(before=trio.sleep_forever)
    agent = Agent(model=ScriptedModel([step]), memory=memory)
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(agent.run, "go")
            await trio.testing.wait_all_tasks_blocked()
            scope.cancel()
    assert dict(memory._histories) == {}


async def test_a_conversation_without_an_id_that_pauses_can_be_resumed() -> None:
    @tool(sensitive=True)
    async def delete() -> str:
        """Delete."""
        await trio.lowlevel.checkpoint()
        return "deleted"

    agent = Agent(model=ScriptedModel([call("delete", id="d"), "ok"]), tools=[delete])
    paused = await agent.run("go")
    assert isinstance(paused, TurnPaused)
    outcome = await agent.resume(paused.conversation_id, {"d": Approve()})
    assert isinstance(outcome, TurnCompleted)


async def test_a_filter_sees_one_call_however_often_it_is_sent(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """B28"""
    seen: list[str] = []

    @hook
    async def count(call: ChatCall) -> AsyncIterator[None]:
        seen.append("in")
        yield
        seen.append("out")

    provider = StepProvider([ServerError("no"), ServerError("no"), "there"])
    model = ProviderModel(provider=provider, model_id="m", retry=RetryPolicy())
    agent = Agent(model=model, filters=[Filter(name="count", chat=count)])
    outcome = await agent.run("go")
    assert isinstance(outcome, TurnCompleted)
    assert (len(provider.requests), seen) == (3, ["in", "out"])


async def test_a_policy_is_asked_once_for_each_call() -> None:
    """B45"""
    asked: list[str] = []

    def policy(request: ToolRequest, context: Context) -> Ruling:
        asked.append(request.call.id)
        return Ruling(Verdict.ALLOW)

    @tool
    async def add() -> str:
        """Add."""
        await trio.lowlevel.checkpoint()
        return "2"

    batch = [call("add", id=name) for name in "abc"]
    agent = Agent(model=ScriptedModel([batch, "done"]), tools=[add], approval=policy)
    await agent.run("go")
    assert asked == ["a", "b", "c"]


async def test_what_no_policy_lets_run_does_not_run() -> None:
    """B50: the reference asks an eligibility function; here it is a policy."""
    ran: list[str] = []

    @tool
    async def add() -> str:
        """Add."""
        await trio.lowlevel.checkpoint()
        ran.append("add")
        return "2"

    agent = Agent(
        model=ScriptedModel([[call("add"), call("add")], "done"]),
        tools=[add],
        approval=lambda request, context: Ruling(Verdict.FORBID, "not today"),
    )
    await agent.run("go", conversation_id="c")
    assert ran == []
    history = await agent.history("c")
    assert results(history) == ["This call is not allowed: not today"] * 2
    assert find_history_faults(history) == []


async def test_deltas_are_what_is_new_and_nothing_twice() -> None:
    """B38: as many characters are told as were said, however long the answer is."""
    pieces = [f"piece {number} " for number in range(2_000)]
    agent = Agent(model=ScriptedModel([Say(text=pieces)]))
    told: list[str] = []

    def listen(event: e.Event) -> None:
        if isinstance(event, e.MessageDelta):
            told.append(event.text)

    outcome = await agent.run("go", emit=listen)
    assert isinstance(outcome, TurnCompleted)
    assert told == pieces
    assert outcome.text == "".join(pieces)


async def test_an_id_of_another_turns_team_is_nobody() -> None:
    """X27: and without a turn there is no team at all."""
    gate = trio.Event()
    helper = Agent(model=ScriptedModel([Say(before=trio.sleep_forever)]), name="helper")
    shared = team_filter([helper], subagents=Subagents(SubagentLimits()))

    @tool
    async def hold() -> str:
        """Hold the turn."""
        await gate.wait()
        return "held"

    first = Agent(
        model=ScriptedModel(
            [call("spawn_agent", agent="helper", task="x"), call("hold"), "done"]
        ),
        tools=[hold],
        filters=[shared],
    )
    second = Agent(
        model=ScriptedModel(
            [call("interrupt_agent", id="i", agent_id="helper-1"), "done"]
        ),
        filters=[shared],
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(first.run, "go")
        await trio.testing.wait_all_tasks_blocked()
        await second.run("go", conversation_id="other")
        gate.set()
    (told,) = results(await second.history("other"))
    assert told.startswith("error: there is no subagent 'helper-1' in this turn")
    interrupt = second.client.find_tool("interrupt_agent")
    assert interrupt is not None
    with pytest.raises(ToolError, match="no turn is running"):
        await interrupt.run({"agent_id": "helper-1"}, Context(conversation_id="x"))


@pytest.mark.parametrize("kind", ["async", "in a thread", "subagent"])
async def test_one_call_is_stopped_and_the_turn_goes_on(kind: str) -> None:
    """U15, U10: with a truthful result, and its siblings finish."""
    done = threading.Event()

    @tool
    async def hang() -> None:
        """Hang."""
        await trio.sleep_forever()

    @tool(name="hang")
    def hang_in_thread() -> None:
        """Hang."""
        done.wait(5)

    hangs = Agent(model=ScriptedModel([Say(before=trio.sleep_forever)]), name="s")
    stuck: dict[str, Tool] = {
        "async": hang,
        "in a thread": hang_in_thread,
        "subagent": delegate_tool(hangs, name="hang"),
    }
    gate = trio.Event()

    @tool
    async def work() -> str:
        """Work."""
        await gate.wait()
        return "worked"

    batch = [call("hang", id="h", task="x"), call("work", id="w")]
    agent = Agent(model=ScriptedModel([batch, "done"]), tools=[stuck[kind], work])
    async with open_runtime(agent) as runtime:
        run = await runtime.start_run("c", "go")
        await trio.testing.wait_all_tasks_blocked()
        assert runtime.stop_call("c", "h")
        assert not runtime.stop_call("c", "h")
        await trio.testing.wait_all_tasks_blocked()
        assert not runtime.stop_call("c", "nobody")
        gate.set()
        outcome = await run.wait()
        done.set()
        check_stream(runtime._events.ring("c").after(0, limit=1000))
    assert isinstance(outcome, TurnCompleted)
    assert results(await agent.history("c")) == [
        "This call was cut: somebody stopped it. It may have had effects.",
        "worked",
    ]
    assert [each.status for each in outcome.calls] == ["cut", "ok"]
