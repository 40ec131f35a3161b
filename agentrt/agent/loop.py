"""The turn: ask the model, run what it asks for, again until it is done.

Innermost of the turn chain is `run_turn`, of the iteration chain `_run_iteration`. What
tools did is saved at the end of each batch, whatever ended it, under a shield with a
limit. `ChatMemory.append` knows messages by id, so saving twice is harmless.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import trio
from attrs import define, evolve, field

from agentrt.agent.calls import Calls
from agentrt.agent.client import ChatClient
from agentrt.agent.pause_keeper import (
    STOPPED,
    PauseKeeper,
    tell_results,
    without_answer,
)
from agentrt.agent.turn import TurnAccount, TurnLedger
from agentrt.core import history
from agentrt.core.chat import ChatRequest, ChatResponse
from agentrt.core.context import STOP_KEY, Context
from agentrt.core.deadlines import Deadlines
from agentrt.core.errors import AgentRTError, InputError
from agentrt.core.ids import new_id
from agentrt.core.messages import Message, ToolCall, ToolMessage, UserMessage
from agentrt.core.options import DEFAULT_TURN_OPTIONS, TurnOptions
from agentrt.core.outcomes import Interrupt, TurnOutcome
from agentrt.events.types import IterationStarted
from agentrt.filters.base import (
    Inner,
    IterationRequest,
    IterationResponse,
    NextIteration,
    TurnRequest,
    compile_hooks,
)
from agentrt.scopes import CLEANUP_SECONDS, deadline, finish
from agentrt.stores.base import ChatMemory

__all__ = ["Loop"]


@define(kw_only=True)
class Loop:
    """One agent's loop: parts that never change; a turn's state is in its account."""

    client: ChatClient
    calls: Calls
    memory: ChatMemory | None
    system: str
    options: Mapping[str, Any]
    max_iterations: int
    deadlines: Deadlines
    turn: Inner[TurnRequest, TurnOutcome] = field(init=False, repr=False)
    """`run_turn` within the turn hooks."""

    _iterate: Inner[IterationRequest, IterationResponse] = field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        filters = self.client.filters
        iterations = [f.iteration for f in filters if f.iteration is not None]
        self._iterate = compile_hooks(iterations, self._run_iteration)
        turns = [f.turn for f in filters if f.turn is not None]
        self.turn = compile_hooks(turns, self.run_turn)

    async def run_turn(self, request: TurnRequest, context: Context) -> TurnOutcome:
        """One turn, or a paused one's second half. Expected failures are values.

        A filter that runs the turn again gets a new budget of iterations, and what the
        turn has done so far.
        """
        ledger = _ledger(request, context)
        options = _options(request, ledger)
        limit = options.max_iterations
        limit = self.max_iterations if limit is None else limit
        account = TurnAccount(context, limit, ledger, options)
        inner = evolve(
            context,
            turn=account,
            values=ledger.values,
            emit=account.emit,
            begin_message=account.begin_message,
            taken_ids=account.taken,
            deadlines=self.client.deadlines,
            add_usage=account.add_usage,
        )
        try:
            with deadline("turn", self.deadlines.turn_seconds, cut="the turn"):
                return await self._loop(request, inner, account)
        except AgentRTError as error:
            return account.failed(error)

    async def _loop(
        self, request: TurnRequest, context: Context, account: TurnAccount
    ) -> TurnOutcome:
        step: IterationResponse
        resume = request.resume
        if resume is not None and not resume.used:
            resume.used = True
            limit = self.deadlines.iteration_seconds
            with deadline("iteration", limit, cut="the resumed iteration"):
                step = await self.calls.resume(resume, context)
        else:
            step = await self._begin(request, context, account)
        index = 0
        while isinstance(step, NextIteration):
            iteration = IterationRequest(
                messages=account.with_kept(step.messages),
                index=index,
                remaining=account.remaining,
            )
            account.begin_iteration()
            if context.values is not account.ledger.values:
                context = evolve(context, values=account.ledger.values)
            limit = self.deadlines.iteration_seconds
            with deadline("iteration", limit, cut=f"iteration {index}"):
                step = await self._iterate(iteration, context)
            index += 1
        return step

    async def _begin(
        self, request: TurnRequest, context: Context, account: TurnAccount
    ) -> NextIteration:
        """Answer the calls that an earlier turn left open; keep the new messages."""
        if self.memory is None:
            _check_some(request.messages)
            return NextIteration(messages=request.messages)
        opening = _Opening(
            self.memory, self.calls.keeper, context, request.discarded, request.messages
        )
        # What the user said is kept, also if the turn is stopped right now.
        await finish(opening.save, what="keeping what the user said")
        _check_some([*(opening.known or ()), *opening.messages])
        account.taken.of_history |= history.call_ids(opening.known or ())
        return NextIteration(messages=opening.messages)

    async def close_open(self, request: TurnRequest, context: Context) -> None:
        """Answer the calls of a pause that was given up, or that nobody took up."""
        resume = request.resume
        left = request.discarded if resume is None else resume.snapshot.interrupts
        if left and self.memory is not None:
            kept = () if resume is None else resume.snapshot.results
            opening = _Opening(self.memory, self.calls.keeper, context, left, kept)
            await finish(opening.save, what="closing a pause")

    async def _run_iteration(
        self, request: IterationRequest, context: Context
    ) -> IterationResponse:
        account: TurnAccount = context.turn
        account.emit(IterationStarted(index=request.index))
        message = (await self._ask(request, context, account)).message
        if self.memory is None:
            account.ledger.kept = [*request.messages, message]
        if not message.tool_calls:
            return account.completed(text=message.text, message=message)
        return await self.calls.run(message, context, request.index)

    async def _ask(
        self, request: IterationRequest, context: Context, account: TurnAccount
    ) -> ChatResponse:
        try:
            return await self.client.invoke_chat(
                self._chat_request(request, account.options), context
            )
        except BaseException:
            with trio.move_on_after(CLEANUP_SECONDS, shield=True):
                await self._keep_said(context, account)
            raise

    def _chat_request(
        self, request: IterationRequest, options: TurnOptions
    ) -> ChatRequest:
        if options is DEFAULT_TURN_OPTIONS:
            return ChatRequest(
                messages=request.messages,
                system=self.system,
                tools=self.client.tools.specs,
                options=self.options,
            )
        tools = self.client.tools.specs_with(options.tags, options.exclude_tags)
        return ChatRequest(
            messages=request.messages,
            system=options.system_prompt(self.system),
            tools=tools,
            tool_choice=None if request.index else options.tool_choice,
            options={**self.options, **options.options},
        )

    async def _keep_said(self, context: Context, account: TurnAccount) -> None:
        """Keep what the model said, in a turn that goes no further; no call ran."""
        message = account.said()
        if message is None:
            return
        text = history.NOT_STARTED.format(why=STOPPED)
        calls = message.tool_calls
        results = [history.synthetic_result(call, text) for call in calls]
        if self.memory is not None:
            await self.memory.append(context.conversation_id, [message, *results])
        tell_results(results, account.emit)


def _ledger(request: TurnRequest, context: Context) -> TurnLedger:
    """What the turn has done so far, and what filters keep for it."""
    ledger = context.turn
    if not isinstance(ledger, TurnLedger):
        ledger = TurnLedger(context.values)
    elif context.values is not ledger.given:  # a filter has put something in
        ledger.values = {**ledger.values, **context.values}
    resume = request.resume
    if STOP_KEY in ledger.values and (resume is None or resume.used):
        # It stopped the pass before, and not this one.
        kept = {k: v for k, v in ledger.values.items() if k != STOP_KEY}
        ledger.values = kept
    if request.values:
        ledger.values = {**ledger.values, **request.values}
    return ledger


def _options(request: TurnRequest, ledger: TurnLedger) -> TurnOptions:
    """The request's; else those of what goes on: a pause, or the pass before."""
    resume = request.resume
    resumes = resume is not None and not resume.used
    options = request.options
    if options is None:
        options = resume.snapshot.options if resume and resumes else ledger.options
    first_call_is_over = ledger.begun or (resumes and request.options is None)
    if first_call_is_over and options.tool_choice is not None:
        options = evolve(options, tool_choice=None)
    ledger.begun, ledger.options = True, options
    return options


def _check_some(messages: Sequence[Message]) -> None:
    if not messages:
        raise InputError(
            "the conversation is new and the input has no message: expected one or more"
        )


@define
class _Opening:
    """What is due before a turn: its save may be repeated where it was cut."""

    _memory: ChatMemory
    _keeper: PauseKeeper
    _context: Context
    _discarded: Sequence[Interrupt]
    messages: Sequence[Message]
    """What is new. A user's gets another id if its own is known: a memory would take it
    for one that is there."""

    known: Sequence[Message] | None = field(default=None, init=False)
    """The history before it."""

    _left: Sequence[ToolCall] = field(default=(), init=False)
    _results: Sequence[ToolMessage] = field(default=(), init=False)

    async def save(self) -> None:
        conversation_id = self._context.conversation_id
        if self.known is None:
            self._read(await self._memory.history(conversation_id))
        new = [*self._results, *self.messages]
        await self._memory.append(conversation_id, new)
        await self._keeper.discard_nested(self._discarded, self._left, conversation_id)

    def _read(self, known: Sequence[Message]) -> None:
        ids = {message.id for message in known}
        self.known = known
        self.messages = [
            evolve(message, id=new_id())
            if message.id in ids and isinstance(message, UserMessage)
            else message
            for message in self.messages
        ]
        results = [m for m in self.messages if isinstance(m, ToolMessage)]
        self._left = history.unanswered_calls([*known, *results])
        self._results = [_left_open(call, self._discarded) for call in self._left]
        if self._context.emit is not None:
            tell_results(self._results, self._context.emit)


def _left_open(call: ToolCall, discarded: Sequence[Interrupt]) -> ToolMessage:
    """The truth about a call that an earlier turn left without a result."""
    if any(interrupt.call_id == call.id for interrupt in discarded):
        return without_answer(call, discarded, history.ABANDONED)
    text = history.CUT.format(why=history.UNRECORDED)
    return history.synthetic_result(call, text)
