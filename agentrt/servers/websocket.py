"""The WebSocket server: JSON text frames, many conversations over one connection.

A connection only watches: losing it stops no run. Each handler is wrapped, since an
exception out of one would end the whole server.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import trio
from attrs import define, field

from agentrt.agui.codec import Dialect, encode_interrupt
from agentrt.agui.intake import dialect_of, show
from agentrt.core.errors import AgentRTError, InputError, RuntimeClosedError
from agentrt.core.extras import from_extra
from agentrt.events.types import Resync
from agentrt.runtime.run import RunOptions
from agentrt.runtime.runtime import Runtime
from agentrt.runtime.session import SessionStatus
from agentrt.runtime.subscriptions import Reading, Subscription
from agentrt.servers.base import MAX_FRAME_BYTES, OriginPolicy, error_body
from agentrt.servers.frames import FrameCache, resync_frame, to_json
from agentrt.servers.requests import (
    read_agent,
    read_input,
    read_request,
    read_thread,
)

with from_extra("server"):
    from trio_websocket import (
        ConnectionClosed,
        WebSocketConnection,
        WebSocketRequest,
    )
    from trio_websocket import serve_websocket as serve_connections

__all__ = ["serve_websocket"]

logger = logging.getLogger(__name__)

MAX_SUBSCRIPTIONS: Final = 64
"""Of one connection."""

PING_SECONDS: Final = 30.0
CLOSE_SECONDS: Final = 2.0
PONG_SECONDS: Final = 20.0
"""After which a peer that does not answer counts as gone."""

GOODBYE_SECONDS: Final = 1.0
"""For the close frames of a server that ends."""

Reply = Mapping[str, Any]


async def serve_websocket(
    runtime: Runtime,
    *,
    host: str = "127.0.0.1",
    port: int = 8001,
    origins: OriginPolicy | None = None,
    task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve until cancelled; tells the port once it listens (0 takes a free one).

    When the runtime is closed, every connection with subscriptions gets its last events
    and a close frame with code 1001; the others get theirs when the server ends.
    """
    server = _Server(runtime, origins or OriginPolicy())
    async with trio.open_nursery() as nursery:
        try:
            task_status.started(await nursery.start(server.accept, host, port))
            await trio.sleep_forever()
        finally:
            with trio.move_on_after(GOODBYE_SECONDS, shield=True):
                await server.say_goodbye()
            server.end()


@define(eq=False)
class _Server:
    """The connections of one server."""

    _runtime: Runtime
    _origins: OriginPolicy
    _cache: FrameCache = field(factory=FrameCache, init=False)
    _sockets: set[WebSocketConnection] = field(factory=set, init=False)
    _life: trio.CancelScope = field(
        factory=lambda: trio.CancelScope(shield=True), init=False
    )
    """Shielded, since a socket whose tasks were cancelled can say no goodbye.
    `end` cancels it."""

    async def accept(
        self, host: str, port: int, *, task_status: trio.TaskStatus[int]
    ) -> None:
        """Serve connections until `end`; tells the port."""
        with self._life:
            async with trio.open_nursery() as nursery:
                server = await nursery.start(
                    partial(
                        serve_connections,
                        self._handle,
                        host,
                        port,
                        None,
                        max_message_size=MAX_FRAME_BYTES,
                    )
                )
                task_status.started(server.port)

    async def say_goodbye(self) -> None:
        """Close what is open with code 1001, and wait until the peers have."""
        async with trio.open_nursery() as goodbyes:
            for socket in self._sockets:
                goodbyes.start_soon(socket.aclose, 1001, "the server ends")

    def end(self) -> None:
        """Stop serving."""
        self._life.cancel(reason="the server ends")

    async def _handle(self, request: WebSocketRequest) -> None:
        try:
            await self._serve(request)
        except* ConnectionClosed:
            pass
        except* Exception:
            # The connection boundary: one connection's failure ends no other.
            logger.exception("a WebSocket connection failed")

    async def _serve(self, request: WebSocketRequest) -> None:
        headers = {name.lower(): value for name, value in request.headers}
        origin = headers.get(b"origin", b"").decode("latin-1") or None
        if not self._origins.allows(origin, host=_address(request)):
            text = f"origin {origin} may not connect; allow it with --allow-origin\n"
            await request.reject(403, body=text.encode())
            return
        socket = await request.accept()
        self._sockets.add(socket)
        try:
            async with trio.open_nursery() as nursery:
                connection = Connection(self._runtime, socket, nursery, self._cache)
                nursery.start_soon(connection.keep_alive, name="WebSocket keep-alive")
                await connection.serve()
                nursery.cancel_scope.cancel(reason="the peer left")
        finally:
            self._sockets.discard(socket)


def _address(request: WebSocketRequest) -> str | None:
    """Ours, as the peer reached it."""
    local = request.local
    return None if isinstance(local, str) else str(local.address)


@define(kw_only=True, eq=False)
class _Reader:
    """One subscription of one connection.

    It is stopped while it waits, and never in the middle of a frame: what is left of
    that would be taken for the beginning of the next.
    """

    thread_id: str
    agent: str
    since: int | None
    dialect: Dialect
    before: "_Reader | None" = None
    """Whose place it takes."""

    is_over: bool = field(default=False, init=False)
    done: trio.Event = field(factory=trio.Event, init=False)
    _waiting: trio.CancelScope | None = field(default=None, init=False)

    def stop(self) -> None:
        self.is_over = True
        if self._waiting is not None:
            self._waiting.cancel(reason="unsubscribed")

    async def batch(self, events: Subscription) -> Sequence[Reading]:
        """What comes next; nothing when there is no more, or it was stopped."""
        if self.is_over:
            return ()
        with trio.CancelScope() as self._waiting:
            return await events.batch()
        return ()


@define(eq=False)
class Connection:
    """One peer: its requests, and its subscriptions by conversation."""

    _runtime: Runtime
    _socket: WebSocketConnection
    _nursery: trio.Nursery = field(repr=False)
    _cache: FrameCache = field(repr=False)
    _readers: dict[str, _Reader] = field(factory=dict, init=False)
    _reading: int = field(default=0, init=False)

    async def serve(self) -> None:
        """Answer requests until the peer leaves."""
        while True:
            text = await self._socket.get_message()
            await self._send(await self._answer(text))

    async def keep_alive(self) -> None:
        """Find out that the peer is gone when nothing is said."""
        while True:
            await trio.sleep(PING_SECONDS)
            with trio.move_on_after(PONG_SECONDS) as patience:
                await self._socket.ping()
            if patience.cancelled_caught:
                # It may not even take a close frame: what counts is that we let go.
                with trio.move_on_after(CLOSE_SECONDS):
                    await self._socket.aclose(1001, "no pong came")
                self._nursery.cancel_scope.cancel(reason="the peer is gone")

    async def _answer(self, text: str | bytes) -> Reply:
        id_: Any = None
        try:
            request = read_request(text)
            id_ = request.get("id")
            name = request.get("op")
            operation = OPERATIONS.get(str(name))
            if operation is None:
                known = ", ".join(OPERATIONS)
                raise InputError(f"op is {show(name)}, expected one of {known}")
            reply = await operation(self, request)
        except AgentRTError as error:
            return {"id": id_, "ok": False, "error": error_body(error)}
        return {"id": id_, "ok": True, **reply}

    async def subscribe(self, request: Mapping[str, Any]) -> Reply:
        """Push the conversation's events; once more moves the reader's place."""
        thread_id = read_thread(request)
        since = request.get("since")
        if since is not None and (type(since) is not int or since < 0):
            raise InputError(f"since is {show(since)}, expected a number from 0")
        if len(self._readers) >= MAX_SUBSCRIPTIONS and thread_id not in self._readers:
            raise InputError(f"this connection has {MAX_SUBSCRIPTIONS} subscriptions")
        status = await self._runtime.status(thread_id, agent=read_agent(request))
        reader = _Reader(
            thread_id=thread_id,
            agent=read_agent(request),
            since=since,
            dialect=dialect_of(request.get("protocolVersion")),
            before=self._readers.get(thread_id),
        )
        self._stop_reading(thread_id)
        self._readers[thread_id] = reader
        self._nursery.start_soon(self._read, reader, name=f"reader of {thread_id}")
        return {"threadId": thread_id, **_status(status)}

    async def unsubscribe(self, request: Mapping[str, Any]) -> Reply:
        thread_id = read_thread(request)
        await trio.lowlevel.checkpoint()
        return {"threadId": thread_id, "unsubscribed": self._stop_reading(thread_id)}

    async def run(self, request: Mapping[str, Any]) -> Reply:
        wanted = read_input(request)
        if wanted.answers is not None:
            raise InputError("input.resume holds answers: send them with op 'resume'")
        options = RunOptions(agent=read_agent(request), label=wanted.label)
        run = await self._runtime.start_run(
            wanted.conversation_id, wanted.messages, options
        )
        return {"threadId": run.conversation_id, "runId": run.id, "since": run.since}

    async def resume(self, request: Mapping[str, Any]) -> Reply:
        wanted = read_input(request)
        if wanted.answers is None:
            raise InputError("input.resume is empty: it takes one answer an interrupt")
        options = RunOptions(agent=read_agent(request), label=wanted.label)
        run = await self._runtime.resume(
            wanted.conversation_id, wanted.answers, options
        )
        return {"threadId": run.conversation_id, "runId": run.id, "since": run.since}

    async def stop(self, request: Mapping[str, Any]) -> Reply:
        run_id = request.get("runId")
        if run_id is not None and not isinstance(run_id, str):
            raise InputError(f"runId is {show(run_id)}, expected a text")
        await trio.lowlevel.checkpoint()
        return {"stopped": self._runtime.stop(read_thread(request), run_id)}

    async def status(self, request: Mapping[str, Any]) -> Reply:
        thread_id = read_thread(request)
        status = await self._runtime.status(thread_id, agent=read_agent(request))
        return {"threadId": thread_id, **_status(status)}

    async def ping(self, request: Mapping[str, Any]) -> Reply:
        await trio.lowlevel.checkpoint()
        return {}

    def _stop_reading(self, thread_id: str) -> bool:
        reader = self._readers.pop(thread_id, None)
        if reader is not None:
            reader.stop()
        return reader is not None

    async def _read(self, reader: "_Reader") -> None:
        """Push to the end. The last reader to come there closes the connection."""
        if reader.before is not None:
            await reader.before.done.wait()  # or its last frame would come among ours
        self._reading += 1
        try:
            await self._push(reader)
        finally:
            self._reading -= 1
            reader.done.set()
        if not (reader.is_over or self._reading):
            await self._socket.aclose(1001, "the runtime was closed")

    async def _push(self, reader: "_Reader") -> None:
        """Push what comes until the runtime is closed, or the reader is stopped.

        If it is the conversation that was forgotten, go on with what it is then.
        """
        since = reader.since
        while not reader.is_over:
            events = self._runtime.subscribe(
                reader.thread_id, since=since, agent=reader.agent
            )
            while ready := await reader.batch(events):
                for reading in ready:
                    if reader.is_over:
                        return
                    await self._socket.send_message(self._frame(reading, reader))
            try:
                await self._runtime.status(reader.thread_id, agent=reader.agent)
            except RuntimeClosedError:
                return
            since = None

    def _frame(self, reading: Reading, reader: "_Reader") -> str:
        if isinstance(reading, Resync):
            return resync_frame(reading, reader.dialect)
        return self._cache.frame(reading, reader.dialect)

    async def _send(self, reply: Reply) -> None:
        await self._socket.send_message(to_json(reply))


OPERATIONS: Final[
    Mapping[str, Callable[[Connection, Mapping[str, Any]], Awaitable[Reply]]]
] = {
    "subscribe": Connection.subscribe,
    "run": Connection.run,
    "stop": Connection.stop,
    "resume": Connection.resume,
    "status": Connection.status,
    "unsubscribe": Connection.unsubscribe,
    "ping": Connection.ping,
}


def _status(status: SessionStatus) -> Reply:
    return {
        "seq": status.seq,
        "status": {
            "phase": status.phase.value,
            "runId": status.run_id,
            "interrupts": [encode_interrupt(each) for each in status.interrupts],
        },
    }
