"""Why a tool call failed: what its exception says of the chance of another try.

The author of a tool decides, by `ToolError(kind=...)`. Else the error decides: what a
network or a busy service raises is transient, a refused key is the environment's, and
all else is the call's own fault. Looked for along the causes, since libraries wrap what
the system raised.
"""

from collections.abc import Iterator
from typing import Final, cast

import trio

from agentrt.core.errors import AuthenticationError, ModelError, ToolError
from agentrt.core.outcomes import FailureKind

__all__ = ["failure_kind"]

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
