"""Requests in the form of OpenAI's chat completions, and who wants it otherwise.

Pure. Beneath `openai`, which sends what is made here. Nothing is dropped without a
word: what the wire cannot say is an `InvalidRequestError` before anything is sent.
"""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, assert_never
from urllib.parse import urlsplit

from attrs import evolve, frozen

from agentrt.core.chat import ChatRequest, OutputSchema, ToolSpec
from agentrt.core.errors import InvalidRequestError
from agentrt.core.messages import (
    AssistantMessage,
    Message,
    SystemMessage,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from agentrt.core.parts import Content, FilePart, NativePart, Part, TextPart, text_of

__all__ = ["BLOCKS_FORMAT", "Quirks", "body_bytes", "encode", "quirks_of"]

BLOCKS_FORMAT: Final = "openai-chat-reasoning"
"""`Blocks.format` of what a vendor wants back: reasoning, signatures."""

LOCAL_OPTIONS: Final = frozenset({
    "extra_body", "extra_headers", "extra_query", "messages", "stream",
    "stream_options", "system", "tool_choice", "tools",
})  # fmt: skip
"""Options with a meaning of their own here. All others go to the vendor as they are."""

TOOL_OPTIONS: Final = frozenset({"parallel_tool_calls"})
"""Refused by OpenAI where there are no tools."""

AUDIO_FORMATS: Final[Mapping[str, str]] = {
    "audio/wav": "wav",
    "audio/x-wav": "wav",
    "audio/wave": "wav",
    "audio/mpeg": "mp3",
    "audio/mp3": "mp3",
}


@frozen(kw_only=True)
class Quirks:
    """What one vendor wants otherwise than most."""

    provider: str = "openai"
    host: str = ""
    """Goes into `Blocks`: two vendors may be used under one provider's name."""

    max_tokens_name: str = "max_tokens"
    usage_in_stream: bool = True
    """Whether to ask for usage at the end of a stream; some refuse the option."""

    required_choice: str = "required"
    """The word for a `tool_choice` that leaves no choice."""

    short_call_ids: bool = False
    """Call ids must be nine letters and digits."""

    echoes_reasoning: bool = False
    """Wants `reasoning_content` back while a turn of tool calls goes on."""

    schema_format: Literal["json_schema", "json_object"] = "json_schema"
    """How it is told the form of an answer. The second says only that it is JSON."""

    needs_key: bool = False


QUIRKS: Final[Mapping[str, Quirks]] = {
    # Its reasoning models refuse `max_tokens`; all others take either name.
    "api.openai.com": Quirks(max_tokens_name="max_completion_tokens", needs_key=True),
    # Sends usage unasked.
    "api.mistral.ai": Quirks(
        required_choice="any", short_call_ids=True, usage_in_stream=False
    ),
    "api.deepseek.com": Quirks(echoes_reasoning=True, schema_format="json_object"),
    "api.moonshot.ai": Quirks(echoes_reasoning=True),
    "api.moonshot.cn": Quirks(echoes_reasoning=True),
    "open.bigmodel.cn": Quirks(echoes_reasoning=True, schema_format="json_object"),
    "api.z.ai": Quirks(echoes_reasoning=True, schema_format="json_object"),
}
"""By the host of the base URL. The standard answer for any other."""


def quirks_of(base_url: str, *, provider: str) -> Quirks:
    """What is known of the vendor at `base_url`.

    Raises:
        InvalidRequestError: that is no http(s) URL with a host.
    """
    try:
        parts = urlsplit(base_url)
        host = parts.hostname if parts.scheme in ("http", "https") else None
    except ValueError:
        host = None
    if not host:
        raise InvalidRequestError(
            f"the base URL of {provider} is no http(s) URL with a host",
            provider=provider,
        )
    return evolve(QUIRKS.get(host, Quirks()), provider=provider, host=host)


def encode(
    request: ChatRequest, quirks: Quirks, *, stream: bool = False
) -> dict[str, Any]:
    """The body for `request`, as JSON values. `options` holds the model's name.

    Raises:
        InvalidRequestError: it has a part that this wire cannot carry, or a
            `tool_choice` that is no tool of it.
    """
    given = {
        name: value for name, value in request.options.items() if value is not None
    }
    body = {name: given[name] for name in given if name not in LOCAL_OPTIONS}
    if "max_tokens" in body and quirks.max_tokens_name != "max_tokens":
        body.setdefault(quirks.max_tokens_name, body.pop("max_tokens"))
    if request.output_schema is not None:
        form = _response_format(request.output_schema, quirks)
        body.setdefault("response_format", form)
    body["messages"] = _messages(request, quirks)
    choice = given.get("tool_choice", "auto")
    choice = choice if request.tool_choice is None else request.tool_choice
    if request.tools and choice != "none":
        body["tools"] = [_tool(tool) for tool in request.tools]
        if choice != "auto":
            body["tool_choice"] = _tool_choice(choice, request.tools, quirks)
    else:
        body = {name: body[name] for name in body if name not in TOOL_OPTIONS}
    if stream:
        body["stream"] = True
        usual = {"include_usage": True} if quirks.usage_in_stream else {}
        if stream_options := given.get("stream_options", usual):
            body["stream_options"] = stream_options
    return {**body, **_mapping(given, "extra_body", quirks)}


def body_bytes(body: Mapping[str, Any]) -> bytes:
    """The body as JSON. ASCII, so that even half a surrogate pair goes through.

    Raises:
        InvalidRequestError: an option is nothing that JSON can say.
    """
    try:
        text = json.dumps(body, separators=(",", ":"), allow_nan=False, default=_plain)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidRequestError(f"the request is no JSON: {error}") from error
    return text.encode("ascii")


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        return list(value)
    raise TypeError(f"an option holds a {type(value).__name__}, expected JSON values")


def _mapping(
    options: Mapping[str, Any], name: str, quirks: Quirks
) -> Mapping[str, Any]:
    value = options.get(name, {})
    if not isinstance(value, Mapping):
        raise InvalidRequestError(
            f"option {name!r} is a {type(value).__name__}, expected a mapping",
            provider=quirks.provider,
        )
    return value


def _response_format(output: OutputSchema, quirks: Quirks) -> dict[str, Any]:
    if quirks.schema_format == "json_object":
        return {"type": "json_object"}
    named = {"name": output.name, "schema": output.schema, "strict": output.strict}
    return {"type": "json_schema", "json_schema": named}


def _tool(spec: ToolSpec) -> dict[str, Any]:
    function: dict[str, Any] = {"name": spec.name}
    if spec.description:
        function["description"] = spec.description
    # Strict vendors refuse a tool without a schema, or one without properties.
    function["parameters"] = {"type": "object", "properties": {}, **spec.parameters}
    return {"type": "function", "function": function}


def _tool_choice(choice: Any, tools: Sequence[ToolSpec], quirks: Quirks) -> Any:
    names = [tool.name for tool in tools]
    if choice == "required":
        return quirks.required_choice
    if isinstance(choice, str) and choice in names:
        return {"type": "function", "function": {"name": choice}}
    if isinstance(choice, Mapping):
        return choice
    raise InvalidRequestError(
        f"tool_choice is {choice!r}, expected auto, required, none or one of the "
        f"tools: {', '.join(names)}",
        provider=quirks.provider,
    )


def _messages(request: ChatRequest, quirks: Quirks) -> list[dict[str, Any]]:
    encoded: list[dict[str, Any]] = []
    if request.system:
        encoded.append({"role": "system", "content": request.system})
    # A turn of tool calls lasts from the user's last words on.
    turn = max(
        (n for n, m in enumerate(request.messages) if isinstance(m, UserMessage)),
        default=-1,
    )
    for place, message in enumerate(request.messages):
        entry = _message(message, quirks, in_turn=place > turn)
        if entry is not None:
            encoded.append(entry)
    return encoded


def _message(
    message: Message, quirks: Quirks, *, in_turn: bool
) -> dict[str, Any] | None:
    match message:
        case SystemMessage():
            return {"role": "system", "content": _words(message.content, quirks)}
        case UserMessage():
            return {"role": "user", "content": _content(message.content, quirks)}
        case AssistantMessage():
            return _assistant(message, quirks, in_turn=in_turn)
        case ToolMessage():
            return {
                "role": "tool",
                "tool_call_id": _call_id(message.call_id, quirks),
                "content": _words(message.content, quirks),
            }
        case _:
            assert_never(message)


def _assistant(
    message: AssistantMessage, quirks: Quirks, *, in_turn: bool
) -> dict[str, Any] | None:
    content = _words(message.content, quirks)
    if not content and not message.tool_calls:
        return None
    entry: dict[str, Any] = {"role": "assistant", "content": content or None}
    kept = _kept(message, quirks)
    if message.tool_calls:
        calls = [_call(call, quirks) for call in message.tool_calls]
        for call, known in zip(calls, kept.get("calls", ()), strict=False):
            if "extra_content" in known:
                call["extra_content"] = known["extra_content"]
        entry["tool_calls"] = calls
    if quirks.echoes_reasoning and message.tool_calls and in_turn:
        # Asked for even where there is none, and never another vendor's.
        own = "" if message.blocks and not kept else message.reasoning
        entry["reasoning_content"] = kept.get("reasoning_content", own)
    for name in ("reasoning_details", "extra_content"):
        if name in kept:
            entry[name] = kept[name]
    return entry


def _kept(message: AssistantMessage, quirks: Quirks) -> Mapping[str, Any]:
    """What this vendor gave to get back with `message`; nothing if it is stale.

    A filter may have changed the calls since. An id of "" is one that the vendor did
    not give, and that was made up afterwards.
    """
    blocks = message.blocks
    if blocks is None or not isinstance(blocks.data, Mapping):
        return {}
    data: Mapping[str, Any] = blocks.data
    origin = (blocks.provider, blocks.format, data.get("host"))
    if origin != (quirks.provider, BLOCKS_FORMAT, quirks.host):
        return {}
    known = [(call["id"], call["name"]) for call in data.get("calls", ())]
    now = [(call.id, call.name) for call in message.tool_calls]
    same = len(known) == len(now) and all(
        id_ in ("", new_id) and name == new_name
        for (id_, name), (new_id, new_name) in zip(known, now, strict=True)
    )
    return data if same else {}


def _call(call: ToolCall, quirks: Quirks) -> dict[str, Any]:
    arguments: Mapping[str, Any] = call.arguments
    if call.invalid_arguments is not None:
        arguments = {"invalid_json": call.invalid_arguments}
    text = body_bytes(arguments).decode("ascii")
    return {
        "id": _call_id(call.id, quirks),
        "type": "function",
        # A vendor refuses the whole history for one call without a name.
        "function": {"name": call.name or "unnamed", "arguments": text},
    }


def _call_id(id_: str, quirks: Quirks) -> str:
    """The id as the vendor takes it: another one in its form, always the same."""
    if not quirks.short_call_ids or re.fullmatch(r"[A-Za-z0-9]{9}", id_):
        return id_
    return hashlib.sha256(id_.encode("utf-8", "surrogatepass")).hexdigest()[:9]


def _words(content: Content, quirks: Quirks) -> str | list[Any]:
    """A content where the wire takes no files: of the assistant, tools, the system."""
    if not isinstance(content, str):
        for part in content:
            if isinstance(part, FilePart):
                raise InvalidRequestError(
                    f"{quirks.provider}: a file ({part.media_type}) may only stand in "
                    "a user's message, not in one of the assistant, a tool or the "
                    "system",
                    provider=quirks.provider,
                )
    return _content(content, quirks)


def _content(content: Content, quirks: Quirks) -> str | list[Any]:
    """Text as one string, since older servers take nothing else; otherwise a list."""
    if isinstance(content, str):
        return content
    if all(isinstance(part, TextPart) for part in content):
        return text_of(content)
    blocks = (
        _block(part, place, quirks) for place, part in enumerate(content, start=1)
    )
    return [block for block in blocks if block is not None]


def _block(part: Part, place: int, quirks: Quirks) -> dict[str, Any] | None:
    match part:
        case TextPart():
            return {"type": "text", "text": part.text} if part.text else None
        case NativePart():
            return dict(part.block)
        case FilePart():
            return _file_block(part, place, quirks)
        case _:
            assert_never(part)


def _file_block(part: FilePart, place: int, quirks: Quirks) -> dict[str, Any]:
    kind = part.media_type.partition(";")[0].strip().lower()
    uri = f"data:{kind};base64,{part.data}"
    if kind.startswith("image/") and part.url is not None:
        return {"type": "image_url", "image_url": {"url": part.url}}
    if kind.startswith("image/") and kind != "image/*":
        return {"type": "image_url", "image_url": {"url": uri}}
    if kind == "application/pdf" and part.data is not None:
        name = part.filename or f"part-{place}.pdf"
        return {"type": "file", "file": {"filename": name, "file_data": uri}}
    if kind in AUDIO_FORMATS and part.data is not None:
        sound = {"data": part.data, "format": AUDIO_FORMATS[kind]}
        return {"type": "input_audio", "input_audio": sound}
    how = "inline" if part.data is not None else "as a URL"
    raise InvalidRequestError(
        f"{quirks.provider} takes no {part.media_type!r} {how}; it takes images by URL "
        "or inline with their exact type, and PDF, WAV and MP3 inline",
        provider=quirks.provider,
    )
