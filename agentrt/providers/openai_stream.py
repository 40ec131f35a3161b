"""Replies in the form of OpenAI's chat completions, streamed or whole.

Pure. Beneath `openai`, which feeds it what comes over the wire. A whole reply is read
as a stream of one chunk, so that both give the same `ChatResponse`. Vendors that copy
this wire differ in nearly everything; what is of no known form is passed over, and the
first choice is the only one that counts.

JSON objects are known by `dict`, which takes a tenth of the time of `Mapping`: a few
are looked at for each token.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from attrs import define, field

from agentrt.core.chat import (
    ChatResponse,
    Delta,
    DeltaSink,
    FinishReason,
    ReasoningDelta,
    TextDelta,
    Usage,
    finish_reason,
    usage_from,
)
from agentrt.core.errors import NetworkError, ResponseFormatError
from agentrt.core.messages import AssistantMessage, Blocks, ToolCall
from agentrt.providers.errors import error_from_event, masked
from agentrt.providers.openai_calls import CallAccumulator
from agentrt.providers.openai_wire import BLOCKS_FORMAT, Quirks

__all__ = ["ChatDecoder", "decode_reply"]

CUT: Final = (FinishReason.MAX_TOKENS, FinishReason.CONTENT_FILTER)
"""Reasons that end a reply in the middle of what it was saying."""

NOT_FINISHED: Final = (None, "", "null")
"""What stands for "no finish reason yet"; DashScope sends the word."""


def decode_reply(payload: Any, decoder: "ChatDecoder") -> ChatResponse:
    """The response that a whole reply holds, parsed from JSON. Its parts are told.

    Raises:
        ModelError: the reply is an error though its status was 200.
        ResponseFormatError: it is no chat completion.
    """
    if isinstance(payload, list) and payload:
        payload = payload[0]
    if not isinstance(payload, dict):
        raise ResponseFormatError(
            f"the reply is a JSON {type(payload).__name__}, expected an object",
            provider=decoder.provider,
        )
    decoder.feed_reply(payload)
    return decoder.response()


@define
class ChatDecoder:
    """Makes deltas and the response out of one reply. Used once."""

    _quirks: Quirks
    _message_id: str
    _sink: DeltaSink | None = field(default=None, alias="sink", kw_only=True)
    _model: str = field(default="", alias="model", kw_only=True)
    """As it was asked for: used until the vendor names it."""

    secret: str = field(default="", kw_only=True, repr=False)
    """Masked wherever the vendor echoes it."""

    done: bool = field(default=False, init=False)
    """`[DONE]` was read: nothing more counts."""

    _calls: CallAccumulator = field(init=False)
    _text: list[str] = field(factory=list, init=False)
    _refusal: list[str] = field(factory=list, init=False)
    _reasoning: list[str] = field(factory=list, init=False)
    _reasoning_key: str = field(default="", init=False)
    """The one source of reasoning: some vendors send the same words in two."""

    _details: dict[tuple[str, ...], dict[str, Any]] = field(factory=dict, init=False)
    _extra: Mapping[str, Any] | None = field(default=None, init=False)
    _finish: str = field(default="", init=False)
    _usage: Mapping[str, Any] | None = field(default=None, init=False)
    _response_id: str = field(default="", init=False)
    _unreadable: str = field(default="", init=False)
    """The beginning of a chunk that was no JSON."""

    def __attrs_post_init__(self) -> None:
        self._calls = CallAccumulator(self._tell)

    @property
    def provider(self) -> str:
        return self._quirks.provider

    @property
    def complete(self) -> bool:
        """Whether the stream may end here."""
        return self.done or self._finish != ""

    def feed(self, name: str, data: str, *, cut: bool = False) -> None:
        """Take one server-sent event. `cut` if the end of the body cut it short.

        Raises:
            ModelError: the vendor says in the stream that it failed.
            ResponseFormatError: it is no JSON, in the middle of a tool call.
        """
        data = data.strip()
        if self.done or not data:
            return
        if data == "[DONE]":
            self.done = True
            return
        try:
            chunk = json.loads(data)
        except (ValueError, RecursionError):
            chunk = None
        if name == "error":
            raise self._error(data if chunk is None else chunk)
        if isinstance(chunk, list) and chunk:
            chunk = chunk[0]  # Gemini wraps its errors so
        if isinstance(chunk, dict):
            self._feed_chunk(chunk)
        elif not cut:
            self._skip(data)

    def feed_reply(self, payload: Mapping[str, Any]) -> None:
        """Take a whole reply as one chunk."""
        choice = _first_choice(payload)
        if choice is None and "choices" not in payload:
            if not payload.get("error") and not _says_error(payload):
                raise ResponseFormatError(
                    f"the reply has no choices, but {', '.join(payload) or 'nothing'}",
                    provider=self.provider,
                )
            raise self._error(payload)
        if choice is None and payload.get("error"):
            raise self._error(payload)
        self._read_frame(payload)
        if choice is not None:
            message = choice.get("message")
            delta = _with_places(message) if isinstance(message, dict) else {}
            self._read_choice({**choice, "delta": delta})

    def finish(self) -> ChatResponse:
        """The response, once the stream is at its end.

        Raises:
            NetworkError: it ended too early.
            ResponseFormatError: a part that was no JSON may be missed.
        """
        if self._unreadable and (self._calls or not self.complete):
            raise ResponseFormatError(
                f"a chunk of the stream is no JSON: {self._unreadable}",
                provider=self.provider,
            )
        if not self.complete:
            raise NetworkError(
                "stream ended early: without a finish reason and without [DONE]",
                provider=self.provider,
            )
        return self.response()

    def response(self) -> ChatResponse:
        """The response out of what was read."""
        reason = finish_reason(self._finish or None)
        calls = self._calls.finish(cut=reason in CUT)
        if not self._text and self._refusal:
            self._say("".join(self._refusal))
        if self._refusal:
            reason = FinishReason.REFUSAL
        elif calls and reason in (None, FinishReason.STOP):
            reason = FinishReason.TOOL_USE
        elif not calls and reason is FinishReason.TOOL_USE:
            reason = FinishReason.UNKNOWN
        message = AssistantMessage(
            id=self._message_id,
            content="".join(self._text),
            reasoning="".join(self._reasoning),
            tool_calls=calls,
            blocks=self._blocks(calls),
        )
        return ChatResponse(
            message=message,
            finish_reason=reason,
            usage=self._read_usage(),
            provider=self.provider,
            model=self._model,
            response_id=self._response_id,
        )

    def _feed_chunk(self, chunk: Mapping[str, Any]) -> None:
        if chunk.get("error") or _says_error(chunk):
            raise self._error(chunk)
        self._read_frame(chunk)
        choice = _first_choice(chunk)
        if choice is not None:
            self._read_choice(choice)

    def _read_frame(self, chunk: Mapping[str, Any]) -> None:
        """What stands around the choices."""
        groq = chunk.get("x_groq")
        usage = chunk.get("usage") or (
            groq.get("usage") if isinstance(groq, dict) else None
        )
        if isinstance(usage, dict):
            self._usage = usage
        if isinstance(model := chunk.get("model"), str) and model:
            self._model = model
        if isinstance(id_ := chunk.get("id"), str) and not self._response_id:
            self._response_id = id_

    def _read_choice(self, choice: Mapping[str, Any]) -> None:
        if choice.get("error"):
            raise self._error(choice)
        delta = choice.get("delta")
        if isinstance(delta, dict):
            self._read_delta(delta)
        finish = choice.get("finish_reason")
        if finish not in NOT_FINISHED:
            self._finish = str(finish)

    def _read_delta(self, delta: Mapping[str, Any]) -> None:
        self._read_reasoning(delta)
        content = delta.get("content")
        if isinstance(content, str):
            self._say(content)
        elif isinstance(content, list):
            self._read_parts(content)
        if isinstance(refusal := delta.get("refusal"), str) and refusal:
            self._refusal.append(refusal)
        if isinstance(extra := delta.get("extra_content"), dict):
            self._extra = extra
        calls = delta.get("tool_calls")
        for entry in calls if isinstance(calls, list) else ():
            if isinstance(entry, dict):
                self._calls.feed(entry)
        if isinstance(legacy := delta.get("function_call"), dict):
            self._calls.feed({"index": "function_call", "function": legacy})

    def _read_parts(self, parts: Sequence[Any]) -> None:
        """Content as a list, as Mistral sends it: what it thinks and what it says."""
        for part in parts:
            if isinstance(part, str):
                self._say(part)
            elif isinstance(part, dict) and part.get("type") == "thinking":
                self._think("thinking", "".join(_texts(part.get("thinking"))))
            elif isinstance(part, dict):
                self._say("".join(_texts(part.get("text"))))

    def _read_reasoning(self, delta: Mapping[str, Any]) -> None:
        details = delta.get("reasoning_details")
        details = details if isinstance(details, list) else []
        for key in ("reasoning_content", "reasoning"):
            if isinstance(words := delta.get(key), str) and words:
                self._think(key, words)
                break
        else:
            self._think("reasoning_details", "".join(_texts(details)))
        for detail in details:
            if isinstance(detail, dict):
                self._keep_detail(detail)

    def _keep_detail(self, detail: Mapping[str, Any]) -> None:
        """Join the pieces of one detail: texts grow, the signature comes last."""
        place: tuple[str, ...] = (str(detail.get("index")), str(detail.get("type")))
        if detail.get("data") and "data" in self._details.get(place, {}):
            place = (*place, str(len(self._details)))  # encrypted ones come whole
        known = self._details.setdefault(place, {})
        for key, value in detail.items():
            grows = key in ("text", "summary") and isinstance(value, str)
            if grows and isinstance(known.get(key), str):
                known[key] += value
            elif value is not None or key not in known:
                known[key] = value

    def _say(self, words: str) -> None:
        if words:
            self._text.append(words)
            self._tell(TextDelta(text=words))

    def _think(self, key: str, words: str) -> None:
        if words and self._reasoning_key in ("", key):
            self._reasoning_key = key
            self._reasoning.append(words)
            self._tell(ReasoningDelta(text=words))

    def _tell(self, delta: Delta) -> None:
        if self._sink is not None:
            self._sink(delta)

    def _skip(self, data: str) -> None:
        self._unreadable = masked(data, self.secret)[:100]
        if self._calls:
            raise ResponseFormatError(
                f"a chunk in the middle of a tool call is no JSON: {self._unreadable}",
                provider=self.provider,
            )

    def _error(self, payload: Any) -> Exception:
        return error_from_event(payload, provider=self.provider, secret=self.secret)

    def _read_usage(self) -> Usage | None:
        return usage_from(self._usage, provider=self.provider, model=self._model)

    def _blocks(self, calls: Sequence[ToolCall]) -> Blocks | None:
        kept: dict[str, Any] = {}
        if self._details:
            kept["reasoning_details"] = list(self._details.values())
        if self._quirks.echoes_reasoning and self._reasoning_key == "reasoning_content":
            kept["reasoning_content"] = "".join(self._reasoning)
        if self._extra is not None:
            kept["extra_content"] = self._extra
        extras = self._calls.extras
        if not kept and not any(extras):
            return None
        kept["host"] = self._quirks.host
        kept["calls"] = [
            {"id": call.id, "name": call.name}
            | ({} if extra is None else {"extra_content": extra})
            for call, extra in zip(calls, extras, strict=True)
        ]
        return Blocks(provider=self.provider, format=BLOCKS_FORMAT, data=kept)


def _first_choice(chunk: Mapping[str, Any]) -> Mapping[str, Any] | None:
    choices = chunk.get("choices")
    for choice in choices if isinstance(choices, list) else ():
        if isinstance(choice, dict) and choice.get("index") in (0, None):
            return choice
    return None


def _says_error(chunk: Mapping[str, Any]) -> bool:
    """Whether a chunk without choices is an error by another name."""
    if "choices" in chunk:
        return False
    if "error" in (chunk.get("object"), chunk.get("type")):
        return True
    words = ("message", "msg", "detail")
    return "code" in chunk and any(name in chunk for name in words)


def _with_places(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """A whole message, its calls told apart by their place in it."""
    calls = message.get("tool_calls")
    if not isinstance(calls, list):
        return message
    placed = [
        {**entry, "index": place}
        for place, entry in enumerate(calls)
        if isinstance(entry, dict)
    ]
    return {**message, "tool_calls": placed}


def _texts(value: Any) -> Iterator[str]:
    """The words in a text, or in a list of parts that have some."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for part in value:
            words = part if isinstance(part, str) else None
            if isinstance(part, dict):
                words = part.get("text") or part.get("summary")
            if isinstance(words, str):
                yield words
