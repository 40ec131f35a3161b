"""The transport over a mock of the network."""

import gzip
import re
from collections.abc import Callable

import httpx
import pytest
import trio

from agentrt.core.errors import (
    InvalidRequestError,
    ModelError,
    ModelTimeoutError,
    NetworkError,
    ResponseFormatError,
)
from agentrt.providers.base import HttpRequest
from agentrt.providers.http import open_http_transport

URL = "https://api.example.com/v1/chat/completions"

Vendor = Callable[[httpx.Request], httpx.Response]


async def exchange(
    vendor: Vendor, *, url: str = URL, headers: dict[str, str] | None = None
) -> tuple[int, dict[str, str], bytes]:
    """One request through the transport, its reply read to the end."""
    request = HttpRequest(url=url, headers=headers or {}, body=b"{}")
    async with (
        open_http_transport(transport=httpx.MockTransport(vendor)) as transport,
        transport.send(request) as reply,
    ):
        body = b"".join([piece async for piece in reply.chunks()])
        return reply.status, dict(reply.headers), body


async def test_a_request_is_a_post_with_the_given_headers_and_body() -> None:
    seen: list[tuple[str, str, str, bytes]] = []

    def vendor(request: httpx.Request) -> httpx.Response:
        key = request.headers["authorization"]
        seen.append((request.method, str(request.url), key, request.content))
        return httpx.Response(200)

    await exchange(vendor, headers={"authorization": "Bearer k"})
    assert seen == [("POST", URL, "Bearer k", b"{}")]


async def test_a_reply_has_its_status_its_headers_in_lower_case_and_its_body() -> None:
    def vendor(request: httpx.Request) -> httpx.Response:
        return httpx.Response(418, headers={"X-Request-Id": "r1"}, content=b"tea")

    expected = (418, {"x-request-id": "r1", "content-length": "3"}, b"tea")
    assert await exchange(vendor) == expected


async def test_a_redirect_is_not_followed() -> None:
    def vendor(request: httpx.Request) -> httpx.Response:
        return httpx.Response(307, headers={"location": "https://elsewhere.example/"})

    status, _, _ = await exchange(vendor)
    assert status == 307


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (httpx.ConnectError("refused"), NetworkError),
        (httpx.ReadError(""), NetworkError),
        (httpx.WriteError(""), NetworkError),
        (httpx.RemoteProtocolError("peer closed"), NetworkError),
        (httpx.LocalProtocolError("bad header"), NetworkError),
        (httpx.ProxyError("proxy"), NetworkError),
        (httpx.ConnectTimeout(""), ModelTimeoutError),
        (httpx.ReadTimeout(""), ModelTimeoutError),
        (httpx.PoolTimeout(""), ModelTimeoutError),
        (httpx.UnsupportedProtocol("ftp"), InvalidRequestError),
        (httpx.DecodingError("gzip"), ResponseFormatError),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else repr(value),
)
async def test_what_httpx_raises_is_an_error_of_ours(
    raised: Exception, expected: type[ModelError]
) -> None:
    def vendor(request: httpx.Request) -> httpx.Response:
        raise raised

    with pytest.raises(ModelError, match=re.escape("api.example.com")) as caught:
        await exchange(vendor)
    assert type(caught.value) is expected


@pytest.mark.parametrize("url", ["https://[", "https://host:port/", "ftp://host/", ""])
async def test_a_url_that_cannot_be_used_is_an_invalid_request(url: str) -> None:
    with pytest.raises(InvalidRequestError):
        await exchange(lambda request: httpx.Response(200), url=url)


async def test_a_header_that_is_not_in_ascii_is_an_error_without_its_value() -> None:
    headers = {"authorization": "Bearer schlüssel"}
    with pytest.raises(InvalidRequestError) as caught:
        await exchange(lambda request: httpx.Response(200), headers=headers)
    assert str(caught.value) == "a header is not in ASCII"
    assert caught.value.__cause__ is None


async def test_a_broken_protocol_says_nothing_of_the_headers() -> None:
    def vendor(request: httpx.Request) -> httpx.Response:
        raise httpx.LocalProtocolError("Illegal header value b'Bearer secret'")

    with pytest.raises(NetworkError) as caught:
        await exchange(vendor)
    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is None


async def test_a_compressed_body_is_decoded() -> None:
    def vendor(request: httpx.Request) -> httpx.Response:
        headers = {"content-encoding": "gzip"}
        body = gzip.compress(b"data: a")
        return httpx.Response(200, headers=headers, stream=httpx.ByteStream(body))

    _, _, body = await exchange(vendor)
    assert body == b"data: a"


# httpx lets go of its own generators when it cannot decode.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_a_body_that_is_not_compressed_as_it_says_is_an_error() -> None:
    def vendor(request: httpx.Request) -> httpx.Response:
        headers = {"content-encoding": "gzip"}
        stream = httpx.ByteStream(b"plain")
        return httpx.Response(200, headers=headers, stream=stream)

    with pytest.raises(ResponseFormatError, match="garbled"):
        await exchange(vendor)


class Endless(httpx.AsyncByteStream):
    """A body that never ends; counts how often it was closed."""

    def __init__(self) -> None:
        self.closed = 0

    def __aiter__(self) -> "Endless":
        return self

    async def __anext__(self) -> bytes:
        await trio.sleep(1)
        return b"data: x\n\n"

    async def aclose(self) -> None:
        self.closed += 1


async def test_leaving_in_the_middle_closes_the_body_at_once(
    autojump_clock: trio.testing.MockClock,
) -> None:
    stream = Endless()
    mock = httpx.MockTransport(lambda request: httpx.Response(200, stream=stream))
    async with open_http_transport(transport=mock) as transport:
        async with transport.send(HttpRequest(url=URL, body=b"")) as reply:
            assert await anext(reply.chunks()) == b"data: x\n\n"
        assert (stream.closed, trio.current_time()) == (1, 1.0)


async def test_an_exception_in_the_block_passes_though_the_task_is_cancelled(
    autojump_clock: trio.testing.MockClock,
) -> None:
    mock = httpx.MockTransport(lambda request: httpx.Response(200, stream=Endless()))

    async def fail() -> None:
        request = HttpRequest(url=URL, body=b"")
        async with transport.send(request) as reply:
            await anext(reply.chunks())
            scope.cancel()
            raise KeyError("sink")

    async with open_http_transport(transport=mock) as transport:
        with trio.CancelScope() as scope, pytest.raises(KeyError, match="sink"):
            await fail()


async def test_a_cancelled_request_raises_nothing_but_the_cancellation(
    autojump_clock: trio.testing.MockClock,
) -> None:
    stream = Endless()
    mock = httpx.MockTransport(lambda request: httpx.Response(200, stream=stream))
    async with open_http_transport(transport=mock) as transport:
        with trio.move_on_after(2.5) as scope:
            async with transport.send(HttpRequest(url=URL, body=b"")) as reply:
                async for _ in reply.chunks():
                    pass
    assert (scope.cancelled_caught, stream.closed) == (True, 1)
