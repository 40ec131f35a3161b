"""The provider over a mock of the network: what is sent, and what may come back."""

import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
import trio
from attrs import evolve

from agentrt.core.chat import ChatRequest, ChatResponse, Delta, TextDelta
from agentrt.core.errors import (
    AuthenticationError,
    InvalidRequestError,
    ModelError,
    ModelTimeoutError,
    NetworkError,
    RateLimitError,
    ResponseFormatError,
    ServerError,
)
from agentrt.core.messages import UserMessage
from agentrt.providers.http import open_http_transport
from agentrt.providers.openai import (
    DRAIN_SECONDS,
    ERROR_BODY_SECONDS,
    OpenAIProvider,
)
from agentrt.providers.openai_wire import quirks_of
from agentrt.testing import check_provider

KEY = "sk-test-0123456789"
ASK = ChatRequest(messages=[UserMessage(content="Hi")])
REPLY = json.dumps(
    {"choices": [{"message": {"content": "Hello"}, "finish_reason": "stop"}]}
)
CHUNK = 'data: {"choices": [{"delta": {"content": "Hello"}}]}\n\n'
FINISH = 'data: {"choices": [{"delta": {}, "finish_reason": "stop"}]}\n\n'
DONE = "data: [DONE]\n\n"

Vendor = Callable[[httpx.Request], httpx.Response]


@asynccontextmanager
async def providing(
    vendor: Vendor, *, base_url: str = "https://api.openai.com/v1", key: Any = KEY
) -> AsyncIterator[OpenAIProvider]:
    async with open_http_transport(transport=httpx.MockTransport(vendor)) as transport:
        yield OpenAIProvider(
            transport=transport,
            base_url=base_url,
            model="gpt-x",
            key=key,
            quirks=quirks_of(base_url, provider="openai"),
        )


async def asked(
    vendor: Vendor, request: ChatRequest = ASK, **options: Any
) -> ChatResponse:
    async with providing(vendor, **options) as provider:
        return await provider.call(request, message_id="m1")


async def streamed(vendor: Vendor, told: list[Delta] | None = None) -> ChatResponse:
    sink = [] if told is None else told
    async with providing(vendor) as provider:
        return await provider.call(ASK, message_id="m1", sink=sink.append)


def answer(body: str, *, status: int = 200, kind: str = "application/json") -> Vendor:
    headers = {"content-type": kind}
    return lambda request: httpx.Response(status, headers=headers, text=body)


class Script(httpx.AsyncByteStream):
    """A body: pieces, waits in seconds, and exceptions, in order."""

    def __init__(self, *steps: bytes | float | Exception) -> None:
        self._steps = list(steps)

    def __aiter__(self) -> "Script":
        return self

    async def __anext__(self) -> bytes:
        while self._steps:
            step = self._steps.pop(0)
            if isinstance(step, Exception):
                raise step
            if isinstance(step, bytes):
                return step
            await trio.sleep(step)
        raise StopAsyncIteration


def scripted(*steps: bytes | float | Exception, status: int = 200) -> Vendor:
    return lambda request: httpx.Response(status, stream=Script(*steps))


def recorded(seen: list[httpx.Request]) -> Vendor:
    """A vendor that keeps what it was asked."""

    def vendor(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200, text=REPLY)

    return vendor


async def test_a_call_without_a_sink_is_one_request_for_a_whole_reply() -> None:
    seen: list[httpx.Request] = []
    response = await asked(recorded(seen))
    [request] = seen
    assert (request.method, str(request.url)) == (
        "POST",
        "https://api.openai.com/v1/chat/completions",
    )
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert request.headers["content-type"] == "application/json"
    assert json.loads(request.content) == {
        "model": "gpt-x",
        "messages": [{"role": "user", "content": "Hi"}],
    }
    assert (response.message.id, response.message.text) == ("m1", "Hello")


async def test_a_call_with_a_sink_streams() -> None:
    seen: list[Any] = []

    def vendor(request: httpx.Request) -> httpx.Response:
        seen.append(json.loads(request.content)["stream"])
        return httpx.Response(200, text=CHUNK + FINISH + DONE)

    told: list[Delta] = []
    response = await streamed(vendor, told)
    assert (seen, told) == ([True], [TextDelta(text="Hello")])
    assert response.message.text == "Hello"


async def test_the_model_of_the_request_wins() -> None:
    seen: list[httpx.Request] = []
    response = await asked(recorded(seen), evolve(ASK, options={"model": "gpt-y"}))
    assert json.loads(seen[0].content)["model"] == "gpt-y"
    assert response.model == "gpt-y"


async def test_a_model_of_none_does_not_win() -> None:
    seen: list[httpx.Request] = []
    await asked(recorded(seen), evolve(ASK, options={"model": None}))
    assert json.loads(seen[0].content)["model"] == "gpt-x"


@pytest.mark.parametrize(
    ("base_url", "url"),
    [
        ("http://h/v1", "http://h/v1/chat/completions"),
        ("http://h/v1/", "http://h/v1/chat/completions"),
        ("http://h/v1/chat/completions", "http://h/v1/chat/completions"),
        ("http://h", "http://h/chat/completions"),
        ("http://h/d?api-version=2", "http://h/d/chat/completions?api-version=2"),
    ],
)
async def test_base_and_path_are_joined_by_one_slash(base_url: str, url: str) -> None:
    seen: list[httpx.Request] = []
    await asked(recorded(seen), base_url=base_url)
    assert str(seen[0].url) == url


async def test_extra_headers_and_extra_query_go_along() -> None:
    seen: list[httpx.Request] = []
    options = {
        "extra_headers": {"X-Title": "t", "Authorization": "Other k"},
        "extra_query": {"q": "a b"},
    }
    await asked(recorded(seen), evolve(ASK, options=options))
    assert seen[0].headers["x-title"] == "t"
    assert seen[0].headers.get_list("authorization") == ["Other k"]
    assert seen[0].url.query == b"q=a+b"


@pytest.mark.parametrize("name", ["extra_headers", "extra_query"])
async def test_extras_that_are_no_mapping_are_refused(name: str) -> None:
    with pytest.raises(InvalidRequestError, match=f"'{name}' is a list"):
        await asked(answer(REPLY), evolve(ASK, options={name: [1]}))


async def test_a_key_may_be_made_anew_for_each_call() -> None:
    seen: list[httpx.Request] = []
    keys = iter(["one", "two"])
    async with providing(recorded(seen), key=lambda: next(keys)) as provider:
        await provider.call(ASK, message_id="m1")
        await provider.call(ASK, message_id="m2")
    sent = [request.headers["authorization"] for request in seen]
    assert sent == ["Bearer one", "Bearer two"]


async def test_without_a_key_no_authorization_is_sent() -> None:
    seen: list[httpx.Request] = []
    await asked(recorded(seen), base_url="http://localhost:8080/v1", key="")
    assert "authorization" not in seen[0].headers


@pytest.mark.parametrize("key", ["sk-ü1234567", "sk-12345\r\nx: y", "sk 1234567"])
async def test_a_key_that_no_header_may_hold_is_refused_unseen(key: str) -> None:
    with pytest.raises(AuthenticationError) as caught:
        await asked(answer(REPLY), key=key)
    assert key[3:] not in str(caught.value)


async def test_a_key_that_is_made_and_empty_is_refused() -> None:
    with pytest.raises(AuthenticationError, match=r"no API key for api\.openai\.com"):
        await asked(answer(REPLY), key=lambda: " ")


async def test_a_key_with_a_line_end_from_a_file_is_trimmed() -> None:
    seen: list[httpx.Request] = []
    await asked(recorded(seen), key=f"{KEY}\n")
    assert seen[0].headers["authorization"] == f"Bearer {KEY}"


async def test_the_key_is_in_no_repr() -> None:
    async with providing(answer(REPLY)) as provider:
        assert KEY not in repr(provider)
        assert provider.name == "openai"


async def test_a_refusal_is_an_error_without_the_key() -> None:
    body = json.dumps({"error": {"message": f"bad key {KEY}"}})
    with pytest.raises(AuthenticationError) as caught:
        await asked(answer(body, status=401))
    assert str(caught.value) == "bad key *** (HTTP 401 from openai)"


async def test_a_refused_stream_is_an_error_with_its_wait() -> None:
    def vendor(request: httpx.Request) -> httpx.Response:
        return httpx.Response(429, headers={"Retry-After": "7"}, text="slow down")

    with pytest.raises(RateLimitError, match="slow down") as caught:
        await streamed(vendor)
    assert caught.value.retry_after == 7.0


async def test_the_body_of_a_refusal_is_not_waited_for_in_vain(
    autojump_clock: trio.testing.MockClock,
) -> None:
    with pytest.raises(ServerError, match="overloaded"):
        await asked(scripted(b"overloaded", 1000.0, status=503))
    assert trio.current_time() == pytest.approx(ERROR_BODY_SECONDS)


async def test_a_refusal_whose_body_breaks_is_known_by_its_status() -> None:
    with pytest.raises(RateLimitError):
        await asked(scripted(b"slow", httpx.ReadError("gone"), status=429))


async def test_of_a_refusal_without_end_the_beginning_is_read() -> None:
    pieces = [b"x" * 100_000] * 10
    with pytest.raises(ServerError, match=r"^x+\.{0,3} \(HTTP 500"):
        await asked(scripted(*pieces, status=500))


async def test_a_whole_reply_without_end_is_a_format_error() -> None:
    pieces = [b" " * (1 << 20)] * 70
    with pytest.raises(ResponseFormatError, match="more than 67108864 bytes"):
        await asked(scripted(*pieces))


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("<html><title>Hi</title></html>", "content type text/html"),
        ("", "it is empty"),
        ("{oops", "oops"),
    ],
)
async def test_a_whole_reply_that_is_no_json_is_a_format_error(
    body: str, words: str
) -> None:
    with pytest.raises(ResponseFormatError, match=words):
        await asked(answer(body, kind="text/html"))


async def test_json_is_json_whatever_its_content_type() -> None:
    vendor = answer("\ufeff" + REPLY, kind="application/octet-stream")
    assert (await asked(vendor)).message.text == "Hello"


async def test_an_error_with_status_200_is_raised() -> None:
    body = json.dumps({"error": {"code": "rate_limit_exceeded", "message": "slow"}})
    with pytest.raises(RateLimitError, match="slow"):
        await asked(answer(body))


@pytest.mark.parametrize("lead", ["", "\n ", "\ufeff"])
async def test_a_whole_reply_to_a_streaming_request_is_told_as_deltas(
    lead: str,
) -> None:
    told: list[Delta] = []
    pieces = [bytes([byte]) for byte in (lead + REPLY).encode()]
    response = await streamed(scripted(*pieces), told)
    assert (told, response.message.text) == ([TextDelta(text="Hello")], "Hello")


async def test_a_page_in_place_of_a_stream_is_a_format_error() -> None:
    with pytest.raises(ResponseFormatError, match="content type text/html"):
        await streamed(answer("<html></html>", kind="text/html"))


@pytest.mark.parametrize("body", ["", "\n\n", ": ping\n\n", CHUNK])
async def test_a_stream_that_ends_early_is_a_network_error(body: str) -> None:
    with pytest.raises(NetworkError, match="stream ended early"):
        await streamed(answer(body))


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (httpx.RemoteProtocolError("incomplete"), NetworkError),
        (httpx.ReadTimeout(""), ModelTimeoutError),
    ],
)
async def test_a_stream_that_breaks_is_an_error_after_what_came(
    raised: Exception, expected: type[ModelError]
) -> None:
    told: list[Delta] = []
    with pytest.raises(expected):
        await streamed(scripted(CHUNK.encode(), raised), told)
    assert told == [TextDelta(text="Hello")]


@pytest.mark.parametrize(
    "raised", [httpx.RemoteProtocolError("incomplete"), httpx.ReadTimeout("")]
)
async def test_a_stream_that_breaks_when_all_was_said_is_good(
    raised: Exception,
) -> None:
    response = await streamed(scripted((CHUNK + FINISH).encode(), raised))
    assert response.message.text == "Hello"


@pytest.mark.parametrize(
    "after", [(1000.0,), (httpx.ReadError("gone"),), (b"junk", b"data: x\n\n")]
)
async def test_what_follows_done_is_not_waited_for(
    after: Sequence[Any], autojump_clock: trio.testing.MockClock
) -> None:
    response = await streamed(scripted((CHUNK + DONE).encode(), *after))
    assert response.message.text == "Hello"
    assert trio.current_time() <= DRAIN_SECONDS


async def test_an_error_event_ends_the_stream() -> None:
    body = CHUNK + 'event: error\ndata: {"error": {"message": "busy"}}\n\n'
    with pytest.raises(ServerError, match="busy"):
        await streamed(answer(body))


async def test_a_raw_error_line_ends_the_stream() -> None:
    with pytest.raises(ServerError, match="no slot"):
        await streamed(answer(CHUNK + 'error: {"code": 500, "message": "no slot"}\n'))


@pytest.mark.parametrize("raised", [KeyError("mine"), NetworkError("mine")])
@pytest.mark.parametrize("body", [CHUNK + FINISH + CHUNK + DONE, REPLY])
async def test_an_exception_of_the_sink_passes_untouched(
    raised: Exception, body: str
) -> None:
    def sink(delta: Delta) -> None:
        raise raised

    async with providing(answer(body)) as provider:
        with pytest.raises(type(raised)) as caught:
            await provider.call(ASK, message_id="m1", sink=sink)
    assert caught.value is raised


async def test_a_cancelled_call_raises_nothing_else(
    autojump_clock: trio.testing.MockClock,
) -> None:
    told: list[Delta] = []
    with trio.move_on_after(5) as scope:
        await streamed(scripted(CHUNK.encode(), 1000.0), told)
    assert scope.cancelled_caught
    assert told == [TextDelta(text="Hello")]


async def test_a_call_is_a_checkpoint() -> None:
    async with providing(answer(REPLY)) as provider:
        with trio.testing.assert_checkpoints():
            await provider.call(ASK, message_id="m1")


async def test_the_provider_keeps_the_promises_of_its_contract() -> None:
    def vendor(request: httpx.Request) -> httpx.Response:
        if json.loads(request.content).get("stream"):
            headers = {"content-type": "text/event-stream"}
            return httpx.Response(200, headers=headers, text=CHUNK + FINISH + DONE)
        return httpx.Response(200, text=REPLY)

    await check_provider(lambda: providing(vendor))


async def test_the_check_finds_a_provider_that_raises_what_is_no_model_error() -> None:
    class Broken:
        name = "broken"

        async def call(self, *_: Any, **__: Any) -> ChatResponse:
            await trio.lowlevel.checkpoint()
            raise KeyError("choices")

    @asynccontextmanager
    async def broken() -> AsyncIterator[Broken]:
        yield Broken()

    with pytest.raises(AssertionError, match="no ModelError"):
        await check_provider(broken)
