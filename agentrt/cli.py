"""`agentrt serve`: puts the parts together, decides nothing."""

import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Annotated, Final

import trio
from attrs import evolve

from agentrt.agent.agent import Agent
from agentrt.core.errors import AgentRTError, InputError, describe
from agentrt.core.extras import from_extra
from agentrt.models.base import ChatModel
from agentrt.models.catalog import open_model
from agentrt.runtime.runtime import Runtime, open_runtime
from agentrt.stores.base import ChatMemory, PauseStore
from agentrt.stores.in_memory import InMemoryChatMemory, InMemoryPauseStore
from agentrt.tools.demo import demo_tools

with from_extra("cli"):
    from cyclopts import App, Parameter
    from rich.console import Console
    from rich.markup import escape

    from agentrt.servers.base import OriginPolicy
    from agentrt.servers.http import HttpSettings, serve_http
    from agentrt.servers.websocket import serve_websocket
    from agentrt.stores.sqlite import open_sqlite_stores

__all__ = ["main"]

app = App(name="agentrt", help="A runtime for LLM agents on Trio.")

SYSTEM: Final = "You are a helpful assistant. Use the tools where they help."
SQLITE: Final = "sqlite:///"
SHUTDOWN_SECONDS: Final = 4.0


@app.command
async def serve(  # noqa: PLR0913  each is an option of the command
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    ws_port: int = 8001,
    model: Annotated[str, Parameter(env_var="AGENTRT_MODEL")] = "offline/demo",
    store: str = "memory",
    allow_origin: tuple[str, ...] = (),
) -> None:
    """Serve a demo agent: a page, the AG-UI route, and the WebSocket protocol.

    Parameters
    ----------
    host
        Address to listen on. Whoever reaches it may use the agent.
    port
        For HTTP; 0 takes a free one.
    ws_port
        For WebSocket; 0 takes a free one.
    model
        As `vendor/model-id`: `offline/demo` needs no key, `openai/gpt-4o-mini` takes
        OPENAI_API_KEY and OPENAI_BASE_URL from the environment.
    store
        Where histories and pauses are kept: `memory`, or `sqlite:///PATH`.
    allow_origin
        A foreign page that may use this server, as `https://example.org`; repeatable.
    """
    origins = OriginPolicy(set(allow_origin), {host, "localhost"})
    settings = HttpSettings(websocket_port=ws_port, model=model, origins=origins)
    # Before anything is told, so that a signal always finds somebody.
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with _open_demo(model, store) as runtime:
            await _serve_until(signals, runtime, settings, host=host, port=port)


@asynccontextmanager
async def _open_demo(model: str, store: str) -> AsyncIterator[Runtime]:
    """The runtime of the demo agent, for the length of the block."""
    async with (
        open_model(model) as chat_model,
        open_stores(store) as (memory, pauses),
        open_runtime(_demo_agent(chat_model, memory, pauses)) as runtime,
    ):
        yield runtime


async def _serve_until(
    signals: AsyncIterator[int],
    runtime: Runtime,
    settings: HttpSettings,
    *,
    host: str,
    port: int,
) -> None:
    """Serve both protocols, tell where, and stop at the first signal."""
    origins = settings.origins
    async with trio.open_nursery() as nursery:
        websocket = partial(serve_websocket, runtime, host=host, origins=origins)
        free_or_asked = settings.websocket_port or 0
        ws_port = await nursery.start(partial(websocket, port=free_or_asked))
        http = partial(serve_http, runtime, host=host, port=port)
        settings = evolve(settings, websocket_port=ws_port)
        address = await nursery.start(partial(http, settings=settings))
        port = int(address.rpartition(":")[2].strip("/"))
        origins.own_ports.add(port)
        console = Console(soft_wrap=True)
        console.print(
            f"agentrt serves [bold]{escape(settings.model)}[/] at "
            f"http://{_shown(host)}:{port}/ "
            f"(WebSocket on port {ws_port}); Ctrl-C stops it"
        )
        async for _ in signals:
            break
        console.print("stopping: runs are ended, clients are told")
        await _shut_down(runtime)
        nursery.cancel_scope.cancel(reason="asked to stop")


def _demo_agent(model: ChatModel, memory: ChatMemory, pauses: PauseStore) -> Agent:
    return Agent(
        model=model, system=SYSTEM, tools=demo_tools(), memory=memory, pauses=pauses
    )


async def _shut_down(runtime: Runtime) -> None:
    """End the runs, and leave their readers a moment to hear of it."""
    with trio.move_on_after(SHUTDOWN_SECONDS):
        await runtime.close()
        await trio.sleep(0.3)


def _shown(host: str) -> str:
    """The host as it stands in an address that one can open."""
    if host in {"0.0.0.0", "::"}:
        return "127.0.0.1"
    return f"[{host}]" if ":" in host else host


@asynccontextmanager
async def open_stores(store: str) -> AsyncIterator[tuple[ChatMemory, PauseStore]]:
    """What `--store` names, for the length of the block.

    Raises:
        InputError: there is no such store.
        StoreError: its file cannot be used.
    """
    if store == "memory":
        await trio.lowlevel.checkpoint()
        yield InMemoryChatMemory(), InMemoryPauseStore()
        return
    path = store.removeprefix(SQLITE)
    if not path or path == store:
        raise InputError(f"store is {store!r}, expected 'memory' or 'sqlite:///PATH'")
    async with open_sqlite_stores(path) as stores:
        yield stores.memory, stores.pauses


def main() -> None:
    """The command `agentrt`."""
    failure: BaseException | None = None
    try:
        app(backend="trio")
    except* (AgentRTError, OSError) as errors:
        failure = errors
    if failure is not None:
        # Exiting within `except*` would wrap the exit in a group.
        Console(stderr=True, soft_wrap=True).print(
            f"[red]error:[/] {escape(describe(failure))}", highlight=False
        )
        sys.exit(2)
