"""Server-sent events: the frames, and the response that streams them."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import trio
from attrs import define

from agentrt.agui.codec import Dialect, encode
from agentrt.events.types import Envelope, Resync, TerminalEvent
from agentrt.runtime.run import Run
from agentrt.runtime.runtime import Runtime
from agentrt.servers.base import Disconnects
from agentrt.servers.frames import to_json

__all__ = ["RunStream", "sse_frames"]

KEEP_ALIVE: Final = b": keep-alive\n\n"

HEADERS: Final = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
)

FELL_BEHIND: Final = {
    "type": "RUN_ERROR",
    "message": "this reader fell behind what is kept of the stream; the run goes on",
    "code": "resync",
}
"""A client that cannot be made whole here is told so, and not left with a success."""

LOST: Final = {
    "type": "RUN_ERROR",
    "message": "the end of this run could not be recorded",
    "code": "terminal_lost",
}

Scope: TypeAlias = Mapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Mapping[str, Any]]]
Send: TypeAlias = Callable[[Mapping[str, Any]], Awaitable[None]]


def sse_frames(envelope: Envelope, dialect: Dialect) -> bytes:
    """An envelope's frames; its number in the `id:` line of the last.

    So a reader that was cut between two frames of one event gets both again.
    """
    events = encode(envelope, dialect)
    frames = [f"data: {to_json(event)}\n\n" for event in events]
    if frames:
        frames[-1] = f"id: {envelope.seq}\n{frames[-1]}"
    return "".join(frames).encode()


@define(eq=False)
class RunStream:
    """An ASGI response: the AG-UI events of one run, to its terminal event.

    When the client leaves before it has its last frame, the run is reported to
    `disconnects`. A reader that fell behind is told so; that run goes on.
    """

    _runtime: Runtime
    _run: Run
    _agent: str
    _dialect: Dialect
    _disconnects: Disconnects
    _headers: Sequence[tuple[bytes, bytes]]
    _keep_alive_seconds: float
    """Of silence, after which a comment is sent."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_told = False
        try:
            headers = [*HEADERS, *self._headers]
            await send(
                {"type": "http.response.start", "status": 200, "headers": headers}
            )
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_watch, receive, nursery.cancel_scope)
                await self._stream(send)
                is_told = True
                await send({"type": "http.response.body", "body": b""})
                nursery.cancel_scope.cancel(reason="the stream is over")
        finally:
            if not is_told:
                self._disconnects.left(self._run)

    async def _stream(self, send: Send) -> None:
        subscription = self._runtime.subscribe(
            self._run.conversation_id, since=self._run.since, agent=self._agent
        )
        over = False
        while not over:
            body = KEEP_ALIVE
            with trio.move_on_after(self._keep_alive_seconds):
                ready = await subscription.batch()
                body, over = self._encode(ready)
                over = over or not ready
            if body is KEEP_ALIVE and self._run.is_over:
                # Its end could not be recorded: none will come.
                body, over = _data(LOST), True
            if body:
                await send(
                    {"type": "http.response.body", "body": body, "more_body": True}
                )

    def _encode(self, ready: Sequence[Envelope | Resync]) -> tuple[bytes, bool]:
        """The frames of what belongs to this run, and whether it ends with them."""
        frames: list[bytes] = []
        for reading in ready:
            if isinstance(reading, Resync):
                frames.append(_data(FELL_BEHIND))
                return b"".join(frames), True
            if reading.run_id != self._run.id:
                continue
            frames.append(sse_frames(reading, self._dialect))
            if isinstance(reading.event, TerminalEvent):
                return b"".join(frames), True
        return b"".join(frames), False


def _data(event: Mapping[str, Any]) -> bytes:
    return f"data: {to_json(event)}\n\n".encode()


async def _watch(receive: Receive, stream: trio.CancelScope) -> None:
    """Hypercorn tells that the client left only to who listens."""
    while (await receive())["type"] != "http.disconnect":
        pass
    stream.cancel(reason="the client left")
