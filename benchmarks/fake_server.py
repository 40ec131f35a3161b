"""A server that speaks OpenAI's chat wire: one tool call, then 500 tokens.

It runs in a process of its own, so that only the client's CPU time is counted.
"""

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from subprocess import PIPE
from typing import Any, Final

import trio

__all__ = ["TOKENS", "serve_fake"]

TOKENS: Final = 500


def _chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    head = {"id": "x", "object": "chat.completion.chunk", "model": "fake"}
    data = f"data: {json.dumps({**head, 'choices': [choice]})}\n\n".encode()
    return b"%x\r\n%s\r\n" % (len(data), data)


def _tool_call() -> bytes:
    start = {"name": "add", "arguments": ""}
    first = {"index": 0, "id": "call_1", "type": "function", "function": start}
    rest = {"index": 0, "function": {"arguments": '{"a": 1, "b": 2}'}}
    chunks = [_chunk({"tool_calls": [first]}), _chunk({"tool_calls": [rest]})]
    return b"".join([*chunks, _chunk({}, "tool_calls")])


HEAD: Final = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
    b"transfer-encoding: chunked\r\n\r\n"
)
END: Final = b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"
TOOL_REPLY: Final = HEAD + _tool_call() + END
TEXT_REPLY: Final = (
    HEAD
    + b"".join(_chunk({"content": f"word{number} "}) for number in range(TOKENS))
    + _chunk({}, "stop")
    + END
)


async def _serve(stream: trio.SocketStream) -> None:
    received = bytearray()
    async for data in stream:
        received += data
        head, blank, body = bytes(received).partition(b"\r\n\r\n")
        fields = head.lower().split(b"content-length:")
        if not blank or len(body) < int(fields[1].split(b"\r\n")[0]):
            continue
        received.clear()
        is_second = b'"tool"' in body
        await stream.send_all(TEXT_REPLY if is_second else TOOL_REPLY)


async def _main() -> None:
    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(trio.serve_tcp, _serve, 0)
        print(listeners[0].socket.getsockname()[1], flush=True)


@asynccontextmanager
async def serve_fake() -> AsyncIterator[str]:
    """The base URL of such a server, for the length of the block."""
    command = [sys.executable, "-m", "benchmarks.fake_server"]
    async with trio.open_nursery() as nursery:
        process = await nursery.start(
            partial(trio.run_process, command, stdout=PIPE, check=False)
        )
        port = int(await process.stdout.receive_some())
        yield f"http://127.0.0.1:{port}/v1"
        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    trio.run(_main)
