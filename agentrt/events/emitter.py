"""The emitter of one run: numbers its events, records them, and ends it once.

Number, record and wake-up happen in one plain function, so that no cancellation falls
between them and the order of numbers is the order in which readers get them. An event
that would break the grammar is not recorded: it is counted, and logged as the bug that
it is. Nothing here raises; a store that refuses an event costs that event, and no
number.
"""

import logging
import time
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from typing import Final, Protocol

from attrs import define, evolve, field

from agentrt.events.grammar import CALL, TEXT, Grammar
from agentrt.events.types import (
    Envelope,
    Event,
    MessageEnded,
    ReasoningEnded,
    RunFailed,
    RunPaused,
    RunStarted,
    TerminalEvent,
    ToolEnded,
    ToolReturned,
)

__all__ = ["Emitter", "Recorder"]

LOST: Final = "the end of this run could not be recorded when it came"

logger = logging.getLogger(__name__)


class Recorder(Protocol):
    """Where envelopes go; a store's `append`."""

    def __call__(self, envelope: Envelope, /) -> None: ...


@define(kw_only=True)
class Emitter:
    """Tells what happens in one run. Not for use from another thread."""

    conversation_id: str
    run_id: str
    grammar: Grammar
    """The conversation's, shared by its runs one after another."""

    record: Recorder
    recorded: Recorder = field(default=lambda envelope: None)
    """Told of each envelope once it is recorded."""

    clock: Callable[[], float] = time.time
    """Seconds since the epoch."""

    drops: int = field(default=0, init=False)
    """Events that could not be recorded."""

    _start: RunStarted | None = field(default=None, init=False)
    """What could not be recorded yet; it is tried again before the next event."""

    _closed: bool = field(default=False, init=False)

    def start(self, event: RunStarted) -> None:
        """Begin the run. One before it that could not be ended is ended first."""
        self._start = event
        self._ensure_started()

    def emit(self, event: Event) -> None:
        """Number and record `event`, if it may come next and the run is not over."""
        if self._closed:
            self._drop(event, "the run is over")
            return
        if isinstance(event, TerminalEvent):
            self._drop(event, "only `close` ends a run")
            return
        if self._start is not None:
            self._ensure_started()
        self._emit(event)

    def close(self, terminal: TerminalEvent) -> None:
        """End the run: close what is open, then the terminal event. Once."""
        if self._closed:
            return
        if self._start is not None:
            self._ensure_started()
        self._close_blocks()
        asked = terminal.interrupts if isinstance(terminal, RunPaused) else ()
        self._answer_calls(terminal.tag, but={interrupt.call_id for interrupt in asked})
        self._emit(terminal)
        self._closed = True

    def _ensure_started(self) -> None:
        lost = self.grammar.run_id
        if lost is not None:
            before = evolve(self, run_id=lost)
            before.close(RunFailed(message=LOST, error_code="terminal_lost"))
        if self._start is not None and self._emit(self._start):
            self._start = None

    def _emit(self, event: Event) -> bool:
        """Whether it was recorded."""
        broken = self.grammar.fault(self.run_id, event)
        if broken is not None and broken[0] != "left-open":
            self._drop(event, broken[1])
            return False
        seq = (self.grammar.seq or 0) + 1
        envelope = Envelope(
            seq=seq,
            conversation_id=self.conversation_id,
            run_id=self.run_id,
            at=self.clock(),
            event=event,
        )
        try:
            self.record(envelope)
        except Exception as error:  # noqa: BLE001  a store's failure must end no run
            self._drop(event, f"the store raised {error!r}")
            return False
        self.grammar.seq = seq
        self.grammar.accept(self.run_id, event)
        try:
            self.recorded(envelope)
        except Exception:
            # A listener's failure must not end the run that it listens to.
            logger.exception("a listener failed at %s %d", event.tag, seq)
        return True

    def _close_blocks(self) -> None:
        for id_, kind in list(self.grammar.open.items())[::-1]:
            if kind == CALL:
                self._emit(ToolEnded(call_id=id_, cut=True))
            elif kind == TEXT:
                self._emit(MessageEnded(message_id=id_))
            else:
                self._emit(ReasoningEnded(message_id=id_))

    def _answer_calls(self, why: str, *, but: AbstractSet[str]) -> None:
        """No call stays without a result, unless a person is to answer it."""
        text = f"The call did not complete: the run ended ({why})."
        for id_, name in list(self.grammar.unanswered.items()):
            if id_ not in but:
                self._emit(
                    ToolReturned(
                        call_id=id_,
                        name=name,
                        content=text,
                        is_error=True,
                        synthetic=True,
                        status="cut",
                    )
                )

    def _drop(self, event: Event, why: str) -> None:
        self.drops += 1
        logger.error(
            "run %s of %s: %s was not recorded: %s",
            self.run_id,
            self.conversation_id,
            event.tag,
            why,
        )
