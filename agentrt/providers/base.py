"""Contracts: what speaks one vendor's wire format, and the HTTP beneath it.

A provider makes exactly one attempt for each call. Retry, permits and fallback lie
above it, in `models/`.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from attrs import field, frozen

from agentrt.core.chat import ChatRequest, ChatResponse, DeltaSink

__all__ = ["HttpReply", "HttpRequest", "HttpTransport", "Provider"]


class Provider(Protocol):
    """One vendor's models.

    Every implementation promises:

    * `call` makes one attempt and retries nothing.
    * With a sink it streams: every delta is told before the response is returned, and
      all text deltas joined are the response's text; without, it does not stream.
    * Calls in the response stand in the order of their deltas' `index`.
    * `response.message.id` is the `message_id` that was handed in.
    * What fails raises a `ModelError`; cancellation passes through and closes the
      connection. A stream that ends too early is an error.
    * A key is never in an error, a log or a `repr`.

    `agentrt.testing.check_provider` tests these promises.
    """

    @property
    def name(self) -> str:
        """The vendor, as in `openai`."""
        ...

    async def call(
        self, request: ChatRequest, *, message_id: str, sink: DeltaSink | None = None
    ) -> ChatResponse: ...


@frozen(kw_only=True)
class HttpRequest:
    """A POST with a JSON body."""

    url: str
    headers: Mapping[str, str] = field(factory=dict, repr=False)
    body: bytes = field(repr=False)


class HttpReply(Protocol):
    """What came back; its body is still coming."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]:
        """Names in lower case."""
        ...

    def chunks(self) -> AsyncIterator[bytes]:
        """The decoded body as it comes, one piece for each read.

        Raises:
            NetworkError: the connection broke, or the body ended too early.
            ModelTimeoutError: nothing came for the token-gap deadline.
        """
        ...


class HttpTransport(Protocol):
    """Sends requests over HTTP/1.1.

    `send` gives the reply once its headers are there. Leaving its block closes the
    connection, or gives it back when the body was read to its end.
    """

    def send(self, request: HttpRequest) -> AbstractAsyncContextManager[HttpReply]: ...
