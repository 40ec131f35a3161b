"""How many tokens a request takes: an estimate, without a tokenizer.

High rather than low, so that what fits by it fits. Four ASCII characters are a token,
and so is each other character. Media count by kind, never by the length of their data.
Pure.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final, assert_never

from agentrt.core.chat import ChatRequest, ToolSpec
from agentrt.core.messages import (
    AssistantMessage,
    Message,
    SystemMessage,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from agentrt.core.parts import Content, FilePart, NativePart, Part, TextPart

__all__ = [
    "DOCUMENT_TOKENS",
    "IMAGE_TOKENS",
    "MESSAGE_TOKENS",
    "estimate_content",
    "estimate_message",
    "estimate_messages",
    "estimate_request",
    "estimate_text",
    "estimate_tools",
]

ASCII_PER_TOKEN: Final = 4

MESSAGE_TOKENS: Final = 4
"""For each message, beside what it says: its role and its borders."""

IMAGE_TOKENS: Final = 1_600

DOCUMENT_TOKENS: Final = 3_000
"""For a file that is no image: a document, a recording."""


def estimate_text(text: str) -> int:
    """Tokens of a text."""
    length = len(text)
    ascii_ = length if text.isascii() else len(text.encode("ascii", "ignore"))
    return -(-ascii_ // ASCII_PER_TOKEN) + length - ascii_


def estimate_content(content: Content) -> int:
    """Tokens of what a message says: a text, or parts."""
    if isinstance(content, str):
        return estimate_text(content)
    return sum(_estimate_part(part) for part in content)


def estimate_message(message: Message) -> int:
    """Tokens of one message, with its calls and what its provider wants back."""
    tokens = MESSAGE_TOKENS + estimate_content(message.content)
    match message:
        case SystemMessage() | UserMessage() | ToolMessage():
            return tokens
        case AssistantMessage():
            tokens += sum(_estimate_call(call) for call in message.tool_calls)
            if message.blocks is None:
                return tokens + estimate_text(message.reasoning)
            return tokens + estimate_text(_json(message.blocks.data))
        case _:
            assert_never(message)


def estimate_messages(messages: Iterable[Message]) -> int:
    """Tokens of several messages: the sum of each."""
    return sum(estimate_message(message) for message in messages)


def estimate_tools(tools: Iterable[ToolSpec]) -> int:
    """Tokens of what the model is told of its tools."""
    return sum(_estimate_tool(spec) for spec in tools)


def estimate_request(request: ChatRequest) -> int:
    """Tokens of all that is sent: system prompt, messages, tools, the answer's form."""
    system = MESSAGE_TOKENS + estimate_text(request.system) if request.system else 0
    form = request.output_schema
    schema = 0 if form is None else estimate_text(_json(form.schema))
    messages = estimate_messages(request.messages)
    return system + messages + estimate_tools(request.tools) + schema


def _estimate_part(part: Part) -> int:
    match part:
        case TextPart():
            return estimate_text(part.text)
        case FilePart():
            is_image = part.media_type.startswith("image/")
            return IMAGE_TOKENS if is_image else DOCUMENT_TOKENS
        case NativePart():
            return _estimate_block(part.block)
        case _:
            assert_never(part)


def _estimate_block(block: Mapping[str, Any]) -> int:
    """Tokens of a vendor's own block, which may hold the data of a file."""
    kind = str(block.get("type"))
    if "image" in kind:
        return IMAGE_TOKENS
    if isinstance(block.get("text"), str):
        return estimate_text(block["text"])
    return min(estimate_text(_json(block)), DOCUMENT_TOKENS)


def _estimate_call(call: ToolCall) -> int:
    arguments = call.invalid_arguments
    if arguments is None:
        arguments = _json(call.arguments)
    return estimate_text(call.name) + estimate_text(arguments)


def _estimate_tool(spec: ToolSpec) -> int:
    told = {
        "name": spec.name,
        "description": spec.description,
        "parameters": spec.parameters,
    }
    return estimate_text(_json(told))


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)
