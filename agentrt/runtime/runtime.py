"""`open_runtime`: runs that outlive whoever started them.

A connection, a subscription and a run are three lifetimes. The runtime owns the tasks
of all runs; leaving its block ends them, each with its terminal event.
"""

import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final

import trio
from attrs import define, field

from agentrt.agent.agent import Agent
from agentrt.agent.fields import checked_id, checked_input
from agentrt.core.errors import (
    AgentRTError,
    RuntimeClosedError,
    SessionBusyError,
    SessionPausedError,
    SessionStateError,
)
from agentrt.core.ids import new_id
from agentrt.core.messages import Message, user_messages
from agentrt.core.outcomes import Decision, TurnOutcome
from agentrt.events.types import RunStarted
from agentrt.filters.base import TurnRequest
from agentrt.runtime.registry import DEFAULT_AGENT, AgentRegistry, Agents, as_registry
from agentrt.runtime.run import CLOSED, DEFAULT_OPTIONS, Run, RunOptions
from agentrt.runtime.session import Session, SessionStatus
from agentrt.runtime.subscriptions import Subscription
from agentrt.runtime.taking import Taking, fresh_ids, open_pause, open_questions
from agentrt.scopes import deadline, holds_only
from agentrt.stores.base import EventStore
from agentrt.stores.in_memory import InMemoryEventStore

__all__ = ["Runtime", "open_runtime"]

logger = logging.getLogger(__name__)

IDLE_SECONDS: Final = 30 * 60.0
MAX_THREADS: Final = 40


@define(eq=False)
class Runtime:
    """Conversations and their runs. Made by `open_runtime`."""

    agents: AgentRegistry
    _nursery: trio.Nursery = field(repr=False)
    _events: EventStore
    _threads: trio.CapacityLimiter = field(repr=False)
    _clock: Callable[[], float] = field(default=time.time, repr=False)
    _sessions: dict[str, Session] = field(factory=dict, init=False, repr=False)
    _owners: dict[str, str] = field(factory=dict, init=False, repr=False)
    """By conversation: the agent that it is with, whose stores know its pause."""

    _cut_ids: dict[str, set[str]] = field(factory=dict, init=False, repr=False)
    """By conversation that was let go: see `Session.cut_ids`; mostly there are none."""

    _is_closed: bool = field(default=False, init=False)

    async def start_run(
        self,
        conversation_id: str,
        input: str | Message | Sequence[Message],  # noqa: A002  the field's word for it
        options: RunOptions = DEFAULT_OPTIONS,
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
        new = checked_input(user_messages(input))
        run = Run(new_id(), conversation_id, options.label)
        session = await self._reserve(run, agent, stops=options.on_busy == "supersede")
        async with Taking(session, run, agent) as taking:
            waiting = await open_pause(agent, conversation_id, options.discard_pause)
            if waiting is not None:
                if not options.discard_pause:
                    raise SessionPausedError(conversation_id, waiting.interrupts)
                taking.pause = await agent.pauses.take(conversation_id, waiting.id)
            messages = fresh_ids(new, session)
            request = TurnRequest(
                messages=messages,
                discarded=() if taking.pause is None else taking.pause.interrupts,
                options=options.turn,
            )
            started = RunStarted(label=run.label, agent=agent.name, input=messages)
            turn = partial(agent.run_turn, request)
            self._launch(session, run, started, turn, options)
        return run

    async def resume(
        self,
        conversation_id: str,
        answers: Mapping[str, Decision],
        options: RunOptions = DEFAULT_OPTIONS,
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
        session = await self._reserve(run, agent)
        async with Taking(session, run, agent) as taking:
            resumption = await agent.take_pause(conversation_id, answers)
            taking.pause = resumption.snapshot
            request = TurnRequest(resume=resumption, options=options.turn)
            started = RunStarted(kind="resume", label=run.label, agent=agent.name)
            turn = partial(agent.run_turn, request)
            self._launch(session, run, started, turn, options)
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
        if run_id is not None and run_id not in {run.id, run.label or run.id}:
            return False
        return session.stop(reason)

    def stop_call(self, conversation_id: str, call_id: str) -> bool:
        """Stop one tool call of the run in flight; the turn goes on.

        The model reads that it was stopped and may have had effects, unless it has
        already returned. False if no such call runs.
        """
        session = self._sessions.get(conversation_id)
        return session is not None and session.stop_call(call_id)

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
        find = partial(self._find, checked_id(conversation_id))
        reopen = partial(self._open_for_reader, conversation_id, self.agents.get(agent))
        return Subscription(find, reopen, since)

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
        grave = Run(new_id(), conversation_id)  # nobody else may start one meanwhile
        session = await self._reserve(grave, owner, stops=True, reason="forgotten")
        try:
            await owner.forget(conversation_id)
        finally:
            session.release(grave)
        session.ring.close()
        self._owners.pop(conversation_id, None)
        self._drop(session)

    async def close(self) -> None:
        """Take no more runs, stop those in flight, and end all readers.

        Returns when every run has its terminal event. Leaving the runtime's block does
        this too.
        """
        self._is_closed = True
        await trio.lowlevel.checkpoint()
        running = [s.run for s in self._sessions.values() if s.run is not None]
        for run in running:
            self._sessions[run.conversation_id].stop(CLOSED)
        for run in running:
            await run.wait()
        self._close_rings()

    async def _reserve(
        self,
        run: Run,
        agent: Agent,
        *,
        stops: bool = False,
        reason: str = "superseded",
    ) -> Session:
        """Hold the session for `run`; another one is stopped first, if it `stops`."""
        while True:
            session = await self._open(run.conversation_id, agent)
            try:
                session.reserve(run)
            except SessionBusyError:
                if not stops:
                    raise
            else:
                return session
            running = session.run
            assert running is not None
            session.stop(reason)
            await running.wait()

    def _launch(
        self,
        session: Session,
        run: Run,
        started: RunStarted,
        turn: Callable[..., Any],
        options: RunOptions,
    ) -> None:
        self._check_open()
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
                outcome = await turn(
                    session.context(run, options.values, self._threads)
                )
        except* AgentRTError as errors:
            outcome = run.failed(errors)
        except* Exception as errors:
            # The run boundary: a bug in one turn must not end other conversations.
            # `except*`, since a nursery may raise it together with `Cancelled`.
            logger.exception("run %s of %s failed", run.id, run.conversation_id)
            outcome = run.failed(errors)
        finally:
            text = session.transcript.text_being_said()
            session.end_run(run, outcome or run.cancelled(text))

    async def _open(self, conversation_id: str, agent: Agent) -> Session:
        """The session of a conversation, opened if need be. A checkpoint if not."""
        checked_id(conversation_id)
        while True:
            self._check_open()
            session = self._sessions.get(conversation_id)
            owner = self._owners.setdefault(conversation_id, agent.name)
            if owner != agent.name:
                raise SessionStateError(
                    f"conversation {conversation_id!r} is with agent {owner!r} and "
                    f"cannot go on with {agent.name!r}: begin another one"
                )
            if session is None:
                session = Session(conversation_id, self._events, self._clock)
                self._sessions[conversation_id] = session
            if session.is_open:
                await trio.lowlevel.checkpoint_if_cancelled()
                return session
            async with session.opening:
                if not session.is_open:
                    history = await agent.history(conversation_id)
                    interrupts = await open_questions(agent, conversation_id)
                    cut_ids = self._cut_ids.pop(conversation_id, ())
                    session.open(history, interrupts, cut_ids)

    def _find(self, conversation_id: str) -> Session | None:
        session = self._sessions.get(conversation_id)
        return session if session is not None and session.is_open else None

    async def _open_for_reader(
        self, conversation_id: str, agent: Agent
    ) -> Session | None:
        try:
            return await self._open(conversation_id, agent)
        except RuntimeClosedError:
            # What is there may still be read; nothing is opened any more.
            return self._find(conversation_id)

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
                    if session.cut_ids:
                        self._cut_ids[session.conversation_id] = session.cut_ids
                    self._drop(session)


@asynccontextmanager
async def open_runtime(
    agents: Agents,
    *,
    events: EventStore | None = None,
    idle_seconds: float = IDLE_SECONDS,
    max_threads: int = MAX_THREADS,
    clock: Callable[[], float] = time.time,
) -> AsyncIterator[Runtime]:
    """A runtime for the length of the block, for one agent or several.

    Owns the tasks of all runs. Leaving the block stops the runs still in flight, and
    each still gets its terminal event. A conversation that nobody reads or runs for
    `idle_seconds` is let go; its history, its pause and its last number stay.

    Tools that are not async run in up to `max_threads` threads at once; one that could
    not be stopped counts until it ends.
    """
    if max_threads < 1:
        raise ValueError(f"max_threads is {max_threads}, expected 1 or more")
    if idle_seconds < 0:
        raise ValueError(f"idle_seconds is {idle_seconds}, expected 0 or more")
    registry = as_registry(agents)
    store = InMemoryEventStore() if events is None else events
    threads = trio.CapacityLimiter(max_threads)
    failure: BaseException | None = None
    runtime: Runtime | None = None
    try:
        async with trio.open_nursery() as nursery:
            runtime = Runtime(registry, nursery, store, threads, clock)
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
