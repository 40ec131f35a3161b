"""AG-UI out: events and messages as the protocol's JSON, in two dialects. Pure.

Each of our events becomes none, one or two of theirs. Optional members are absent and
never null; nothing is sent that the protocol does not know. `seq` travels beside the
events, not in them.

Source: AG-UI 1.0 (2026-09-17), and 0.0.59 for the dialect "0.0".
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

from agentrt.core.chat import Usage
from agentrt.core.messages import (
    AssistantMessage,
    Message,
    SystemMessage,
    ToolCall,
    ToolMessage,
    UserMessage,
    result_id,
    text_of_value,
)
from agentrt.core.outcomes import Interrupt, InterruptKind
from agentrt.core.parts import Content, FilePart, NativePart, TextPart, text_of
from agentrt.events import types as e

__all__ = [
    "PROTOCOL_VERSION",
    "Dialect",
    "Json",
    "encode",
    "encode_interrupt",
    "encode_messages",
    "encode_resync",
]

Dialect: TypeAlias = Literal["1.0", "0.0"]
Json: TypeAlias = Mapping[str, Any]
Names: TypeAlias = Mapping[str, str]

PROTOCOL_VERSION: Final = "1.0"

MESSAGE: Final = {"message_id": "messageId"}
DELTA: Final = {"message_id": "messageId", "text": "delta"}
CALL: Final = {"call_id": "toolCallId"}
CALL_START: Final = {**CALL, "name": "toolCallName", "message_id": "parentMessageId"}
ARGS: Final = {"call_id": "toolCallId", "text": "delta"}
ASSISTANT: Final = {"role": "assistant"}
REASONING: Final = {"role": "reasoning"}

# our event: AG-UI events, each with its type, names in our event, and constants
PLAIN_EVENTS: Final[
    Mapping[type[e.Event], Sequence[tuple[str, Names, Mapping[str, Any]]]]
] = {
    e.IterationStarted: [],
    e.ModelStarted:     [],
    e.ModelFinished:    [],
    e.ModelRetried:     [],
    e.ModelSwitched:    [],
    e.RunUsage:         [],
    e.MessageStarted:   [("TEXT_MESSAGE_START", MESSAGE, ASSISTANT)],
    e.MessageDelta:     [("TEXT_MESSAGE_CONTENT", DELTA, {})],
    e.MessageEnded:     [("TEXT_MESSAGE_END", MESSAGE, {})],
    e.ReasoningStarted: [("REASONING_START", MESSAGE, {}),
                         ("REASONING_MESSAGE_START", MESSAGE, REASONING)],
    e.MessageThinking:  [("REASONING_MESSAGE_CONTENT", DELTA, {})],
    e.ReasoningEnded:   [("REASONING_MESSAGE_END", MESSAGE, {}),
                         ("REASONING_END", MESSAGE, {})],
    e.ToolStarted:      [("TOOL_CALL_START", CALL_START, {})],
    e.ToolArgsDelta:    [("TOOL_CALL_ARGS", ARGS, {})],
    e.ToolEnded:        [("TOOL_CALL_END", CALL, {})],
}  # fmt: skip


def encode(envelope: e.Envelope, dialect: Dialect) -> Sequence[Json]:
    """The AG-UI events for one of ours, ready for JSON; perhaps none."""
    event = envelope.event
    plain = PLAIN_EVENTS.get(type(event))
    if plain is None:
        return [SPECIAL_EVENTS[type(event)](envelope, event, dialect)]
    return [
        {
            "type": type_,
            **{theirs: getattr(event, ours) for ours, theirs in names.items()},
            **constants,
        }
        for type_, names, constants in plain
    ]


def _run(envelope: e.Envelope, label: str) -> dict[str, Any]:
    """The ids that both ends of a run carry: the client's own, where it gave one."""
    run_id = label or envelope.run_id
    return {"threadId": envelope.conversation_id, "runId": run_id}


def _started(envelope: e.Envelope, event: e.RunStarted, dialect: Dialect) -> Json:
    run = _run(envelope, event.label)
    encoded = {"type": "RUN_STARTED", **run}
    if dialect == PROTOCOL_VERSION:
        encoded["protocolVersion"] = PROTOCOL_VERSION
    if event.input:
        encoded["input"] = {
            **run,
            "messages": encode_messages(event.input, dialect),
            "tools": [],
            "context": [],
            "state": {},
            "forwardedProps": {},
        }
    return encoded


def _finished(envelope: e.Envelope, event: e.RunFinished, dialect: Dialect) -> Json:
    return {
        "type": "RUN_FINISHED",
        **_run(envelope, event.label),
        **_usage(event.usage),
    }


def _cancelled(envelope: e.Envelope, event: e.RunCancelled, dialect: Dialect) -> Json:
    if dialect == PROTOCOL_VERSION:
        how: dict[str, Any] = {"outcome": {"type": "cancelled"}}
    else:
        how = {"metadata": {"agentrt": {"cancelled": True}}}
    run = _run(envelope, event.label)
    return {"type": "RUN_FINISHED", **run, **how, **_usage(event.usage)}


def _paused(envelope: e.Envelope, event: e.RunPaused, dialect: Dialect) -> Json:
    interrupts = [encode_interrupt(interrupt) for interrupt in event.interrupts]
    return {
        "type": "RUN_FINISHED",
        **_run(envelope, event.label),
        "outcome": {"type": "interrupt", "interrupts": interrupts},
        **_usage(event.usage),
    }


def _failed(envelope: e.Envelope, event: e.RunFailed, dialect: Dialect) -> Json:
    return {
        "type": "RUN_ERROR",
        "message": event.message,
        "code": event.error_code,
        **_usage(event.usage),
    }


def _returned(envelope: e.Envelope, event: e.ToolReturned, dialect: Dialect) -> Json:
    encoded = {
        "type": "TOOL_CALL_RESULT",
        "messageId": result_id(event.call_id),
        "toolCallId": event.call_id,
        "content": _result_content(event.content, dialect),
        "role": "tool",
    }
    note: dict[str, Any] = {}
    if event.is_error:
        note |= {"isError": True, "status": event.status}
    if event.edited_arguments is not None:
        note["editedArguments"] = event.edited_arguments
    if note:
        encoded["metadata"] = {"agentrt": note}
    return encoded


SPECIAL_EVENTS: Final[Mapping[type[e.Event], Callable[..., Json]]] = {
    e.RunStarted: _started,
    e.RunFinished: _finished,
    e.RunCancelled: _cancelled,
    e.RunPaused: _paused,
    e.RunFailed: _failed,
    e.ToolReturned: _returned,
}

APPROVAL_SCHEMA: Final[Json] = {
    "type": "object",
    "properties": {
        "approved": {"type": "boolean"},
        "reason": {"type": "string"},
        "editedArgs": {"type": "object"},
    },
    "required": ["approved"],
}


def _choice(*words: str, **more: Json) -> Json:
    """The form of an answer that is one of these words."""
    decision = {"type": "string", "enum": list(words)}
    return {
        "type": "object",
        "properties": {"decision": decision, **more},
        "required": ["decision"],
    }


RESPONSE_SCHEMAS: Final[Mapping[InterruptKind, Json]] = {
    "approval": APPROVAL_SCHEMA,
    "external": _choice("reply", "deny", message={"type": "string"}),
    "environment": _choice("retry", "deny"),
}
"""What a client may answer, by the kind of question."""


def encode_interrupt(interrupt: Interrupt) -> Json:
    """An open question, for `RUN_FINISHED.outcome`."""
    return {
        "id": interrupt.id,
        "reason": "tool_call",
        "message": interrupt.reason,
        "toolCallId": interrupt.call_id,
        "responseSchema": RESPONSE_SCHEMAS[interrupt.kind],
        "metadata": {
            "kind": interrupt.kind,
            "toolName": interrupt.call.name,
            "arguments": interrupt.call.arguments,
        },
    }


USAGE: Final[Names] = {
    "provider": "provider",
    "model": "model",
    "input_tokens": "inputTokens",
    "output_tokens": "outputTokens",
    "total_tokens": "totalTokens",
    "reasoning_tokens": "reasoningTokens",
    "cached_input_tokens": "cachedInputTokens",
}


def _usage(usage: Sequence[Usage]) -> Json:
    entries = [
        {
            theirs: value
            for ours, theirs in USAGE.items()
            if (value := getattr(entry, ours)) not in {None, ""}
        }
        for entry in usage
    ]
    return {"usage": entries} if entries else {}


def encode_resync(resync: e.Resync, dialect: Dialect) -> Sequence[Json]:
    """All messages of a `Resync`, with its reasoning as it was streamed."""
    blocks: dict[str, list[e.ReasoningBlock]] = {}
    for block in resync.reasoning:
        blocks.setdefault(block.parent_id, []).append(block)
    encoded: list[Json] = []
    for message in resync.messages:
        streamed = blocks.get(message.id)
        if streamed is not None:
            encoded.extend(_reasoning(block.id, block.text) for block in streamed)
        elif isinstance(message, AssistantMessage) and message.reasoning:
            id_ = f"{message.id}-reasoning-1"
            encoded.append(_reasoning(id_, message.reasoning))
        encoded.extend(
            encode_messages([message], dialect, raw_arguments=resync.partial_arguments)
        )
    return encoded


def encode_messages(
    messages: Iterable[Message],
    dialect: Dialect,
    *,
    raw_arguments: Mapping[str, str] | None = None,
) -> Sequence[Json]:
    """Messages as AG-UI holds them. `raw_arguments`, by call id, win over parsed."""
    return [_message(message, dialect, raw_arguments or {}) for message in messages]


def _message(message: Message, dialect: Dialect, raw: Mapping[str, str]) -> Json:
    match message:
        case SystemMessage():
            return {"id": message.id, "role": "system", "content": message.text}
        case UserMessage():
            content = _user_content(message.content)
            return {"id": message.id, "role": "user", "content": content}
        case AssistantMessage():
            return _assistant(message, raw)
        case ToolMessage():
            encoded = {
                "id": message.id,
                "role": "tool",
                "toolCallId": message.call_id,
                "content": _result_content(message.content, dialect),
            }
            if message.is_error:
                encoded["metadata"] = {"agentrt": {"isError": True}}
            return encoded


def _assistant(message: AssistantMessage, raw: Mapping[str, str]) -> Json:
    encoded: dict[str, Any] = {"id": message.id, "role": "assistant"}
    if message.text:
        encoded["content"] = message.text
    if message.tool_calls:
        encoded["toolCalls"] = [_tool_call(call, raw) for call in message.tool_calls]
    return encoded


def _tool_call(call: ToolCall, raw: Mapping[str, str]) -> Json:
    arguments = raw.get(call.id, call.invalid_arguments)
    if arguments is None:
        arguments = text_of_value(call.arguments)
    function = {"name": call.name, "arguments": arguments}
    return {"id": call.id, "type": "function", "function": function}


def _reasoning(id_: str, text: str) -> Json:
    return {"id": id_, "role": "reasoning", "content": text}


KINDS: Final = ("image", "audio", "video")


def _user_content(content: Content) -> Any:
    if isinstance(content, str):
        return content
    return [_part(part) for part in content]


def _part(part: TextPart | FilePart | NativePart) -> Json:
    if not isinstance(part, FilePart):
        return {"type": "text", "text": part.text}
    family = part.media_type.partition("/")[0]
    source: dict[str, Any] = {"type": "data", "value": part.data}
    if part.url is not None:
        source = {"type": "url", "value": part.url}
    source["mimeType"] = part.media_type
    kind = family if family in KINDS else "document"
    encoded: dict[str, Any] = {"type": kind, "source": source}
    if part.filename:
        encoded["metadata"] = {"filename": part.filename}
    return encoded


def _result_content(content: Content, dialect: Dialect) -> Any:
    """A tool's result: parts where the dialect knows them, else text alone."""
    if isinstance(content, str):
        return content
    if dialect == PROTOCOL_VERSION:
        return [_part(part) for part in content]
    files = [part for part in content if isinstance(part, FilePart)]
    notes = [f"[{part.filename or 'file'}: {part.media_type}]" for part in files]
    return " ".join(text for text in (text_of(content), *notes) if text)
