"""Messages: what a conversation consists of, the same for every vendor.

These values are the only truth about a conversation's history. Each provider turns
them into its own wire form when it sends, and drops nothing without a word.

Rules kept here:

* Every message has an id. A user's or system message gets one when it is made; an
  assistant message gets the id that its stream had; a tool message's id derives from
  its call's. So the same message has the same id in stream, store and snapshot.
* Bytes never enter a history: a file part holds base64 text or a URL.
* The model's own formats (signed thinking and the like) travel in `Blocks`, unread.

Values from `core/parts.py` are what messages hold. Nothing lies beneath.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from attrs import evolve, field, frozen

from agentrt.core.ids import new_id
from agentrt.core.json_text import load_json
from agentrt.core.parts import (
    Content,
    FilePart,
    NativePart,
    Part,
    TextPart,
    text_of,
)

__all__ = [
    "RESULT_SUFFIX",
    "AssistantMessage",
    "Blocks",
    "Message",
    "SystemMessage",
    "ToolCall",
    "ToolMessage",
    "UserMessage",
    "is_assistant",
    "is_system",
    "is_tool",
    "is_user",
    "last_user_message",
    "parse_arguments",
    "read_message",
    "result_id",
    "role_of",
    "text_of_value",
    "tool_calls_of",
    "user_messages",
    "with_edits",
    "without_blocks",
]


@frozen(kw_only=True)
class ToolCall:
    """A request by the model to run one tool."""

    id: str
    """The provider's id for this call; ours where that is missing or repeated."""

    name: str

    arguments: Mapping[str, Any] = field(factory=dict)
    """A parsed JSON object, not yet checked against the tool's schema."""

    invalid_arguments: str | None = None
    """What the model sent in place of a JSON object. Such a call is never run."""


@frozen(kw_only=True)
class Blocks:
    """What one provider wants back word for word on the next call.

    Signed thinking, encrypted reasoning and the like. Carried, never read; used only
    by the wire that knows `format`, and dropped for any other.
    """

    provider: str
    format: str
    data: Any
    """JSON."""


@frozen(kw_only=True)
class SystemMessage:
    id: str = field(factory=new_id)
    content: Content

    @property
    def text(self) -> str:
        return text_of(self.content)


@frozen(kw_only=True)
class UserMessage:
    id: str = field(factory=new_id)
    content: Content

    @property
    def text(self) -> str:
        """The words of all parts, joined by spaces."""
        return text_of(self.content)


@frozen(kw_only=True)
class AssistantMessage:
    id: str
    """Given when the model is asked: the same in stream, store and snapshot."""

    content: Content = ""
    reasoning: str = ""
    """What the model thought aloud. Shown to people; only a wire that needs it back
    sends it again."""

    tool_calls: Sequence[ToolCall] = ()
    blocks: Blocks | None = None

    partial: bool = False
    """The stream was cut: by a stop, a deadline or a failure. What came is here."""

    @property
    def text(self) -> str:
        return text_of(self.content)


@frozen(kw_only=True)
class ToolMessage:
    """The result of one tool call, as the model will read it."""

    call_id: str
    name: str
    content: Content
    is_error: bool = False

    synthetic: bool = False
    """No tool said this: the call was cut, never started, or denied."""

    writes: Mapping[str, Any] = field(factory=dict)
    """State that the call changed. Kept for audit, never sent to a model."""

    edited_arguments: Mapping[str, Any] | None = None
    """What the call was given by the person who approved it; None: what it asked for.
    Its message stays as it was said: see `with_edits`."""

    @property
    def id(self) -> str:
        return result_id(self.call_id)

    @property
    def text(self) -> str:
        return text_of(self.content)


Message: TypeAlias = SystemMessage | UserMessage | AssistantMessage | ToolMessage
"""Closed union: match on it and end with `assert_never`."""

ROLES: Final[Mapping[type[Message], str]] = {
    SystemMessage: "system",
    UserMessage: "user",
    AssistantMessage: "assistant",
    ToolMessage: "tool",
}


def with_edits(messages: Sequence[Message]) -> Sequence[Message]:
    """The history with each call as it ran; the very same where nobody edited one.

    `blocks` stay as they are: a provider takes arguments from the calls.
    """
    seen = list(messages)
    asking = -1
    edited = False
    for place, message in enumerate(messages):
        if isinstance(message, AssistantMessage):
            asking = place
        elif isinstance(message, ToolMessage) and message.edited_arguments is not None:
            asked = seen[asking] if asking >= 0 else None
            if isinstance(asked, AssistantMessage):
                given = message.edited_arguments
                seen[asking] = _with_arguments(asked, message.call_id, given)
                edited = True
    return seen if edited else messages


def _with_arguments(
    message: AssistantMessage, call_id: str, arguments: Mapping[str, Any]
) -> AssistantMessage:
    calls = tuple(
        evolve(call, arguments=arguments) if call.id == call_id else call
        for call in message.tool_calls
    )
    return evolve(message, tool_calls=calls)


RESULT_SUFFIX: Final = "-result"


def result_id(call_id: str) -> str:
    """The id of the message that holds the result of the call `call_id`."""
    return f"{call_id}{RESULT_SUFFIX}"


def role_of(message: Message) -> str:
    """`system`, `user`, `assistant` or `tool`."""
    return ROLES[type(message)]


def is_system(message: Message) -> bool:
    return isinstance(message, SystemMessage)


def is_user(message: Message) -> bool:
    return isinstance(message, UserMessage)


def is_assistant(message: Message) -> bool:
    return isinstance(message, AssistantMessage)


def is_tool(message: Message) -> bool:
    return isinstance(message, ToolMessage)


def tool_calls_of(message: Message) -> Sequence[ToolCall]:
    """The calls that this message asks for: none, unless the model wrote it."""
    return message.tool_calls if isinstance(message, AssistantMessage) else ()


def user_messages(value: str | Message | Sequence[Message]) -> Sequence[Message]:
    """The messages of a turn's input: a text is what the user said."""
    match value:
        case str():
            return (UserMessage(content=value),)
        case SystemMessage() | UserMessage() | AssistantMessage() | ToolMessage():
            return (value,)
        case _:
            return tuple(value)


def last_user_message(messages: Iterable[Message]) -> UserMessage | None:
    """What the user said last, or None."""
    last = None
    for message in messages:
        if isinstance(message, UserMessage):
            last = message
    return last


def without_blocks(messages: Iterable[Message]) -> Sequence[Message]:
    """The same messages without opaque blocks, for another provider than theirs."""
    return tuple(
        evolve(message, blocks=None)
        if isinstance(message, AssistantMessage) and message.blocks is not None
        else message
        for message in messages
    )


def text_of_value(value: Any) -> str:
    """A tool's result as text for the model: a string as it is, all else as JSON."""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, default=str)


def read_message(value: Message | Mapping[str, Any]) -> Message:
    """A message from what older programs and other vendors' formats hold.

    A message is given back as it is. A mapping needs a `role` (system, developer,
    user, assistant or tool) and `content`; `tool_calls` may have OpenAI's form or
    `{id, name, args}`, `call_id` may be spelled `tool_call_id`.

    Raises:
        ValueError: there is no such role, or a tool message names no call.
    """
    if not isinstance(value, Mapping):
        return value
    role = value.get("role")
    content = _read_content(value.get("content"))
    id_ = str(value.get("id") or new_id())
    match role:
        case "system" | "developer":
            return SystemMessage(id=id_, content=content)
        case "user":
            return UserMessage(id=id_, content=content)
        case "assistant":
            calls = value.get("tool_calls") or value.get("tool-calls") or ()
            return AssistantMessage(
                id=id_,
                content=content,
                reasoning=str(value.get("reasoning") or ""),
                tool_calls=tuple(_read_call(call) for call in calls),
            )
        case "tool":
            return _read_tool_message(value, content)
        case _:
            raise ValueError(
                f"message role is {role!r}, "
                "expected system, developer, user, assistant or tool"
            )


def _read_tool_message(value: Mapping[str, Any], content: Content) -> ToolMessage:
    spellings = ("call_id", "tool_call_id", "tool-call-id", "toolCallId")
    call_id = next((value[key] for key in spellings if value.get(key)), None)
    if call_id is None:
        raise ValueError("a tool message has no 'call_id': which call does it answer?")
    return ToolMessage(
        call_id=str(call_id),
        name=str(value.get("name") or ""),
        content=content,
        is_error=bool(value.get("is_error", False)),
        writes=value.get("writes") or {},
        edited_arguments=value.get("edited_arguments"),
    )


def _read_content(content: Any) -> Content:
    match content:
        case None:
            return ""
        case str():
            return content
        case list() | tuple():
            return tuple(_read_part(part) for part in content)
        case _:
            return text_of_value(content)


def _read_part(part: Any) -> Part:
    """A part; a block in a vendor's own form stays as it is, unless it is text."""
    match part:
        case TextPart() | FilePart() | NativePart():
            return part
        case str():
            return TextPart(text=part)
        case {"type": "text", "text": str(text)} if len(part) == 2:
            return TextPart(text=text)
        case Mapping():
            return NativePart(block=part)
        case _:
            return TextPart(text=text_of_value(part))


def _read_call(call: ToolCall | Mapping[str, Any]) -> ToolCall:
    if isinstance(call, ToolCall):
        return call
    function = call.get("function") or call
    raw = function.get("arguments", function.get("args", function.get("input")))
    id_ = str(call.get("id") or new_id())
    name = str(function.get("name") or "")
    if raw is None or raw == "":
        return ToolCall(id=id_, name=name)
    if isinstance(raw, Mapping):
        return ToolCall(id=id_, name=name, arguments=raw)
    arguments, invalid = parse_arguments(str(raw))
    return ToolCall(id=id_, name=name, arguments=arguments, invalid_arguments=invalid)


def parse_arguments(text: str) -> tuple[Mapping[str, Any], str | None]:
    """A call's arguments from their JSON text, and that text again if it is no object.

    Nothing at all means no arguments. JSON within a JSON string is unpacked once,
    as some vendors encode it twice. What `load_json` refuses is no object.
    """
    if not text.strip():
        return {}, None
    try:
        value = load_json(text)
        if isinstance(value, str):
            value = load_json(value)
    except ValueError:
        return {}, text
    return (value, None) if isinstance(value, dict) else ({}, text)
