"""One conversation that is live: its phase, its run, its sequence of events.

At most one run is in flight, from the moment it is reserved. However it ends, `end_run`
ends it once, in a plain function: one terminal event, then the session is free again.
"""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import trio
from attrs import define, field, frozen

from agentrt.core.context import Context
from agentrt.core.errors import SessionBusyError
from agentrt.core.history import unanswered_calls
from agentrt.core.messages import Message
from agentrt.core.outcomes import (
    CallRecord,
    Interrupt,
    RunAudit,
    TurnCancelled,
    TurnCompleted,
    TurnFailed,
    TurnOutcome,
    TurnPaused,
)
from agentrt.events import types as e
from agentrt.events.emitter import Emitter
from agentrt.events.grammar import Grammar
from agentrt.events.transcript import Transcript
from agentrt.runtime.phases import Action, Phase, next_phase
from agentrt.runtime.run import Run
from agentrt.stores.base import EventStore
from agentrt.stores.ring import EventRing

__all__ = ["Session", "SessionStatus"]


@frozen(kw_only=True)
class SessionStatus:
    """Where a conversation stands."""

    conversation_id: str
    phase: Phase
    seq: int
    """The last number."""

    run_id: str | None = None
    """Of the run in flight."""

    interrupts: Sequence[Interrupt] = ()
    """What waits for an answer."""


@define(eq=False)
class Session:
    """A conversation in one runtime."""

    conversation_id: str
    _events: EventStore
    clock: Callable[[], float] = time.time
    phase: Phase = field(default=Phase.IDLE, init=False)
    run: Run | None = field(default=None, init=False)
    """In flight, or about to be."""

    interrupts: Sequence[Interrupt] = field(default=(), init=False)
    """What waits for an answer."""

    ring: EventRing = field(init=False)
    """Its newest events, as long as the session is kept."""

    transcript: Transcript = field(init=False)
    last_active: float = field(factory=trio.current_time, init=False)
    is_open: bool = field(default=False, init=False)
    opening: trio.Lock = field(factory=trio.Lock, init=False, repr=False)
    _grammar: Grammar = field(init=False)
    _emitter: Emitter | None = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self.ring = self._events.ring(self.conversation_id)
        self.transcript = Transcript(self.conversation_id)
        self._grammar = Grammar(self._events.head(self.conversation_id))

    @property
    def cut_ids(self) -> set[str]:
        """Ids of calls that only the stream knows, and that may not come again."""
        return self._grammar.cut_ids

    @property
    def drops(self) -> int:
        """Events of the last run that could not be recorded."""
        return 0 if self._emitter is None else self._emitter.drops

    def open(
        self,
        history: Sequence[Message],
        interrupts: Sequence[Interrupt],
        cut_ids: Collection[str] = (),
    ) -> None:
        """Take up what is known of the conversation."""
        self._grammar.cut_ids.update(cut_ids)
        self._grammar.used_ids.update(cut_ids)
        self.transcript.messages.extend(history)
        self.interrupts = interrupts
        for call in unanswered_calls(history):
            self._grammar.unanswered[call.id] = call.name
        if interrupts:
            self.phase = Phase.PAUSED
        self.is_open = True

    def status(self) -> SessionStatus:
        return SessionStatus(
            conversation_id=self.conversation_id,
            phase=self.phase,
            seq=self.ring.visible,
            run_id=None if self.run is None else self.run.id,
            interrupts=self.interrupts,
        )

    def resync(self) -> e.Resync:
        """Where the conversation stands at its last visible number."""
        return self.transcript.resync(self.ring.visible, self.interrupts)

    def reserve(self, run: Run) -> None:
        """Hold the session for `run`; nobody else may start one until it is released.

        Raises:
            SessionBusyError: a run is in flight.
        """
        if self.run is not None:
            raise SessionBusyError(self.conversation_id, self.run.id)
        self.run = run
        self.last_active = trio.current_time()

    def release(self, run: Run) -> None:
        """Give up a reservation that came to nothing."""
        if self.run is run:
            self.run = None
            run.end(TurnCancelled(reason="the run was not started"))

    def begin_run(self, run: Run, started: e.RunStarted) -> None:
        """The run that holds the session begins: its first event."""
        # What the pause store said decides, and not what this session last heard.
        is_resume = started.kind == "resume"
        self.phase = Phase.PAUSED if is_resume else Phase.IDLE
        self._go(Action.RESUME if is_resume else Action.START)
        if run.stop_reason is not None:
            self._go(Action.STOP)
        if is_resume:
            run.asked.update(interrupt.call_id for interrupt in self.interrupts)
        self.interrupts = ()
        run.since = self.ring.head
        self._emitter = Emitter(
            conversation_id=self.conversation_id,
            run_id=run.id,
            grammar=self._grammar,
            record=self._events.append,
            recorded=self._recorded,
            clock=self.clock,
        )
        self._emitter.start(started)

    def context(
        self, run: Run, values: Mapping[str, Any], threads: trio.CapacityLimiter
    ) -> Context:
        """What goes down with the run."""
        assert self._emitter is not None
        return Context(
            conversation_id=self.conversation_id,
            run_id=run.id,
            values=values,
            emit=self._emitter.emit,
            begin_message=run.begin_message,
            taken_ids=self._grammar.used_ids,
            leave_behind=run.leftovers.append,
            thread_limiter=threads,
            running_calls=run.running_calls,
        )

    def stop(self, reason: str) -> bool:
        """Ask the run in flight to stop; False if there is none or it was asked."""
        if self.run is None or not self.run.stop(reason):
            return False
        if self.phase is Phase.RUNNING:
            self._go(Action.STOP)
        return True

    def stop_call(self, call_id: str) -> bool:
        """Stop one call of the run in flight; False if it does not run."""
        scope = None if self.run is None else self.run.running_calls.get(call_id)
        if scope is None or scope.cancel_called:
            return False
        scope.cancel(reason="the call was stopped by request")
        return True

    def end_run(self, run: Run, outcome: TurnOutcome) -> None:
        """The run is over: its terminal event, and the session is free. Plain."""
        assert self._emitter is not None
        if isinstance(outcome, TurnCompleted):
            self._tell_untold(run, outcome)
        self._emitter.close(_terminal(run, outcome, self.transcript))
        self._go(Action.PAUSE if isinstance(outcome, TurnPaused) else Action.END)
        self.interrupts = outcome.interrupts if isinstance(outcome, TurnPaused) else ()
        self.run = None
        self.last_active = trio.current_time()
        run.end(outcome)

    def _tell_untold(self, run: Run, outcome: TurnCompleted) -> None:
        """A text that a filter answered with, and that no message has told."""
        assert self._emitter is not None
        if outcome.message is not None or not outcome.text:
            return
        message_id = f"{run.id}-final"
        for event in (
            e.MessageStarted(message_id=message_id),
            e.MessageDelta(message_id=message_id, text=outcome.text),
            e.MessageEnded(message_id=message_id),
        ):
            self._emitter.emit(event)

    def _go(self, action: Action) -> None:
        phase = next_phase(self.phase, action)
        assert phase is not None, f"cannot {action} while {self.phase}"
        self.phase = phase

    def _recorded(self, envelope: e.Envelope) -> None:
        self.transcript.apply(envelope)
        event, run = envelope.event, self.run
        if run is None:
            return
        if isinstance(event, e.RunUsage):
            run.usage = event.usage
        elif isinstance(event, e.ToolStarted):
            run.asked.add(event.call_id)
        elif isinstance(event, e.ToolReturned) and event.call_id in run.asked:
            run.calls[event.call_id] = CallRecord(
                id=event.call_id,
                name=event.name,
                arguments=self.transcript.arguments_of(event.call_id),
                status=event.status,
                content=event.content,
            )


def _terminal(
    run: Run, outcome: TurnOutcome, transcript: Transcript
) -> e.TerminalEvent:
    threads = tuple(each.name for each in run.leftovers if each.is_running())
    known: dict[str, Any] = {
        "label": run.label,
        "usage": outcome.usage,
        "calls": outcome.calls,
        "audit": RunAudit(threads=threads),
    }
    match outcome:
        case TurnCompleted():
            by = outcome.stopped_by
            return e.RunFinished(text=outcome.text, stopped_by=by, **known)
        case TurnPaused():
            return e.RunPaused(interrupts=outcome.interrupts, **known)
        case TurnCancelled():
            return e.RunCancelled(reason=outcome.reason, text=outcome.text, **known)
        case TurnFailed():
            return e.RunFailed(
                message=outcome.message,
                error_code=outcome.code,
                retryable=outcome.retryable,
                deadline=outcome.deadline,
                **known,
            )
