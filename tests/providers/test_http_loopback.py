"""The transport over real sockets: who sees what when one side goes away."""

import gc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
import trio

from agentrt.core.errors import ModelTimeoutError, NetworkError
from agentrt.providers.base import HttpRequest, HttpTransport
from agentrt.providers.http import open_http_transport

pytestmark = pytest.mark.integration

HEADERS = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
    b"transfer-encoding: chunked\r\n\r\n"
)

Handler = Callable[[trio.SocketStream], Awaitable[None]]


def chunk(body: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(body), body)


@asynccontextmanager
async def serving(handler: Handler) -> AsyncIterator[str]:
    """A server on a free port of this machine; gives its URL."""
    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(trio.serve_tcp, handler, 0)
        port = listeners[0].socket.getsockname()[1]
        yield f"http://127.0.0.1:{port}/v1/chat/completions"
        nursery.cancel_scope.cancel()


async def read_request(stream: trio.SocketStream) -> None:
    received = b""
    while not received.endswith(b"\r\n\r\n{}"):
        piece = await stream.receive_some()
        if not piece:
            raise EOFError
        received += piece


async def read_some(transport: HttpTransport, url: str) -> None:
    async with transport.send(HttpRequest(url=url, body=b"{}")) as reply:
        async for _ in reply.chunks():
            pass


async def test_a_cancel_in_the_middle_of_a_stream_closes_the_connection() -> None:
    streaming, gone = trio.Event(), trio.Event()

    async def handler(stream: trio.SocketStream) -> None:
        await read_request(stream)
        await stream.send_all(HEADERS + chunk(b"data: a\n\n"))
        streaming.set()
        assert await stream.receive_some() == b""
        gone.set()

    with trio.fail_after(5):
        async with (
            serving(handler) as url,
            open_http_transport() as transport,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(read_some, transport, url)
            await streaming.wait()
            nursery.cancel_scope.cancel()
            with trio.CancelScope(shield=True):
                await gone.wait()


async def test_a_cancel_before_the_headers_closes_the_connection() -> None:
    asked, gone = trio.Event(), trio.Event()

    async def handler(stream: trio.SocketStream) -> None:
        await read_request(stream)
        asked.set()
        assert await stream.receive_some() == b""
        gone.set()

    with trio.fail_after(5):
        async with (
            serving(handler) as url,
            open_http_transport() as transport,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(read_some, transport, url)
            await asked.wait()
            nursery.cancel_scope.cancel()
            with trio.CancelScope(shield=True):
                await gone.wait()


async def test_an_exception_in_the_middle_of_a_stream_closes_the_connection() -> None:
    gone = trio.Event()

    async def handler(stream: trio.SocketStream) -> None:
        await read_request(stream)
        await stream.send_all(HEADERS + chunk(b"data: a\n\n") + chunk(b"data: b\n\n"))
        assert await stream.receive_some() == b""
        gone.set()

    async def fail() -> None:
        async with transport.send(HttpRequest(url=url, body=b"{}")) as reply:
            await anext(reply.chunks())
            raise KeyError("sink")

    with trio.fail_after(5):
        async with serving(handler) as url, open_http_transport() as transport:
            with pytest.raises(KeyError, match="sink"):
                await fail()
            await gone.wait()
        gc.collect()  # a generator left halfway would warn here, and so fail


async def test_a_server_that_goes_away_in_the_middle_is_a_network_error() -> None:
    async def handler(stream: trio.SocketStream) -> None:
        await read_request(stream)
        await stream.send_all(HEADERS + chunk(b"data: a\n\n"))

    with trio.fail_after(5):
        async with serving(handler) as url, open_http_transport() as transport:
            with pytest.raises(
                NetworkError, match=r"connection to 127\.0\.0\.1 failed"
            ):
                await read_some(transport, url)


async def test_a_server_that_says_nothing_at_all_is_a_network_error() -> None:
    async with serving(read_request) as url, open_http_transport() as transport:
        with pytest.raises(NetworkError):
            await read_some(transport, url)


async def test_a_port_where_nobody_listens_is_a_network_error() -> None:
    async with serving(read_request) as url:
        pass
    async with open_http_transport() as transport:
        with pytest.raises(NetworkError, match="ConnectError"):
            await read_some(transport, url)


async def test_a_stream_that_stalls_is_a_timeout() -> None:
    async def handler(stream: trio.SocketStream) -> None:
        await read_request(stream)
        await stream.send_all(HEADERS + chunk(b"data: a\n\n"))
        await trio.sleep_forever()

    with trio.fail_after(5):
        async with (
            serving(handler) as url,
            open_http_transport(token_gap_seconds=0.05) as transport,
        ):
            with pytest.raises(ModelTimeoutError, match="ReadTimeout"):
                await read_some(transport, url)


async def test_a_body_read_to_its_end_keeps_its_connection() -> None:
    peers: list[int] = []

    async def handler(stream: trio.SocketStream) -> None:
        peers.append(1)
        for _ in range(2):
            await read_request(stream)
            await stream.send_all(HEADERS + chunk(b"data: a\n\n") + b"0\r\n\r\n")

    with trio.fail_after(5):
        async with serving(handler) as url, open_http_transport() as transport:
            await read_some(transport, url)
            await read_some(transport, url)
    assert peers == [1]


class CancelAtStep(trio.abc.Instrument):
    """Cancels a scope when its task has run for so many steps."""

    def __init__(self, steps: int, scope: trio.CancelScope) -> None:
        self._task = trio.lowlevel.current_task()
        self._scope = scope
        self.left = steps

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        if task is self._task:
            self.left -= 1
            if self.left == 0:
                self._scope.cancel()


async def test_wherever_it_is_cancelled_the_transport_can_be_used_again() -> None:
    served = 0

    async def handler(stream: trio.SocketStream) -> None:
        nonlocal served
        served += 1
        try:
            while True:
                await read_request(stream)
                await stream.send_all(HEADERS + chunk(b"data: a\n\n"))
                await stream.send_all(chunk(b"data: b\n\n") + b"0\r\n\r\n")
        except (trio.BrokenResourceError, EOFError):
            served -= 1

    async def cancelled_after(steps: int) -> bool:
        """Whether two requests were cut by a cancel after so many steps."""
        with trio.CancelScope() as scope:
            cancel = CancelAtStep(steps, scope)
            trio.lowlevel.add_instrument(cancel)
            try:
                await read_some(transport, url)
                await read_some(transport, url)
            finally:
                trio.lowlevel.remove_instrument(cancel)
        await read_some(transport, url)
        return cancel.left <= 0

    with trio.fail_after(20):
        async with serving(handler) as url:
            steps = 1
            async with open_http_transport() as transport:
                while await cancelled_after(steps):
                    steps += 1
            await trio.testing.wait_all_tasks_blocked(0.02)
    gc.collect()
    assert (steps > 10, served) == (True, 0)
