"""The turn: ask the model, run what it asks for, again until it is done.

Innermost of the turn chain is `run_turn`, of the iteration chain `_run_iteration`. What
tools did is saved at the end of each batch, whatever ended it, under a shield with a
limit. `ChatMemory.append` knows messages by id, so saving twice is harmless.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import trio
from attrs import define, evolve, field

from agentrt.agent import history
from agentrt.agent.approval import ApprovalPolicy, Verdict, rule
from agentrt.agent.client import ChatClient
from agentrt.agent.pause import apply_answers
from agentrt.agent.tool_batch import ToolBatch, storable
from agentrt.agent.turn import TurnAccount
from agentrt.core.chat import ChatRequest, ChatResponse, add_usage
from agentrt.core.context import Context, Slot, fold_writes
from agentrt.core.errors import AgentRTError, MaxIterationsError, ModelError, describe
from agentrt.core.ids import new_id
from agentrt.core.messages import AssistantMessage, Message, ToolCall
from agentrt.core.outcomes import (
    Interrupt,
    PauseSnapshot,
    TurnCompleted,
    TurnFailed,
    TurnOutcome,
    TurnPaused,
)
from agentrt.events.types import EventSink, IterationStarted, ToolReturned
from agentrt.filters.base import (
    Inner,
    IterationRequest,
    IterationResponse,
    NextIteration,
    Resumption,
    ToolRequest,
    TurnRequest,
    compile_hooks,
)
from agentrt.scopes import CLEANUP_SECONDS, Deadlines, deadline
from agentrt.stores.base import ChatMemory, PauseStore

__all__ = ["Loop"]

logger = logging.getLogger(__name__)

STOPPED = "the run ended first"


@define(kw_only=True)
class Loop:
    """One agent's loop: parts that never change; a turn's state is in its account."""

    client: ChatClient
    memory: ChatMemory | None
    pauses: PauseStore
    policies: Sequence[ApprovalPolicy]
    slots: Mapping[str, Slot]
    system: str
    options: Mapping[str, Any]
    max_iterations: int
    deadlines: Deadlines
    _iterate: Inner[IterationRequest, IterationResponse] = field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        hooks = [f.iteration for f in self.client.filters if f.iteration is not None]
        self._iterate = compile_hooks(hooks, self._run_iteration)

    async def run_turn(self, request: TurnRequest, context: Context) -> TurnOutcome:
        """One turn, or a paused one's second half. Expected failures are values."""
        account = TurnAccount(context, self.max_iterations, context.values)
        inner = evolve(
            context,
            turn=account,
            emit=account.emit,
            begin_message=account.begin_message,
        )
        try:
            with deadline("turn", self.deadlines.turn_seconds, cut="the turn"):
                outcome = await self._loop(request, inner, account)
        except AgentRTError as error:
            return _failed(error, account)
        return outcome

    async def _loop(
        self, request: TurnRequest, context: Context, account: TurnAccount
    ) -> TurnOutcome:
        step: IterationResponse
        resume = request.resume
        if resume is not None and not resume.used:
            resume.used = True
            step = await self._resume(resume, context, account)
        else:
            # What the user said is kept, also if we are stopped now.
            with trio.move_on_after(CLEANUP_SECONDS, shield=True):
                await self._begin(request.messages, context, account)
            step = NextIteration(messages=request.messages)
        index = 0
        while isinstance(step, NextIteration):
            iteration = IterationRequest(
                messages=account.with_kept(step.messages),
                index=index,
                remaining=account.remaining,
            )
            account.begin_iteration()
            now = evolve(context, values=account.values)
            limit = self.deadlines.iteration_seconds
            with deadline("iteration", limit, cut=f"iteration {index}"):
                step = await self._iterate(iteration, now)
            index += 1
        return step

    async def abandon_pause(self, context: Context) -> None:
        """Give up a pause of this run, which ended in another way after all."""
        snapshot = await self.pauses.load(context.conversation_id)
        if snapshot is None or snapshot.run_id != context.run_id:
            return
        await self.pauses.discard(context.conversation_id)
        calls = [interrupt.call for interrupt in snapshot.interrupts]
        text = history.NOT_STARTED.format(why=STOPPED)
        await self._close_calls(calls, text, context, context.emit)

    async def _close_calls(
        self,
        calls: Sequence[ToolCall],
        text: str,
        context: Context,
        emit: EventSink | None,
    ) -> None:
        """Give calls that nobody will answer a result, in the history and as events."""
        results = [history.synthetic_result(call, text) for call in calls]
        if self.memory is not None and results:
            await self.memory.append(context.conversation_id, results)
        if emit is None:
            return
        for result in results:
            emit(
                ToolReturned(
                    call_id=result.call_id,
                    name=result.name,
                    content=result.content,
                    is_error=True,
                    synthetic=True,
                    status="not_started",
                )
            )

    async def _begin(
        self, messages: Sequence[Message], context: Context, account: TurnAccount
    ) -> None:
        """Answer the calls that an earlier turn left open; keep the new messages."""
        if self.memory is None:
            return
        known = await self.memory.history(context.conversation_id)
        left = history.unanswered_calls(known)
        await self._close_calls(left, history.ABANDONED, context, account.emit)
        await self.memory.append(context.conversation_id, messages)

    async def _run_iteration(
        self, request: IterationRequest, context: Context
    ) -> IterationResponse:
        account: TurnAccount = context.turn
        account.emit(IterationStarted(index=request.index))
        response = await self._ask(request, context, account)
        message = response.message
        if self.memory is None:
            account.kept = [*request.messages, message]
        if not message.tool_calls:
            return TurnCompleted(
                text=message.text,
                message=message,
                usage=add_usage(account.usage),
                calls=tuple(account.calls),
            )
        batch = ToolBatch(self.client, context, account.emit)
        if account.remaining <= 0:
            error = MaxIterationsError(account.limit)
            batch.answer_rest(message.tool_calls, "the turn had no iterations left")
            with trio.move_on_after(CLEANUP_SECONDS, shield=True):
                await self._keep(batch, message, context, account)
            raise error
        account.spend()
        return await self._run_calls(batch, message, context, request.index)

    async def _ask(
        self, request: IterationRequest, context: Context, account: TurnAccount
    ) -> ChatResponse:
        chat = ChatRequest(
            messages=request.messages,
            system=self.system,
            tools=self.client.tools.specs,
            options=self.options,
        )
        try:
            return await self.client.invoke_chat(chat, context)
        except BaseException:
            partial = account.partial()
            if partial is not None and self.memory is not None:
                with trio.move_on_after(CLEANUP_SECONDS, shield=True):
                    await self.memory.append(context.conversation_id, [partial])
            raise

    async def _run_calls(
        self,
        batch: ToolBatch,
        message: AssistantMessage,
        context: Context,
        index: int,
    ) -> IterationResponse:
        """Run the calls that may run; pause if a person is to decide on others."""
        account: TurnAccount = context.turn
        ready: list[ToolRequest] = []
        asked: list[Interrupt] = []
        for call in message.tool_calls:
            match self._prepare(call, batch, context):
                case ToolRequest() as request:
                    ready.append(request)
                case Interrupt() as interrupt:
                    asked.append(interrupt)
        paused: TurnPaused | None = None
        try:
            await batch.run(ready)
            if asked:
                paused = await self._pause(batch, message, asked, context, index)
        finally:
            if paused is None:
                batch.answer_rest(message.tool_calls, STOPPED)
            with trio.move_on_after(CLEANUP_SECONDS, shield=True):
                await self._keep(batch, message, context, account)
                if asked and paused is None:
                    # Whether the pause was saved before the cut is not known.
                    await self.pauses.discard(context.conversation_id)
        return paused or self._next(batch, message, account)

    def _prepare(
        self, call: ToolCall, batch: ToolBatch, context: Context
    ) -> ToolRequest | Interrupt | None:
        """What is to be done with a call; None when it has its result already."""
        request = self._check(call)
        if isinstance(request, str):
            batch.answer(call, "error", f"error: {request}")
            return None
        ruling = rule(self.policies, request, context)
        match ruling.verdict:
            case Verdict.ALLOW:
                return request
            case Verdict.ASK:
                return Interrupt(id=call.id, reason=ruling.reason, call=request.call)
            case Verdict.FORBID:
                batch.deny(call, ruling.reason)
                return None

    def _check(self, call: ToolCall) -> ToolRequest | str:
        """The call with arguments as they will run, or what is wrong, for the model."""
        tool = self.client.tools.find(call.name)
        if tool is None:
            names = ", ".join(repr(spec.name) for spec in self.client.tools.specs)
            return f"there is no tool {call.name!r}; there are {names or 'none'}"
        if call.invalid_arguments is not None:
            raw = call.invalid_arguments[:200]
            return f"the arguments of {call.name!r} are no JSON object: {raw!r}"
        checked = self.client.tools.check(call.name, call.arguments)
        if checked.faults:
            return f"arguments of {call.name!r}: " + "; ".join(checked.faults)
        return ToolRequest(call=evolve(call, arguments=checked.arguments), tool=tool)

    def check_edited(self, call: ToolCall) -> str | None:
        """What is wrong with a call that a person edited; None if nothing is."""
        checked = self._check(call)
        return checked if isinstance(checked, str) else None

    async def _pause(
        self,
        batch: ToolBatch,
        message: AssistantMessage,
        asked: Sequence[Interrupt],
        context: Context,
        index: int,
    ) -> TurnPaused:
        account: TurnAccount = context.turn
        ended = batch.ended(message.tool_calls)
        self._fold([e.message.writes for e in ended], account)
        pause_id = new_id()
        calls = (*account.calls, *(e.record for e in ended))
        snapshot = PauseSnapshot(
            id=pause_id,
            conversation_id=context.conversation_id,
            run_id=context.run_id,
            message=message,
            results=tuple(storable(e.message) for e in ended),
            interrupts=tuple(asked),
            transcript=tuple(account.kept),
            values=account.values,
            index=index,
            remaining=account.remaining,
            calls=calls,
        )
        await self.pauses.save(snapshot)
        return TurnPaused(
            interrupts=snapshot.interrupts,
            pause_id=pause_id,
            usage=add_usage(account.usage),
            calls=calls,
        )

    async def _resume(
        self, resume: Resumption, context: Context, account: TurnAccount
    ) -> IterationResponse:
        """The second half of the iteration that paused: what people decided."""
        snapshot = resume.snapshot
        account.take_up(snapshot)
        message = snapshot.message
        batch = ToolBatch(
            self.client, evolve(context, values=account.values), account.emit
        )
        answered = apply_answers(snapshot, resume.answers)
        try:
            for call, reason in answered.denied:
                batch.deny(call, reason)
            for call, content in answered.replied:
                batch.answer(call, "replied", content)
            ready = [self._approved(call, batch) for call in answered.approved]
            await batch.run([request for request in ready if request is not None])
        finally:
            waiting = [interrupt.call for interrupt in snapshot.interrupts]
            batch.answer_rest(waiting, STOPPED)
            with trio.move_on_after(CLEANUP_SECONDS, shield=True):
                await self._keep(batch, message, context, account)
        return self._next(batch, message, account)

    def _approved(self, call: ToolCall, batch: ToolBatch) -> ToolRequest | None:
        """An approved call, checked once more: the tools may have changed since."""
        request = self._check(call)
        if isinstance(request, str):
            batch.answer(call, "error", f"error: {request}")
            return None
        return request

    async def _keep(
        self,
        batch: ToolBatch,
        message: AssistantMessage,
        context: Context,
        account: TurnAccount,
    ) -> None:
        """Keep the results that there are, for the model and for the account."""
        ended = batch.ended(message.tool_calls)
        account.calls.extend(each.record for each in ended)
        results = [storable(each.message) for each in ended]
        if self.memory is None or not results:
            return
        await self.memory.append(context.conversation_id, results)

    def _fold(self, writes: Sequence[Mapping[str, Any]], account: TurnAccount) -> None:
        folded = fold_writes(account.values, writes, self.slots)
        account.values = folded.values
        for conflict in folded.conflicts:
            logger.warning("state slots: %s", conflict)

    def _next(
        self, batch: ToolBatch, message: AssistantMessage, account: TurnAccount
    ) -> NextIteration:
        ended = batch.ended(message.tool_calls)
        self._fold([each.message.writes for each in ended], account)
        return NextIteration(messages=[storable(each.message) for each in ended])


def _failed(error: AgentRTError, account: TurnAccount) -> TurnFailed:
    return TurnFailed(
        message=describe(error),
        code=error.code,
        retryable=isinstance(error, ModelError) and error.retryable,
        usage=add_usage(account.usage),
        calls=tuple(account.calls),
        error=error,
    )
