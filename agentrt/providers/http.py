"""HTTP to a vendor: requests, and replies that stream.

The only module that knows httpx. A provider lies above it and sees `HttpTransport`,
`HttpReply` and our own errors. Rules kept here:

* HTTP/1.1 only: over HTTP/2 httpx never resets a cancelled stream, so the vendor goes
  on writing it, and after a hundred of them the connection refuses new ones.
* One attempt for each request, and no redirect is followed: the key would go along.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Final
from urllib.parse import urlsplit

import httpx
import trio
from attrs import define, field

from agentrt.core.errors import (
    InvalidRequestError,
    ModelError,
    ModelTimeoutError,
    NetworkError,
    ResponseFormatError,
)
from agentrt.providers.base import HttpReply, HttpRequest, HttpTransport
from agentrt.scopes import CLEANUP_SECONDS

__all__ = ["open_http_transport"]

CONNECT_SECONDS: Final = 30.0

TOKEN_GAP_SECONDS: Final = 120.0
"""The longest silence of a vendor, between tokens as before the first."""

MAX_CONNECTIONS: Final = 256
"""Above what admission lets through: two queues behind each other would fight."""

LEFT_PIECES: Final = 10_000
"""More than one read can leave behind; lest a body without end or wait hold us."""


@asynccontextmanager
async def open_http_transport(
    *,
    token_gap_seconds: float = TOKEN_GAP_SECONDS,
    transport: httpx.AsyncBaseTransport | None = None,
) -> AsyncIterator[HttpTransport]:
    """Own a pool of connections. Leaving the block closes them all.

    `transport` takes the place of the network, in a test. Proxies are taken from the
    environment, as httpx does.
    """
    client = httpx.AsyncClient(
        http2=False,
        follow_redirects=False,
        timeout=httpx.Timeout(token_gap_seconds, connect=CONNECT_SECONDS, pool=None),
        limits=httpx.Limits(
            max_connections=MAX_CONNECTIONS, max_keepalive_connections=MAX_CONNECTIONS
        ),
        transport=transport,
    )
    async with client:
        yield HttpxTransport(client=client)


@define(kw_only=True)
class HttpxTransport:
    """An `HttpTransport` over one httpx client, which its opener owns."""

    _client: httpx.AsyncClient = field(alias="client")

    @asynccontextmanager
    async def send(self, request: HttpRequest) -> AsyncIterator[HttpReply]:
        await trio.lowlevel.checkpoint()
        _check_url(request.url)
        try:
            post = self._client.build_request(
                "POST",
                request.url,
                headers=dict(request.headers),
                content=request.body,
            )
            post.stream = OneChunk(request.body)
            response = await self._client.send(post, stream=True)
        except UnicodeEncodeError:
            # The error holds the header's value, which may be a key.
            raise InvalidRequestError("a header is not in ASCII") from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise _translated(error, request.url) from _cause(error)
        reply = HttpxReply(response=response)
        try:
            yield reply
        finally:
            with trio.move_on_after(CLEANUP_SECONDS, shield=True):
                await reply.close()


@define
class OneChunk(httpx.AsyncByteStream):
    """The body of a request, read once. httpx has a generator in its place.

    A cancel while the request is sent would leave that half run.
    """

    _left: bytes

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        await trio.lowlevel.checkpoint_if_cancelled()
        if not self._left:
            raise StopAsyncIteration
        body, self._left = self._left, b""
        return body


@define(kw_only=True)
class HttpxReply:
    """An `HttpReply`. `close` is its transport's to call."""

    _response: httpx.Response = field(alias="response")
    _pieces: AsyncIterator[bytes] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._pieces = self._response.aiter_bytes()

    @property
    def status(self) -> int:
        return self._response.status_code

    @property
    def headers(self) -> Mapping[str, str]:
        return dict(self._response.headers)

    def chunks(self) -> AsyncIterator[bytes]:
        return Pieces(pieces=self._pieces, url=str(self._response.request.url))

    async def close(self) -> None:
        """Give the connection back if the body was read to its end, else close it."""
        # httpx reads through async generators within each other. One that is let go
        # halfway is a ResourceWarning, and closing the outermost lets go of the rest.
        # So they are read on under a scope whose time is up: what had come is thrown
        # away, and the first wait unwinds them all and closes the connection.
        with (
            trio.move_on_after(0, shield=True),
            suppress(httpx.HTTPError, StopAsyncIteration),
        ):
            for _ in range(LEFT_PIECES):
                await anext(self._pieces)
        await self._response.aclose()


@define(kw_only=True)
class Pieces:
    """The body as it comes, with our errors. A class, so nothing stays half run."""

    _pieces: AsyncIterator[bytes] = field(alias="pieces")
    _url: str = field(alias="url")

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        # What httpx had in hand comes without a wait: a real checkpoint for each
        # socket read is enough, and several microseconds for each token are not.
        await trio.lowlevel.checkpoint_if_cancelled()
        try:
            return await self._pieces.__anext__()
        except httpx.HTTPError as error:
            raise _translated(error, self._url) from _cause(error)


def _translated(error: Exception, url: str) -> ModelError:
    """What httpx raises, as an error of ours."""
    host = _host(url)
    what = type(error).__name__
    what = f"{what}: {error}" if str(error) else what
    match error:
        case httpx.TimeoutException():
            return ModelTimeoutError(f"no answer from {host} in time ({what})")
        case httpx.InvalidURL() | httpx.UnsupportedProtocol():
            return InvalidRequestError(f"the URL for {host} cannot be used ({what})")
        case httpx.LocalProtocolError():
            return NetworkError(f"the request to {host} breaks the rules of HTTP/1.1")
        case httpx.DecodingError():
            return ResponseFormatError(f"the body from {host} is garbled ({what})")
        case _:
            return NetworkError(f"the connection to {host} failed ({what})")


def _cause(error: Exception) -> Exception | None:
    """The error itself, unless its words may quote a header, and so a key."""
    return None if isinstance(error, httpx.LocalProtocolError) else error


def _host(url: str) -> str:
    return urlsplit(url).hostname or "nowhere"


def _check_url(url: str) -> None:
    """Raise unless it is http(s) to some host: httpx lets more through."""
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        good = False
    if not good:
        raise InvalidRequestError("the URL is no http(s) URL with a host")
