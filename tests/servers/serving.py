"""A served agent, scripted models, and a WebSocket peer: what the server tests share.

Nothing here sleeps. A model waits at a `Gate` until a test opens it, and every wait of
a peer is bounded by `PATIENCE`.
"""

import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final, TypeAlias

import httpx
import trio
from attrs import define, field, frozen
from trio_websocket import ConnectionClosed, WebSocketConnection, wrap_client_stream

from agentrt.agent.agent import Agent
from agentrt.core.chat import (
    ChatRequest,
    ChatResponse,
    FinishReason,
    TextDelta,
    ToolCallDelta,
)
from agentrt.core.context import Context
from agentrt.core.ids import new_id
from agentrt.core.messages import AssistantMessage, ToolCall, text_of_value
from agentrt.events.types import Envelope, TerminalEvent
from agentrt.runtime.runtime import Runtime, open_runtime
from agentrt.servers.base import OriginPolicy
from agentrt.servers.http import HttpSettings, serve_http
from agentrt.servers.websocket import serve_websocket
from agentrt.stores.base import EventStore
from agentrt.tools.demo import demo_tools

__all__ = [
    "DELETE",
    "PATIENCE",
    "Gate",
    "Peer",
    "ScriptedModel",
    "Served",
    "answer",
    "open_served",
    "pause",
    "read_run",
    "says",
    "text_of",
    "wait_closed",
]

PATIENCE: Final = 10.0
"""Seconds after which a wait in a test has failed."""

DELETE: Final = ToolCall(
    id="call-1", name="delete_database", arguments={"name": "production"}
)

Frame: TypeAlias = dict[str, Any]


@define(eq=False)
class Gate:
    """Where a model waits until the test lets it go on."""

    reached: trio.Event = field(factory=trio.Event, init=False)
    opened: trio.Event = field(factory=trio.Event, init=False)

    async def pass_through(self) -> None:
        self.reached.set()
        await self.opened.wait()

    async def wait_reached(self) -> None:
        with trio.fail_after(PATIENCE):
            await self.reached.wait()

    def open(self) -> None:
        self.opened.set()


Step: TypeAlias = str | Gate | ToolCall | Exception
"""A text to stream, a gate to wait at, a tool to ask for, a failure to raise."""


@define(eq=False, init=False)
class ScriptedModel:
    """A `ChatModel` whose every call plays the next script; the last one stays."""

    scripts: Sequence[Sequence[Step]]
    requests: list[ChatRequest]

    def __init__(self, *scripts: Sequence[Step]) -> None:
        self.scripts = scripts
        self.requests = []

    @property
    def ref(self) -> str:
        return "test/scripted"

    async def call(self, request: ChatRequest, context: Context) -> ChatResponse:
        await trio.lowlevel.checkpoint()
        script = self.scripts[min(len(self.requests), len(self.scripts) - 1)]
        self.requests.append(request)
        tell = context.on_delta or (lambda delta: None)
        text = ""
        calls: list[ToolCall] = []
        for step in script:
            match step:
                case Gate():
                    await step.pass_through()
                case Exception():
                    raise step
                case ToolCall():
                    tell(
                        ToolCallDelta(
                            index=len(calls),
                            id=step.id,
                            name=step.name,
                            arguments=text_of_value(step.arguments),
                        )
                    )
                    calls.append(step)
                case str():
                    tell(TextDelta(text=step))
                    text += step
        message = AssistantMessage(
            id=context.message_id or new_id(), content=text, tool_calls=tuple(calls)
        )
        reason = FinishReason.TOOL_USE if calls else FinishReason.STOP
        return ChatResponse(message=message, finish_reason=reason)


@define(eq=False)
class Peer:
    """A client of the WebSocket server, that reads in one task only."""

    socket: WebSocketConnection
    stream: trio.SocketStream = field(repr=False)
    pushed: list[Frame] = field(factory=list, init=False)
    """What came while a reply was waited for, and was not taken yet."""

    _requests: int = field(default=0, init=False)

    async def send(self, raw: str | bytes) -> None:
        with trio.fail_after(PATIENCE):
            await self.socket.send_message(raw)

    async def vanish(self) -> None:
        """Be gone, without a word."""
        await self.stream.aclose()

    async def receive(self) -> Frame:
        """The next frame of any kind, from the wire."""
        with trio.fail_after(PATIENCE):
            frame: Frame = json.loads(await self.socket.get_message())
            return frame

    async def ask(self, op: str, **fields: Any) -> Frame:
        """Send a request and wait for its reply; pushed frames are kept."""
        self._requests += 1
        id_ = f"request-{self._requests}"
        await self.send(json.dumps({"id": id_, "op": op, **fields}))
        while True:
            frame = await self.receive()
            if frame.get("id") == id_:
                return frame
            self.pushed.append(frame)

    async def run(self, thread: str, text: str, **fields: Any) -> Frame:
        """Ask for a run with one user message."""
        run_id = fields.pop("label", "")
        messages = [{"id": new_id(), "role": "user", "content": text}]
        given: Frame = {"threadId": thread, "runId": run_id, "messages": messages}
        return await self.ask("run", threadId=thread, input=given, **fields)

    async def next_push(self) -> Frame:
        """The next pushed frame, in the order of the wire."""
        return self.pushed.pop(0) if self.pushed else await self.receive()

    async def read_until(self, is_last: Callable[[Frame], bool]) -> list[Frame]:
        """Pushed frames, up to and with the first that `is_last` accepts."""
        frames = [await self.next_push()]
        while not is_last(frames[-1]):
            frames.append(await self.next_push())
        return frames

    async def read_run(self, thread: str | None = None) -> list[Frame]:
        """Pushed frames up to the end of a run."""
        return await self.read_until(
            lambda frame: (
                frame.get("type") in TERMINALS and thread in {None, frame["threadId"]}
            )
        )


TERMINALS: Final = {"run/finished", "run/error", "run/cancelled", "run/paused"}


@frozen(kw_only=True)
class Served:
    """A runtime behind both servers, on ports of their own."""

    runtime: Runtime
    websocket_port: int
    http_port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.http_port}"

    @asynccontextmanager
    async def peer(self, origin: str | None = None) -> AsyncIterator[Peer]:
        """A connection, closed politely at the end of the block."""
        headers = [] if origin is None else [(b"origin", origin.encode())]
        with trio.fail_after(PATIENCE):
            stream = await trio.open_tcp_stream("127.0.0.1", self.websocket_port)
        async with stream, trio.open_nursery() as nursery:
            with trio.fail_after(PATIENCE):
                socket = await wrap_client_stream(
                    nursery, stream, "127.0.0.1", "/", extra_headers=headers
                )
            yield Peer(socket, stream)
            with trio.move_on_after(PATIENCE):
                await socket.aclose()
            nursery.cancel_scope.cancel(reason="the peer is done")

    async def handshake(self, origin: str) -> httpx.Response:
        """What a page of that origin is answered if it may not connect."""
        headers = {
            "connection": "upgrade",
            "upgrade": "websocket",
            "origin": origin,
            "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
            "sec-websocket-version": "13",
        }
        async with httpx.AsyncClient(timeout=PATIENCE) as client:
            url = f"http://127.0.0.1:{self.websocket_port}/"
            return await client.get(url, headers=headers)


@asynccontextmanager
async def open_served(
    agent: Agent,
    *,
    events: EventStore | None = None,
    grace_seconds: float = 0.05,
    keep_alive_seconds: float = 15.0,
    allow: Sequence[str] = (),
) -> AsyncIterator[Served]:
    """Both servers over one runtime; leaving the block ends them."""
    origins = OriginPolicy(set(allow))
    async with (
        open_runtime(agent, events=events) as runtime,
        trio.open_nursery() as nursery,
    ):
        port = await nursery.start(
            partial(serve_websocket, runtime, port=0, origins=origins)
        )
        settings = HttpSettings(
            websocket_port=port,
            model="test/scripted",
            origins=origins,
            grace_seconds=grace_seconds,
            keep_alive_seconds=keep_alive_seconds,
        )
        address = await nursery.start(
            partial(serve_http, runtime, port=0, settings=settings)
        )
        http_port = int(address.rpartition(":")[2].strip("/"))
        origins.own_ports.add(http_port)
        yield Served(runtime=runtime, websocket_port=port, http_port=http_port)
        nursery.cancel_scope.cancel(reason="the test is over")


async def read_run(runtime: Runtime, thread: str, since: int = 0) -> list[Envelope]:
    """The envelopes of one run from the runtime itself, up to its terminal event."""
    envelopes: list[Envelope] = []
    with trio.fail_after(PATIENCE):
        async for reading in runtime.subscribe(thread, since=since):
            assert isinstance(reading, Envelope), reading
            envelopes.append(reading)
            if isinstance(reading.event, TerminalEvent):
                break
    return envelopes


def says(*scripts: Sequence[Any], **fields: Any) -> Agent:
    """An agent whose model plays `scripts`, with the demo tools."""
    return Agent(model=ScriptedModel(*scripts), tools=demo_tools(), **fields)


def text_of(frames: Sequence[Mapping[str, Any]]) -> str:
    events = [event for frame in frames for event in frame.get("events", ())]
    return "".join(
        event["delta"] for event in events if event["type"] == "TEXT_MESSAGE_CONTENT"
    )


async def wait_closed(peer: Peer) -> tuple[list[dict[str, Any]], int]:
    """What still comes, and the code of the close."""
    frames = list(peer.pushed)
    while True:
        try:
            frames.append(await peer.receive())
        except ConnectionClosed as closed:
            return frames, 0 if closed.reason is None else closed.reason.code


async def pause(peer: Peer, thread: str = "t") -> Mapping[str, Any]:
    """Subscribe and run until an approval waits: the open interrupt."""
    await peer.ask("subscribe", threadId=thread, protocolVersion="1.0")
    await peer.run(thread, "delete it")
    frames = await peer.read_run(thread)
    assert frames[-1]["type"] == "run/paused"
    interrupt: Mapping[str, Any] = frames[-1]["events"][0]["outcome"]["interrupts"][0]
    return interrupt


def answer(interrupt_id: str, **payload: Any) -> Mapping[str, Any]:
    entry = {"interruptId": interrupt_id, "status": "resolved", "payload": payload}
    return {"threadId": "t", "messages": [], "resume": [entry]}
