"""The account of one turn: what it used, what ran, what is being said.

Listens to the events of the turn on their way to the reader, so that a turn that is cut
still knows the text of its last message and what it cost.
"""

from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any, Final

from attrs import define, field

from agentrt.core.chat import Usage, add_usage
from agentrt.core.context import Context
from agentrt.core.errors import (
    AgentRTError,
    MaxIterationsError,
    ModelError,
    deadline_of,
    describe,
)
from agentrt.core.messages import AssistantMessage, Message, ToolCall
from agentrt.core.options import DEFAULT_TURN_OPTIONS, TurnOptions
from agentrt.core.outcomes import (
    CallRecord,
    PauseSnapshot,
    TurnCompleted,
    TurnFailed,
)
from agentrt.events import types as e

__all__ = ["TakenIds", "TurnAccount", "TurnLedger"]


@define
class TurnLedger:
    """What a turn keeps when a filter runs it again: only its budget is new then."""

    given: Mapping[str, Any]
    """The values that the turn began with."""

    values: Mapping[str, Any] = field(init=False)
    """State slots, as the last batch left them."""

    begun: bool = field(default=False, init=False)
    """Whether this is not the first pass."""

    options: TurnOptions = field(default=DEFAULT_TURN_OPTIONS, init=False)
    usage: list[Usage] = field(factory=list, init=False)
    calls: list[CallRecord] = field(factory=list, init=False)
    kept: list[Message] = field(factory=list, init=False)
    """The turn's messages so far, where no memory keeps them."""

    def __attrs_post_init__(self) -> None:
        self.values = self.given


@define
class TakenIds:
    """Call ids that a new call may not have: of the history, and of the stream."""

    _outer: Container[str]
    of_history: set[str] = field(factory=set, init=False)

    def __contains__(self, id_: Any) -> bool:
        return id_ in self.of_history or id_ in self._outer


@define
class TurnAccount:
    """One turn's budget, usage, calls, state, and the message being said."""

    _outer: Context
    limit: int
    """Batches of calls that the turn may run."""

    ledger: TurnLedger
    options: TurnOptions = DEFAULT_TURN_OPTIONS
    remaining: int = field(init=False)
    taken: TakenIds = field(init=False)
    offered: Sequence[str] | None = field(default=None, init=False)
    """Names of the tools that the last call of the model was offered."""

    told: set[str] = field(factory=set, init=False)
    """Ids of the messages that were told as events."""

    message_id: str = field(default="", init=False)
    _texts: list[str] = field(factory=list, init=False)
    _thoughts: list[str] = field(factory=list, init=False)
    _names: dict[str, str] = field(factory=dict, init=False)
    _calls: dict[str, ToolCall] = field(factory=dict, init=False)
    _is_whole: bool = field(default=False, init=False)
    _calls_of_iteration: int = field(default=0, init=False)

    def __attrs_post_init__(self) -> None:
        self.remaining = self.limit
        self.taken = TakenIds(self._outer.taken_ids)

    @property
    def text(self) -> str:
        """What has been said of the last message."""
        return "".join(self._texts)

    def take_up(self, snapshot: PauseSnapshot) -> None:
        """Go on with a paused turn's budget and calls."""
        self.remaining = snapshot.remaining
        self.ledger.calls.extend(snapshot.calls)
        if snapshot.transcript:
            self.ledger.kept = [*snapshot.transcript, *snapshot.results]

    def with_kept(self, messages: Sequence[Message]) -> Sequence[Message]:
        """What the next iteration is asked: what is new, after what was kept here."""
        kept = self.ledger.kept
        if not kept:
            return messages
        known = {message.id for message in kept}
        return [*kept, *(m for m in messages if m.id not in known)]

    def add_usage(self, usage: Usage) -> None:
        """Something else than the model of the turn was asked for it."""
        self.ledger.usage.append(usage)
        self._tell(e.RunUsage(usage=add_usage(self.ledger.usage)))

    def completed(self, **known: Any) -> TurnCompleted:
        """The turn is done."""
        usage, calls = add_usage(self.ledger.usage), tuple(self.ledger.calls)
        return TurnCompleted(usage=usage, calls=calls, **known)

    def failed(self, error: AgentRTError) -> TurnFailed:
        """The turn ends with what was raised on purpose."""
        return TurnFailed(
            message=describe(error),
            code=error.code,
            retryable=isinstance(error, ModelError) and error.retryable,
            deadline=deadline_of(error),
            usage=add_usage(self.ledger.usage),
            calls=tuple(self.ledger.calls),
            error=error,
        )

    def begin_iteration(self) -> None:
        """Nothing is said in it yet."""
        self._calls_of_iteration = 0
        self._forget_said()

    def begin_message(self) -> str:
        """The id of the next answer. Asking again in one iteration costs one.

        Raises:
            MaxIterationsError: nothing is left to pay with.
        """
        self._calls_of_iteration += 1
        if self._calls_of_iteration > 1:
            self.spend()
        return self._outer.begin_message()

    def spend(self) -> None:
        """Use one iteration.

        Raises:
            MaxIterationsError: none is left.
        """
        if self.remaining <= 0:
            raise MaxIterationsError(self.limit)
        self.remaining -= 1

    def emit(self, event: e.Event) -> None:
        """Note what matters and tell it on."""
        note = NOTES.get(type(event))
        if note is not None:
            note(self, event)
        self._tell(event)
        if isinstance(event, e.ModelFinished) and event.usage is not None:
            self.add_usage(event.usage)

    def said(self) -> AssistantMessage | None:
        """The last message as far as it was shown; None if nothing was.

        Without its calls when it was cut: those were never whole.
        """
        calls = tuple(self._calls.values()) if self._is_whole else ()
        if not self._texts and not calls:
            return None
        return AssistantMessage(
            id=self.message_id,
            content=self.text,
            reasoning="".join(self._thoughts),
            tool_calls=calls,
            partial=not self._is_whole,
        )

    def _tell(self, event: e.Event) -> None:
        if self._outer.emit is not None:
            self._outer.emit(event)

    def begin_answer(self, message_id: str) -> None:
        """What is told now is this message, and takes the place of one before."""
        self.message_id = message_id
        self.told.add(message_id)
        self._forget_said()

    def end_answer(self) -> None:
        """The message is whole."""
        self._is_whole = True

    def _begin_said(self, event: e.ModelStarted) -> None:
        self.begin_answer(event.message_id)
        self.offered = event.tools

    def _forget_said(self) -> None:
        self._texts, self._thoughts = [], []
        self._names, self._calls = {}, {}
        self._is_whole = False

    def _say(self, event: e.MessageDelta) -> None:
        self._texts.append(event.text)

    def _think(self, event: e.MessageThinking) -> None:
        self._thoughts.append(event.text)

    def _start_call(self, event: e.ToolStarted) -> None:
        self.taken.of_history.add(event.call_id)
        self._names[event.call_id] = event.name

    def _end_call(self, event: e.ToolEnded) -> None:
        self._calls[event.call_id] = ToolCall(
            id=event.call_id,
            name=self._names.get(event.call_id, ""),
            arguments=event.arguments or {},
        )

    def _end_said(self, event: e.ModelFinished) -> None:
        self._is_whole = event.error is None


NOTES: Final[Mapping[type, Callable[[TurnAccount, Any], None]]] = {
    e.ModelStarted: TurnAccount._begin_said,
    e.MessageDelta: TurnAccount._say,
    e.MessageThinking: TurnAccount._think,
    e.ToolStarted: TurnAccount._start_call,
    e.ToolEnded: TurnAccount._end_call,
    e.ModelFinished: TurnAccount._end_said,
}
