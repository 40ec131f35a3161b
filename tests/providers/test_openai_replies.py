"""Whole replies of the chat wire."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrt.core.chat import ChatResponse, FinishReason, Usage
from agentrt.core.errors import (
    InvalidRequestError,
    ModelError,
    RateLimitError,
    ResponseFormatError,
    ServerError,
)
from agentrt.core.messages import AssistantMessage, ToolCall
from agentrt.providers.openai_stream import ChatDecoder, decode_reply
from agentrt.providers.openai_wire import Quirks

PLAIN = Quirks(provider="acme", host="acme.example")


def entry(arguments: Any, *, id_: str, name: str, **more: Any) -> dict[str, Any]:
    """An element of `tool_calls`."""
    return {"id": id_, "function": {"name": name, "arguments": arguments}, **more}


def whole(message: Any, *, finish: str | None = "stop", **more: Any) -> ChatResponse:
    choice = {"index": 0, "message": message, "finish_reason": finish}
    decoder = ChatDecoder(PLAIN, "m1", model="asked")
    return decode_reply({"choices": [choice], **more}, decoder)


def test_a_whole_reply_gives_what_the_stream_would() -> None:
    calls = [entry('{"x":1}', id_="a", name="f"), entry("", id_="b", name="g")]
    message = {"content": "Hi", "reasoning": "Hm", "tool_calls": calls}
    response = whole(message, finish="tool_calls", id="r1", usage={"total_tokens": 7})
    assert response == ChatResponse(
        message=AssistantMessage(
            id="m1",
            content="Hi",
            reasoning="Hm",
            tool_calls=(
                ToolCall(id="a", name="f", arguments={"x": 1}),
                ToolCall(id="b", name="g"),
            ),
        ),
        finish_reason=FinishReason.TOOL_USE,
        usage=Usage(provider="acme", model="asked", total_tokens=7),
        provider="acme",
        model="asked",
        response_id="r1",
    )


def test_calls_of_a_whole_reply_are_told_apart_by_their_place() -> None:
    twice = [entry("{}", index=0, id_="", name="f")] * 2
    response = whole({"content": None, "tool_calls": twice})
    assert response.message.tool_calls == (ToolCall(id="", name="f"),) * 2


@pytest.mark.parametrize("choice", [{}, {"message": None}, {"message": {"content": 1}}])
def test_a_choice_without_a_message_is_an_empty_response(choice: Any) -> None:
    payload = {"choices": [{**choice, "finish_reason": "content_filter"}]}
    response = decode_reply(payload, ChatDecoder(PLAIN, "m1"))
    assert response.message == AssistantMessage(id="m1")
    assert response.finish_reason is FinishReason.CONTENT_FILTER


def test_no_choice_at_all_is_an_empty_response() -> None:
    response = decode_reply({"choices": [], "model": "x"}, ChatDecoder(PLAIN, "m1"))
    assert (response.message.text, response.finish_reason) == ("", None)


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        ({"error": {"code": "rate_limit_exceeded"}}, RateLimitError),
        ({"error": {"code": 400}, "choices": []}, InvalidRequestError),
        ([{"error": {"code": 400}}], InvalidRequestError),
        ({"code": 500, "msg": "x", "success": False}, ServerError),
        ({"hello": 1}, ResponseFormatError),
        ({}, ResponseFormatError),
        ([], ResponseFormatError),
        ("text", ResponseFormatError),
        (None, ResponseFormatError),
    ],
)
def test_a_whole_reply_that_is_no_completion_is_an_error(
    payload: Any, expected: type[ModelError]
) -> None:
    with pytest.raises(expected):
        decode_reply(payload, ChatDecoder(PLAIN, "m1"))


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
    for payload in (one, {"choices": [{"message": other}]}, {"choices": one}):
        try:
            decode_reply(payload, ChatDecoder(PLAIN, "m1"))
        except ModelError:
            continue
