"""Which failures of tools are worth another try."""

import socket

import httpx
import pytest
import trio

from agentrt.core.errors import (
    AuthenticationError,
    InvalidRequestError,
    RateLimitError,
    ToolError,
)
from agentrt.tools.failures import failure_kind


def caused(error: Exception, cause: BaseException) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ToolError("x"), "semantic"),
        (ToolError("x", kind="environment"), "environment"),
        (caused(ToolError("x"), ConnectionResetError()), "semantic"),
        (AuthenticationError("x"), "environment"),
        (RateLimitError("x"), "transient"),
        (InvalidRequestError("x"), "semantic"),
        (socket.timeout(), "transient"),  # noqa: UP041  the name that libraries use
        (ConnectionRefusedError(), "transient"),
        (trio.TooSlowError(), "transient"),
        (caused(RuntimeError("wrapped"), TimeoutError()), "transient"),
        (ExceptionGroup("g", [TimeoutError(), ValueError()]), "transient"),
        (ValueError("x"), "semantic"),
        (FileNotFoundError("x"), "semantic"),
        (NotImplementedError(), "semantic"),
    ],
)
def test_an_error_says_whether_to_try_again(error: Exception, kind: str) -> None:
    assert failure_kind(error) == kind


async def test_what_httpx_raises_for_a_dead_server_is_transient() -> None:
    async with httpx.AsyncClient() as client:
        with pytest.raises(httpx.ConnectError) as caught:
            await client.get("http://127.0.0.1:9")
    assert failure_kind(caught.value) == "transient"


def test_causes_that_go_in_circles_end() -> None:
    one, other = RuntimeError(), RuntimeError()
    one.__context__, other.__context__ = other, one
    assert failure_kind(one) == "semantic"


def test_a_kind_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match="expected one of semantic, transient"):
        ToolError("x", kind="fatal")
