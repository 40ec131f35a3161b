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
from agentrt.tools.base import ToolResult, tool
from agentrt.tools.failures import failure_kind, result_of_failure


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


async def _fails() -> None:
    """Do nothing."""


@pytest.mark.parametrize(
    ("error", "fatal", "is_logged"),
    [
        (ToolError("wrong"), False, False),
        (ToolError("wrong"), True, False),
        (ValueError("wrong"), False, True),
    ],
)
def test_a_failure_becomes_a_result_and_is_logged_if_nobody_foresaw_it(
    error: Exception, fatal: bool, is_logged: bool, caplog: pytest.LogCaptureFixture
) -> None:
    made = tool(name="fails", fatal=fatal)(_fails)
    result = result_of_failure(error, made)
    assert result == ToolResult(
        content="error: wrong", is_error=True, failure="semantic"
    )
    assert ("tool 'fails' failed" in caplog.text) == is_logged


@pytest.mark.parametrize(
    ("error", "fatal"), [(ValueError("wrong"), True), (MemoryError(), False)]
)
def test_what_ends_the_run_is_no_result(error: Exception, fatal: bool) -> None:
    made = tool(name="fails", fatal=fatal)(_fails)
    with pytest.raises(type(error)):
        result_of_failure(error, made)
