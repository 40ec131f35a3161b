"""Subagents: what runs an agent for another one, with limits and an observer.

A subagent is a turn inside a tool call's task, in a conversation of its own: cancelling
the call, or its time limit, ends it with all that it has begun. Nothing goes down but
what is handed on; what comes up is its last text, what it used, and its questions,
which pause the turn at the top. Of a failure the model learns the kind, and no more.
"""

import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final, TypeAlias

import trio
from attrs import define, field, frozen

from agentrt.agent.agent import Agent
from agentrt.core.chat import Usage
from agentrt.core.context import Context
from agentrt.core.deadlines import check_seconds
from agentrt.core.errors import SessionStateError, ToolError
from agentrt.core.ids import new_id
from agentrt.core.messages import user_messages
from agentrt.core.outcomes import (
    TurnCancelled,
    TurnCompleted,
    TurnFailed,
    TurnOutcome,
    TurnPaused,
)
from agentrt.events.types import Event, EventSink, RunUsage
from agentrt.filters.base import TurnRequest
from agentrt.tools.base import ToolSuspended

__all__ = [
    "Subagent",
    "SubagentLimits",
    "SubagentObserver",
    "Subagents",
]

logger = logging.getLogger(__name__)

DEPTH_KEY: Final = "agentrt/subagents/depth"
MAX_DEPTH_KEY: Final = "agentrt/subagents/max_depth"
OBSERVER_KEY: Final = "agentrt/subagents/observer"


def _count(_: Any, attribute: Any, value: Any) -> None:
    if type(value) is not int or value < 1:
        raise ValueError(
            f"{attribute.name} is {value!r}, expected a whole number from 1"
        )


def _seconds(_: Any, attribute: Any, value: Any) -> None:
    check_seconds(attribute.name, value)


@frozen(kw_only=True)
class SubagentLimits:
    """How many subagents there may be, how deep, and for how long."""

    max_depth: int = field(default=2, validator=_count)
    """Levels beneath the agent at the top. It holds for all beneath, whatever their own
    limits."""

    max_agents: int = field(default=4, validator=_count)
    """At work at a time, for each level and tool; others wait for their turn."""

    max_tasks: int = field(default=16, validator=_count)
    """Of one fan-out; more are refused before anything starts."""

    timeout_seconds: float = field(default=60.0, validator=_seconds)
    """For the call, with all its subagents; it is the tool's own limit."""


@define(kw_only=True)
class Subagent:
    """One subagent at work, as an observer sees it."""

    name: str
    task: str
    """As the model gave it."""

    conversation_id: str
    parent_call_id: str
    depth: int
    """From 1."""

    usage: Sequence[Usage] = ()
    """What it has used so far, since it was started or went on; in the end, in all."""

    outcome: TurnOutcome | None = None
    """Set when it has ended; None within the observer's block, and when it was cut."""


SubagentObserver: TypeAlias = Callable[
    [Subagent], AbstractAsyncContextManager[EventSink | None]
]
"""Entered in the subagent's own task before it starts, left when it has ended, however
that was. What it yields is told the subagent's events. What it raises is logged."""


@asynccontextmanager
async def _unobserved(subagent: Subagent) -> AsyncIterator[None]:
    yield


@define(eq=False)
class Subagents:
    """Runs subagents for tools: one place for their limits and their ends."""

    limits: SubagentLimits
    observer: SubagentObserver | None = None
    """None takes that of the agent above, if there is one."""

    values: Mapping[str, Any] = field(factory=dict)
    """What subagents find in `context.values`; nothing else goes down."""

    _permits: dict[int, trio.CapacityLimiter] = field(
        factory=dict, init=False, repr=False
    )
    """By depth, so that one who waits for its own subagents holds up no other level."""

    async def run(
        self,
        agent: Agent,
        subagent: Subagent,
        context: Context,
        *,
        keep: bool = False,
    ) -> str:
        """One subagent from its task to its answer; or on from what it had asked.

        Its conversation is forgotten then, unless it is to be kept.

        Raises:
            ToolError: it failed; says of which kind.
            ToolSuspended: it waits for people.
        """
        permits = self._permits.setdefault(
            subagent.depth, trio.CapacityLimiter(self.limits.max_agents)
        )
        async with permits:
            try:
                outcome = await self._contained(agent, subagent, context)
                keep = keep or isinstance(outcome, TurnPaused)
            finally:
                # However it ended: what was used is to be paid.
                if context.add_usage is not None:
                    for usage in subagent.usage:
                        context.add_usage(usage)
                if not keep:
                    # What waits in it shields itself.
                    await agent.forget(subagent.conversation_id)  # noqa: ASYNC102
        return _answer(subagent, outcome)

    def begin(self, name: str, task: str, context: Context, place: str) -> Subagent:
        """A subagent for a call of a tool.

        Raises:
            ToolError: it would be too deep.
        """
        depth = int(context.values.get(DEPTH_KEY, 0)) + 1
        max_depth = self._max_depth(context)
        if depth > max_depth:
            raise ToolError(
                f"subagents may nest {max_depth} deep, and this is deeper: "
                "do the task yourself"
            )
        return Subagent(
            name=name,
            task=task,
            conversation_id=f"{context.conversation_id}/{place}",
            parent_call_id=context.call_id,
            depth=depth,
        )

    def _max_depth(self, context: Context) -> int:
        """The smallest of all limits from the top down to here."""
        own = self.limits.max_depth
        return min(own, int(context.values.get(MAX_DEPTH_KEY, own)))

    async def _contained(
        self, agent: Agent, subagent: Subagent, context: Context
    ) -> TurnOutcome:
        try:
            return await self._observed(agent, subagent, context)
        except (MemoryError, ToolError):
            raise
        except Exception:
            # The tool boundary of what works on beside it: a bug in a subagent's filter
            # is that call's failure, and its words are not for the model.
            logger.exception("subagent %r failed", subagent.name)
            raise ToolError(f"subagent {subagent.name!r} failed: internal") from None

    async def _observed(
        self, agent: Agent, subagent: Subagent, context: Context
    ) -> TurnOutcome:
        inherited = context.values.get(OBSERVER_KEY)
        observer = self.observer or inherited or _unobserved
        async with _quietly(observer, subagent) as emit:

            def tell(event: Event) -> None:
                if isinstance(event, RunUsage):
                    subagent.usage = event.usage
                if emit is not None:
                    emit(event)

            values = {
                **self.values,
                DEPTH_KEY: subagent.depth,
                MAX_DEPTH_KEY: self._max_depth(context),
            }
            if observer is not _unobserved:
                values[OBSERVER_KEY] = observer
            own = Context(
                conversation_id=subagent.conversation_id,
                run_id=new_id(),
                values=values,
                emit=tell,
                thread_limiter=context.thread_limiter,
                leave_behind=context.leave_behind,
            )
            request = await self._request(agent, subagent, context)
            subagent.outcome = await agent.run_turn(request, own)
            subagent.usage = subagent.outcome.usage
        return subagent.outcome

    async def _request(
        self, agent: Agent, subagent: Subagent, context: Context
    ) -> TurnRequest:
        if context.nested is None:
            return TurnRequest(messages=user_messages(subagent.task))
        try:
            answers = context.nested.answers
            resumption = await agent.take_pause(subagent.conversation_id, answers)
        except SessionStateError:
            raise ToolError("the subagent was lost while it waited") from None
        return TurnRequest(resume=resumption)


@asynccontextmanager
async def _quietly(
    observer: SubagentObserver, subagent: Subagent
) -> AsyncIterator[EventSink | None]:
    """The observer around the block; what it raises of its own is logged."""
    manager = observer(subagent)
    emit: EventSink | None = None
    entered = False
    try:
        emit = await manager.__aenter__()
        entered = True
    except Exception:
        # Whoever watches must not change what is watched: here, and at its exit.
        logger.exception("the observer of subagent %r failed", subagent.name)
    failure: BaseException | None = None
    try:
        yield emit
    except BaseException as error:
        failure = error
        raise
    finally:
        if entered:
            try:
                kind = None if failure is None else type(failure)
                trace = None if failure is None else failure.__traceback__
                await manager.__aexit__(kind, failure, trace)  # noqa: ASYNC102
            except Exception as error:
                if error is not failure:
                    logger.exception(
                        "the observer of subagent %r failed", subagent.name
                    )


def _answer(subagent: Subagent, outcome: TurnOutcome) -> str:
    match outcome:
        case TurnCompleted():
            return outcome.text or "(the subagent said nothing)"
        case TurnPaused():
            raise ToolSuspended(outcome.interrupts)
        case TurnFailed():
            kind = "transient" if outcome.retryable else "semantic"
            raise ToolError(
                f"subagent {subagent.name!r} failed: {outcome.code}", kind=kind
            )
        case TurnCancelled():
            raise ToolError(f"subagent {subagent.name!r} was stopped")
