"""Who may come in, and what a lost connection means; the same for every transport."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

import trio
from attrs import define, field

from agentrt.core.errors import AgentRTError, describe
from agentrt.runtime.run import Run
from agentrt.runtime.runtime import Runtime

__all__ = [
    "MAX_BODY_BYTES",
    "MAX_FRAME_BYTES",
    "Disconnects",
    "OriginPolicy",
    "error_body",
    "open_disconnects",
]

MAX_BODY_BYTES: Final = 4 * 1024 * 1024
MAX_FRAME_BYTES: Final = 1024 * 1024
GRACE_SECONDS: Final = 3.0


@define
class OriginPolicy:
    """Which pages may talk to us. A program sends no Origin, and is let in."""

    allowed: set[str] = field(factory=set)
    """As `https://example.org`, with the port where it is not the scheme's own."""

    own_names: set[str] = field(factory=lambda: {"localhost"})
    """Names of this server. An address is always one; any other name may be made to
    point here by whoever owns it (DNS rebinding), and is foreign."""

    own_ports: set[int] = field(factory=set)
    """Where this server's own page comes from."""

    def allows(self, origin: str | None, *, host: str | None) -> bool:
        """Whether a page from `origin` may.

        `host` is the name or address by which we were reached.
        """
        if origin is None or origin in self.allowed:
            return True
        try:
            page = urlsplit(origin)
            port = page.port or SCHEME_PORTS.get(page.scheme)
        except ValueError:  # no browser sends such a thing
            return False
        name = page.hostname
        is_us = name in self.own_names or (name == host and _is_address(name))
        return is_us and port in self.own_ports


SCHEME_PORTS: Final = {"http": 80, "https": 443}
"""Which a browser leaves out of an origin."""


def _is_address(name: str | None) -> bool:
    try:
        ip_address(name or "")
    except ValueError:
        return False
    return True


def error_body(error: AgentRTError) -> dict[str, str]:
    """An error as clients get it: a code to act on, and words."""
    return {"code": error.code, "message": describe(error)}


@define(eq=False)
class Disconnects:
    """Stops the runs whose only reader left. Made by `open_disconnects`."""

    _nursery: trio.Nursery
    _runtime: Runtime
    _grace_seconds: float

    def left(self, run: Run) -> None:
        """The client that started `run` is gone: stop it after the grace."""
        if not run.is_over:
            self._nursery.start_soon(self._stop_later, run, name=f"grace {run.id}")

    async def _stop_later(self, run: Run) -> None:
        with trio.move_on_after(self._grace_seconds):
            await run.wait()
            return
        self._runtime.stop(run.conversation_id, run.id, reason="the client left")


@asynccontextmanager
async def open_disconnects(
    runtime: Runtime, *, grace_seconds: float = GRACE_SECONDS
) -> AsyncIterator[Disconnects]:
    """Where a route reports that its client left, for the length of the block.

    Owns a task for each run that waits for its grace to pass; leaving ends them.
    """
    async with trio.open_nursery() as nursery:
        yield Disconnects(nursery, runtime, grace_seconds)
        nursery.cancel_scope.cancel(reason="the server ends")
