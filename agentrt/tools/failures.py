"""Why a tool call failed, and the result that its exception becomes.

The author of a tool decides, by `ToolError(kind=...)`. Else the error decides: what a
network or a busy service raises is transient, a refused key is the environment's, and
all else is the call's own fault. Looked for along the causes, since libraries wrap what
the system raised.
"""

import logging
from collections.abc import Iterator
from typing import Final, cast

import trio

from agentrt.core.errors import AuthenticationError, ModelError, ToolError, describe
from agentrt.core.outcomes import FailureKind
from agentrt.tools.base import Tool, ToolResult, ToolSuspended

__all__ = ["failure_kind", "result_of_failure"]

logger = logging.getLogger(__name__)

TRANSIENT: Final = (
    ConnectionError,
    TimeoutError,
    trio.BrokenResourceError,
    trio.ClosedResourceError,
    trio.TooSlowError,
)


def failure_kind(error: BaseException) -> FailureKind:
    """The kind of failure that an exception out of a tool stands for."""
    for cause in _causes(error):
        match cause:
            case ToolError():
                return cast("FailureKind", cause.kind)
            case AuthenticationError():
                return "environment"
            case ModelError():
                return "transient" if cause.retryable else "semantic"
            case _ if isinstance(cause, TRANSIENT):
                return "transient"
    return "semantic"


def result_of_failure(error: Exception, tool: Tool) -> ToolResult:
    """What the model reads of an exception that came out of a tool or a hook around it.

    What was not foreseen is logged. Raises the exception again where it ends the run:
    when memory is out, and when the tool is `fatal` and did not foresee it; so is a
    `ToolSuspended`, which is no failure.
    """
    if isinstance(error, ToolSuspended):
        raise error
    is_foreseen = isinstance(error, ToolError)
    if isinstance(error, MemoryError) or (tool.fatal and not is_foreseen):
        raise error
    if not is_foreseen:
        logger.warning("tool %r failed", tool.name, exc_info=error)
    return ToolResult(
        content=f"error: {describe(error)}", is_error=True, failure=failure_kind(error)
    )


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error and what led to it, hidden or not; of a group, its first."""
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        yield cause
        if isinstance(cause, BaseExceptionGroup):
            cause = cause.exceptions[0]
        else:  # httpcore says `from None` of what the system raised
            cause = cause.__cause__ or cause.__context__
