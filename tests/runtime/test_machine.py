"""A runtime against a simple model of it: whatever people do, in whatever order."""

import logging
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from typing import Any

import trio
from attrs import define, field
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from agentrt.agent.agent import Agent
from agentrt.core.chat import ChatRequest
from agentrt.core.errors import (
    AgentRTError,
    AnswerError,
    NotPausedError,
    SessionBusyError,
    SessionPausedError,
)
from agentrt.core.history import find_history_faults
from agentrt.core.messages import AssistantMessage, ToolCall, UserMessage
from agentrt.core.outcomes import Approve, Decision, Deny
from agentrt.events.types import Envelope, Resync, TerminalEvent
from agentrt.models.function import FunctionModel
from agentrt.runtime.phases import Phase
from agentrt.runtime.run import Run, RunOptions
from agentrt.runtime.runtime import Runtime, open_runtime
from agentrt.runtime.session import SessionStatus
from agentrt.testing import TrioMachine, check_stream
from agentrt.tools.base import tool
from tests.flow.worlds import CONVERSATION, Reader, RecordingStore

IDLE_SECONDS = 60.0


async def think(request: ChatRequest) -> str | AssistantMessage:
    """Do what the user says: `hang`, `ask` for what must be approved, or answer."""
    last = request.messages[-1]
    if isinstance(last, UserMessage) and last.text == "hang":
        await trio.sleep_forever()
    if isinstance(last, UserMessage) and last.text == "ask":
        calls = (ToolCall(id="", name="delete"), ToolCall(id="", name="delete"))
        return AssistantMessage(id="any", tool_calls=calls)
    return "done"


@tool(sensitive=True)
async def delete() -> str:
    """Delete."""
    await trio.lowlevel.checkpoint()
    return "deleted"


@define
class Model:
    """What the runtime should be like."""

    phase: Phase = Phase.IDLE
    runs: int = 0
    """Runs that began."""

    label: str = ""

    def start(self, said: str) -> None:
        self.runs += 1
        phases = {"hang": Phase.RUNNING, "ask": Phase.PAUSED}
        self.phase = phases.get(said, Phase.IDLE)

    def refusal(self, options: RunOptions) -> type[AgentRTError] | None:
        """Why a start should be refused; None if it should not."""
        if self.phase is Phase.RUNNING and options.on_busy == "reject":
            return SessionBusyError
        if self.phase is Phase.PAUSED and not options.discard_pause:
            return SessionPausedError
        return None


@define
class Wished:
    """A call of the runtime's, and what came of it."""

    call: Callable[[], Any]
    error: AgentRTError | None = field(default=None, init=False)
    result: Any = field(default=None, init=False)

    async def make(self) -> None:
        try:
            self.result = await self.call()
        except AgentRTError as error:
            self.error = error


class RuntimeMachine(TrioMachine):
    """One conversation in one runtime."""

    runtime: Runtime

    async def setup(self) -> None:
        logging.getLogger("agentrt").setLevel(logging.CRITICAL)
        self.model = Model()
        self.store = RecordingStore(max_events=30)
        self.agent = Agent(model=FunctionModel(think), tools=[delete])
        self.current: Run | None = None
        self.readers: list[Reader] = []
        self.seen: list[Reader] = []
        self.stack = AsyncExitStack()
        self.forgotten = 0
        self.runtime = await self.stack.enter_async_context(
            open_runtime(self.agent, events=self.store, idle_seconds=IDLE_SECONDS)
        )

    async def cleanup(self) -> None:
        await self.stack.aclose()
        self.check_numbers(complete=True)
        assert self.terminals() == self.model.runs

    def terminals(self) -> int:
        events = [envelope.event for envelope in self.store.everything]
        return sum(isinstance(event, TerminalEvent) for event in events)

    def check_numbers(self, *, complete: bool) -> None:
        """One row of numbers; forgetting ends one stream and begins another."""
        seqs = [envelope.seq for envelope in self.store.everything]
        assert seqs == list(range(1, len(seqs) + 1))
        rest = self.store.everything[self.forgotten :]
        check_stream(rest, since=self.forgotten, complete=complete)

    def attempt(self, call: Callable[[], Any]) -> Wished:
        wished = Wished(call)
        self.run(wished.make)
        self.settle()
        return wished

    def status(self) -> SessionStatus:
        status: SessionStatus = self.run(self.runtime.status, CONVERSATION)
        return status

    @rule(
        said=st.sampled_from(["hi", "hang", "ask"]),
        supersede=st.booleans(),
        discard=st.booleans(),
        label=st.sampled_from(["", "mine"]),
    )
    def start(self, said: str, supersede: bool, discard: bool, label: str) -> None:
        options = RunOptions(
            label=label,
            on_busy="supersede" if supersede else "reject",
            discard_pause=discard,
        )
        before = self.current
        wished = self.attempt(
            lambda: self.runtime.start_run(CONVERSATION, said, options)
        )
        refusal = self.model.refusal(options)
        if refusal is not None:
            assert type(wished.error) is refusal
            return
        assert wished.error is None
        assert before is None or before.is_over
        assert wished.result.is_over == (said != "hang")
        self.current, self.model.label = wished.result, label
        self.model.start(said)

    @rule(which=st.sampled_from(["any", "id", "label", "foreign"]))
    def stop(self, which: str) -> None:
        names: Mapping[str, str | None] = {
            "any": None,
            "id": "none" if self.current is None else self.current.id,
            "label": "mine",
            "foreign": "somebody else's",
        }
        named = which in {"any", "id"} or (
            which == "label" and self.model.label == "mine"
        )
        expected = self.model.phase is Phase.RUNNING and named
        assert self.runtime.stop(CONVERSATION, names[which]) == expected
        self.settle()
        if expected:
            assert self.current is not None
            assert self.current.is_over
            self.model.phase = Phase.IDLE

    @rule(
        what=st.sampled_from(["all", "partial", "unknown"]),
        decision=st.sampled_from([Approve(), Deny(reason="no")]),
    )
    def resume(self, what: str, decision: Decision) -> None:
        open_ids = [interrupt.id for interrupt in self.status().interrupts]
        answers: dict[str, Decision] = dict.fromkeys(open_ids, decision)
        if what == "partial":
            answers = dict.fromkeys(open_ids[1:], decision)
        elif what == "unknown":
            answers["unknown"] = decision
        wished = self.attempt(lambda: self.runtime.resume(CONVERSATION, answers))
        if self.model.phase is Phase.RUNNING:
            assert type(wished.error) is SessionBusyError
        elif self.model.phase is Phase.IDLE:
            assert type(wished.error) is NotPausedError
        elif what != "all":
            assert type(wished.error) is AnswerError
        else:
            assert wished.error is None
            self.current, self.model.label = wished.result, ""
            self.model.start("resumed")

    @rule()
    def forget(self) -> None:
        self.attempt(lambda: self.runtime.forget(CONVERSATION))
        self.model.phase = Phase.IDLE
        self.forgotten = len(self.store.everything)
        assert self.run(self.agent.history, CONVERSATION) == ()
        assert CONVERSATION not in self.runtime._sessions, "a reader opened it again"
        self.readers.clear()

    @rule(since=st.none() | st.integers(0, 80))
    def subscribe(self, since: int | None) -> None:
        head = self.store.head(CONVERSATION)
        if since == head:
            return
        self.run(self.runtime.status, CONVERSATION)
        oldest = self.store.ring(CONVERSATION).oldest
        reader = self.runtime.subscribe(CONVERSATION, since=since)
        readings = self.run(reader.batch)
        if since is None or since > head or since + 1 < oldest:
            (resync,) = readings
            assert isinstance(resync, Resync)
            assert resync.seq == head
            assert [i.id for i in resync.interrupts] == [
                i.id for i in self.status().interrupts
            ]
        else:
            assert [each.seq for each in readings] == list(range(since + 1, head + 1))
            assert all(isinstance(each, Envelope) for each in readings)

    @rule(since=st.none() | st.integers(0, 80))
    def read_on(self, since: int | None) -> None:
        reader = Reader(since, pace=0.0)
        self.readers.append(reader)
        self.seen.append(reader)
        self.nursery.start_soon(reader.read, self.runtime)
        self.settle()

    @rule()
    def leave(self) -> None:
        for reader in self.readers:
            reader.scope.cancel()
        self.readers.clear()
        self.settle()

    @precondition(lambda self: not self.readers)
    @rule()
    def time_passes(self) -> None:
        self.run(trio.sleep, 2 * IDLE_SECONDS)
        is_running = self.model.phase is Phase.RUNNING
        assert bool(self.runtime._sessions) == is_running

    @invariant()
    def it_is_as_the_model_says(self) -> None:
        status = self.status()
        assert status.phase is self.model.phase
        assert status.seq == self.store.head(CONVERSATION)
        assert bool(status.interrupts) == (self.model.phase is Phase.PAUSED)
        is_running = self.model.phase is Phase.RUNNING
        assert (status.run_id is not None) == is_running
        if is_running:
            assert self.current is not None
            assert status.run_id == self.current.id
        assert self.terminals() == self.model.runs - is_running
        self.check_numbers(complete=not is_running)

    @invariant()
    def histories_are_valid_and_readers_miss_nothing(self) -> None:
        history = self.run(self.agent.history, CONVERSATION)
        waiting = [interrupt.id for interrupt in self.status().interrupts]
        assert find_history_faults(history, open_calls=waiting) == []
        for reader in self.seen:
            reader.check()


TestRuntime = RuntimeMachine.TestCase
TestRuntime.settings = settings(max_examples=60, stateful_step_count=25)
