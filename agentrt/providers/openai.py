"""Models that speak OpenAI's chat completions: its own, and those of all who copy it.

Sends what `openai_wire` encodes and feeds what comes back to `openai_stream`, over
`http`. One attempt for each call. Which vendor wants what otherwise is known by the
host of the base URL.
"""

import json
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, TypeAlias
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import trio
from attrs import evolve, field, frozen

from agentrt.core.chat import ChatRequest, ChatResponse, DeltaSink
from agentrt.core.errors import (
    AuthenticationError,
    InvalidRequestError,
    ModelError,
    ModelTimeoutError,
    NetworkError,
    ResponseFormatError,
)
from agentrt.providers.base import HttpReply, HttpRequest, HttpTransport, Provider
from agentrt.providers.errors import FailedReply, error_from_reply, masked
from agentrt.providers.http import open_http_transport
from agentrt.providers.openai_stream import ChatDecoder, decode_reply
from agentrt.providers.openai_wire import Quirks, body_bytes, encode, quirks_of
from agentrt.providers.sse import SseReader

__all__ = ["OpenAIProvider", "open_openai", "open_openai_compatible"]

BASE_URL: Final = "https://api.openai.com/v1"
PATH: Final = "/chat/completions"
KEY_VARIABLE: Final = "OPENAI_API_KEY"
BASE_VARIABLE: Final = "OPENAI_BASE_URL"

MAX_BODY_BYTES: Final = 64 * 1024 * 1024
MAX_ERROR_BYTES: Final = 256 * 1024

ERROR_BODY_SECONDS: Final = 5.0
"""How long the body of an error is waited for; what came by then is read."""

DRAIN_SECONDS: Final = 0.5
"""How long a body is read on after `[DONE]`, so that its connection can be kept."""

BLANK: Final = b"\xef\xbb\xbf \t\r\n"
"""What may stand before a body: white space, and the bytes of a byte order mark."""

ApiKey: TypeAlias = str | Callable[[], str]
"""A key, or what gives one for each call."""


@asynccontextmanager
async def open_openai(
    model_id: str,
    *,
    base_url: str | None = None,
    api_key: ApiKey | None = None,
    environ: Mapping[str, str] = os.environ,
) -> AsyncIterator[Provider]:
    """OpenAI's models. Leaving the block closes the connections.

    What is not handed in comes from `OPENAI_API_KEY` and `OPENAI_BASE_URL`. Another
    base URL than OpenAI's own needs no key.

    Raises:
        AuthenticationError: there is no key.
    """
    url = base_url or environ.get(BASE_VARIABLE) or BASE_URL
    quirks = quirks_of(url, provider="openai")
    key = _key(api_key, environ, quirks)
    async with open_http_transport() as transport:
        yield OpenAIProvider(
            transport=transport, base_url=url, model=model_id, key=key, quirks=quirks
        )


@asynccontextmanager
async def open_openai_compatible(
    model_id: str,
    *,
    base_url: str | None = None,
    api_key: ApiKey | None = None,
    environ: Mapping[str, str] = os.environ,
) -> AsyncIterator[Provider]:
    """Models of any vendor or server with OpenAI's wire. Leaving closes connections.

    Raises:
        InvalidRequestError: there is no base URL, here or in `OPENAI_BASE_URL`.
        AuthenticationError: the vendor is known to need a key, and there is none.
    """
    url = base_url or environ.get(BASE_VARIABLE)
    if not url:
        raise InvalidRequestError(
            f"openai-compatible needs a base URL: pass base_url or set {BASE_VARIABLE}",
            provider="openai-compatible",
        )
    quirks = quirks_of(url, provider="openai-compatible")
    key = _key(api_key, environ, quirks)
    async with open_http_transport() as transport:
        yield OpenAIProvider(
            transport=transport, base_url=url, model=model_id, key=key, quirks=quirks
        )


def _key(api_key: ApiKey | None, environ: Mapping[str, str], quirks: Quirks) -> ApiKey:
    key = api_key or environ.get(KEY_VARIABLE) or ""
    if not key and quirks.needs_key:
        raise AuthenticationError(
            f"no API key for {quirks.host}: set {KEY_VARIABLE} or pass api_key",
            provider=quirks.provider,
        )
    return key


@frozen(kw_only=True)
class OpenAIProvider:
    """A `Provider` for one base URL. The transport is its opener's."""

    _transport: HttpTransport = field(alias="transport", repr=False)
    _base_url: str = field(alias="base_url", repr=False)
    """May have a user and a password in it."""

    _quirks: Quirks = field(alias="quirks")
    _model: str = field(alias="model")
    """Asked for unless the request's options name another."""

    _key: ApiKey = field(default="", alias="key", repr=False)

    @property
    def name(self) -> str:
        return self._quirks.provider

    async def call(
        self, request: ChatRequest, *, message_id: str, sink: DeltaSink | None = None
    ) -> ChatResponse:
        model = request.options.get("model") or self._model
        options = {**request.options, "model": model}
        request = evolve(request, options=options)
        body = encode(request, self._quirks, stream=sink is not None)
        key = self._resolved_key()
        http_request = HttpRequest(
            url=self._url(request.options),
            headers=self._headers(request.options, key, stream=sink is not None),
            body=body_bytes(body),
        )
        decoder = ChatDecoder(
            self._quirks, message_id, sink=sink, model=str(model), secret=key
        )
        async with self._transport.send(http_request) as reply:
            if not 200 <= reply.status < 300:
                raise await self._refused(reply, key)
            if sink is None:
                return _decode_whole(await _read_all(reply.chunks()), reply, decoder)
            return await _read_stream(reply, decoder)

    def _resolved_key(self) -> str:
        key = (self._key if isinstance(self._key, str) else self._key()).strip()
        if not key and self._quirks.needs_key:
            raise AuthenticationError(
                f"no API key for {self._quirks.host}", provider=self.name
            )
        if not key.isascii() or not key.isprintable() or " " in key:
            raise AuthenticationError(
                f"the API key for {self._quirks.host} has characters that no key has",
                provider=self.name,
            )
        return key

    def _headers(
        self, options: Mapping[str, Any], key: str, *, stream: bool
    ) -> Mapping[str, str]:
        headers = {
            "content-type": "application/json",
            "accept": "text/event-stream" if stream else "application/json",
        }
        if key:
            headers["authorization"] = f"Bearer {key}"
        extra = _texts(options, "extra_headers")
        return {**headers, **{name.lower(): extra[name] for name in extra}}

    def _url(self, options: Mapping[str, Any]) -> str:
        parts = urlsplit(self._base_url)
        path = parts.path.rstrip("/")
        path = path if path.endswith(PATH) else path + PATH
        query = parse_qsl(parts.query, keep_blank_values=True)
        query += _texts(options, "extra_query").items()
        return urlunsplit(parts._replace(path=path, query=urlencode(query)))

    async def _refused(self, reply: HttpReply, key: str) -> ModelError:
        body = bytearray()
        try:
            with trio.move_on_after(ERROR_BODY_SECONDS):
                async for piece in reply.chunks():
                    body += piece
                    if len(body) > MAX_ERROR_BYTES:
                        break
        except ModelError:
            pass  # the status says enough
        failed = FailedReply(
            status=reply.status, headers=reply.headers, body=bytes(body)
        )
        return error_from_reply(failed, provider=self.name, secret=key)


async def _read_stream(reply: HttpReply, decoder: ChatDecoder) -> ChatResponse:
    """Feed the decoder all that comes; an exception from its sink passes."""
    pieces = reply.chunks()
    head = await _read_head(pieces, decoder)
    if head.lstrip(BLANK)[:1] in (b"{", b"[", b"<"):
        # A proxy that knows nothing of streams, or a page that is no reply at all.
        body = head + await _read_all(pieces)
        return _decode_whole(body, reply, decoder)
    reader = SseReader()
    piece: bytes | None = head
    while piece is not None:
        for name, data in reader.feed(piece):
            decoder.feed(name, data)
        piece = None if decoder.done else await _next(pieces, decoder)
    if decoder.done:
        await _drain(pieces)
    for name, data in reader.finish():
        decoder.feed(name, data, cut=True)
    return decoder.finish()


async def _read_head(pieces: AsyncIterator[bytes], decoder: ChatDecoder) -> bytes:
    """The body up to a piece that holds more than white space."""
    head = b""
    while not head.strip(BLANK):
        piece = await _next(pieces, decoder)
        if piece is None:
            break
        head += piece
    return head


async def _next(pieces: AsyncIterator[bytes], decoder: ChatDecoder) -> bytes | None:
    """The next piece; None at the end, however it came about if all was said."""
    try:
        return await anext(pieces, None)
    except (NetworkError, ModelTimeoutError):
        if decoder.complete:
            return None
        raise


async def _drain(pieces: AsyncIterator[bytes]) -> None:
    try:
        with trio.move_on_after(DRAIN_SECONDS):
            async for _ in pieces:
                pass
    except ModelError:
        pass  # the reply is whole; only the connection is lost


async def _read_all(pieces: AsyncIterator[bytes]) -> bytes:
    body = bytearray()
    async for piece in pieces:
        body += piece
        if len(body) > MAX_BODY_BYTES:
            raise ResponseFormatError(f"a reply of more than {MAX_BODY_BYTES} bytes")
    return bytes(body)


def _decode_whole(body: bytes, reply: HttpReply, decoder: ChatDecoder) -> ChatResponse:
    """A reply that is JSON, whatever content type it has: vendors mix them up."""
    text = body.decode("utf-8-sig", "replace")
    try:
        payload = json.loads(text)
    except (ValueError, RecursionError):
        kind = reply.headers.get("content-type", "none")
        raise ResponseFormatError(
            f"the reply (HTTP {reply.status}, content type {kind}) is no JSON: "
            f"{masked(text, decoder.secret) or 'it is empty'}",
            status=reply.status,
            provider=decoder.provider,
        ) from None
    return decode_reply(payload, decoder)


def _texts(options: Mapping[str, Any], name: str) -> Mapping[str, str]:
    value = options.get(name) or {}
    if not isinstance(value, Mapping):
        raise InvalidRequestError(
            f"option {name!r} is a {type(value).__name__}, expected a mapping"
        )
    return {str(key): str(text) for key, text in value.items()}
