"""One model call: what goes in, what streams, what comes back.

The same values for every vendor. A provider turns a `ChatRequest` into its wire form
and what it gets back into `Delta`s and a `ChatResponse`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final, TypeAlias

from attrs import define, evolve, field, frozen

from agentrt.core.messages import AssistantMessage, Message

__all__ = [
    "ChatRequest",
    "ChatResponse",
    "Delta",
    "DeltaSink",
    "FallbackReport",
    "FinishReason",
    "OutputSchema",
    "ReasoningDelta",
    "TextDelta",
    "ToolCallDelta",
    "ToolChoice",
    "ToolSpec",
    "Usage",
    "add_usage",
    "finish_reason",
    "usage_from",
]


@frozen(kw_only=True)
class ToolSpec:
    """A tool as the model is told of it."""

    name: str
    description: str = ""
    parameters: Mapping[str, Any] = field(factory=dict)
    """A JSON Schema of type object; its properties keep their order."""


ToolChoice: TypeAlias = str
"""`auto`, `required`, `none`, or the name of the one tool to call."""


@frozen(kw_only=True)
class OutputSchema:
    """The form that an answer should have, for vendors that can hold a model to it."""

    name: str
    """Letters, digits, `_` and `-`; at most 64."""

    schema: Mapping[str, Any]
    """A JSON Schema of type object."""

    strict: bool = False
    """Refuse what does not fit. Vendors take only some schemas then: most want each
    object closed (`additionalProperties: false`) and all its properties required."""


@frozen(kw_only=True)
class ChatRequest:
    """What a model is asked."""

    messages: Sequence[Message] = ()
    system: str = ""
    """The system prompt. Sent with each call, never stored."""

    tools: Sequence[ToolSpec] = ()
    tool_choice: ToolChoice | None = None
    options: Mapping[str, Any] = field(factory=dict)
    """All else that the vendor should get, as `temperature` or `max_tokens`. These win
    over the model's own options; a value of None does not."""

    output_schema: OutputSchema | None = None
    """A wire that has no word for it leaves it out: check the answer."""


class FinishReason(StrEnum):
    """Why the model ended its message."""

    STOP = "stop"
    TOOL_USE = "tool_use"
    MAX_TOKENS = "max_tokens"
    CONTENT_FILTER = "content_filter"
    REFUSAL = "refusal"
    PAUSE = "pause"
    ERROR = "error"
    CONTEXT_WINDOW_EXCEEDED = "context_window_exceeded"
    UNKNOWN = "unknown"


FINISH_REASONS: Final[Mapping[str, FinishReason]] = {
    **{reason.value: reason for reason in FinishReason},
    "end_turn": FinishReason.STOP,
    "stop_sequence": FinishReason.STOP,
    "eos": FinishReason.STOP,
    "eos_token": FinishReason.STOP,
    "complete": FinishReason.STOP,
    "tool_calls": FinishReason.TOOL_USE,
    "tool_call": FinishReason.TOOL_USE,
    "function_call": FinishReason.TOOL_USE,
    "length": FinishReason.MAX_TOKENS,
    "sensitive": FinishReason.CONTENT_FILTER,
    "pause_turn": FinishReason.PAUSE,
    "network_error": FinishReason.ERROR,
    "model_context_window_exceeded": FinishReason.CONTEXT_WINDOW_EXCEEDED,
}
"""What vendors say, in lower case. Our own names stand for themselves, so that asking
twice changes nothing."""


def finish_reason(raw: str | None) -> FinishReason | None:
    """Our name for a vendor's finish reason; None stays None."""
    if raw is None:
        return None
    return FINISH_REASONS.get(raw.lower(), FinishReason.UNKNOWN)


@frozen(kw_only=True)
class Usage:
    """Tokens of one or more calls. None means that the vendor did not say."""

    provider: str = ""
    model: str = ""
    input_tokens: int | None = None
    """As the vendor counts: with cached tokens on most, without on some."""

    output_tokens: int | None = None
    total_tokens: int | None = None
    cached_input_tokens: int | None = None
    cache_write_input_tokens: int | None = None
    reasoning_tokens: int | None = None


COUNTS: Final = (
    "input_tokens",
    "output_tokens",
    "total_tokens",
    "cached_input_tokens",
    "cache_write_input_tokens",
    "reasoning_tokens",
)

USAGE_KEYS: Final[Mapping[str, Sequence[tuple[str, ...]]]] = {
    "input_tokens": [("input_tokens",), ("prompt_tokens",)],
    "output_tokens": [("output_tokens",), ("completion_tokens",)],
    "total_tokens": [("total_tokens",)],
    "cached_input_tokens": [
        ("cache_read_input_tokens",),
        ("prompt_tokens_details", "cached_tokens"),
        ("input_tokens_details", "cached_tokens"),
        ("prompt_cache_hit_tokens",),
    ],
    "cache_write_input_tokens": [
        ("cache_creation_input_tokens",),
        ("prompt_tokens_details", "cache_write_tokens"),
        ("input_tokens_details", "cache_write_tokens"),
    ],
    "reasoning_tokens": [
        ("completion_tokens_details", "reasoning_tokens"),
        ("output_tokens_details", "reasoning_tokens"),
        ("output_tokens_details", "thinking_tokens"),
    ],
}
"""Where the vendors put each count; the first that is there is taken."""


def usage_from(
    raw: Mapping[str, Any] | None, *, provider: str, model: str
) -> Usage | None:
    """What a vendor's usage object says, under our names; None if it says nothing.

    The total falls back to input plus output. A count that is no whole number of
    tokens is as good as absent.
    """
    if not isinstance(raw, Mapping):
        return None
    counts = {name: _first_count(raw, paths) for name, paths in USAGE_KEYS.items()}
    if counts["total_tokens"] is None:
        given = (counts["input_tokens"], counts["output_tokens"])
        known = [count for count in given if count is not None]
        counts["total_tokens"] = sum(known) if known else None
    if counts["total_tokens"] is None:
        return None
    return Usage(provider=provider, model=model, **counts)


def _first_count(
    raw: Mapping[str, Any], paths: Sequence[tuple[str, ...]]
) -> int | None:
    for path in paths:
        value: Any = raw
        for key in path:
            value = value.get(key) if isinstance(value, Mapping) else None
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        if value >= 0 and (isinstance(value, int) or value.is_integer()):
            return int(value)
    return None


def add_usage(entries: Iterable[Usage]) -> Sequence[Usage]:
    """One entry for each provider and model, in order of first appearance."""
    sums: dict[tuple[str, str], Usage] = {}
    for entry in entries:
        key = (entry.provider, entry.model)
        known = sums.get(key)
        sums[key] = entry if known is None else _add(known, entry)
    return tuple(sums.values())


def _add(one: Usage, other: Usage) -> Usage:
    sums: dict[str, Any] = {}
    for name in COUNTS:
        counts = [getattr(one, name), getattr(other, name)]
        known = [count for count in counts if count is not None]
        sums[name] = sum(known) if known else None
    return evolve(one, **sums)


@frozen(kw_only=True)
class FallbackReport:
    """Which models were tried for one answer, in order."""

    answered_by: str | None
    """The reference of the model that answered, or None when all failed."""

    failures: Sequence[tuple[str, str]] = ()
    """Reference and error text of each model that failed before."""


@frozen(kw_only=True)
class ChatResponse:
    """What a model answered."""

    message: AssistantMessage
    finish_reason: FinishReason | None = None
    usage: Usage | None = None
    provider: str = ""
    model: str = ""
    """As the vendor names it, which need not be what was asked for."""

    response_id: str = ""
    fallback: FallbackReport | None = None


# Deltas are made for each token: `define` without `frozen` takes 0.13 us against 0.44.
# By convention nobody changes one.
@define(kw_only=True)
class TextDelta:
    text: str
    """What is new; never empty. All of them joined are the message's text."""


@define(kw_only=True)
class ReasoningDelta:
    text: str


@define(kw_only=True)
class ToolCallDelta:
    """A piece of one tool call as it streams."""

    index: int
    """Place of the call in the message, from 0. Pieces of several calls may mix."""

    id: str = ""
    """With the first piece that knows it; "" when the vendor gave none."""

    name: str = ""
    """With the first piece of the call."""

    arguments: str = ""
    """The next characters of the JSON text."""


Delta: TypeAlias = TextDelta | ReasoningDelta | ToolCallDelta
"""Closed union."""

DeltaSink: TypeAlias = Callable[[Delta], None]
"""What deltas are told to. Plain and quick; an exception from it ends the call."""
