"""One run: what its owner holds, how it is started, and what its ends come to."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias, get_args

import trio
from attrs import define, field, frozen

from agentrt.core.chat import Usage
from agentrt.core.context import Leftover
from agentrt.core.deadlines import seconds_or_none
from agentrt.core.errors import AgentRTError, deadline_of, describe
from agentrt.core.options import TurnOptions
from agentrt.core.outcomes import CallRecord, TurnCancelled, TurnFailed, TurnOutcome
from agentrt.runtime.registry import DEFAULT_AGENT

__all__ = ["CLOSED", "DEFAULT_OPTIONS", "Run", "RunOptions"]

OnBusy: TypeAlias = Literal["reject", "supersede"]


@frozen(kw_only=True)
class RunOptions:
    """How one run differs from the next.

    Raises:
        ValueError: `on_busy` is another word, or the deadline not above 0.
    """

    agent: str = DEFAULT_AGENT
    label: str = ""
    """The client's name for the run, echoed in its events; `stop` knows it too."""

    on_busy: OnBusy = "reject"
    """While a run is in flight: refuse, or stop that one first."""

    discard_pause: bool = False
    """Start over an open pause: its calls count as not answered."""

    deadline_seconds: float | None = field(default=None, validator=seconds_or_none)
    """After which the run fails."""

    turn: TurnOptions | None = None
    """How its turn differs from the agent's others; a resume keeps those it had."""

    values: Mapping[str, Any] = field(factory=dict)
    """For `context.values`, over the agent's own."""

    def __attrs_post_init__(self) -> None:
        if self.on_busy not in get_args(OnBusy):
            raise ValueError(
                f"on_busy is {self.on_busy!r}, expected 'reject' or 'supersede'"
            )


CLOSED: Final = "the runtime was closed"

DEFAULT_OPTIONS: Final = RunOptions()


@define(eq=False)
class Run:
    """One start or resume, to its terminal event."""

    id: str
    conversation_id: str
    label: str = ""
    """The client's name for it."""

    since: int = field(default=0, init=False)
    """The number before its first event: subscribe with it to miss nothing."""

    cancel_scope: trio.CancelScope = field(
        factory=trio.CancelScope, init=False, repr=False
    )
    stop_reason: str | None = field(default=None, init=False)
    leftovers: list[Leftover] = field(factory=list, init=False, repr=False)
    usage: Sequence[Usage] = field(default=(), init=False)
    calls: dict[str, CallRecord] = field(factory=dict, init=False, repr=False)
    """What came back so far, by call id."""

    running_calls: dict[str, trio.CancelScope] = field(
        factory=dict, init=False, repr=False
    )
    """The tool calls that run now: see `Runtime.stop_call`."""

    asked: set[str] = field(factory=set, init=False, repr=False)
    """Ids of the calls that are this run's: others are an earlier turn's."""

    _messages: int = field(default=0, init=False)
    _outcome: TurnOutcome | None = field(default=None, init=False)
    _ended: trio.Event = field(factory=trio.Event, init=False, repr=False)

    async def wait(self) -> TurnOutcome:
        """Wait until the run is over: how it ended. Cancelling this stops nothing."""
        await self._ended.wait()
        assert self._outcome is not None
        return self._outcome

    @property
    def is_over(self) -> bool:
        return self._outcome is not None

    def stop(self, reason: str) -> bool:
        """Ask it to stop; False if that was done before."""
        if self.stop_reason is not None or self.is_over:
            return False
        self.stop_reason = reason
        self.cancel_scope.cancel(reason=reason)
        return True

    def begin_message(self) -> str:
        self._messages += 1
        return f"{self.id}-m{self._messages}"

    def end(self, outcome: TurnOutcome) -> None:
        self._outcome = outcome
        self._ended.set()

    def cancelled(self, text: str) -> TurnCancelled:
        """How it ended when it was stopped, or its runtime was left."""
        return TurnCancelled(
            reason=self.stop_reason or CLOSED,
            text=text,
            usage=self.usage,
            calls=tuple(self.calls.values()),
        )

    def failed(self, errors: BaseExceptionGroup[Any]) -> TurnFailed | None:
        """What was raised, as an outcome; None if the run was stopped before.

        Words of an error that is not ours may hold a secret: readers get its class, and
        whoever holds the outcome in this process the error itself.
        """
        if self.stop_reason is not None:
            return None
        error: BaseException = errors
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        is_ours = isinstance(error, AgentRTError)
        name = type(error).__name__
        return TurnFailed(
            message=describe(error) if is_ours else f"the run failed ({name})",
            code=error.code if isinstance(error, AgentRTError) else "internal",
            deadline=deadline_of(error),
            usage=self.usage,
            calls=tuple(self.calls.values()),
            error=error,
        )
