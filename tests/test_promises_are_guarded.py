"""Each promise has a check, and a planted fault that turns the check red.

| promise | check | planted fault |
| --- | --- | --- |
| P1 numbers | `numbers_have_no_hole` | the emitter skips a number |
| P2 one terminal | `each_run_has_one_terminal` | no terminal on a cancellation |
| P3 one run | `one_of_fifty_starts` | a reservation refuses nobody |
| P4 nothing left | `nothing_is_left` | a permit is not given back |
| P5 valid history | `history_is_valid_after_a_stop` | cut calls get no result |
| P6 silence denies | `unclear_answers_deny` | what is not a denial approves |
| P7 slow readers | `a_late_reader_is_told` | the ring does not say what it lost |
| P8 results kept | `results_survive_a_stop` | nothing is saved at the barrier |

The properties of `tests/flow/test_promises.py` and the sweeps of
`tests/flow/test_cancel_sweep.py` check the same over random and over all cases; these
are their smallest instances, so that a fault's name is its test's.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing
from attrs import frozen

from agentrt.agent import second_half
from agentrt.agent.agent import Agent
from agentrt.agent.tool_batch import ToolBatch
from agentrt.agui import intake
from agentrt.core.errors import SessionBusyError
from agentrt.core.history import find_history_faults
from agentrt.core.messages import ToolMessage
from agentrt.core.outcomes import Approve, TurnCancelled
from agentrt.events import emitter
from agentrt.events.types import Envelope, Resync
from agentrt.models.admission import AdmissionPool
from agentrt.models.chat_model import ProviderModel
from agentrt.runtime.runtime import open_runtime
from agentrt.runtime.session import Session
from agentrt.stores.ring import EventRing
from agentrt.testing import Say, ScriptedModel, call, check_stream
from agentrt.tools.base import Tool, tool
from tests.flow.test_cancel_sweep import ScriptedProvider
from tests.flow.worlds import RecordingStore


@tool
async def quick() -> str:
    """Return at once."""
    await trio.lowlevel.checkpoint()
    return "quick"


@tool
async def slow() -> str:
    """Take a while."""
    await trio.sleep(10)
    return "slow"


def agent(*steps: Any, tools: tuple[Tool, ...] = (quick, slow)) -> Agent:
    return Agent(model=ScriptedModel(steps), tools=tools)


async def numbers_have_no_hole() -> None:
    store = RecordingStore()
    async with open_runtime(
        agent(call("quick"), "done", "more"), events=store
    ) as runtime:
        for _ in range(2):
            run = await runtime.start_run("c", "go")
            await run.wait()
        drops = runtime._sessions["c"].drops
    check_stream(store.everything)
    assert drops == 0, f"{drops} events could not be recorded"


async def each_run_has_one_terminal() -> None:
    store = RecordingStore()
    async with open_runtime(agent(call("slow")), events=store) as runtime:
        await runtime.start_run("c", "go")
        await trio.sleep(1)
        runtime.stop("c")
        await trio.sleep(1)
    check_stream(store.everything)


async def one_of_fifty_starts() -> None:
    started: list[str] = []
    busy: list[str] = []

    async with open_runtime(agent(call("slow"), "done")) as runtime:

        async def start() -> None:
            try:
                run = await runtime.start_run("c", "go")
            except SessionBusyError as error:
                busy.append(error.run_id)
            else:
                started.append(run.id)

        async with trio.open_nursery() as nursery:
            for _ in range(50):
                nursery.start_soon(start)
        runtime.stop("c")
    assert (len(started), len(busy)) == (1, 49)
    assert set(busy) == set(started)


async def nothing_is_left() -> None:
    provider: Any = ScriptedProvider(ScriptedModel(["done"]))
    model = ProviderModel(provider=provider, model_id="m")
    tasks = trio.lowlevel.current_statistics().tasks_living
    async with open_runtime(Agent(model=model)) as runtime:
        run = await runtime.start_run("c", "go")
        await run.wait()
    assert trio.lowlevel.current_statistics().tasks_living == tasks
    assert model.admission.in_flight(model.ref) == 0, "a permit is out"


async def history_is_valid_after_a_stop() -> None:
    stopped = agent([call("quick"), call("slow")])
    async with open_runtime(stopped) as runtime:
        run = await runtime.start_run("c", "go")
        await trio.sleep(1)
        runtime.stop("c")
        await run.wait()
        history = await stopped.history("c")
    assert find_history_faults(history) == []


async def unclear_answers_deny() -> None:
    await trio.lowlevel.checkpoint()
    unclear: list[Any] = [
        None,
        {},
        "yes",
        True,
        1,
        {"approved": "true"},
        {"decision": "disapprove"},
    ]
    unclear += [{"approved": False}, {"decision": ""}, {"ok": True}, ["approved"]]
    unclear += [{"decision": {}}, {"decision": ["approved"]}]
    unclear += [{"decision": "approved", "approved": False}, {"approved": 1}]
    for payload in unclear:
        decision = intake.read_decision("resolved", payload)
        assert not isinstance(decision, Approve), f"{payload!r} approves"
    for status in ("cancelled", None, "", "approved"):
        decision = intake.read_decision(status, {"approved": True})
        assert not isinstance(decision, Approve), f"status {status!r} approves"


async def a_late_reader_is_told() -> None:
    store = RecordingStore(max_events=5)
    text = Say(text=["a"] * 50)
    async with open_runtime(agent(text), events=store) as runtime:
        run = await runtime.start_run("c", "go")
        await run.wait()
        first = await anext(runtime.subscribe("c", since=run.since))
    assert isinstance(first, Resync), f"got {first}, and the events before it are gone"
    assert first.seq == store.head("c")


async def results_survive_a_stop() -> None:
    stopped = agent([call("quick"), call("slow")])
    async with open_runtime(stopped) as runtime:
        run = await runtime.start_run("c", "go")
        await trio.sleep(1)
        runtime.stop("c")
        await run.wait()
        history = await stopped.history("c")
    results = [m.text for m in history if isinstance(m, ToolMessage)]
    assert "quick" in results, "what a tool returned is forgotten"


def skip_a_number(patch: pytest.MonkeyPatch) -> None:
    def skipping(**known: Any) -> Envelope:
        skips = known["event"].tag == "iteration/started"
        return Envelope(**{**known, "seq": known["seq"] + skips})

    patch.setattr(emitter, "Envelope", skipping)


def lose_the_terminal(patch: pytest.MonkeyPatch) -> None:
    end_run = Session.end_run

    def losing(self: Session, run: Any, outcome: Any) -> None:
        if isinstance(outcome, TurnCancelled) and self._emitter is not None:
            self._emitter._closed = True
        end_run(self, run, outcome)

    patch.setattr(Session, "end_run", losing)


def refuse_nobody(patch: pytest.MonkeyPatch) -> None:
    def reserve(self: Session, run: Any) -> None:
        self.run = run

    patch.setattr(Session, "reserve", reserve)
    patch.setattr(Session, "begin_run", lambda self, run, started: None)
    patch.setattr(Session, "context", lambda self, run, *rest: 1 / 0)
    patch.setattr(Session, "end_run", lambda self, run, outcome: run.end(outcome))


def keep_a_permit(patch: pytest.MonkeyPatch) -> None:
    @asynccontextmanager
    async def permit(self: AdmissionPool, key: str) -> AsyncIterator[None]:
        limiter = self._limiters.setdefault(key, trio.CapacityLimiter(8))
        await limiter.acquire_on_behalf_of(object())
        yield

    patch.setattr(AdmissionPool, "permit", permit)


def answer_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ToolBatch, "answer_rest", lambda self, calls, why: None)


def approve_by_default(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(intake, "Deny", lambda reason="": Approve())


def hide_the_gap(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(EventRing, "oldest", property(lambda self: 0))
    patch.setattr(EventRing, "after", lambda self, seq, limit: self._events[-limit:])


def save_nothing(patch: pytest.MonkeyPatch) -> None:
    async def end(self: second_half.SecondHalf, *args: Any) -> None:
        await trio.lowlevel.checkpoint()

    patch.setattr(second_half.SecondHalf, "end", end)


@frozen
class Guard:
    """A promise's check, and the fault that must turn it red."""

    check: Callable[[], Awaitable[None]]
    plant: Callable[[pytest.MonkeyPatch], None]


GUARDS: Mapping[str, Guard] = {
    "P1": Guard(numbers_have_no_hole, skip_a_number),
    "P2": Guard(each_run_has_one_terminal, lose_the_terminal),
    "P3": Guard(one_of_fifty_starts, refuse_nobody),
    "P4": Guard(nothing_is_left, keep_a_permit),
    "P5": Guard(history_is_valid_after_a_stop, answer_nothing),
    "P6": Guard(unclear_answers_deny, approve_by_default),
    "P7": Guard(a_late_reader_is_told, hide_the_gap),
    "P8": Guard(results_survive_a_stop, save_nothing),
}


@pytest.mark.parametrize("promise", GUARDS)
async def test_the_promise_is_kept(
    promise: str, autojump_clock: trio.testing.MockClock
) -> None:
    await GUARDS[promise].check()


@pytest.mark.parametrize("promise", GUARDS)
async def test_a_planted_fault_turns_its_check_red(
    promise: str,
    autojump_clock: trio.testing.MockClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    GUARDS[promise].plant(monkeypatch)
    with pytest.raises(AssertionError):
        await GUARDS[promise].check()
