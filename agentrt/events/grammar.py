"""What a stream of events may look like, as an acceptor that is fed one by one.

The rules, each with the name that a fault carries:

| rule | says |
| --- | --- |
| `seq` | numbers go up by one, from 1 or from where the reader began |
| `conversation` | a stream is one conversation's |
| `run-order` | a run begins with `run/started`; one run at a time; no run comes twice |
| `terminal` | nothing follows a run's terminal event |
| `block` | text, thinking and arguments lie between their start and their end |
| `block-id` | no id is used for two blocks |
| `empty` | a delta says something |
| `result` | a result answers a call that was fully said, and each call has one |
| `left-open` | a terminal event leaves nothing open; a pause leaves its interrupts |

The emitter asks `fault` before it records an event, so that no stream of ours breaks a
rule; `check` is for streams that somebody else hands us. No I/O.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from attrs import define, field, frozen

from agentrt.events import types as e

__all__ = ["Fault", "Grammar", "find_faults"]


@frozen(kw_only=True)
class Fault:
    """A broken rule."""

    rule: str
    seq: int
    message: str

    def __str__(self) -> str:
        return f"[{self.rule}] at seq {self.seq}: {self.message}"


Broken: TypeAlias = tuple[str, str]
"""A rule's name and what breaks it."""


@define
class Grammar:
    """What one conversation's stream has said so far, and what may come next."""

    seq: int | None = None
    """The last number; None accepts any first one."""

    conversation_id: str | None = field(default=None, init=False)
    run_id: str | None = field(default=None, init=False)
    """The run in flight."""

    open: dict[str, str] = field(factory=dict, init=False)
    """Blocks that have begun and not ended: id to kind, in order of beginning."""

    unanswered: dict[str, str] = field(factory=dict, init=False)
    """Calls that were said and have no result: id to tool name, in order."""

    used_ids: set[str] = field(factory=set, init=False)
    """Of every block that ever began."""

    cut_ids: set[str] = field(factory=set, init=False)
    """Of calls that were cut: no history knows these, and they may not come again."""

    _names: dict[str, str] = field(factory=dict, init=False)
    _ended_runs: set[str] = field(factory=set, init=False)

    def fault(self, run_id: str, event: e.Event) -> Broken | None:
        """Why this event may not come next; None if it may. Changes nothing."""
        if type(event) is e.RunStarted:
            return self._start_fault(run_id)
        if run_id != self.run_id:
            if run_id in self._ended_runs:
                return "terminal", f"{event.tag} of run {run_id!r} after its end"
            return "run-order", f"{event.tag} of run {run_id!r}, which has not started"
        check = CHECKS.get(type(event))
        return None if check is None else check(self, event)

    def accept(self, run_id: str, event: e.Event) -> None:
        """Go on past this event, whether it had a fault or not."""
        if type(event) is e.RunStarted:
            self.run_id = run_id
        apply = APPLY.get(type(event))
        if apply is not None:
            apply(self, event)

    def check(self, envelope: e.Envelope) -> Sequence[Fault]:
        """Every rule that this envelope breaks, and go on past it."""
        faults = [
            Fault(rule=rule, seq=envelope.seq, message=message)
            for rule, message in self._envelope_faults(envelope)
        ]
        broken = self.fault(envelope.run_id, envelope.event)
        if broken is not None:
            faults.append(Fault(rule=broken[0], seq=envelope.seq, message=broken[1]))
        self.accept(envelope.run_id, envelope.event)
        self.seq = envelope.seq
        self.conversation_id = self.conversation_id or envelope.conversation_id
        return faults

    def calls_without_result(self) -> Mapping[str, str]:
        """Calls that are known and not answered, said to the end or not."""
        half_said = {id_: kind for id_, kind in self.open.items() if kind == CALL}
        return {**self.unanswered, **{id_: self._names[id_] for id_ in half_said}}

    def _envelope_faults(self, envelope: e.Envelope) -> Iterable[Broken]:
        if self.seq is not None and envelope.seq != self.seq + 1:
            yield "seq", f"expected {self.seq + 1}, got {envelope.seq}"
        known = self.conversation_id
        if known is not None and envelope.conversation_id != known:
            yield "conversation", f"{envelope.conversation_id!r} among {known!r}"

    def _start_fault(self, run_id: str) -> Broken | None:
        if self.run_id is not None:
            return "run-order", f"run {run_id!r} starts within run {self.run_id!r}"
        if run_id in self._ended_runs:
            return "run-order", f"run {run_id!r} starts a second time"
        return None

    def _begin(self, id_: str, kind: str) -> None:
        self.open[id_] = kind
        self.used_ids.add(id_)

    def _end_run(self) -> None:
        if self.run_id is not None:
            self._ended_runs.add(self.run_id)
        self.run_id = None
        self.open.clear()


TEXT: Final = "text"
REASONING: Final = "reasoning"
CALL: Final = "call"


def _may_begin(grammar: Grammar, id_: str, kind: str) -> Broken | None:
    if id_ in grammar.open:
        return "block", f"{kind} {id_!r} begins while it is open"
    if id_ in grammar.used_ids:
        return "block-id", f"{kind} {id_!r} has the id of an earlier block"
    return None


def _is_open(grammar: Grammar, id_: str, kind: str) -> Broken | None:
    if grammar.open.get(id_) != kind:
        return "block", f"{kind} {id_!r} is not open"
    return None


def _says_something(grammar: Grammar, id_: str, kind: str, text: str) -> Broken | None:
    if not text:
        return "empty", f"{kind} {id_!r} got an empty delta"
    return _is_open(grammar, id_, kind)


def _may_return(grammar: Grammar, event: e.ToolReturned) -> Broken | None:
    if event.call_id in grammar.unanswered:
        return None
    if grammar.open.get(event.call_id) == CALL:
        return "result", f"call {event.call_id!r} has a result and is not fully said"
    return "result", f"no call {event.call_id!r} waits for a result"


def _may_end(grammar: Grammar, event: e.TerminalEvent) -> Broken | None:
    if grammar.open:
        id_, kind = next(iter(grammar.open.items()))
        return "left-open", f"{event.tag} leaves {kind} {id_!r} open"
    asked = set()
    if isinstance(event, e.RunPaused):
        asked = {interrupt.call_id for interrupt in event.interrupts}
        if not asked:
            return "left-open", "run/paused names no interrupt"
    left = set(grammar.unanswered)
    if left != asked:
        odd = sorted(left ^ asked)[0]
        return "left-open", f"{event.tag} and the unanswered calls differ in {odd!r}"
    return None


def _return(grammar: Grammar, event: e.ToolReturned) -> None:
    grammar.unanswered.pop(event.call_id, None)


def _end_call(grammar: Grammar, event: e.ToolEnded) -> None:
    grammar.open.pop(event.call_id, None)
    if event.cut:
        grammar.cut_ids.add(event.call_id)
    grammar.unanswered[event.call_id] = grammar._names.get(event.call_id, "")


def _begin_call(grammar: Grammar, event: e.ToolStarted) -> None:
    grammar._begin(event.call_id, CALL)
    grammar._names[event.call_id] = event.name


def _end_message(grammar: Grammar, event: Any) -> None:
    grammar.open.pop(event.message_id, None)


def _end_run(grammar: Grammar, _: e.TerminalEvent) -> None:
    grammar._end_run()


CHECKS: Final[Mapping[type, Callable[[Grammar, Any], Broken | None]]] = {
    e.MessageStarted: lambda g, event: _may_begin(g, event.message_id, TEXT),
    e.MessageDelta: lambda g, event: _says_something(
        g, event.message_id, TEXT, event.text
    ),
    e.MessageEnded: lambda g, event: _is_open(g, event.message_id, TEXT),
    e.ReasoningStarted: lambda g, event: _may_begin(g, event.message_id, REASONING),
    e.MessageThinking: lambda g, event: _says_something(
        g, event.message_id, REASONING, event.text
    ),
    e.ReasoningEnded: lambda g, event: _is_open(g, event.message_id, REASONING),
    e.ToolStarted: lambda g, event: _may_begin(g, event.call_id, CALL),
    e.ToolArgsDelta: lambda g, event: _says_something(
        g, event.call_id, CALL, event.text
    ),
    e.ToolEnded: lambda g, event: _is_open(g, event.call_id, CALL),
    e.ToolReturned: _may_return,
    e.RunFinished: _may_end,
    e.RunFailed: _may_end,
    e.RunCancelled: _may_end,
    e.RunPaused: _may_end,
}

APPLY: Final[Mapping[type, Callable[[Grammar, Any], None]]] = {
    e.MessageStarted: lambda g, event: g._begin(event.message_id, TEXT),
    e.MessageEnded: _end_message,
    e.ReasoningStarted: lambda g, event: g._begin(event.message_id, REASONING),
    e.ReasoningEnded: _end_message,
    e.ToolStarted: _begin_call,
    e.ToolEnded: _end_call,
    e.ToolReturned: _return,
    e.RunFinished: _end_run,
    e.RunFailed: _end_run,
    e.RunCancelled: _end_run,
    e.RunPaused: _end_run,
}


def find_faults(
    envelopes: Iterable[e.Envelope], *, since: int = 0, complete: bool = True
) -> Sequence[Fault]:
    """Every broken rule of one conversation's stream, in order.

    `since` is the number before the first envelope. `complete` says that the stream
    is over, so that a run without a terminal event is a fault too.
    """
    grammar = Grammar(since)
    faults = [fault for envelope in envelopes for fault in grammar.check(envelope)]
    if complete and grammar.run_id is not None:
        message = f"run {grammar.run_id!r} has no terminal event"
        faults.append(Fault(rule="terminal", seq=grammar.seq or 0, message=message))
    return faults
