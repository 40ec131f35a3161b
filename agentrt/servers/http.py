"""The HTTP server: the demo page, health, and the plain AG-UI route.

Starlette routes on Hypercorn's Trio server, in a nursery of ours. A run belongs to the
runtime; a request only reads it. When the client of the AG-UI route leaves, its run is
stopped after a grace: that is how those clients stop one.
"""

import json
import logging
from collections.abc import Callable, Mapping
from contextlib import aclosing
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import trio
from attrs import define, field, frozen

from agentrt.agui.intake import read_run_input
from agentrt.core.errors import (
    AgentRTError,
    InputError,
    RuntimeClosedError,
    SessionStateError,
    UnknownAgentError,
)
from agentrt.core.extras import from_extra
from agentrt.runtime.run import RunOptions
from agentrt.runtime.runtime import Runtime
from agentrt.servers.base import (
    MAX_BODY_BYTES,
    Disconnects,
    OriginPolicy,
    error_body,
    open_disconnects,
)
from agentrt.servers.sse import RunStream

with from_extra("server"):
    from hypercorn.config import Config
    from hypercorn.trio import serve
    from starlette.applications import Starlette
    from starlette.exceptions import HTTPException
    from starlette.requests import ClientDisconnect, Request
    from starlette.responses import FileResponse, JSONResponse, Response
    from starlette.routing import Route

__all__ = ["HttpSettings", "serve_http"]

logger = logging.getLogger(__name__)

PAGE: Final = Path(__file__).parent / "page"

PAGE_HEADERS: Final = {
    "cache-control": "no-cache",
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; "
        "img-src 'self' data:; connect-src 'self' ws: wss:; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'"
    ),
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}

STATUS: Final[Mapping[type[AgentRTError], int]] = {
    SessionStateError: 409,
    UnknownAgentError: 404,
    RuntimeClosedError: 503,
}
"""By class of error, itself or a base; 400 for all others."""


@frozen(kw_only=True)
class HttpSettings:
    """What the page is told, and who may come in."""

    websocket_port: int | None = None
    model: str = ""
    origins: OriginPolicy = field(factory=OriginPolicy)
    grace_seconds: float = 3.0
    """For which a run of the AG-UI route goes on after its client left."""

    keep_alive_seconds: float = 15.0
    """Of silence in a stream, after which a comment shows that it lives."""


async def serve_http(  # noqa: PLR0913  keyword-only, and told apart by name
    runtime: Runtime,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    settings: HttpSettings | None = None,
    shutdown: Callable[[], Any] | None = None,
    task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve until cancelled, or until `await shutdown()` returns.

    Tells its address once it listens; port 0 takes a free one. End the runs first:
    streams that are open then are cut.
    """
    settings = settings or HttpSettings()
    config = Config()
    config.bind = [f"[{host}]:{port}" if ":" in host else f"{host}:{port}"]
    config.graceful_timeout = 1.0
    config.accesslog = None
    config.errorlog = logging.getLogger(f"{__name__}.hypercorn")
    async with (
        open_disconnects(runtime, grace_seconds=settings.grace_seconds) as left,
        trio.open_nursery() as nursery,
    ):
        app: Any = _Routes(runtime, settings, left).app()
        binds = await nursery.start(
            partial(serve, app, config, shutdown_trigger=shutdown)
        )
        task_status.started(binds[0])


@define(eq=False)
class _Routes:
    """The routes of one server."""

    _runtime: Runtime
    _settings: HttpSettings
    _left: Disconnects

    def app(self) -> Starlette:
        run = self._guarded(self._run)
        stop = self._guarded(self._stop)
        return Starlette(
            routes=[
                Route("/healthz", self._health),
                Route("/config.json", self._config),
                Route("/agent/{agent}/run", run, methods=["POST", "OPTIONS"]),
                Route(
                    "/agent/{agent}/stop/{thread:path}",
                    stop,
                    methods=["POST", "OPTIONS"],
                ),
                Route("/", self._page),
                Route("/{name}", self._page),
            ],
            exception_handlers={HTTPException: _no_route},
        )

    async def _health(self, request: Request) -> Response:
        return JSONResponse({"status": "ok", "version": version("agentrt")})

    async def _config(self, request: Request) -> Response:
        """What the page needs to know of this server."""
        return JSONResponse(
            {
                "websocketPort": self._settings.websocket_port,
                "agent": self._runtime.agents.get("default").name,
                "model": self._settings.model,
                "version": version("agentrt"),
            },
            headers={"cache-control": "no-store"},
        )

    async def _page(self, request: Request) -> Response:
        name = request.path_params.get("name", "index.html")
        if name not in PAGE_FILES:
            raise HTTPException(404)
        return FileResponse(PAGE / name, headers=PAGE_HEADERS)

    async def _run(self, request: Request, cors: Mapping[str, str]) -> Any:
        """`RunAgentInput` in, the run's AG-UI events out, until its terminal event."""
        wanted = read_run_input(_parse(await _body(request)))
        agent = request.path_params["agent"]
        options = RunOptions(agent=agent, label=wanted.label)
        conversation_id = wanted.conversation_id
        if wanted.answers is None:
            start = self._runtime.start_run(conversation_id, wanted.messages, options)
        else:
            start = self._runtime.resume(conversation_id, wanted.answers, options)
        run = await start
        headers = [(k.encode(), v.encode()) for k, v in cors.items()]
        return RunStream(
            self._runtime,
            run,
            agent,
            wanted.dialect,
            self._left,
            headers,
            self._settings.keep_alive_seconds,
        )

    async def _stop(self, request: Request, cors: Mapping[str, str]) -> Response:
        """Stop the run in flight of a thread; with `{"runId"}`, only that one."""
        self._runtime.agents.get(request.path_params["agent"])
        body = await _body(request)
        wanted = _parse(body) if body.strip() else {}
        if not isinstance(wanted, dict) or not set(wanted) <= {"runId"}:
            raise InputError(f"the body is {body[:80]!r}, expected {{}} or a runId")
        run_id = wanted.get("runId")
        if not isinstance(run_id, str | None):
            raise InputError(f"$.runId is {run_id!r}, expected a text")
        stopped = self._runtime.stop(request.path_params["thread"], run_id)
        return JSONResponse({"stopped": stopped}, headers=dict(cors))

    def _guarded(self, endpoint: Callable[..., Any]) -> Callable[[Request], Any]:
        """Errors as JSON, foreign pages refused, preflight answered."""

        async def guarded(request: Request) -> Any:
            origin = request.headers.get("origin")
            if not self._settings.origins.allows(origin, host=request.url.hostname):
                message = f"origin {origin} may not; allow it with --allow-origin"
                body = {"code": "forbidden_origin", "message": message}
                return JSONResponse(body, 403)
            cors = _cors(origin)
            if request.method == "OPTIONS":
                return Response(status_code=204, headers=cors)
            try:
                return await endpoint(request, cors)
            except ClientDisconnect:  # in the middle of its own request
                return Response(status_code=400)
            except AgentRTError as error:
                return JSONResponse(
                    {"error": error.code, **error_body(error)},
                    _status_of(error),
                    headers=cors,
                )

        return guarded


PAGE_FILES: Final = frozenset(path.name for path in PAGE.glob("*.*"))


def _cors(origin: str | None) -> dict[str, str]:
    if origin is None:
        return {}
    return {
        "access-control-allow-origin": origin,
        "access-control-allow-methods": "POST, OPTIONS",
        "access-control-allow-headers": "content-type, last-event-id",
        "access-control-max-age": "600",
        "vary": "origin",
    }


def _status_of(error: AgentRTError) -> int:
    return next((s for cls, s in STATUS.items() if isinstance(error, cls)), 400)


async def _no_route(request: Request, error: Exception) -> Response:
    """What Starlette refuses itself, in the form of all other errors."""
    assert isinstance(error, HTTPException)
    code = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code, "error")
    message = f"{request.method} {request.url.path}: {error.detail}"
    body = {"error": code, "code": code, "message": message}
    return JSONResponse(body, error.status_code, headers=error.headers)


async def _body(request: Request) -> bytes:
    body = bytearray()
    async with aclosing(request.stream()) as pieces:
        async for piece in pieces:
            body += piece
            if len(body) > MAX_BODY_BYTES:
                raise InputError(f"the body is larger than {MAX_BODY_BYTES} bytes")
    return bytes(body)


def _parse(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise InputError(f"the body is no JSON: {error}") from None
