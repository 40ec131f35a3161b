"""One message of the model as events: from deltas while it streams, or all at once.

Also the place where calls get the ids that everybody will know them by: the provider's,
or ours where that is missing, empty, or was used before.
"""

from collections.abc import Callable, Mapping
from itertools import chain, count
from typing import Any

from attrs import define, evolve, field

from agentrt.core.chat import Delta, ReasoningDelta, TextDelta, ToolCallDelta
from agentrt.core.messages import AssistantMessage, ToolCall, text_of_value
from agentrt.events import types as e

__all__ = ["MessageStream"]


@define
class _Call:
    id: str
    name: str = ""
    held: str = ""
    """Arguments that came before the name."""

    anything: bool = False
    """Whether any of the arguments was told."""


@define
class MessageStream:
    """Feed it deltas, then end it once: by `finish`, or by `cut`."""

    message_id: str
    _emit: Callable[[e.Event], None]
    _is_taken: Callable[[str], bool]
    """Whether a call id is in the history or the stream already."""

    _text_is_open: bool = field(default=False, init=False)
    _reasoning_id: str | None = field(default=None, init=False)
    _reasoning_count: int = field(default=0, init=False)
    _calls: dict[int, _Call] = field(factory=dict, init=False)

    def feed(self, delta: Delta) -> None:
        """Tell what is new."""
        match delta:
            case TextDelta():
                self._say(delta.text)
            case ReasoningDelta():
                self._think(delta.text)
            case ToolCallDelta():
                self._call(delta)

    def feed_whole(self, message: AssistantMessage) -> None:
        """Tell a message's words that did not stream."""
        self._think(message.reasoning)
        self._say(message.text)

    def finish(self, message: AssistantMessage) -> AssistantMessage:
        """Close everything; the message with its ids. Text must have been fed."""
        self._close_text()
        calls = [self._end_call(i, call) for i, call in enumerate(message.tool_calls)]
        self._cut_calls(beyond=len(calls))
        if message.id == self.message_id and calls == list(message.tool_calls):
            return message
        return evolve(message, id=self.message_id, tool_calls=tuple(calls))

    def cut(self) -> None:
        """Close what is open: the message will never be whole."""
        self._close_text()
        self._cut_calls(beyond=0)

    def _say(self, text: str) -> None:
        if not text:
            return
        self._close_reasoning()
        if not self._text_is_open:
            self._text_is_open = True
            self._emit(e.MessageStarted(message_id=self.message_id))
        self._emit(e.MessageDelta(message_id=self.message_id, text=text))

    def _think(self, text: str) -> None:
        if not text:
            return
        if self._reasoning_id is None:
            self._reasoning_count += 1
            self._reasoning_id = f"{self.message_id}-reasoning-{self._reasoning_count}"
            self._emit(
                e.ReasoningStarted(
                    message_id=self._reasoning_id, parent_id=self.message_id
                )
            )
        self._emit(e.MessageThinking(message_id=self._reasoning_id, text=text))

    def _call(self, delta: ToolCallDelta) -> None:
        self._close_reasoning()
        call = self._calls.get(delta.index)
        if call is None:
            call = _Call(self._id_for(delta.index, delta.id))
            self._calls[delta.index] = call
        if delta.name and not call.name:
            self._start_call(call, delta.name)
        if not call.name:
            call.held += delta.arguments
            return
        self._argue(call, call.held + delta.arguments)
        call.held = ""

    def _start_call(self, call: _Call, name: str) -> None:
        call.name = name
        self._emit(
            e.ToolStarted(call_id=call.id, name=name, message_id=self.message_id)
        )

    def _argue(self, call: _Call, text: str) -> None:
        if text:
            call.anything = True
            self._emit(e.ToolArgsDelta(call_id=call.id, text=text))

    def _end_call(self, index: int, call: ToolCall) -> ToolCall:
        known = self._calls.get(index)
        if known is None:
            known = _Call(self._id_for(index, call.id))
            self._calls[index] = known
        if not known.name:
            self._start_call(known, call.name)
        if not known.anything:
            raw = call.invalid_arguments
            self._argue(known, text_of_value(call.arguments) if raw is None else raw)
        arguments: Mapping[str, Any] | None = call.arguments
        if call.invalid_arguments is not None:
            arguments = None
        self._emit(e.ToolEnded(call_id=known.id, arguments=arguments))
        return call if call.id == known.id else evolve(call, id=known.id)

    def _cut_calls(self, *, beyond: int) -> None:
        for index, call in self._calls.items():
            if index >= beyond and call.name:
                self._emit(e.ToolEnded(call_id=call.id, cut=True))
                self._emit(
                    e.ToolReturned(
                        call_id=call.id,
                        name=call.name,
                        content="This call was not started: its message was cut.",
                        is_error=True,
                        synthetic=True,
                        status="not_started",
                    )
                )

    def _id_for(self, index: int, given: str) -> str:
        used = {call.id for call in self._calls.values()}
        own = f"{self.message_id}-call-{index + 1}"
        more = (f"{own}-{number}" for number in count(2))
        free = (
            id_
            for id_ in chain([given, own], more)
            if id_ and id_ not in used and not self._is_taken(id_)
        )
        return next(free)

    def _close_text(self) -> None:
        self._close_reasoning()
        if self._text_is_open:
            self._text_is_open = False
            self._emit(e.MessageEnded(message_id=self.message_id))

    def _close_reasoning(self) -> None:
        if self._reasoning_id is not None:
            self._emit(e.ReasoningEnded(message_id=self._reasoning_id))
            self._reasoning_id = None
