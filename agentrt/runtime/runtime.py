"""`open_runtime`: runs that outlive whoever started them.

A connection, a subscription and a run are three lifetimes. The runtime owns the tasks
of all runs; leaving its block ends them, each with its terminal event.
"""

import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final, Literal

import trio
from attrs import define, evolve, field, frozen

from agentrt.agent.agent import Agent
from agentrt.core.errors import (
    AgentRTError,
    RuntimeClosedError,
    SessionBusyError,
    SessionPausedError,
    describe,
)
from agentrt.core.ids import new_id
from agentrt.core.messages import Message, UserMessage, user_messages
from agentrt.core.outcomes import (
    Decision,
    TurnCancelled,
    TurnFailed,
    TurnOutcome,
)
from agentrt.events.types import RunStarted
from agentrt.filters.base import TurnRequest
from agentrt.runtime.registry import DEFAULT_AGENT, AgentRegistry, Agents, as_registry
from agentrt.runtime.session import Run, Session, SessionStatus
from agentrt.runtime.subscriptions import Subscription
from agentrt.scopes import deadline, holds_only
from agentrt.stores.base import EventStore
from agentrt.stores.in_memory import InMemoryEventStore

__all__ = ["RunOptions", "Runtime", "open_runtime"]

logger = logging.getLogger(__name__)

IDLE_SECONDS: Final = 30 * 60.0
CLOSED: Final = "the runtime was closed"


@frozen(kw_only=True)
class RunOptions:
    """How one run differs from the next."""

    agent: str = DEFAULT_AGENT
    label: str = ""
    """The client's name for the run, echoed in its events; `stop` knows it too."""

    on_busy: Literal["reject", "supersede"] = "reject"
    """While a run is in flight: refuse, or stop that one first."""

    discard_pause: bool = False
    """Start over an open pause: its calls count as not answered."""

    deadline_seconds: float | None = None
    """After which the run fails."""

    values: Mapping[str, Any] = field(factory=dict)
    """For `context.values`, over the agent's own."""


DEFAULTS: Final = RunOptions()


@define(eq=False)
class Runtime:
    """Conversations and their runs. Made by `open_runtime`."""

    agents: AgentRegistry
    _nursery: trio.Nursery = field(repr=False)
    _events: EventStore
    _clock: Callable[[], float] = field(default=time.time, repr=False)
    _sessions: dict[str, Session] = field(factory=dict, init=False, repr=False)
    _is_closed: bool = field(default=False, init=False)

    async def start_run(
        self,
        conversation_id: str,
        input: str | Message | Sequence[Message],  # noqa: A002  the field's word for it
        options: RunOptions = DEFAULTS,
    ) -> Run:
        """Start a run and return; it goes on whatever becomes of the caller.

        Being cancelled before it returns starts nothing.

        Raises:
            SessionBusyError: a run is in flight.
            SessionPausedError: the conversation waits for answers.
            UnknownAgentError: there is no such agent.
            RuntimeClosedError: the runtime is closing.
        """
        agent = self.agents.get(options.agent)
        run = Run(new_id(), conversation_id, options.label)
        session = await self._reserve(run, agent, options)
        try:
            await self._leave_pause(session, agent, options)
            self._check_open()
            messages = _fresh(user_messages(input), session)
            started = RunStarted(label=run.label, agent=agent.name, input=messages)
            request = TurnRequest(messages=messages)
            self._launch(session, run, started, partial(_turn, agent, request), options)
        except BaseException:
            session.release(run)
            raise
        return run

    async def resume(
        self,
        conversation_id: str,
        answers: Mapping[str, Decision],
        options: RunOptions = DEFAULTS,
    ) -> Run:
        """Go on with a paused turn in a new run: one answer for each open interrupt.

        Raises:
            NotPausedError: nothing waits, or somebody else has answered.
            AnswerError: the answers do not fit; the pause stays as it was.
            SessionBusyError: a run is in flight.
            RuntimeClosedError: the runtime is closing.
        """
        agent = self.agents.get(options.agent)
        run = Run(new_id(), conversation_id, options.label)
        session = await self._reserve(run, agent, evolve(options, on_busy="reject"))
        try:
            resumption = await agent.take_pause(conversation_id, answers)
            self._check_open()
            started = RunStarted(kind="resume", label=run.label, agent=agent.name)
            request = TurnRequest(resume=resumption)
            self._launch(session, run, started, partial(_turn, agent, request), options)
        except BaseException:
            session.release(run)
            raise
        return run

    def stop(
        self,
        conversation_id: str,
        run_id: str | None = None,
        *,
        reason: str = "stopped by request",
    ) -> bool:
        """Ask the run in flight to stop; its terminal event says when it has.

        With a `run_id` (ours, or the client's label), only that one. False if nothing
        was asked: no such run, or it was asked before.
        """
        session = self._sessions.get(conversation_id)
        run = None if session is None else session.run
        if session is None or run is None:
            return False
        if run_id is not None and run_id not in {run.id, run.label}:
            return False
        return session.stop(reason)

    def subscribe(
        self,
        conversation_id: str,
        *,
        since: int | None = None,
        agent: str = DEFAULT_AGENT,
    ) -> Subscription:
        """A reader of the conversation's events with numbers after `since`.

        Without `since`, or where those events are gone, it first gets a `Resync`. The
        conversation need not exist yet.

        Raises:
            UnknownAgentError: there is no such agent.
        """
        reopen = partial(self._open_for_reader, conversation_id, self.agents.get(agent))
        return Subscription(reopen, since)

    async def status(
        self, conversation_id: str, *, agent: str = DEFAULT_AGENT
    ) -> SessionStatus:
        """Where a conversation stands; an unknown one is idle at number 0."""
        session = await self._open(conversation_id, self.agents.get(agent))
        return session.status()

    async def forget(self, conversation_id: str, *, agent: str = DEFAULT_AGENT) -> None:
        """Stop what runs, end all readers, and drop history, pause and events.

        Its last number is kept: should it begin again, it goes on from there.
        """
        owner = self.agents.get(agent)
        session = self._sessions.get(conversation_id)
        if session is not None and session.run is not None:
            session.stop("forgotten")
            await session.run.wait()
        await owner.pauses.discard(conversation_id)
        if owner.memory is not None:
            await owner.memory.clear(conversation_id)
        if session is not None and session.run is None:
            session.ring.close()
            self._drop(session)

    async def close(self) -> None:
        """Take no more runs, stop those in flight, and end all readers.

        Returns when every run has its terminal event. Leaving the runtime's block does
        this too.
        """
        self._is_closed = True
        await trio.lowlevel.checkpoint()
        for session in list(self._sessions.values()):
            run = session.run
            if run is not None:
                session.stop(CLOSED)
                await run.wait()
        self._close_rings()

    async def _reserve(self, run: Run, agent: Agent, options: RunOptions) -> Session:
        """Hold the session for `run`, by stopping another if that is wished."""
        while True:
            session = await self._open(run.conversation_id, agent)
            try:
                session.reserve(run)
            except SessionBusyError:
                if options.on_busy != "supersede":
                    raise
            else:
                return session
            running = session.run
            assert running is not None
            session.stop("superseded")
            await running.wait()

    async def _leave_pause(
        self, session: Session, agent: Agent, options: RunOptions
    ) -> None:
        """Give up the open pause, if that is wished: a start may not go over it.

        It may be another agent's, whose store this agent does not know.
        """
        agents = [agent]
        if session.interrupts:
            agents += [each for each in self.agents if each is not agent]
        for each in agents:
            waiting = await each.paused(session.conversation_id)
            if waiting is not None:
                if not options.discard_pause:
                    raise SessionPausedError(
                        session.conversation_id, waiting.interrupts
                    )
                await each.pauses.discard(session.conversation_id)

    def _launch(
        self,
        session: Session,
        run: Run,
        started: RunStarted,
        turn: Callable[..., Any],
        options: RunOptions,
    ) -> None:
        session.begin_run(run, started)
        self._nursery.start_soon(
            self._run,
            session,
            run,
            turn,
            options,
            name=f"run {run.id} of {session.conversation_id}",
        )

    async def _run(
        self, session: Session, run: Run, turn: Callable[..., Any], options: RunOptions
    ) -> None:
        outcome: TurnOutcome | None = None
        try:
            with (
                run.cancel_scope,
                deadline("run", options.deadline_seconds, cut="the run"),
            ):
                outcome = await turn(session.context(run, options.values))
        except* AgentRTError as errors:
            outcome = _failure(errors, run)
        except* Exception as errors:
            # The run boundary: a bug in one turn must not end other conversations.
            # `except*`, since a nursery may raise it together with `Cancelled`.
            logger.exception("run %s of %s failed", run.id, run.conversation_id)
            outcome = _failure(errors, run)
        finally:
            session.end_run(run, outcome or _cancelled(session, run))

    async def _open(self, conversation_id: str, agent: Agent) -> Session:
        """The session of a conversation, opened if need be. A checkpoint if not."""
        while True:
            self._check_open()
            session = self._sessions.get(conversation_id)
            if session is None:
                session = Session(conversation_id, self._events, self._clock)
                self._sessions[conversation_id] = session
            if session.is_open:
                await trio.lowlevel.checkpoint_if_cancelled()
                return session
            async with session.opening:
                if not session.is_open:
                    history = await agent.history(conversation_id)
                    pause = await agent.paused(conversation_id)
                    session.open(history, () if pause is None else pause.interrupts)

    async def _open_for_reader(
        self, conversation_id: str, agent: Agent
    ) -> Session | None:
        if self._is_closed:
            # What is there may still be read; nothing is opened any more.
            await trio.lowlevel.checkpoint_if_cancelled()
            return self._sessions.get(conversation_id)
        return await self._open(conversation_id, agent)

    def _check_open(self) -> None:
        if self._is_closed:
            raise RuntimeClosedError("the runtime is closing: start no more runs")

    def _drop(self, session: Session) -> None:
        self._sessions.pop(session.conversation_id, None)
        self._events.let_go(session.conversation_id)

    def _close_rings(self) -> None:
        for session in self._sessions.values():
            session.ring.close()

    async def _evict_idle(self, idle_seconds: float) -> None:
        """Drop sessions that nobody has used for long; their numbers are kept."""
        while True:
            await trio.sleep(idle_seconds / 4)
            oldest = trio.current_time() - idle_seconds
            for session in list(self._sessions.values()):
                if (
                    session.run is None
                    and session.last_active <= oldest
                    and not session.ring.readers
                    and not session.opening.locked()
                ):
                    self._drop(session)


@asynccontextmanager
async def open_runtime(
    agents: Agents,
    *,
    events: EventStore | None = None,
    idle_seconds: float = IDLE_SECONDS,
    clock: Callable[[], float] = time.time,
) -> AsyncIterator[Runtime]:
    """A runtime for the length of the block, for one agent or several.

    Owns the tasks of all runs. Leaving the block stops the runs still in flight, and
    each still gets its terminal event. A conversation that nobody reads or runs for
    `idle_seconds` is let go; its history, its pause and its last number stay.
    """
    failure: BaseException | None = None
    runtime: Runtime | None = None
    try:
        async with trio.open_nursery() as nursery:
            store = InMemoryEventStore() if events is None else events
            runtime = Runtime(as_registry(agents), nursery, store, clock)
            nursery.start_soon(
                runtime._evict_idle, idle_seconds, name="evict idle conversations"
            )
            try:
                yield runtime
                await runtime.close()
            except BaseException as error:
                failure = error
                raise
            finally:
                runtime._is_closed = True
                nursery.cancel_scope.cancel(reason=CLOSED)
    except BaseExceptionGroup as group:
        # The caller gets what it raised, and not the nursery's group around it.
        if failure is None or not holds_only(group, failure):
            raise
        raise failure from failure.__cause__
    finally:
        if runtime is not None:
            runtime._close_rings()


async def _turn(agent: Agent, request: TurnRequest, context: Any) -> TurnOutcome:
    return await agent.run_turn(request, context)


def _fresh(messages: Sequence[Message], session: Session) -> Sequence[Message]:
    """The same messages, each with an id that was not there before it.

    A store knows messages by id, so a client that numbers its own from 1 each time
    would lose what it says.
    """
    known = {message.id for message in session.transcript.messages}
    fresh: list[Message] = []
    for message in messages:
        if isinstance(message, UserMessage) and message.id in known:
            message = evolve(message, id=new_id())
        known.add(message.id)
        fresh.append(message)
    return tuple(fresh)


def _failure(errors: BaseExceptionGroup[Any], run: Run) -> TurnFailed | None:
    """What was raised, as an outcome; None if the run was stopped before."""
    if run.stop_reason is not None:
        return None
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    code = error.code if isinstance(error, AgentRTError) else "internal"
    return TurnFailed(
        message=describe(error),
        code=code,
        usage=run.usage,
        calls=tuple(run.calls.values()),
        error=error,
    )


def _cancelled(session: Session, run: Run) -> TurnCancelled:
    return TurnCancelled(
        reason=run.stop_reason or CLOSED,
        text=session.transcript.text_being_said(),
        usage=run.usage,
        calls=tuple(run.calls.values()),
    )
