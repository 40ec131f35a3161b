"""Does a reader that stalls slow a run? Two real sockets say.

One WebSocket client subscribes to one conversation and never reads again; another
conversation has nobody. The same run is then measured in both, in turns, in one
process: the median of the ratio is what the stalled client costs.
"""

import base64
import json
import os
import statistics
import time
from functools import partial
from typing import Final

import trio
from wsproto.frame_protocol import FrameProtocol

from agentrt.agent.agent import Agent
from agentrt.runtime.runtime import Runtime, open_runtime
from agentrt.servers.websocket import serve_websocket
from agentrt.testing import Say, ScriptedModel

__all__ = ["LIMIT", "stalled_ratio"]

ROUNDS: Final = 40
TOKENS: Final = 1000
FILL: Final = 60
"""Runs until the socket takes no more: some 10 MB, over what a kernel buffers."""

LIMIT: Final = 1.05
"""What the stalled client may cost at the most."""

STALLED: Final = "watched"
ALONE: Final = "alone"


async def stalled_ratio() -> float:
    """CPU time of a run that a stalled client subscribes to, over one without."""
    script = [Say(text=["word "] * TOKENS)] * (2 * ROUNDS + FILL)
    agent = Agent(model=ScriptedModel(script))
    async with open_runtime(agent) as runtime, trio.open_nursery() as nursery:
        port = await nursery.start(partial(serve_websocket, runtime, port=0))
        async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
            await _subscribe(stream)
            for _ in range(FILL):
                await _measure(runtime, STALLED)
            ratios = [
                await _measure(runtime, STALLED) / await _measure(runtime, ALONE)
                for _ in range(ROUNDS)
            ]
        nursery.cancel_scope.cancel()
    return statistics.median(ratios)


async def _measure(runtime: Runtime, conversation: str) -> float:
    start = time.process_time()
    run = await runtime.start_run(conversation, "go")
    await run.wait()
    return time.process_time() - start


async def _subscribe(stream: trio.SocketStream) -> None:
    """Shake hands, ask, and read nothing but the answer to the handshake."""
    key = base64.b64encode(os.urandom(16)).decode()
    await stream.send_all(
        b"GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n"
        b"Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
        b"Sec-WebSocket-Key: " + key.encode() + b"\r\n\r\n"
    )
    await stream.receive_some()
    wish = {"id": 1, "op": "subscribe", "threadId": STALLED, "since": 0}
    frames = FrameProtocol(client=True, extensions=[])
    await stream.send_all(frames.send_data(json.dumps(wish)))
