"""The account of one turn: what it used, what ran, what is being said.

Listens to the events of the turn on their way to the reader, so that a turn that is cut
still knows the text of its last message and what it cost.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from attrs import define, field

from agentrt.core.chat import Usage, add_usage
from agentrt.core.context import Context
from agentrt.core.errors import MaxIterationsError
from agentrt.core.messages import AssistantMessage, Message
from agentrt.core.outcomes import CallRecord, PauseSnapshot
from agentrt.events import types as e

__all__ = ["TurnAccount"]


@define
class TurnAccount:
    """One turn's budget, usage, calls, state, and the message being said."""

    _outer: Context
    limit: int
    """Batches of calls that the turn may run."""

    values: Mapping[str, Any]
    """State slots, as the last batch left them."""

    remaining: int = field(init=False)
    usage: list[Usage] = field(factory=list, init=False)
    calls: list[CallRecord] = field(factory=list, init=False)
    kept: list[Message] = field(factory=list, init=False)
    """The turn's messages so far, where no memory keeps them."""

    told: set[str] = field(factory=set, init=False)
    """Ids of the messages that were told as events."""

    message_id: str = field(default="", init=False)
    _texts: list[str] = field(factory=list, init=False)
    _thoughts: list[str] = field(factory=list, init=False)
    _calls_of_iteration: int = field(default=0, init=False)

    def __attrs_post_init__(self) -> None:
        self.remaining = self.limit

    @property
    def text(self) -> str:
        """What has been said of the last message."""
        return "".join(self._texts)

    def take_up(self, snapshot: PauseSnapshot) -> None:
        """Go on with a paused turn's budget, state and calls."""
        self.remaining = snapshot.remaining
        self.values = {**snapshot.values, **self.values}
        self.calls.extend(snapshot.calls)
        if snapshot.transcript:
            self.kept = [*snapshot.transcript, *snapshot.results]

    def with_kept(self, messages: Sequence[Message]) -> Sequence[Message]:
        """What the next iteration is asked: what is new, after what was kept here."""
        if not self.kept:
            return messages
        known = {message.id for message in self.kept}
        return [*self.kept, *(m for m in messages if m.id not in known)]

    def begin_iteration(self) -> None:
        self._calls_of_iteration = 0

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
        match event:
            case e.MessageDelta():
                self._texts.append(event.text)
            case e.MessageThinking():
                self._thoughts.append(event.text)
            case e.ModelStarted():
                self.message_id = event.message_id
                self.told.add(event.message_id)
                self._texts, self._thoughts = [], []
        self._tell(event)
        if isinstance(event, e.ModelFinished) and event.usage is not None:
            self.usage.append(event.usage)
            self._tell(e.RunUsage(usage=add_usage(self.usage)))

    def partial(self) -> AssistantMessage | None:
        """The message that was cut, as far as it was shown; None if nothing was."""
        if not self._texts:
            return None
        return AssistantMessage(
            id=self.message_id,
            content=self.text,
            reasoning="".join(self._thoughts),
            partial=True,
        )

    def _tell(self, event: e.Event) -> None:
        if self._outer.emit is not None:
            self._outer.emit(event)
