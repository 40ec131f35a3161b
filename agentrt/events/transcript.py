"""A conversation as its readers know it: messages, built from events one by one.

Kept beside the stream, so that a reader who cannot be given every event gets the state
at one number: finished messages, and what was still streaming. It holds what was
*shown*: where a token transform changed the stream, that, and not the stored text.
No I/O.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from attrs import define, field

from agentrt.core.messages import (
    AssistantMessage,
    Message,
    ToolCall,
    ToolMessage,
    with_edits,
)
from agentrt.core.outcomes import Interrupt
from agentrt.events import types as e

__all__ = ["Transcript"]


@define
class _Block:
    id: str
    texts: list[str] = field(factory=list)
    is_open: bool = True


@define
class _Call:
    name: str
    texts: list[str] = field(factory=list)
    arguments: Mapping[str, Any] | None = None
    is_open: bool = True

    def build(self, id_: str) -> ToolCall:
        if self.arguments is not None:
            return ToolCall(id=id_, name=self.name, arguments=self.arguments)
        text = None if self.is_open else "".join(self.texts)
        return ToolCall(id=id_, name=self.name, invalid_arguments=text)


@define
class _Draft:
    """A message of the model that is still being said."""

    id: str
    texts: list[str] = field(factory=list)
    text_is_open: bool = False
    blocks: list[_Block] = field(factory=list)
    calls: dict[str, _Call] = field(factory=dict)

    def build(self, *, partial: bool) -> AssistantMessage:
        return AssistantMessage(
            id=self.id,
            content="".join(self.texts),
            reasoning="".join(text for block in self.blocks for text in block.texts),
            tool_calls=tuple(call.build(id_) for id_, call in self.calls.items()),
            partial=partial,
        )

    def has_begun(self) -> bool:
        return bool(self.texts or self.blocks or self.calls)

    def is_empty(self) -> bool:
        """Whether no history will keep it: thinking alone is not kept."""
        return not (self.texts or self.calls)


@define
class Transcript:
    """Feed it each envelope as it becomes visible; ask it for a `Resync`."""

    conversation_id: str
    messages: list[Message] = field(factory=list)
    """Finished ones, in order."""

    reasoning: list[e.ReasoningBlock] = field(factory=list, init=False)
    run_id: str | None = field(default=None, init=False)
    run_seq: int | None = field(default=None, init=False)
    _drafts: dict[str, _Draft] = field(factory=dict, init=False)
    _owners: dict[str, _Draft] = field(factory=dict, init=False)
    """By the id of a reasoning block or call: the draft that it is part of."""

    def apply(self, envelope: e.Envelope) -> None:
        handle = HANDLERS.get(type(envelope.event))
        if handle is not None:
            handle(self, envelope.event)
        if type(envelope.event) is e.RunStarted:
            self.run_id, self.run_seq = envelope.run_id, envelope.seq

    def resync(self, seq: int, interrupts: Sequence[Interrupt] = ()) -> e.Resync:
        """Everything up to `seq`, which is the last number that was applied."""
        drafts = list(self._drafts.values())
        calls = [item for draft in drafts for item in draft.calls.items()]
        open_calls = {id_: call for id_, call in calls if call.is_open}
        texts = [draft.id for draft in drafts if draft.text_is_open]
        blocks = [block for draft in drafts for block in draft.blocks]
        return e.Resync(
            conversation_id=self.conversation_id,
            seq=seq,
            messages=(
                *self.messages,
                *(each.build(partial=True) for each in drafts if each.has_begun()),
            ),
            reasoning=(*self.reasoning, *_blocks_of(drafts)),
            open_messages=(*texts, *(block.id for block in blocks if block.is_open)),
            open_calls=tuple(open_calls),
            partial_arguments={
                id_: "".join(call.texts) for id_, call in open_calls.items()
            },
            run_id=self.run_id,
            run_seq=self.run_seq,
            interrupts=interrupts,
        )

    def text_being_said(self) -> str:
        """The words of the message that is not whole, or was cut; else none."""
        for draft in reversed(self._drafts.values()):
            return "".join(draft.texts)
        last = self.messages[-1] if self.messages else None
        is_cut = isinstance(last, AssistantMessage) and last.partial
        return last.text if last is not None and is_cut else ""

    def arguments_of(self, call_id: str) -> Mapping[str, Any]:
        """What the model asked for in this call; nothing where that is not known."""
        for message in reversed(self.messages):
            if isinstance(message, AssistantMessage):
                for call in message.tool_calls:
                    if call.id == call_id:
                        return call.arguments
        return {}

    def _draft(self, message_id: str) -> _Draft:
        return self._drafts.setdefault(message_id, _Draft(message_id))

    def _start_run(self, event: e.RunStarted) -> None:
        known = {message.id for message in self.messages}
        self.messages.extend(m for m in event.input if m.id not in known)

    def _start_message(self, event: e.MessageStarted) -> None:
        self._draft(event.message_id).text_is_open = True

    def _say(self, event: e.MessageDelta) -> None:
        self._draft(event.message_id).texts.append(event.text)

    def _end_message(self, event: e.MessageEnded) -> None:
        self._draft(event.message_id).text_is_open = False

    def _start_reasoning(self, event: e.ReasoningStarted) -> None:
        draft = self._draft(event.parent_id)
        draft.blocks.append(_Block(event.message_id))
        self._owners[event.message_id] = draft

    def _think(self, event: e.MessageThinking) -> None:
        self._owners[event.message_id].blocks[-1].texts.append(event.text)

    def _end_reasoning(self, event: e.ReasoningEnded) -> None:
        self._owners.pop(event.message_id).blocks[-1].is_open = False

    def _start_call(self, event: e.ToolStarted) -> None:
        draft = self._draft(event.message_id)
        draft.calls[event.call_id] = _Call(event.name)
        self._owners[event.call_id] = draft

    def _argue(self, event: e.ToolArgsDelta) -> None:
        self._owners[event.call_id].calls[event.call_id].texts.append(event.text)

    def _end_call(self, event: e.ToolEnded) -> None:
        draft = self._owners.pop(event.call_id)
        if event.cut:
            del draft.calls[event.call_id]
            return
        call = draft.calls[event.call_id]
        call.arguments, call.is_open = event.arguments, False

    def _return(self, event: e.ToolReturned) -> None:
        if any(event.call_id in draft.calls for draft in self._drafts.values()):
            self._finish_drafts(partial=False)
        result = ToolMessage(
            call_id=event.call_id,
            name=event.name,
            content=event.content,
            is_error=event.is_error,
            synthetic=event.synthetic,
            writes=event.writes,
            edited_arguments=event.edited_arguments,
        )
        self._place(result)

    def _place(self, result: ToolMessage) -> None:
        """Put a result after its call's message, in call order, as the history has it.

        The call of a message that was cut is in no history, and neither is its result.
        """
        for index in range(len(self.messages) - 1, -1, -1):
            message = self.messages[index]
            if isinstance(message, AssistantMessage):
                break
        else:
            return
        order = {call.id: place for place, call in enumerate(message.tool_calls)}
        if result.call_id not in order:
            return
        self.messages[index], _ = with_edits([message, result])
        index += 1
        while index < len(self.messages):
            other = self.messages[index]
            if not isinstance(other, ToolMessage):
                break
            if order.get(other.call_id, -1) > order[result.call_id]:
                break
            index += 1
        self.messages.insert(index, result)

    def _finish_model(self, event: e.ModelFinished) -> None:
        self._finish_drafts(partial=event.error is not None)

    def _finish_drafts(self, *, partial: bool) -> None:
        drafts = list(self._drafts.values())
        self.reasoning.extend(_blocks_of(drafts))
        self.messages.extend(
            draft.build(partial=partial) for draft in drafts if not draft.is_empty()
        )
        self._drafts.clear()

    def _end_run(self, event: e.TerminalEvent) -> None:
        self._finish_drafts(partial=True)
        self._owners.clear()
        self.run_id = self.run_seq = None


def _blocks_of(drafts: Iterable[_Draft]) -> Iterable[e.ReasoningBlock]:
    for draft in drafts:
        for block in draft.blocks:
            yield e.ReasoningBlock(
                id=block.id, parent_id=draft.id, text="".join(block.texts)
            )


HANDLERS: Final[Mapping[type, Callable[[Transcript, Any], None]]] = {
    e.RunStarted: Transcript._start_run,
    e.MessageStarted: Transcript._start_message,
    e.MessageDelta: Transcript._say,
    e.MessageEnded: Transcript._end_message,
    e.ReasoningStarted: Transcript._start_reasoning,
    e.MessageThinking: Transcript._think,
    e.ReasoningEnded: Transcript._end_reasoning,
    e.ToolStarted: Transcript._start_call,
    e.ToolArgsDelta: Transcript._argue,
    e.ToolEnded: Transcript._end_call,
    e.ToolReturned: Transcript._return,
    e.ModelFinished: Transcript._finish_model,
    e.RunFinished: Transcript._end_run,
    e.RunFailed: Transcript._end_run,
    e.RunCancelled: Transcript._end_run,
    e.RunPaused: Transcript._end_run,
}
