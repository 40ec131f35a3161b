"""A memory that shows the model the newest messages, and keeps them all."""

from collections.abc import Iterable, Sequence
from itertools import accumulate, takewhile

from attrs import Attribute, field, frozen

from agentrt.core.messages import (
    Message,
    SystemMessage,
    ToolMessage,
    UserMessage,
    tool_calls_of,
)
from agentrt.stores.base import ChatMemory, WindowedMemory

__all__ = ["WindowedChatMemory"]


def _at_least_1(_: object, attribute: "Attribute[int]", value: int) -> None:
    if value < 1:
        raise ValueError(f"{attribute.name} is {value}, expected 1 or more messages")


@frozen
class WindowedChatMemory:
    """A `ChatMemory` over another one, whose `history` is its newest messages.

    System messages are always shown, and first, beside `max_messages` others. Calls and
    their results are never parted: the window ends before a block that does not fit,
    but always has the newest one, however large. Results that lost their call are not
    shown. The user's last message is shown though it lies further back, so that a long
    turn does not lose its question.

    Only what is read is trimmed; what is kept is `inner`'s, and whole. It keeps the
    promises of `ChatMemory` as long as all fits, and from then on all but that
    `history` gives back what was appended. An agent shows the window to its model, and
    takes the whole for everything else, `Agent.history` too.
    """

    inner: ChatMemory
    max_messages: int = field(validator=_at_least_1)

    async def append(self, conversation_id: str, messages: Sequence[Message]) -> None:
        await self.inner.append(conversation_id, messages)

    async def history(self, conversation_id: str) -> Sequence[Message]:
        return self.window(await self.inner.history(conversation_id))

    async def clear(self, conversation_id: str) -> None:
        await self.inner.clear(conversation_id)

    def window(self, messages: Sequence[Message]) -> Sequence[Message]:
        """What is shown of these messages."""
        if isinstance(self.inner, WindowedMemory):
            messages = self.inner.window(messages)
        systems = [each for each in messages if isinstance(each, SystemMessage)]
        others = [each for each in messages if not isinstance(each, SystemMessage)]
        shown = _newest(others, self.max_messages)
        if not any(isinstance(each, UserMessage) for each in shown):
            asked = [each for each in others if isinstance(each, UserMessage)][-1:]
            shown = [*asked, *_newest(others, self.max_messages - len(asked))]
        return (*systems, *shown)


def _newest(messages: Sequence[Message], limit: int) -> Sequence[Message]:
    """The newest blocks that fit, at least one; no result whose call is not there."""
    blocks = _blocks(messages)
    lengths = accumulate(len(block) for block in reversed(blocks))
    fitting = max(1, sum(1 for _ in takewhile(lambda n: n <= limit, lengths)))
    shown = [message for block in blocks[-fitting:] for message in block]
    asked = {call.id for message in shown for call in tool_calls_of(message)}
    return [m for m in shown if not isinstance(m, ToolMessage) or m.call_id in asked]


def _blocks(messages: Iterable[Message]) -> Sequence[Sequence[Message]]:
    """What must not be parted: a message, with the results that follow it."""
    blocks: list[list[Message]] = []
    for message in messages:
        if blocks and isinstance(message, ToolMessage):
            blocks[-1].append(message)
        else:
            blocks.append([message])
    return blocks
