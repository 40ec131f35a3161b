"""How a turn ends, and what is kept when it ends in a question.

Four outcomes: completed, paused, cancelled, failed. A pause lists every open interrupt
of a batch; it is answered by one `Decision` for each. Only `Approve` runs a tool.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

from attrs import field, frozen

from agentrt.core.chat import Usage
from agentrt.core.messages import AssistantMessage, Message, ToolCall, ToolMessage
from agentrt.core.options import DEFAULT_TURN_OPTIONS, TurnOptions
from agentrt.core.parts import Content

__all__ = [
    "SNAPSHOT_VERSION",
    "Approve",
    "CallRecord",
    "CallStatus",
    "Decision",
    "Deny",
    "FailureKind",
    "Interrupt",
    "InterruptKind",
    "Nested",
    "PauseSnapshot",
    "Reply",
    "Retry",
    "RunAudit",
    "Suspended",
    "TurnCancelled",
    "TurnCompleted",
    "TurnFailed",
    "TurnOutcome",
    "TurnPaused",
]

CallStatus: TypeAlias = Literal[
    "ok", "error", "denied", "replied", "cut", "not_started"
]


FailureKind: TypeAlias = Literal["semantic", "transient", "environment"]
"""Why a tool call failed: the call itself is wrong; it may succeed if it is made again;
something around it is missing (credentials, quota, disk) that a person may set right.
"""


@frozen(kw_only=True)
class CallRecord:
    """What became of one tool call."""

    id: str
    name: str
    arguments: Mapping[str, Any]
    """As they were run: coerced, or edited by a person."""

    status: CallStatus
    content: Content


@frozen(kw_only=True)
class RunAudit:
    """What a run left behind when it was over."""

    threads: Sequence[str] = ()
    """Tools that are not async and could not be stopped: still running in a thread."""


@frozen(kw_only=True)
class TurnCompleted:
    text: str = ""
    message: AssistantMessage | None = None
    """The model's last message; None when a filter answered in its place."""

    usage: Sequence[Usage] = ()
    """Of this run: what was used before a pause is in the outcome that paused."""

    calls: Sequence[CallRecord] = ()
    """Of this turn, in call order."""

    stopped_by: str = ""
    """Who ended the turn before the model had done so: a filter's name; else ""."""

    returned_direct: bool = False
    """The text is what tools returned, which were declared `return_direct`."""

    output: Any = None
    """What a filter made of the text, as `structured_output_filter` does; else None."""


@frozen(kw_only=True)
class Approve:
    """Run the call, with other arguments if given; those are checked again."""

    arguments: Mapping[str, Any] | None = None
    remember: bool = False
    """Ask no more, in this conversation, about this tool with these arguments."""


@frozen(kw_only=True)
class Reply:
    """Do not run the call; this is its result."""

    content: Content


@frozen(kw_only=True)
class Deny:
    """Do not run the call; the model is told so."""

    reason: str = ""


@frozen(kw_only=True)
class Retry:
    """Run a call again that failed for the sake of its environment."""


Decision: TypeAlias = Approve | Reply | Deny | Retry
"""Closed union. What is not clearly one of them is a `Deny`."""

InterruptKind: TypeAlias = Literal["approval", "external", "environment"]
"""`approval`: may this call run? `external`: it runs elsewhere, give its result.
`environment`: it failed for want of something; retry it when that is there."""


@frozen(kw_only=True)
class Interrupt:
    """One open question of a pause."""

    id: str
    """The id of the call that waits."""

    kind: InterruptKind = "approval"
    reason: str
    """Why a person is asked, for that person to read."""

    call: ToolCall
    """With arguments that were checked already."""

    result: ToolMessage | None = None
    """Of an `environment` interrupt: what the call came to, should nobody retry it."""

    parent_call_id: str = ""
    """Of a question that a subagent asks: the call of this turn that runs it. `id` then
    begins with it, and `call` is the subagent's own."""

    @property
    def call_id(self) -> str:
        """The call of this turn that waits."""
        return self.parent_call_id or self.id


@frozen(kw_only=True)
class Nested:
    """What a call that runs a subagent goes on with after a pause."""

    answers: Mapping[str, Decision]
    """To its own questions, by the ids that it gave them."""

    state: Any = None
    """What it left with the pause."""


@frozen(kw_only=True)
class TurnPaused:
    interrupts: Sequence[Interrupt]
    """All that is open: a resume answers each."""

    pause_id: str
    conversation_id: str = ""
    """What to resume."""

    usage: Sequence[Usage] = ()
    calls: Sequence[CallRecord] = ()


@frozen(kw_only=True)
class TurnCancelled:
    reason: str
    text: str = ""
    """What the model had said of its last message."""

    usage: Sequence[Usage] = ()
    calls: Sequence[CallRecord] = ()


@frozen(kw_only=True)
class TurnFailed:
    message: str
    """What went wrong, in words that a user may see."""

    code: str = "internal"
    retryable: bool = False
    usage: Sequence[Usage] = ()
    calls: Sequence[CallRecord] = ()

    deadline: str = ""
    """The name of the deadline that fired; "" where none did."""

    error: BaseException | None = field(default=None, eq=False, repr=False)
    """What was raised, for whoever runs the turn in the same process."""


TurnOutcome: TypeAlias = TurnCompleted | TurnPaused | TurnCancelled | TurnFailed
"""Closed union."""


@frozen(kw_only=True)
class Suspended:
    """A call that was let run, and that waits for people."""

    call: ToolCall
    """As it ran."""

    edited: bool = False
    """Whether who approved it had changed the arguments."""

    state: Any = None
    """What its tool left. JSON."""


SNAPSHOT_VERSION: Final = 2
"""Version 1 had approvals alone, and neither options nor a time."""


@frozen(kw_only=True)
class PauseSnapshot:
    """A turn that waits for people: all that is needed to go on, and only data."""

    version: int = SNAPSHOT_VERSION
    id: str
    conversation_id: str
    run_id: str
    """The run that paused."""

    message: AssistantMessage
    """With the whole batch of calls."""

    results: Sequence[ToolMessage] = ()
    """Of the calls that needed no answer: they ran before the pause, once."""

    interrupts: Sequence[Interrupt]
    transcript: Sequence[Message] = ()
    """The turn's messages so far, where no memory keeps them."""

    values: Mapping[str, Any] = field(factory=dict)
    """State slots."""

    index: int = 0
    """Of the iteration that paused, from 0."""

    remaining: int
    """Iterations left when the batch is done."""

    calls: Sequence[CallRecord] = ()
    """What ran in the turn so far."""

    nested: Mapping[str, Suspended] = field(factory=dict)
    """By call: those that run a subagent, and go on when it is answered."""

    options: TurnOptions = DEFAULT_TURN_OPTIONS
    paused_at: float = 0.0
    """Seconds since the epoch."""
