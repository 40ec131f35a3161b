"""A demo server that the browser tests can rig; started as a child process.

Its WebSocket port is a plain forwarder to the real one, so that connections can be cut
as a network does it. Commands come as lines on standard input: `cut` resets every
connection. One JSON line on standard output tells the port of the page.

It says what `OfflineModel` says, quicker, but for two things: "careful tool" calls a
tool that notes in the file of `--notes` how it ended, and "hostile" gets an answer that
tries to run code in the page.
"""

import json
import os
import socket
import struct
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

import trio
from attrs import define, field, frozen

from agentrt.agent.agent import Agent
from agentrt.core.chat import ChatRequest, ChatResponse
from agentrt.core.context import Context
from agentrt.core.messages import (
    AssistantMessage,
    ToolCall,
    ToolMessage,
    last_user_message,
)
from agentrt.models.function import FunctionModel
from agentrt.models.offline import OfflineModel
from agentrt.runtime.runtime import open_runtime
from agentrt.servers.base import OriginPolicy
from agentrt.servers.http import HttpSettings, serve_http
from agentrt.servers.websocket import serve_websocket
from agentrt.tools.base import Tool, tool
from agentrt.tools.demo import demo_tools

TOKEN_SECONDS: Final = 0.004

HOSTILE: Final = """\
<script>window.pwned = "script"</script>
<img src=x onerror="window.pwned = 'image'">
<svg onload="window.pwned = 'svg'"></svg>

[click me](javascript:window.pwned='link') and [me](JaVaScRiPt:window.pwned='link')
and [me](data:text/html,<script>window.pwned='data'</script>)
and <a href="javascript:window.pwned='anchor'">me</a>

![picture](javascript:window.pwned='picture) ![x](https://evil.example/pixel.png)

`<b onmouseover="window.pwned = 'code'">code</b>`

```html" onmouseover="window.pwned = 'fence'
</code></pre><script>window.pwned = "block"</script>
```

| <script>window.pwned = "table"</script> |
| --- |
| [cell](javascript:window.pwned='cell') |

<iframe srcdoc="<script>parent.pwned = 'frame'</script>"></iframe> The end."""


def careful_tool(notes: Path) -> Tool:
    @tool
    async def careful_task() -> str:
        """Wait, and note how it ended."""
        with notes.open("a") as file:
            file.write("began\n")
        try:
            await trio.sleep_forever()
        finally:
            with notes.open("a") as file:
                file.write("cleaned up\n")

    return careful_task


@frozen
class RiggedModel:
    """`OfflineModel`, with two answers of its own."""

    offline: OfflineModel
    ref: str = "test/rigged"

    async def call(self, request: ChatRequest, context: Context) -> ChatResponse:
        user = last_user_message(request.messages)
        said = "" if user is None else user.text
        answer: AssistantMessage | str | None = None
        if "hostile" in said:
            answer = HOSTILE
        elif "careful" in said and not isinstance(request.messages[-1], ToolMessage):
            call = ToolCall(id=f"{context.message_id}-0", name="careful_task")
            answer = AssistantMessage(id="", content="", tool_calls=(call,))
        if answer is None:
            return await self.offline.call(request, context)
        return await FunctionModel(lambda _: answer).call(request, context)


@define(eq=False)
class Forwarder:
    """Passes connections on to a port, and can cut them all."""

    port: int
    _open: set[trio.SocketStream] = field(factory=set, init=False)

    async def forward(self, client: trio.SocketStream) -> None:
        server = await trio.open_tcp_stream("127.0.0.1", self.port)
        self._open.add(client)
        try:
            async with client, server, trio.open_nursery() as nursery:
                nursery.start_soon(self._copy, client, server, nursery.cancel_scope)
                nursery.start_soon(self._copy, server, client, nursery.cancel_scope)
        finally:
            self._open.discard(client)

    async def _copy(
        self,
        source: trio.SocketStream,
        target: trio.SocketStream,
        both: trio.CancelScope,
    ) -> None:
        try:
            while data := await source.receive_some(65536):
                await target.send_all(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        both.cancel(reason="one side closed")

    def cut(self) -> None:
        """Reset every connection: what is under way is lost."""
        for client in list(self._open):
            linger = struct.pack("ii", 1, 0)
            client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            client.socket.close()


async def obey(forwarder: Forwarder, until_closed: trio.CancelScope) -> None:
    """Do what standard input says; its end is the server's."""
    text = ""
    async with trio.lowlevel.FdStream(os.dup(sys.stdin.fileno())) as commands:
        while data := await commands.receive_some():
            *lines, text = (text + data.decode()).split("\n")
            for line in lines:
                if line == "cut":
                    forwarder.cut()
                    sys.stdout.write("done\n")
                    sys.stdout.flush()
    until_closed.cancel(reason="standard input was closed")


async def main(arguments: Sequence[str]) -> None:
    model = RiggedModel(OfflineModel(token_seconds=TOKEN_SECONDS))
    tools = [*demo_tools(), careful_tool(Path(arguments[0]))]
    origins = OriginPolicy()
    async with (
        open_runtime(Agent(model=model, tools=tools)) as runtime,
        trio.open_nursery() as nursery,
    ):
        port = await nursery.start(
            partial(serve_websocket, runtime, port=0, origins=origins)
        )
        forwarder = Forwarder(port)
        listeners = await nursery.start(
            partial(trio.serve_tcp, forwarder.forward, 0, host="127.0.0.1")
        )
        forwarded = listeners[0].socket.getsockname()[1]
        settings = HttpSettings(
            websocket_port=forwarded, model="test/rigged", origins=origins
        )
        address = await nursery.start(
            partial(serve_http, runtime, port=0, settings=settings)
        )
        http_port = int(address.rpartition(":")[2].strip("/"))
        origins.own_ports.add(http_port)
        sys.stdout.write(json.dumps({"port": http_port}) + "\n")
        sys.stdout.flush()
        await obey(forwarder, nursery.cancel_scope)


if __name__ == "__main__":
    trio.run(main, sys.argv[1:])
