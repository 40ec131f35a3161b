"""What a vendor's refusal means: statuses, codes, wordings, waits, and no keys."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrt.core.errors import (
    AuthenticationError,
    ContextOverflowError,
    InvalidRequestError,
    ModelError,
    ModelTimeoutError,
    QuotaExceededError,
    RateLimitError,
    ServerError,
)
from agentrt.providers.errors import (
    ERROR_BY_CODE,
    ERROR_BY_VAGUE_CODE,
    FailedReply,
    error_from_event,
    error_from_reply,
)


def refused(
    status: int, body: Any = "", *, secret: str = "", now: float = 0.0, **headers: str
) -> ModelError:
    """The error for a reply; a body that is no text is sent as JSON."""
    text = body if isinstance(body, str) else json.dumps(body)
    reply = FailedReply(
        status=status,
        headers={name.replace("_", "-"): value for name, value in headers.items()},
        body=text.encode("utf-8", "surrogatepass"),
    )
    return error_from_reply(reply, provider="acme", secret=secret, now=lambda: now)


def coded(code: Any, message: str = "no") -> Mapping[str, Any]:
    return {"error": {"code": code, "message": message}}


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (301, InvalidRequestError),
        (400, InvalidRequestError),
        (401, AuthenticationError),
        (402, QuotaExceededError),
        (403, AuthenticationError),
        (404, InvalidRequestError),
        (405, InvalidRequestError),
        (408, ModelTimeoutError),
        (409, ServerError),
        (413, InvalidRequestError),
        (415, InvalidRequestError),
        (418, InvalidRequestError),
        (422, InvalidRequestError),
        (425, ServerError),
        (429, RateLimitError),
        (500, ServerError),
        (502, ServerError),
        (503, ServerError),
        (504, ServerError),
        (529, ServerError),
        (599, ServerError),
    ],
)
def test_a_status_alone_says_what_to_do(
    status: int, expected: type[ModelError]
) -> None:
    error = refused(status)
    assert (type(error), error.status, error.provider) == (expected, status, "acme")


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [
        (429, "insufficient_quota", QuotaExceededError),
        (429, "1113", QuotaExceededError),
        (429, 1302, RateLimitError),
        (400, "1261", ContextOverflowError),
        (400, "context_length_exceeded", ContextOverflowError),
        (400, "TOO_MANY_TOKENS", ContextOverflowError),
        (400, "Arrearage", QuotaExceededError),
        (400, "InvalidApiKey", AuthenticationError),
        (429, "Throttling.RateQuota", RateLimitError),
        (403, "30001", QuotaExceededError),
        (500, "1234", ServerError),
        (401, "api_error", AuthenticationError),
        (401, "invalid_request_error", AuthenticationError),
        (400, "INVALID_ARGUMENT", InvalidRequestError),
        (400, 429, InvalidRequestError),
        (429, 400, RateLimitError),
        (400, True, InvalidRequestError),
    ],
)
def test_a_code_that_means_one_thing_wins_and_a_vague_one_never_does(
    status: int, code: Any, expected: type[ModelError]
) -> None:
    assert type(refused(status, coded(code))) is expected


@pytest.mark.parametrize(
    "body",
    [
        {"error": {"type": "insufficient_quota", "message": "no"}},
        {"error": {"message": "no"}, "code": "insufficient_quota"},
        {"error": {"details": [{"reason": "insufficient_quota"}]}},
        {"error": {"innererror": {"code": "insufficient_quota"}}},
        [{"error": {"code": "insufficient_quota"}}],
        {"error": {"metadata": {"raw": '{"error":{"code":"insufficient_quota"}}'}}},
        {"code": "insufficient_quota", "msg": "no"},
    ],
)
def test_a_code_is_found_wherever_vendors_put_it(body: Any) -> None:
    assert type(refused(429, body)) is QuotaExceededError


def test_the_tables_have_their_codes_in_lower_case_and_none_twice() -> None:
    codes = [*ERROR_BY_CODE, *ERROR_BY_VAGUE_CODE]
    assert codes == sorted({code.lower() for code in codes}, key=codes.index)


OVERFLOWS = [
    "This model's maximum context length is 8192 tokens. However, you asked for 9000.",
    "prompt too long; exceeded max context length by 1119046 tokens",
    "Context length exceeded",
    "Your input exceeds the context window of this model.",
    "the context window is too small",
    "prompt is too long: 3333404 tokens > 200000 maximum",
    "Input is too long for requested model.",
    "The input token count (9) exceeds the maximum number of tokens allowed (8).",
    "input length and `max_tokens` exceed context limit: 199990 + 20 > 200000",
    "length of all messages is too long",
    "too many tokens: size limit exceeded by 3 tokens",
    "Please reduce the length of the messages or completion.",
]


@pytest.mark.parametrize("words", OVERFLOWS)
def test_an_overflow_is_known_by_its_words(words: str) -> None:
    kinds = {type(refused(status, coded(None, words))) for status in (400, 413, 422)}
    assert kinds == {ContextOverflowError}


@pytest.mark.parametrize("words", OVERFLOWS)
def test_an_overflow_is_known_by_its_words_within_a_stream(words: str) -> None:
    error = error_from_event(coded(None, words), provider="acme")
    assert type(error) is ContextOverflowError


@pytest.mark.parametrize(
    ("status", "words", "expected"),
    [
        (400, "max_tokens must be at most 8192", InvalidRequestError),
        (400, "`max_tokens` must be at most the context window", InvalidRequestError),
        (400, "image exceeds 5 MB maximum", InvalidRequestError),
        (429, "Request too large for model: tokens per minute", RateLimitError),
        (500, "maximum context length", ServerError),
        (413, "request_too_large: 40 MB", InvalidRequestError),
        (413, "too many tokens", ContextOverflowError),
    ],
)
def test_words_near_an_overflow_are_none(
    status: int, words: str, expected: type[ModelError]
) -> None:
    assert type(refused(status, coded(None, words))) is expected


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        # xAI: the code is a sentence, the error a text
        (
            400,
            {"code": "invalid-argument", "error": "Incorrect API key provided: x"},
            AuthenticationError,
        ),
        (400, coded(400, "Your credit balance is too low"), QuotaExceededError),
        (403, coded(None, "account in arrears"), QuotaExceededError),
        (403, coded(403, "your input was flagged by moderation"), InvalidRequestError),
        (400, coded("content_filter", "filtered"), InvalidRequestError),
        (400, coded("tool_use_failed", "Tool call failed"), InvalidRequestError),
    ],
)
def test_what_only_the_words_say_is_understood(
    status: int, body: Any, expected: type[ModelError]
) -> None:
    assert type(refused(status, body)) is expected


@pytest.mark.parametrize(
    ("quota", "expected"),
    [
        ("GenerateRequestsPerMinutePerProject", RateLimitError),
        ("GenerateRequestsPerDayPerProjectPerModel-FreeTier", QuotaExceededError),
    ],
)
def test_a_daily_quota_of_gemini_is_no_rate_limit(
    quota: str, expected: type[ModelError]
) -> None:
    details = [{"violations": [{"quotaId": quota}]}]
    body = {"error": {"status": "RESOURCE_EXHAUSTED", "details": details}}
    assert type(refused(429, body)) is expected


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        (coded("server_error"), ServerError),
        (coded("rate_limit_exceeded"), RateLimitError),
        ({"error": {"type": "overloaded_error"}}, ServerError),
        ({"error": {"type": "invalid_request_error"}}, InvalidRequestError),
        (coded(400, "Token limit reached"), InvalidRequestError),
        (coded("429"), RateLimitError),
        (coded(502), ServerError),
        ({"error": "boom"}, ServerError),
        ("no JSON at all", ServerError),
        ({"code": 401, "msg": "no"}, AuthenticationError),
        (None, ServerError),
    ],
)
def test_within_a_stream_vague_codes_and_numbers_decide(
    payload: Any, expected: type[ModelError]
) -> None:
    error = error_from_event(payload, provider="acme")
    assert (type(error), error.status) == (expected, None)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"error": {"message": "one"}, "message": "two"}, "one"),
        ({"error": "one"}, "one"),
        ({"message": "one"}, "one"),
        ({"message": {"x": 1}}, '{"x": 1}'),
        ({"detail": "one"}, "one"),
        (
            {"detail": [{"loc": ["body", "n"], "msg": "bad"}, {"msg": "worse"}]},
            "body.n: bad; worse",
        ),
        ({"errors": [{"message": "one"}, "two"]}, "one; two"),
        ([{"error": {"message": "one"}}], "one"),
        ({"msg": "one"}, "one"),
        ({"error": {"message": '{"error": {"message": "one"}}'}}, "one"),
        ("<html><title>502 Bad\nGateway</title></html>", "502 Bad Gateway"),
        ("<p>nothing</p>", "no word of explanation"),
        ("upstream  connect\nerror", "upstream connect error"),
        ("", "no word of explanation"),
        ('"one"', "one"),
        ({}, "{}"),
        (
            {"error": {"message": "Provider error", "metadata": {"raw": "busy"}}},
            "Provider error: busy",
        ),
    ],
)
def test_the_words_are_found_wherever_vendors_put_them(body: Any, words: str) -> None:
    assert str(refused(500, body)) == f"{words} (HTTP 500 from acme)"


def test_a_long_text_is_cut() -> None:
    assert len(str(refused(500, {"message": "x" * 10_000}))) < 450


def test_the_request_id_is_named() -> None:
    error = refused(500, {"message": "no"}, x_request_id="req_1")
    assert str(error) == "no (HTTP 500 from acme, request req_1)"


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry_after": "7"}, 7.0),
        ({"retry_after": "0.5"}, 0.5),
        ({"retry_after": "-3"}, 0.0),
        ({"retry_after": "soon"}, None),
        ({"retry_after": "9" * 400}, None),
        ({"retry_after": "1_0"}, None),
        ({"retry_after": "Thu, 01 Jan 1970 00:01:10 GMT"}, 60.0),
        ({"retry_after": "Thu, 01 Jan 1970 00:00:01 GMT"}, 0.0),
        ({"retry_after": "Thu, 01 Jan 1970 00:01:10 -0000"}, 60.0),
        ({"retry_after": "Thu, 99 Jan 1970 00:00:01 GMT"}, None),
        ({"retry_after_ms": "1500"}, 1.5),
        ({"retry_after_ms": "0", "retry_after": "1"}, 1.0),
        ({"retry_after_ms": "3000", "retry_after": "1"}, 3.0),
        ({}, None),
    ],
)
def test_headers_say_how_long_to_wait(
    headers: dict[str, str], seconds: float | None
) -> None:
    assert refused(429, now=10.0, **headers).retry_after == seconds


@pytest.mark.parametrize(
    ("words", "seconds"),
    [
        ("Please try again in 1.5s.", 1.5),
        ("Please try again in 20ms.", 0.02),
        ("Please try again in 6m0s.", 360.0),
        ("Please try again in 1h2m3.5s.", 3723.5),
        ("Please try again in 6m.", 360.0),
        ("Please retry in 48.939935699s.", 48.939935699),
        ("Please try again in a moment.", None),
    ],
)
def test_words_say_how_long_to_wait(words: str, seconds: float | None) -> None:
    assert refused(429, {"message": words}).retry_after == seconds


@pytest.mark.parametrize(
    ("error", "seconds"),
    [
        ({"details": [{"retryDelay": "48s"}], "message": "retry in 50s"}, 48.0),
        ({"details": [{"retryDelay": "0.25s"}]}, 0.25),
        ({"details": [{"retryDelay": 3}]}, None),
        ({"metadata": {"headers": {"Retry-After": "9"}}}, 9.0),
    ],
)
def test_the_body_says_how_long_to_wait(error: Any, seconds: float | None) -> None:
    event = error_from_event({"error": error}, provider="acme")
    assert refused(429, {"error": error}).retry_after == seconds
    assert event.retry_after == seconds


@pytest.mark.parametrize(
    ("status", "wish", "retryable"),
    [
        (500, "false", False),
        (429, "false", False),
        (400, "true", True),
        (401, "true", False),
        (500, "true", True),
        (500, "perhaps", True),
    ],
)
def test_a_vendor_may_say_whether_to_try_again(
    status: int, wish: str, retryable: bool
) -> None:
    assert refused(status, x_should_retry=wish).retryable is retryable


def test_the_key_is_masked_where_a_vendor_echoes_it() -> None:
    body = {"message": "bad key hunter2-hunter2"}
    error = refused(401, body, secret="hunter2-hunter2")
    assert str(error) == "bad key *** (HTTP 401 from acme)"


@pytest.mark.parametrize(
    "key",
    [
        "sk-abc123def456",
        "sk-proj-ab***wxyz",
        "gsk_abcdefgh1234",
        "AIzaSyA1234567890abc",
    ],
)
def test_what_looks_like_a_key_is_masked(key: str) -> None:
    error = error_from_event({"message": f"Incorrect: {key}."}, provider="acme")
    assert key[3:10] not in str(error)


@given(st.integers(200, 599), st.binary(max_size=80))
def test_any_bytes_become_an_error_with_words(status: int, body: bytes) -> None:
    error = error_from_reply(FailedReply(status=status, body=body), provider="acme")
    assert 0 < len(str(error)) < 500


KEYS = st.sampled_from(
    [
        *("error", "message", "code", "type", "detail", "errors", "details", "msg"),
        *("metadata", "raw", "headers", "innererror", "loc", "retryDelay"),
        "Retry-After",
    ]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4)
    ),
)


@given(JSON, st.sampled_from([200, 400, 403, 413, 429, 500]))
def test_any_json_becomes_an_error_with_words(payload: Any, status: int) -> None:
    """B3"""
    errors = [refused(status, payload), error_from_event(payload, provider="acme")]
    assert all(0 < len(str(error)) < 500 for error in errors)


@given(JSON, st.text("ab", min_size=8, max_size=9))
def test_a_secret_is_never_in_the_words(payload: Any, secret: str) -> None:
    error = refused(400, {"message": [payload, f"x{secret}y"]}, secret=secret)
    assert secret not in str(error)
