"""`agentrt serve` as a child process: its address, signals, store and errors."""

import json
import re
import signal
import socket
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import httpx
import pytest
import trio
from attrs import frozen

from agentrt.runtime.runtime import Runtime
from tests.servers.serving import PATIENCE, Served, text_of, wait_closed

pytestmark = pytest.mark.integration

START: Final = "import sys; import agentrt.cli as c; sys.argv[0] = 'agentrt'; c.main()"
STARTED: Final = re.compile(
    r"agentrt serves (?P<model>\S+) at http://(?P<host>[^ /]+):(?P<http>\d+)/ "
    r"\(WebSocket on port (?P<ws>\d+)\)"
)
STOP_SECONDS: Final = 5.0


@frozen(kw_only=True)
class Child:
    """A running `agentrt serve`."""

    process: trio.Process
    model: str
    host: str
    served: Served

    async def end(self, number: signal.Signals) -> int:
        """Send a signal; the exit code, which must come soon."""
        self.process.send_signal(number)
        with trio.fail_after(STOP_SECONDS):
            return await self.process.wait()


def command(*options: str) -> Sequence[str]:
    return [sys.executable, "-c", START, "serve", *options]


@asynccontextmanager
async def open_child(*options: str) -> AsyncIterator[Child]:
    """Start it on free ports; it is killed at the end if it still runs."""
    process = await trio.lowlevel.open_process(
        command("--port", "0", "--ws-port", "0", *options), stdout=-1
    )
    try:
        assert process.stdout is not None
        async with process.stdout:
            said = b""
            with trio.fail_after(30):
                while b"\n" not in said:
                    piece = await process.stdout.receive_some()
                    assert piece, "it ended without a word"
                    said += piece
            found = STARTED.match(said.decode())
            assert found is not None, said
            yield Child(
                process=process,
                model=found["model"],
                host=found["host"],
                served=_served(int(found["http"]), int(found["ws"])),
            )
    finally:
        if process.returncode is None:
            process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()


def _served(http_port: int, websocket_port: int) -> Served:
    nothing: Runtime = None  # type: ignore[assignment]  # it lives in the child
    return Served(runtime=nothing, http_port=http_port, websocket_port=websocket_port)


async def test_serve_prints_where_it_serves_what() -> None:
    async with open_child() as child:
        async with httpx.AsyncClient(timeout=PATIENCE) as client:
            config = (await client.get(f"{child.served.url}/config.json")).json()
        origin = f"http://127.0.0.1:{child.served.http_port}"
        async with child.served.peer(origin) as peer:
            assert (await peer.ask("ping"))["ok"] is True
    assert child.model == config["model"] == "offline/demo"
    assert config["websocketPort"] == child.served.websocket_port


async def test_a_server_on_all_addresses_lets_its_own_page_in() -> None:
    async with open_child("--host", "0.0.0.0") as child:
        assert child.host == "127.0.0.1"
        for name in ("127.0.0.1", "localhost"):
            origin = f"http://{name}:{child.served.http_port}"
            async with child.served.peer(origin) as peer:
                assert (await peer.ask("ping"))["ok"] is True


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_signal_ends_the_runs_before_the_connections(
    number: signal.Signals,
) -> None:
    async with open_child() as child, child.served.peer() as peer:
        await peer.ask("subscribe", threadId="t", since=0)
        await peer.run("t", "use the slow tool")
        await peer.read_until(lambda frame: frame.get("type") == "run/usage")
        code = await child.end(number)
        frames, close = await wait_closed(peer)
    assert [frame["type"] for frame in frames] == ["tool/result", "run/cancelled"]
    assert (code, close) == (0, 1001)


async def test_a_signal_ends_the_streams_of_the_agui_route_with_a_terminal_event() -> (
    None
):
    given = {
        "threadId": "t",
        "runId": "r",
        "messages": [{"id": "u", "role": "user", "content": "use the slow tool"}],
    }
    body = ""
    async with open_child() as child, httpx.AsyncClient(timeout=PATIENCE) as client:
        url = f"{child.served.url}/agent/default/run"
        async with client.stream("POST", url, json=given) as reply:
            async for text in reply.aiter_text():
                body += text
                if "TOOL_CALL_END" in text:
                    child.process.send_signal(signal.SIGTERM)
        with trio.fail_after(STOP_SECONDS):
            assert await child.process.wait() == 0
    last = json.loads(body.strip().rpartition("data: ")[2])
    assert (last["type"], last["runId"]) == ("RUN_FINISHED", "r")


async def test_an_idle_server_stops_at_once() -> None:
    async with open_child() as child:
        async with child.served.peer() as peer:
            await peer.ask("ping")
        assert await child.end(signal.SIGTERM) == 0


async def test_a_sqlite_store_keeps_the_history_over_a_restart(tmp_path: Path) -> None:
    store = ("--store", f"sqlite:///{tmp_path / 'chat.db'}")
    async with open_child(*store) as child:
        async with child.served.peer() as peer:
            await peer.ask("subscribe", threadId="t", since=0)
            await peer.run("t", "hello")
            frames = await peer.read_run()
        assert await child.end(signal.SIGTERM) == 0
    async with open_child(*store) as child, child.served.peer() as peer:
        await peer.ask("subscribe", threadId="t", since=frames[-1]["seq"])
        resync = (await peer.next_push())["resync"]
        await peer.run("t", "what is 2 + 3")
        again = await peer.read_run()
    said = [(each["role"], each["content"]) for each in resync["messages"]]
    assert said == [("user", "hello"), ("assistant", text_of(frames))]
    assert text_of(again) == "2 + 3 = 5"


BAD: Final = {
    "an unknown vendor": (("--model", "nobody/x"), "no vendor is named 'nobody'"),
    "a model without a vendor": (("--model", "gpt"), "'gpt'"),
    "an unknown store": (("--store", "paper"), "store is 'paper', expected"),
    "a store without a path": (("--store", "sqlite:///"), "store is 'sqlite:///'"),
    "a store in no folder": (("--store", "sqlite:////no/x.db"), "cannot be opened"),
    "a host of somebody else": (("--host", "192.0.2.1"), ""),
}


@pytest.mark.parametrize("what", BAD)
async def test_a_wrong_option_ends_with_code_2_and_one_line(what: str) -> None:
    (option, value), words = BAD[what]
    await _fails(option, value, words=words)


async def test_a_port_in_use_ends_with_code_2_and_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        await _fails("--ws-port", port, words="in use")
        await _fails("--port", port, words="in use")


async def _fails(option: str, value: str, *, words: str) -> None:
    given = {"--port": "0", "--ws-port": "0", option: value}
    with trio.fail_after(30):
        done = await trio.run_process(
            command(*(part for pair in given.items() for part in pair)),
            capture_stdout=True,
            capture_stderr=True,
            check=False,
        )
    assert done.returncode == 2
    lines = done.stderr.decode().splitlines()
    assert len(lines) == 1, lines
    assert lines[0].startswith("error: ")
    assert words in lines[0]
