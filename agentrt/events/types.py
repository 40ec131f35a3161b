"""What happens in a run, as values: one class for each event.

An event says what happened; the `Envelope` around it says where it stands: number, run,
time. Numbers belong to a conversation, start at 1 and have no hole. A run begins with
`run/started` and ends with exactly one terminal event, and nothing of it follows that.

A new event needs a row in `events/grammar.py` and in each codec; tests say so.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Literal, TypeAlias

from attrs import define, field, frozen

from agentrt.core.chat import FinishReason, Usage
from agentrt.core.messages import Message
from agentrt.core.outcomes import CallRecord, CallStatus, Interrupt, RunAudit
from agentrt.core.parts import Content

__all__ = [
    "Envelope",
    "Event",
    "EventSink",
    "IterationStarted",
    "MessageDelta",
    "MessageEnded",
    "MessageStarted",
    "MessageThinking",
    "ModelFinished",
    "ModelRetried",
    "ModelStarted",
    "ModelSwitched",
    "ReasoningBlock",
    "ReasoningEnded",
    "ReasoningStarted",
    "Resync",
    "RunCancelled",
    "RunFailed",
    "RunFinished",
    "RunPaused",
    "RunStarted",
    "RunUsage",
    "TerminalEvent",
    "ToolArgsDelta",
    "ToolEnded",
    "ToolReturned",
    "ToolStarted",
]


@frozen(kw_only=True)
class RunStarted:
    tag: ClassVar[str] = "run/started"

    kind: Literal["chat", "resume"] = "chat"
    label: str = ""
    """The client's name for this run, echoed; "" when it gave none."""

    agent: str = ""
    input: Sequence[Message] = ()
    """What this run adds to the history, as it will be stored."""


@frozen(kw_only=True)
class IterationStarted:
    tag: ClassVar[str] = "iteration/started"

    index: int
    """From 0 in each run."""


@frozen(kw_only=True)
class ModelStarted:
    tag: ClassVar[str] = "model/started"

    message_id: str
    """The id that the answer will have."""

    tools: Sequence[str] = ()
    """Names of the tools that the model is offered."""


@frozen(kw_only=True)
class ModelFinished:
    tag: ClassVar[str] = "model/finished"

    message_id: str
    elapsed: float
    """Seconds, with retries and waiting for a permit."""

    first_delta: float | None = None
    """Seconds until the first delta; None when nothing streamed."""

    provider: str = ""
    model: str = ""
    finish_reason: FinishReason | None = None
    usage: Usage | None = None
    error: str | None = None
    """Why there is no answer; None when there is one."""


@frozen(kw_only=True)
class ModelRetried:
    """An attempt failed, and the call is sent again after a wait."""

    tag: ClassVar[str] = "model/retried"

    message_id: str
    ref: str
    """The model, as `vendor/model-id`."""

    attempt: int
    """The one that failed, from 1."""

    wait_seconds: float
    error: str
    error_code: str


@frozen(kw_only=True)
class ModelSwitched:
    """A model could not answer, and the next one of the chain is asked."""

    tag: ClassVar[str] = "model/switched"

    message_id: str
    from_ref: str
    to_ref: str
    error: str
    error_code: str


@frozen(kw_only=True)
class MessageStarted:
    """Text begins. Told with the first of it, so never for a message without text."""

    tag: ClassVar[str] = "message/started"

    message_id: str


# `define`, not `frozen`, for what comes with each token: 0.13 us against 0.44.
@define(kw_only=True)
class MessageDelta:
    tag: ClassVar[str] = "message/delta"

    message_id: str
    text: str
    """What is new; never empty. All deltas joined are the message's text."""


@frozen(kw_only=True)
class MessageEnded:
    tag: ClassVar[str] = "message/ended"

    message_id: str


@frozen(kw_only=True)
class ReasoningStarted:
    tag: ClassVar[str] = "reasoning/started"

    message_id: str
    """The block's own id: the message's, with an ordinal."""

    parent_id: str
    """The message that this thinking belongs to."""


@define(kw_only=True)
class MessageThinking:
    tag: ClassVar[str] = "message/thinking"

    message_id: str
    text: str


@frozen(kw_only=True)
class ReasoningEnded:
    tag: ClassVar[str] = "reasoning/ended"

    message_id: str


@frozen(kw_only=True)
class ToolStarted:
    """The model begins to ask for a tool; its arguments are still coming."""

    tag: ClassVar[str] = "tool/started"

    call_id: str
    name: str
    message_id: str
    """The message that asks."""


@define(kw_only=True)
class ToolArgsDelta:
    tag: ClassVar[str] = "tool/args-delta"

    call_id: str
    text: str
    """The next characters of the arguments' JSON; never empty."""


@frozen(kw_only=True)
class ToolEnded:
    """The call is fully said. Whether it runs, and how it ends, is `tool/result`."""

    tag: ClassVar[str] = "tool/ended"

    call_id: str
    arguments: Mapping[str, Any] | None = None
    """Parsed; None when the stream was cut before they were whole, or they are no
    JSON object."""

    cut: bool = False
    """The message that asks was cut: the call is in no history."""


@frozen(kw_only=True)
class ToolReturned:
    """One call is over. Told when that call ends, not when its batch does."""

    tag: ClassVar[str] = "tool/result"

    call_id: str
    name: str
    content: Content
    is_error: bool = False
    synthetic: bool = False
    """No tool said this: `status` says who did."""

    status: CallStatus = "ok"
    writes: Mapping[str, Any] = field(factory=dict)
    edited_arguments: Mapping[str, Any] | None = None
    """What a person gave it in place of what the model asked for; else None."""


@frozen(kw_only=True)
class RunUsage:
    """What the run has used so far, after each model call."""

    tag: ClassVar[str] = "run/usage"

    usage: Sequence[Usage]


@frozen(kw_only=True)
class RunFinished:
    tag: ClassVar[str] = "run/finished"

    label: str = ""
    text: str = ""
    stopped_by: str = ""
    """The filter that ended the turn before the model had done so; else ""."""

    usage: Sequence[Usage] = ()
    calls: Sequence[CallRecord] = ()
    audit: RunAudit = field(factory=RunAudit)


@frozen(kw_only=True)
class RunFailed:
    tag: ClassVar[str] = "run/error"

    label: str = ""
    message: str
    error_code: str
    retryable: bool = False
    deadline: str = ""
    """The name of the deadline that fired, as `turn`; "" where none did."""

    usage: Sequence[Usage] = ()
    calls: Sequence[CallRecord] = ()
    audit: RunAudit = field(factory=RunAudit)


@frozen(kw_only=True)
class RunCancelled:
    tag: ClassVar[str] = "run/cancelled"

    label: str = ""
    reason: str
    text: str = ""
    """What had been said of the last message."""

    usage: Sequence[Usage] = ()
    calls: Sequence[CallRecord] = ()
    audit: RunAudit = field(factory=RunAudit)


@frozen(kw_only=True)
class RunPaused:
    tag: ClassVar[str] = "run/paused"

    label: str = ""
    interrupts: Sequence[Interrupt]
    """All that is open; a resume answers each."""

    usage: Sequence[Usage] = ()
    calls: Sequence[CallRecord] = ()
    audit: RunAudit = field(factory=RunAudit)


TerminalEvent: TypeAlias = RunFinished | RunFailed | RunCancelled | RunPaused
"""A run ends with exactly one of these, and nothing follows it."""

Event: TypeAlias = (
    RunStarted
    | IterationStarted
    | ModelStarted
    | ModelFinished
    | ModelRetried
    | ModelSwitched
    | MessageStarted
    | MessageDelta
    | MessageEnded
    | ReasoningStarted
    | MessageThinking
    | ReasoningEnded
    | ToolStarted
    | ToolArgsDelta
    | ToolEnded
    | ToolReturned
    | RunUsage
    | TerminalEvent
)
"""Closed union: a new member gets a row in the grammar and in every codec."""

EventSink: TypeAlias = Callable[[Event], None]
"""What events are told to. Plain, quick, never raises."""


@define(kw_only=True)
class Envelope:
    """An event as it was recorded."""

    seq: int
    """Place in the conversation: from 1, without a hole, across runs."""

    conversation_id: str
    run_id: str
    at: float
    """Seconds since the epoch, for people; never compared."""

    event: Event


@frozen(kw_only=True)
class ReasoningBlock:
    """One stretch of thinking aloud, as it was streamed."""

    id: str
    parent_id: str
    text: str


@frozen(kw_only=True)
class Resync:
    """Where a conversation stands, for a reader who cannot be given every event.

    Comes first to a reader without `since`, and in place of what the ring has lost.
    The next envelope has the number `seq + 1`.
    """

    tag: ClassVar[str] = "run/resync"

    conversation_id: str
    seq: int
    messages: Sequence[Message]
    """Everything up to `seq`, with what was still streaming then."""

    reasoning: Sequence[ReasoningBlock] = ()
    """Of messages that were streamed here; others have it in `reasoning` only."""

    open_messages: Sequence[str] = ()
    """Ids of messages and reasoning blocks that were still streaming."""

    open_calls: Sequence[str] = ()
    """Ids of calls whose arguments were still streaming."""

    partial_arguments: Mapping[str, str] = field(factory=dict)
    """By call id: the arguments' JSON text so far, for the calls that are open."""

    run_id: str | None = None
    """The run in flight, or None."""

    run_seq: int | None = None
    """The number of that run's `run/started`."""

    interrupts: Sequence[Interrupt] = ()
    """What waits for an answer."""
