"""Replies of the chat wire, streamed and whole, with the habits of many vendors."""

import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrt.core.chat import (
    ChatResponse,
    Delta,
    FinishReason,
    ReasoningDelta,
    TextDelta,
    Usage,
)
from agentrt.core.errors import (
    InvalidRequestError,
    ModelError,
    NetworkError,
    RateLimitError,
    ResponseFormatError,
    ServerError,
)
from agentrt.core.messages import AssistantMessage
from agentrt.providers.openai_stream import ChatDecoder
from agentrt.providers.openai_wire import Quirks
from agentrt.providers.sse import SseReader

PLAIN = Quirks(provider="acme", host="acme.example")
FIXTURES = Path(__file__).parent / "fixtures"
DONE = "[DONE]"

STREAMS: Mapping[str, Any] = json.loads((FIXTURES / "chat_streams.json").read_text())
"""By name: the chunks of a stream, and what they must become."""


def chunk(delta: Any = None, *, finish: str | None = None, **more: Any) -> str:
    choice = {"index": 0, "delta": delta or {}, "finish_reason": finish}
    return json.dumps({"choices": [choice], **more})


def calls_chunk(*entries: Any, finish: str | None = None) -> str:
    return chunk({"tool_calls": list(entries)}, finish=finish)


def entry(
    arguments: Any = None,
    *,
    index: Any = None,
    id_: str | None = None,
    name: str | None = None,
) -> dict[str, Any]:
    """An element of `tool_calls`, with what is given and nothing else."""
    function = {"name": name, "arguments": arguments}
    found = {"index": index, "id": id_}
    given_ = {key: value for key, value in found.items() if value is not None}
    known = {key: value for key, value in function.items() if value is not None}
    return {**given_, "function": known}


def decoded(
    *data: str, quirks: Quirks = PLAIN, told: list[Delta] | None = None
) -> ChatResponse:
    sink = None if told is None else told.append
    decoder = ChatDecoder(quirks, "m1", sink=sink, model="asked")
    for text in data:
        decoder.feed("message", text)
    return decoder.finish()


def body_of(*data: str, end: str = "\n") -> bytes:
    return "".join(f"data: {text}{end}{end}" for text in data).encode()


def read(body: bytes, *cuts: int) -> tuple[ChatResponse, Sequence[Delta]]:
    """A body through reader and decoder, cut at the given places."""
    told: list[Delta] = []
    decoder = ChatDecoder(PLAIN, "m1", sink=told.append, model="asked")
    reader = SseReader()
    places = [0, *sorted(cuts), len(body)]
    for start, end in pairwise(places):
        for name, data in reader.feed(body[start:end]):
            decoder.feed(name, data)
    for name, data in reader.finish():
        decoder.feed(name, data, cut=True)
    return decoder.finish(), told


@pytest.mark.parametrize("name", STREAMS)
def test_a_vendors_stream_becomes_what_it_meant(name: str) -> None:
    told: list[Delta] = []
    case = STREAMS[name]
    response = decoded(*map(text_of, case["chunks"]), told=told)
    found = {
        "text": response.message.text,
        "reasoning": response.message.reasoning,
        "calls": [[c.id, c.name, c.arguments] for c in response.message.tool_calls],
        "finish": response.finish_reason,
        "total": response.usage.total_tokens if response.usage else None,
    }
    nothing: dict[str, Any] = {"text": "", "reasoning": "", "calls": [], "total": None}
    assert found == {**nothing, **case["expected"]}
    assert told_text(told) == response.message.text


def text_of(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def told_text(told: Sequence[Delta]) -> str:
    return "".join(delta.text for delta in told if isinstance(delta, TextDelta))


def test_a_stream_tells_its_deltas_and_gives_the_response() -> None:
    told: list[Delta] = []
    response = decoded(
        chunk({"role": "assistant", "content": ""}, id="r1", model="acme-2"),
        chunk({"reasoning_content": "Hm."}),
        chunk({"content": "Hel"}),
        chunk({"content": "lo"}),
        chunk(finish="stop"),
        json.dumps({"choices": [], "usage": {"prompt_tokens": 3}}),
        DONE,
        told=told,
    )
    assert told == [
        ReasoningDelta(text="Hm."),
        TextDelta(text="Hel"),
        TextDelta(text="lo"),
    ]
    assert response == ChatResponse(
        message=AssistantMessage(id="m1", content="Hello", reasoning="Hm."),
        finish_reason=FinishReason.STOP,
        usage=Usage(provider="acme", model="acme-2", input_tokens=3, total_tokens=3),
        provider="acme",
        model="acme-2",
        response_id="r1",
    )


@pytest.mark.parametrize(
    ("finish", "with_call", "expected"),
    [
        ("stop", False, FinishReason.STOP),
        ("stop", True, FinishReason.TOOL_USE),
        (None, True, FinishReason.TOOL_USE),
        (None, False, None),
        ("null", False, None),
        ("tool_calls", True, FinishReason.TOOL_USE),
        ("tool_calls", False, FinishReason.UNKNOWN),
        ("function_call", True, FinishReason.TOOL_USE),
        ("length", True, FinishReason.MAX_TOKENS),
        ("content_filter", True, FinishReason.CONTENT_FILTER),
        ("sensitive", False, FinishReason.CONTENT_FILTER),
        ("network_error", False, FinishReason.ERROR),
        ("eos", False, FinishReason.STOP),
        ("odd", False, FinishReason.UNKNOWN),
    ],
)
def test_the_finish_reason_fits_what_came(
    finish: str | None, with_call: bool, expected: FinishReason | None
) -> None:
    piece = entry("{}", index=0, id_="a", name="f")
    first = calls_chunk(piece) if with_call else chunk({"content": "x"})
    assert decoded(first, chunk(finish=finish), DONE).finish_reason is expected


def test_the_last_finish_reason_and_the_last_usage_win() -> None:
    response = decoded(
        chunk({"content": "x"}, finish="length", usage={"total_tokens": 1}),
        chunk(finish="stop", usage={"total_tokens": 2}),
        chunk(usage=None),
    )
    assert response.finish_reason is FinishReason.STOP
    assert response.usage == Usage(provider="acme", model="asked", total_tokens=2)


def test_a_refusal_is_the_text_where_there_is_no_other() -> None:
    told: list[Delta] = []
    response = decoded(
        chunk({"content": None, "refusal": ""}),
        chunk({"refusal": "I "}),
        chunk({"refusal": "won't."}),
        chunk(finish="stop"),
        told=told,
    )
    assert told == [TextDelta(text="I won't.")]
    assert response.message.text == "I won't."
    assert response.finish_reason is FinishReason.REFUSAL


def test_other_choices_than_the_first_are_passed_over() -> None:
    both = {
        "choices": [
            {"index": 1, "delta": {"content": "no"}, "finish_reason": "length"},
            {"index": 0, "delta": {"content": "yes"}, "finish_reason": "stop"},
        ]
    }
    response = decoded(json.dumps(both))
    assert response.message.text == "yes"


def test_what_follows_done_is_passed_over() -> None:
    response = decoded(chunk({"content": "x"}), DONE, chunk({"content": "y"}), DONE)
    assert response.message.text == "x"


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ('{"error": {"code": "rate_limit_exceeded"}}', RateLimitError),
        ('{"error": "boom", "choices": []}', ServerError),
        (
            '{"choices": [{"error": {"code": 400, "message": "x"}}]}',
            InvalidRequestError,
        ),
        ('{"object": "error", "message": "x", "code": 400}', InvalidRequestError),
        ('{"type": "error", "error": {"type": "overloaded_error"}}', ServerError),
        ('{"code": 500, "msg": "x", "success": false}', ServerError),
        ('[{"error": {"status": "UNAVAILABLE"}}]', ServerError),
    ],
)
def test_an_error_within_the_stream_is_raised(
    data: str, expected: type[ModelError]
) -> None:
    with pytest.raises(expected):
        decoded(chunk({"content": "x"}, finish="length"), data, DONE)


@pytest.mark.parametrize("data", ['{"error": {"message": "busy"}}', '"busy"', "busy"])
def test_an_event_named_error_is_raised(data: str) -> None:
    decoder = ChatDecoder(PLAIN, "m1")
    with pytest.raises(ServerError, match="busy"):
        decoder.feed("error", data)


def test_a_key_in_an_error_of_the_stream_is_masked() -> None:
    decoder = ChatDecoder(PLAIN, "m1", secret="hunter2-hunter2")
    with pytest.raises(ServerError, match=r"^bad \*\*\* "):
        decoder.feed("message", '{"error": "bad hunter2-hunter2"}')


def test_a_stream_without_a_terminal_ended_early() -> None:
    with pytest.raises(NetworkError, match="stream ended early"):
        decoded(chunk({"content": "x"}))


def test_a_chunk_that_is_no_json_is_passed_over_if_the_stream_goes_on() -> None:
    response = decoded(chunk({"content": "x"}), "{oops", chunk(finish="stop"))
    assert response.message.text == "x"


def test_a_chunk_that_is_no_json_before_an_early_end_is_the_error() -> None:
    with pytest.raises(ResponseFormatError, match="oops"):
        decoded(chunk({"content": "x"}), "{oops")


def test_a_chunk_that_is_no_json_within_a_call_is_an_error_at_once() -> None:
    with pytest.raises(ResponseFormatError, match="in the middle of a tool call"):
        decoded(calls_chunk(entry('{"x"', index=0, id_="a", name="f")), "{oops")


def test_a_chunk_that_is_no_json_before_a_call_is_an_error_at_the_end() -> None:
    late = calls_chunk(entry("{}", index=0, id_="a", name="f"))
    with pytest.raises(ResponseFormatError, match="oops"):
        decoded("{oops", late, DONE)


def test_a_last_event_without_its_blank_line_counts_if_it_is_json() -> None:
    body = body_of(chunk({"content": "x"})) + f"data: {chunk(finish='stop')}".encode()
    assert read(body)[0].finish_reason is FinishReason.STOP


def test_a_last_event_that_was_cut_is_an_early_end() -> None:
    body = body_of(chunk({"content": "x"})) + b'data: {"choices": [{"fini'
    with pytest.raises(NetworkError, match="stream ended early"):
        read(body)


def test_an_exception_of_the_sink_passes() -> None:
    def sink(delta: Delta) -> None:
        raise KeyError("mine")

    decoder = ChatDecoder(PLAIN, "m1", sink=sink)
    with pytest.raises(KeyError, match="mine"):
        decoder.feed("message", chunk({"content": "x"}))


def test_content_may_be_a_list_of_texts() -> None:
    parts = ["a", {"type": "text", "text": "b"}, {"type": "reference", "ids": [1]}, 2]
    assert decoded(chunk({"content": parts}), DONE).message.text == "ab"


def test_reasoning_that_comes_twice_is_told_once() -> None:
    mirrored = {"reasoning": "Hm", "reasoning_details": [{"text": "Hm", "index": 0}]}
    only = {"reasoning_details": [{"text": "...", "index": 0}]}
    response = decoded(chunk(mirrored), chunk(only), DONE)
    assert response.message.reasoning == "Hm"


EXAMPLE = body_of(
    chunk({"role": "assistant", "content": ""}, id="r1"),
    chunk({"content": "Grüße \u2028 €"}),
    chunk({"reasoning": "…"}),
    calls_chunk(entry('{"x"', index=0, id_="a", name="f")),
    calls_chunk(entry(": 1}", index=0)),
    chunk(finish="tool_calls"),
    json.dumps({"choices": [], "usage": {"total_tokens": 9}}, ensure_ascii=False),
    DONE,
    end="\r\n",
)
TERMINAL = EXAMPLE.index(b'"finish_reason": "tool_calls"')


@given(st.lists(st.integers(0, len(EXAMPLE)), max_size=8))
def test_where_a_stream_is_split_does_not_matter(cuts: list[int]) -> None:
    assert read(EXAMPLE, *cuts) == read(EXAMPLE)


def test_a_stream_in_single_bytes_gives_the_same() -> None:
    assert read(EXAMPLE, *range(len(EXAMPLE))) == read(EXAMPLE)


@given(st.integers(0, TERMINAL - 1))
def test_a_stream_cut_anywhere_before_its_terminal_ended_early(end: int) -> None:
    with pytest.raises(NetworkError, match="stream ended early"):
        read(EXAMPLE[:end])


NAMES = st.sampled_from(
    [
        *("choices", "delta", "message", "content", "refusal", "finish_reason"),
        *("reasoning", "reasoning_content", "reasoning_details", "thinking"),
        *("tool_calls", "function_call", "function", "name", "arguments"),
        *("text", "type", "index", "id", "model", "usage", "x_groq"),
        *("extra_content", "summary", "signature"),
    ]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4)
    ),
    max_leaves=20,
)


@given(JSON, JSON)
def test_any_json_at_all_never_crashes_the_decoder(one: Any, other: Any) -> None:
    frames = [{"choices": [{"delta": one}]}, {"choices": [one]}, {"choices": one}, one]
    decoder = ChatDecoder(PLAIN, "m1")
    try:
        for frame in [*frames, other]:
            decoder.feed("message", json.dumps(frame))
        decoder.finish()
    except ModelError:
        pass
