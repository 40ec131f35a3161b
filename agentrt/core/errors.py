"""Every error that agentrt raises on purpose.

AgentRTError
├── ModelError                a model call failed; says what may be done about it
│   ├── NetworkError              retryable, switchable
│   ├── ModelTimeoutError         retryable, switchable
│   ├── ServerError               retryable, switchable   (5xx, and what fits nowhere)
│   ├── RateLimitError            retryable, switchable   (429)
│   ├── EmptyCompletionError      retryable by a budget of its own, switchable
│   ├── AuthenticationError       switchable              (401, 403)
│   ├── QuotaExceededError        switchable              (402; the quota is a vendor's)
│   ├── ResponseFormatError       switchable: the reply makes no sense
│   ├── InvalidRequestError       neither                 (400, 404, 422)
│   └── ContextOverflowError      neither: compaction's business
├── DeadlineError             a named deadline fired
├── MaxIterationsError        the turn used all its iterations
├── BudgetExceededError       a budget is used up; says which limit
├── ToolDefinitionError       a tool, or a set of tools, that cannot work
├── ToolError                 a tool says what went wrong, in words for the model
├── FilterProtocolError       a filter broke the rules of hooks: a bug in it
├── ModelReferenceError       no such vendor or model
├── UnknownAgentError         no agent of that name
├── InputError                what came in from outside has the wrong form
├── AnswerError               a resume that does not fit the open interrupts
├── StoreError                a store cannot be used; says which, and what to do
├── RuntimeClosedError        the runtime takes no more runs
└── SessionStateError         the session is in no state for this
    ├── SessionBusyError          a run is in flight; has its id
    ├── SessionPausedError        a pause is open; has its interrupts
    ├── NotPausedError            there is nothing to resume
    └── SnapshotError             a stored pause cannot be read, or makes no sense

`code` is what a wire protocol calls the error. A message never holds a secret.
"""

from collections.abc import Sequence
from typing import Any, ClassVar, Final

__all__ = [
    "AgentRTError",
    "AnswerError",
    "AuthenticationError",
    "BudgetExceededError",
    "ContextOverflowError",
    "DeadlineError",
    "EmptyCompletionError",
    "FilterProtocolError",
    "InputError",
    "InvalidRequestError",
    "MaxIterationsError",
    "ModelError",
    "ModelReferenceError",
    "ModelTimeoutError",
    "NetworkError",
    "NotPausedError",
    "QuotaExceededError",
    "RateLimitError",
    "ResponseFormatError",
    "RuntimeClosedError",
    "ServerError",
    "SessionBusyError",
    "SessionPausedError",
    "SessionStateError",
    "SnapshotError",
    "StoreError",
    "ToolDefinitionError",
    "ToolError",
    "UnknownAgentError",
    "deadline_of",
    "describe",
    "public_words",
]


FAILURE_KINDS: Final = ("semantic", "transient", "environment")


class AgentRTError(Exception):
    """Base class: catch it to catch all that agentrt raises on purpose."""

    code: ClassVar[str] = "error"


class ModelError(AgentRTError):
    """A model call failed."""

    code = "model_error"

    retryable: bool = False
    """The same call may succeed if it is sent again. The provider may know better
    than the class."""

    switchable: bool = False
    """Another model may succeed where this one failed."""

    def __init__(
        self,
        message: str,
        *,
        retry_after: float | None = None,
        status: int | None = None,
        provider: str = "",
    ) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        """Seconds that the provider asked us to wait, or None."""
        self.status = status
        """The HTTP status, if there was one."""
        self.provider = provider
        self.fallback: Any = None
        """A `FallbackReport`, where a chain of models has tried them all."""


class NetworkError(ModelError):
    code = "network_error"
    retryable = True
    switchable = True


class ModelTimeoutError(ModelError):
    """It took too long: for the vendor, or for a deadline of ours."""

    code = "timeout"
    retryable = True
    switchable = True

    def __init__(self, message: str, *, deadline: str = "", **facts: Any) -> None:
        super().__init__(message, **facts)
        self.deadline = deadline
        """The name of the deadline that fired; "" where it was not ours."""


class ServerError(ModelError):
    code = "provider_error"
    retryable = True
    switchable = True


class RateLimitError(ModelError):
    code = "rate_limit"
    retryable = True
    switchable = True


class EmptyCompletionError(ModelError):
    """The call succeeded and brought nothing. Retried from a budget of its own."""

    code = "empty_completion"
    switchable = True


class AuthenticationError(ModelError):
    code = "authentication"
    switchable = True


class QuotaExceededError(ModelError):
    code = "quota_exceeded"
    switchable = True


class ResponseFormatError(ModelError):
    code = "response_format"
    switchable = True


class InvalidRequestError(ModelError):
    code = "invalid_request"


class ContextOverflowError(ModelError):
    code = "context_overflow"


class DeadlineError(AgentRTError):
    """A deadline fired; says which, and what it cut."""

    code = "deadline"

    def __init__(self, name: str, seconds: float, *, cut: str = "") -> None:
        self.name = name
        self.seconds = seconds
        self.cut = cut
        tail = f" and cut {cut}" if cut else ""
        super().__init__(f"the {name} deadline of {seconds:g} s fired{tail}")


class MaxIterationsError(AgentRTError):
    """The turn used all its iterations and the model asked for more."""

    code = "max_iterations"

    def __init__(self, limit: int) -> None:
        self.limit = limit
        super().__init__(
            f"the turn used all its iterations ({limit}) and the model asked for more; "
            "raise 'max_iterations', or give it tools that need fewer calls"
        )


class BudgetExceededError(AgentRTError):
    """A limit of a budget would be exceeded: what was asked for was not done."""

    code = "budget_exceeded"

    def __init__(
        self,
        name: str,
        *,
        limit: float,
        spent: float,
        reserved: float = 0,
        wanted: float = 0,
    ) -> None:
        self.name = name
        """Which limit: `tokens`, `calls`, `cost` or `seconds`."""
        self.limit = limit
        self.spent = spent
        self.reserved = reserved
        """By others who are at it."""
        self.wanted = wanted
        told = [f"{spent:g} spent"]
        told.extend([f"{reserved:g} reserved"] if reserved else [])
        told.extend([f"{wanted:g} more needed"] if wanted else [])
        super().__init__(
            f"the budget of {limit:g} {name} is used up: {', '.join(told)}; raise its "
            f"{name!r}, or ask for less"
        )


class ToolDefinitionError(AgentRTError):
    code = "tool_definition"


class ToolError(AgentRTError):
    """Raise it in a tool: its message is what the model reads.

    `kind` is `semantic` (the call is wrong), `transient` (the same call may succeed
    later) or `environment` (credentials, quota, disk: a person may set it right).
    """

    code = "tool_error"

    def __init__(self, message: str, *, kind: str = "semantic") -> None:
        if kind not in FAILURE_KINDS:
            raise ValueError(
                f"kind is {kind!r}, expected one of {', '.join(FAILURE_KINDS)}"
            )
        super().__init__(message)
        self.kind = kind


class FilterProtocolError(AgentRTError):
    code = "filter_protocol"


class ModelReferenceError(AgentRTError):
    code = "model_reference"


class UnknownAgentError(AgentRTError):
    code = "not_found"


class InputError(AgentRTError):
    code = "bad_request"


class AnswerError(AgentRTError):
    """A resume that does not fit the open interrupts. The pause stays as it was."""

    code = "interrupt_mismatch"


class StoreError(AgentRTError):
    """A store cannot be used: a file is locked or damaged, a disk is full."""

    code = "store"


class RuntimeClosedError(AgentRTError):
    code = "closing"


class SessionStateError(AgentRTError):
    code = "session_state"


class SessionBusyError(SessionStateError):
    code = "busy"

    def __init__(self, conversation_id: str, run_id: str) -> None:
        self.conversation_id = conversation_id
        self.run_id = run_id
        super().__init__(
            f"conversation {conversation_id!r} is running {run_id!r}: wait for its "
            "end, or stop it (a runtime does with RunOptions(on_busy='supersede'))"
        )


class SessionPausedError(SessionStateError):
    code = "paused"

    def __init__(self, conversation_id: str, interrupts: Sequence[Any]) -> None:
        self.conversation_id = conversation_id
        self.interrupts = interrupts
        """What waits for an answer: `Interrupt`s."""
        open_ids = ", ".join(repr(interrupt.id) for interrupt in interrupts)
        super().__init__(
            f"conversation {conversation_id!r} waits for a person to answer "
            f"{open_ids}: resume it, or give its pause up (Agent.discard_pause, or "
            "RunOptions(discard_pause=True) in a runtime)"
        )


class SnapshotError(SessionStateError):
    code = "snapshot"

    def __init__(self, conversation_id: str, why: str) -> None:
        self.conversation_id = conversation_id
        self.why = why
        super().__init__(
            f"the pause of conversation {conversation_id!r} cannot be taken up: {why}; "
            "start over it with discard_pause"
        )


class NotPausedError(SessionStateError):
    code = "not_paused"

    def __init__(self, conversation_id: str) -> None:
        self.conversation_id = conversation_id
        super().__init__(f"conversation {conversation_id!r} has no open pause")


def deadline_of(error: BaseException) -> str:
    """The name of the deadline that this error stands for; "" for none."""
    match error:
        case DeadlineError():
            return error.name
        case ModelTimeoutError():
            return error.deadline
        case _:
            return ""


def public_words(error: BaseException) -> str:
    """What readers may be told of an error: the words of ours, else its class's name.

    Words of errors that are not ours may hold a secret. Of a group, its first leaf.
    """
    error = _first(error)
    return describe(error) if isinstance(error, AgentRTError) else type(error).__name__


def describe(error: BaseException) -> str:
    """The error in words: its message, or the name of its class where it has none.

    Of a group, its first leaf: that is what somebody raised.
    """
    error = _first(error)
    return str(error) or type(error).__name__


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
