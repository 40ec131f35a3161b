"""Normalize: the last look at a request, so that every provider takes it.

Only the request changes, never what is stored. The same history always gives the same
bytes, so that a provider's prompt cache holds. Register it last, next to the model.
"""

from collections.abc import AsyncIterator, Callable, Collection, Sequence
from functools import partial
from typing import Final, Literal, TypeAlias, assert_never, get_args

from attrs import evolve, field, frozen

from agentrt.core.history import mend
from agentrt.core.messages import (
    AssistantMessage,
    Message,
    SystemMessage,
    ToolMessage,
    UserMessage,
)
from agentrt.core.parts import Content, FilePart, Part, TextPart
from agentrt.filters.base import ChatCall, Filter, hook

__all__ = ["Normalizer", "normalize_filter"]

Thinking: TypeAlias = Literal["keep", "before_current_turn"]

THINKING: Final = get_args(Thinking)

LEFT_OUT: Final = "[{what} is left out: this model cannot read it]"

Change: TypeAlias = Callable[[Message], Message]


def normalize_filter(
    *,
    images: bool = True,
    audio: bool = True,
    files: bool = True,
    thinking: Thinking = "keep",
    merge: bool = False,
) -> Filter:
    """Mend each request: see `Normalizer`, which has the options.

    Raises:
        ValueError: `thinking` is none of its values.
    """
    normalizer = Normalizer(
        images=images, audio=audio, files=files, thinking=thinking, merge=merge
    )

    @hook
    async def chat(call: ChatCall) -> AsyncIterator[None]:
        messages = normalizer.apply(call.request.messages)
        if messages is not call.request.messages:
            call.request = evolve(call.request, messages=messages)
        yield

    return Filter(name="normalize", chat=chat)


def _known(_: object, __: object, value: str) -> None:
    if value not in THINKING:
        expected = " or ".join(repr(each) for each in THINKING)
        raise ValueError(f"thinking is {value!r}, expected {expected}")


@frozen(kw_only=True)
class Normalizer:
    """What a request must look like for one model.

    Each call has one result, right after its message: one that is missing gets a fixed
    text, one without a call goes. Texts of nothing but space go, and messages that say
    nothing else.
    """

    images: bool = True
    """Off: images become a line of text; so do sound and other files."""

    audio: bool = True
    files: bool = True
    thinking: Thinking = field(default="keep", validator=_known)
    """`before_current_turn` drops what providers gave to be sent back before the user's
    last message; it keeps what they need while tools run."""

    merge: bool = False
    """Make one message of neighbors with the same role, for models that want user and
    assistant in turn."""

    def apply(self, messages: Sequence[Message]) -> Sequence[Message]:
        """The messages as the model takes them; the very same if they are so already.

        Doing it twice changes nothing more.
        """
        switches = {"image": self.images, "audio": self.audio, "file": self.files}
        refused = {kind for kind, is_taken in switches.items() if not is_taken}
        changed = _each(messages, partial(_with_placeholders, refused=refused))
        changed = mend(_without_blanks(changed))
        if self.thinking == "before_current_turn":
            changed = _without_old_thinking(changed)
        return _merged(changed) if self.merge else changed


def _each(messages: Sequence[Message], change: Change) -> Sequence[Message]:
    """The messages with `change` made to each; the very same if it changed none."""
    changed = [change(message) for message in messages]
    is_same = all(a is b for a, b in zip(changed, messages, strict=True))
    return messages if is_same else changed


def _with_content(message: Message, content: Content) -> Message:
    return message if content is message.content else evolve(message, content=content)


def _with_placeholders(message: Message, refused: Collection[str]) -> Message:
    content = message.content
    if isinstance(content, str) or not any(_is_refused(p, refused) for p in content):
        return message
    parts = [_placeholder(p) if _is_refused(p, refused) else p for p in content]
    return _with_content(message, tuple(parts))


def _is_refused(part: Part, refused: Collection[str]) -> bool:
    return isinstance(part, FilePart) and _kind(part) in refused


def _kind(part: FilePart) -> str:
    kind = part.media_type.partition("/")[0]
    return kind if kind in {"image", "audio"} else "file"


def _placeholder(part: Part) -> TextPart:
    assert isinstance(part, FilePart)
    name = f" {part.filename!r}" if part.filename else ""
    return TextPart(text=LEFT_OUT.format(what=f"{_kind(part)}{name}"))


def _without_blanks(messages: Sequence[Message]) -> Sequence[Message]:
    """Without texts of nothing but space, and messages that say nothing.

    Vendors refuse both. A request of nothing else stays, for its vendor to refuse.
    """
    trimmed = _each(messages, _without_blank_parts)
    kept = [message for message in trimmed if not _says_nothing(message)]
    if not kept:
        return messages
    return trimmed if len(kept) == len(trimmed) else kept


def _without_blank_parts(message: Message) -> Message:
    content = message.content
    if isinstance(content, str):
        is_blank = bool(content) and not content.strip()
        may_be = isinstance(message, ToolMessage)  # its result was a blank
        return _with_content(message, "") if is_blank and not may_be else message
    parts = tuple(part for part in content if not _is_blank(part))
    return (
        message if len(parts) == len(content) else _with_content(message, parts or "")
    )


def _is_blank(part: Part) -> bool:
    return isinstance(part, TextPart) and not part.text.strip()


def _says_nothing(message: Message) -> bool:
    match message:
        case ToolMessage():
            return False  # its call needs it
        case AssistantMessage():
            return not (message.content or message.tool_calls or message.blocks)
        case SystemMessage() | UserMessage():
            return not message.content
        case _:
            assert_never(message)


def _without_old_thinking(messages: Sequence[Message]) -> Sequence[Message]:
    places = (n for n, m in enumerate(messages) if isinstance(m, UserMessage))
    begin = max(places, default=0)
    earlier = _each(messages[:begin], _without_blocks)
    has_any = any(a is not b for a, b in zip(earlier, messages, strict=False))
    return [*earlier, *messages[begin:]] if has_any else messages


def _without_blocks(message: Message) -> Message:
    if isinstance(message, AssistantMessage) and message.blocks is not None:
        return evolve(message, blocks=None)
    return message


def _merged(messages: Sequence[Message]) -> Sequence[Message]:
    merged: list[Message] = []
    for message in messages:
        both = _merge(merged[-1], message) if merged else None
        if both is None:
            merged.append(message)
        else:
            merged[-1] = both
    return messages if len(merged) == len(messages) else merged


def _merge(one: Message, other: Message) -> Message | None:
    """Both in one, with the first one's id; None where they must stay apart."""
    content = _joined(one.content, other.content)
    match one, other:
        case UserMessage(), UserMessage():
            return evolve(one, content=content)
        case AssistantMessage(), AssistantMessage():
            if one.tool_calls or one.blocks or other.blocks:
                return None
            thoughts = [each.reasoning for each in (one, other) if each.reasoning]
            reasoning = "\n\n".join(thoughts)
            return evolve(other, id=one.id, content=content, reasoning=reasoning)
        case _:
            return None


def _joined(one: Content, other: Content) -> Content:
    if isinstance(one, str) and isinstance(other, str):
        return "\n\n".join(text for text in (one, other) if text)
    return (*_parts(one), *_parts(other))


def _parts(content: Content) -> Sequence[Part]:
    if isinstance(content, str):
        return (TextPart(text=content),) if content else ()
    return content
