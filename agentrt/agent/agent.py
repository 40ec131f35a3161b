"""`Agent`: what a user builds: a model, tools, filters, and how they are used.

An agent is a definition. All state of a turn is in the turn, all state of a
conversation in the stores, so one agent serves any number of conversations at once.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any, Final

from attrs import Factory, evolve, field, frozen

from agentrt.agent.answers import answer_filter
from agentrt.agent.approvers import Approval
from agentrt.agent.calls import Calls
from agentrt.agent.client import ChatClient
from agentrt.agent.fields import (
    Occupied,
    all_slots,
    checked_input,
    is_memory,
    is_model,
    is_pause_store,
    new_context,
    no_memory_filter,
    not_below_0,
    to_approval,
    to_registry,
    whole_of,
)
from agentrt.agent.gate import Gate
from agentrt.agent.loop import Loop
from agentrt.agent.pause_keeper import PauseKeeper
from agentrt.agent.turn import TurnLedger
from agentrt.agent.turn_stream import TurnStream, open_stream
from agentrt.core.context import Context, Slot
from agentrt.core.deadlines import Deadlines
from agentrt.core.errors import SessionPausedError
from agentrt.core.ids import new_id
from agentrt.core.messages import Message, ToolCall, user_messages, with_edits
from agentrt.core.options import TurnOptions
from agentrt.core.outcomes import Decision, PauseSnapshot, TurnOutcome, TurnPaused
from agentrt.events.types import EventSink
from agentrt.filters.base import UNSET, Filter, Resumption, TurnRequest, Unset
from agentrt.filters.memory import memory_filter
from agentrt.models.base import ChatModel
from agentrt.scopes import finish
from agentrt.stores.base import ChatMemory, PauseStore
from agentrt.stores.in_memory import InMemoryChatMemory, InMemoryPauseStore
from agentrt.tools.registry import ToolRegistry

__all__ = ["DEFAULT_MAX_ITERATIONS", "Agent"]

DEFAULT_MAX_ITERATIONS: Final = 10


def _make_client(agent: "Agent") -> ChatClient:
    memory = [] if agent.memory is None else [memory_filter(agent.memory)]
    return ChatClient(
        agent.model,
        tools=agent.tools,
        filters=[*memory, answer_filter(), *agent.filters],
        deadlines=agent.deadlines,
    )


def _make_keeper(agent: "Agent") -> PauseKeeper:
    tools, limit = agent.client.tools, agent.deadlines.human_seconds
    return PauseKeeper(
        store=agent.pauses,
        memory=whole_of(agent.memory),
        tools=tools,
        gate=Gate(tools, agent.approval, limit),
    )


def _make_calls(agent: "Agent") -> Calls:
    return Calls(
        client=agent.client,
        gate=agent._keeper.gate,
        keeper=agent._keeper,
        memory=whole_of(agent.memory),
        slots=all_slots(agent.filters, agent.slots),
        pause_on_environment=agent.pause_on_environment,
        clock=agent.clock,
    )


def _make_loop(agent: "Agent") -> Loop:
    return Loop(
        client=agent.client,
        calls=agent._calls,
        memory=whole_of(agent.memory),
        system=agent.system,
        options=agent.options,
        max_iterations=agent.max_iterations,
        deadlines=agent.deadlines,
    )


@frozen(kw_only=True, eq=False)
class Agent:
    """A model with tools, in a loop. Frozen: to change one, `attrs.evolve` it.

    Raises:
        ToolDefinitionError: a tool cannot work; names all that cannot.
        ValueError: `max_iterations` is below 0, or a filter is a memory filter.
        TypeError: the model, a store or a policy is something else.
    """

    model: ChatModel = field(validator=is_model)
    name: str = "default"
    description: str = ""
    system: str = ""
    """The system prompt. Sent with each model call, never stored."""

    tools: ToolRegistry = field(factory=ToolRegistry, converter=to_registry)
    """Tools, or plain functions: `Agent(tools=[get_weather])`."""

    filters: Sequence[Filter] = field(default=(), validator=no_memory_filter)
    """The first is the outermost, but for the memory, which is outside of all."""

    memory: ChatMemory | None = field(factory=InMemoryChatMemory, validator=is_memory)
    """Where histories are kept. None: each turn knows only itself."""

    pauses: PauseStore = field(factory=InMemoryPauseStore, validator=is_pause_store)
    approval: Approval = field(factory=Approval, converter=to_approval)
    """Rules on each call, beside the tool's own `sensitive`: a policy, several of them,
    or an `Approval` with all there is. The strictest wins."""

    pause_on_environment: bool = False
    """Pause where a call failed for want of something (credentials, quota, disk), for a
    person to set it right; else the model reads the error."""

    max_iterations: int = field(default=DEFAULT_MAX_ITERATIONS, validator=not_below_0)
    """Batches of tool calls that one turn may run."""

    deadlines: Deadlines = field(factory=Deadlines)
    options: Mapping[str, Any] = field(factory=dict)
    """For each model call, as `temperature`."""

    values: Mapping[str, Any] = field(factory=dict)
    """What tools and filters find in `context.values` when a turn begins."""

    slots: Mapping[str, Slot] = field(factory=dict)
    """How the writes of several calls to one key become one value."""

    clock: Callable[[], float] = field(default=time.time, repr=False)
    """Seconds since the epoch: when a pause began, whether an answer is too late."""

    client: ChatClient = field(
        init=False, repr=False, default=Factory(_make_client, takes_self=True)
    )
    """The model and the tools within their filters, without the loop."""

    _keeper: PauseKeeper = field(
        init=False, repr=False, default=Factory(_make_keeper, takes_self=True)
    )
    _calls: Calls = field(
        init=False, repr=False, default=Factory(_make_calls, takes_self=True)
    )
    _loop: Loop = field(
        init=False, repr=False, default=Factory(_make_loop, takes_self=True)
    )
    _busy: dict[str, str] = field(factory=dict, repr=False, alias="busy")
    """By conversation: the turn that runs. Agents made by `evolve` share it."""

    @classmethod
    def from_client(
        cls,
        client: ChatClient,
        *,
        memory: ChatMemory | Unset | None = UNSET,
        **more: Any,
    ) -> "Agent":
        """An agent on a ready client: its model, tools, filters and deadlines.

        The client's memory filter becomes the agent's memory. Another `memory` takes
        its place, None leaves it out, and a client without one gets a new one in this
        process. `more` is what an agent has beside that, as `system`.
        """
        own = [each.memory for each in client.filters if each.memory is not None]
        if isinstance(memory, Unset):
            memory = own[0] if own else InMemoryChatMemory()
        return cls(
            model=client.model,
            tools=client.own_tools,
            filters=[each for each in client.filters if each.memory is None],
            memory=memory,
            **{"deadlines": client.deadlines, **more},
        )

    async def run(
        self,
        input: str | Message | Sequence[Message],  # noqa: A002  the field's word for it
        *,
        conversation_id: str | None = None,
        options: TurnOptions | None = None,
        emit: EventSink | None = None,
        values: Mapping[str, Any] | None = None,
    ) -> TurnOutcome:
        """One turn, here and now: what the user says, to the outcome.

        Without a `conversation_id` it is a conversation of its own, which is forgotten
        at the end; if it pauses, the outcome has its id. Being cancelled passes
        through; results of tools and what was said so far are kept.

        Raises:
            SessionBusyError: a turn of this conversation is running.
            SessionPausedError: the conversation waits for answers: see `resume` and
                `discard_pause`.
            InputError: the input would leave the history invalid.
        """
        messages = checked_input(user_messages(input))
        if conversation_id is None:
            return await self._run_passing(messages, options, emit, values)
        context = new_context(conversation_id, emit, values)
        with Occupied(self._busy, conversation_id, context.run_id):
            waiting = await self.paused(conversation_id)
            if waiting is not None:
                raise SessionPausedError(conversation_id, waiting.interrupts)
            request = TurnRequest(messages=messages, options=options)
            return await self._run_turn(request, context)

    async def _run_passing(
        self,
        messages: Sequence[Message],
        options: TurnOptions | None,
        emit: EventSink | None,
        values: Mapping[str, Any] | None,
    ) -> TurnOutcome:
        """A turn of a conversation that nobody else can know."""
        request = TurnRequest(messages=messages, options=options)
        context = new_context(new_id(), emit, values)
        outcome: TurnOutcome | None = None
        try:
            outcome = await self.run_turn(request, context)
        finally:
            if self.memory is not None and not isinstance(outcome, TurnPaused):
                clear = partial(self.memory.clear, context.conversation_id)
                # It shields itself.
                await finish(clear, what="forgetting a turn")  # noqa: ASYNC102
        assert outcome is not None
        return outcome

    async def resume(
        self,
        conversation_id: str,
        answers: Mapping[str, Decision],
        *,
        options: TurnOptions | None = None,
        emit: EventSink | None = None,
        values: Mapping[str, Any] | None = None,
    ) -> TurnOutcome:
        """Go on with a paused turn: one answer for each open interrupt, by its id.

        Without `options` the turn keeps those that it had.

        Raises:
            NotPausedError: nothing waits.
            AnswerError: the answers do not fit; the pause stays as it was.
            SessionBusyError: a turn of this conversation is running.
        """
        context = new_context(conversation_id, emit, values)
        with Occupied(self._busy, conversation_id, context.run_id):
            resumption = await self.take_pause(conversation_id, answers)
            request = TurnRequest(resume=resumption, options=options)
            return await self._run_turn(request, context)

    def stream(
        self,
        input: str | Message | Sequence[Message],  # noqa: A002  the field's word for it
        *,
        conversation_id: str | None = None,
        options: TurnOptions | None = None,
        values: Mapping[str, Any] | None = None,
    ) -> AbstractAsyncContextManager[TurnStream]:
        """`run`, event by event: `async with agent.stream("hi") as stream: async for`.

        After the last event `stream.outcome` says how the turn ended. Leaving the block
        before that stops the turn; what `run` raises comes where the stream is read.
        """
        run = partial(self.run, input, conversation_id=conversation_id)
        return open_stream(partial(run, options=options, values=values))

    def stream_resume(
        self,
        conversation_id: str,
        answers: Mapping[str, Decision],
        *,
        options: TurnOptions | None = None,
        values: Mapping[str, Any] | None = None,
    ) -> AbstractAsyncContextManager[TurnStream]:
        """`resume`, event by event, as `stream` does it."""
        resume = partial(self.resume, conversation_id, answers)
        return open_stream(partial(resume, options=options, values=values))

    async def run_turn(self, request: TurnRequest, context: Context) -> TurnOutcome:
        """One turn through the turn hooks, for whoever brings the context.

        Expected failures are outcomes; what a hook raises comes out. Calls of a pause
        that is resumed or discarded get a result, though no hook lets the turn begin.

        Raises:
            SessionBusyError: a turn of the conversation is running.
        """
        with Occupied(self._busy, context.conversation_id, context.run_id):
            return await self._run_turn(request, context)

    async def _run_turn(self, request: TurnRequest, context: Context) -> TurnOutcome:
        if self.values or request.resume is not None:
            paused = {} if request.resume is None else request.resume.snapshot.values
            values = {**self.values, **paused, **context.values}
            context = evolve(context, values=values)
        ledger = TurnLedger(context.values)
        context = evolve(context, turn=ledger)
        outcome: TurnOutcome | None = None
        try:
            outcome = await self._loop.turn(request, context)
        finally:
            # What waits in these shields itself.
            if not ledger.begun:
                await self._loop.close_open(request, context)  # noqa: ASYNC102
            if isinstance(outcome, TurnPaused):
                self._keeper.confirm(context)
            else:
                # A hook may have failed, or answered, around a turn that had paused.
                await self._keeper.abandon(context)  # noqa: ASYNC102
        assert outcome is not None
        return outcome

    async def take_pause(
        self, conversation_id: str, answers: Mapping[str, Decision]
    ) -> Resumption:
        """Check the answers, then take the pause, at most once; for `run_turn`.

        Raises:
            NotPausedError: nothing waits, or somebody else has taken it.
            SnapshotError: no turn can go on from what is stored.
            AnswerError: the answers do not fit; the pause stays as it was.
        """
        return await self._keeper.take(conversation_id, answers)

    def fault(self, call: ToolCall) -> str | None:
        """What is wrong with a call of one of its tools; None if nothing is."""
        return self._keeper.gate.fault(call)

    async def paused(self, conversation_id: str) -> PauseSnapshot | None:
        """What the conversation waits for; None if for nothing.

        Raises:
            SnapshotError: something is stored that no turn can go on from.
        """
        return await self._keeper.load(conversation_id)

    async def discard_pause(self, conversation_id: str) -> bool:
        """Give up a paused turn: its calls count as not answered; False: none waits.

        A pause that cannot be read goes too.

        Raises:
            SessionBusyError: a turn of the conversation is running.
        """
        with Occupied(self._busy, conversation_id):
            return await self._keeper.discard(conversation_id)

    async def is_paused(self, conversation_id: str) -> bool:
        """Whether the conversation waits for answers."""
        return await self.paused(conversation_id) is not None

    async def reset(self, conversation_id: str) -> None:
        """Forget a conversation: its history, its pause, and what was approved in it.

        Raises:
            SessionBusyError: a turn of it is running.
        """
        with Occupied(self._busy, conversation_id):
            await self.forget(conversation_id)

    async def forget(self, conversation_id: str) -> None:
        """`reset` for whoever knows that no turn runs; to its end, though cancelled."""
        self.approval.forget(conversation_id)
        drop = partial(self._keeper.forget, conversation_id)
        await finish(drop, what="forgetting a conversation")

    async def history(self, conversation_id: str) -> Sequence[Message]:
        """The messages of a conversation, in order; none without a memory.

        Calls have the arguments that they ran with, also where a person edited them.
        """
        whole = whole_of(self.memory)
        if whole is None:
            return ()
        return with_edits(await whole.history(conversation_id))
