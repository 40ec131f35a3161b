"""The turn: ask the model, run what it asks for, again until it is done.

Innermost of the turn chain is `run_turn`, of the iteration chain `_run_iteration`. What
tools did is saved at the end of each batch, whatever ended it, under a shield with a
limit. `ChatMemory.append` knows messages by id, so saving twice is harmless.
"""

import logging
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any

import trio
from attrs import define, evolve, field

from agentrt.agent import history
from agentrt.agent.approval import ApprovalPolicy
from agentrt.agent.client import ChatClient
from agentrt.agent.gate import Gate, Refused
from agentrt.agent.pause import apply_answers
from agentrt.agent.tool_batch import Ended, ToolBatch, storable
from agentrt.agent.turn import TurnAccount
from agentrt.core.chat import ChatRequest, ChatResponse, add_usage
from agentrt.core.context import STOP_KEY, Context, Slot, fold_writes
from agentrt.core.errors import AgentRTError, ModelError, describe
from agentrt.core.ids import new_id
from agentrt.core.messages import AssistantMessage, ToolCall, ToolMessage
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
from agentrt.scopes import CLEANUP_SECONDS, Deadlines, deadline, finish
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
    _gate: Gate = field(init=False, repr=False)
    _iterate: Inner[IterationRequest, IterationResponse] = field(init=False, repr=False)
    _pausing: dict[str, PauseSnapshot] = field(factory=dict, init=False, repr=False)
    """By run: pauses that were saved by turns that have not ended yet."""

    def __attrs_post_init__(self) -> None:
        self._gate = Gate(self.client.tools, self.policies)
        hooks = [f.iteration for f in self.client.filters if f.iteration is not None]
        self._iterate = compile_hooks(hooks, self._run_iteration)

    def check_edited(self, call: ToolCall) -> str | None:
        """What is wrong with a call that a person edited; None if nothing is."""
        return self._gate.fault(call)

    async def run_turn(self, request: TurnRequest, context: Context) -> TurnOutcome:
        """One turn, or a paused one's second half. Expected failures are values."""
        account = TurnAccount(context, self.max_iterations, context.values)
        inner = evolve(
            context,
            turn=account,
            emit=account.emit,
            begin_message=account.begin_message,
            taken_ids=account.taken,
        )
        try:
            with deadline("turn", self.deadlines.turn_seconds, cut="the turn"):
                return await self._loop(request, inner, account)
        except AgentRTError as error:
            return _failed(error, account)

    async def _loop(
        self, request: TurnRequest, context: Context, account: TurnAccount
    ) -> TurnOutcome:
        step: IterationResponse
        resume = request.resume
        if resume is not None and not resume.used:
            resume.used = True
            step = await self._resume(resume, context, account)
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
            if context.values is not account.values:
                context = evolve(context, values=account.values)
            limit = self.deadlines.iteration_seconds
            with deadline("iteration", limit, cut=f"iteration {index}"):
                step = await self._iterate(iteration, context)
            index += 1
        return step

    async def _begin(
        self, request: TurnRequest, context: Context, account: TurnAccount
    ) -> NextIteration:
        """Answer the calls that an earlier turn left open; keep the new messages."""

        async def save() -> None:
            # What the user said is kept, also if the turn is stopped right now.
            assert self.memory is not None
            known = await self.memory.history(context.conversation_id)
            account.taken.of_history |= history.call_ids(known)
            left = history.unanswered_calls(known)
            results = [_left_open(call, request.discarded) for call in left]
            new = [*results, *request.messages]
            await self.memory.append(context.conversation_id, new)
            _tell_results(results, account.emit)

        if self.memory is not None:
            await finish(save, what="keeping what the user said")
        return NextIteration(messages=request.messages)

    async def abandon_pause(self, context: Context) -> None:
        """Give up a pause of this run, which ended in another way after all."""
        snapshot = self._pausing.pop(context.run_id, None)
        if snapshot is None:
            return
        text = history.NOT_STARTED.format(why=STOPPED)
        calls = [interrupt.call for interrupt in snapshot.interrupts]
        results = [history.synthetic_result(call, text) for call in calls]

        async def save() -> None:
            await self.pauses.discard(context.conversation_id)
            if self.memory is not None:
                await self.memory.append(context.conversation_id, results)

        if context.emit is not None:
            _tell_results(results, context.emit)
        await finish(save, what="giving up a pause")

    def confirm_pause(self, context: Context) -> None:
        """The run ended as paused: its pause stays."""
        self._pausing.pop(context.run_id, None)

    async def _run_iteration(
        self, request: IterationRequest, context: Context
    ) -> IterationResponse:
        account: TurnAccount = context.turn
        account.emit(IterationStarted(index=request.index))
        message = (await self._ask(request, context, account)).message
        if self.memory is None:
            account.kept = [*request.messages, message]
        if not message.tool_calls:
            return TurnCompleted(
                text=message.text,
                message=message,
                usage=add_usage(account.usage),
                calls=tuple(account.calls),
            )
        return await self._run_calls(message, context, request.index)

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
            with trio.move_on_after(CLEANUP_SECONDS, shield=True):
                await self._keep_said(context, account)
            raise

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
        _tell_results(results, account.emit)

    async def _run_calls(
        self, message: AssistantMessage, context: Context, index: int
    ) -> IterationResponse:
        """Run the calls that may run; pause if a person is to decide on others."""
        account: TurnAccount = context.turn
        batch = ToolBatch(self.client, context, account.emit)
        asked: list[Interrupt] = []
        paused: TurnPaused | None = None
        why = "the turn had no iterations left"
        try:
            account.spend()
            why = STOPPED
            ready: list[ToolRequest] = []
            for call in message.tool_calls:
                match self._gate.judge(call, context, account.offered):
                    case ToolRequest() as request:
                        ready.append(request)
                    case Interrupt() as interrupt:
                        asked.append(interrupt)
                    case Refused() as refused:
                        batch.refuse(refused)
            await batch.run(ready)
            if asked:
                paused = await self._pause(batch, message, asked, context, index)
        finally:
            if paused is None:
                batch.answer_rest(message.tool_calls, why)
            # `finish` shields it when the turn was cut.
            lost = bool(asked) and paused is None
            keep = self._keep(batch, message, context, lose_pause=lost)
            await keep  # noqa: ASYNC102
        return paused or self._next(batch, message, account)

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
        calls = (*account.calls, *(e.record for e in ended))
        snapshot = PauseSnapshot(
            id=new_id(),
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
        self._pausing[context.run_id] = snapshot
        return TurnPaused(
            interrupts=snapshot.interrupts,
            pause_id=snapshot.id,
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
        batch = ToolBatch(self.client, context, account.emit)
        try:
            if self.memory is not None:
                known = await self.memory.history(context.conversation_id)
                account.taken.of_history |= history.call_ids(known)
            await batch.run(self._decided(resume, batch, context))
        finally:
            waiting = [interrupt.call for interrupt in snapshot.interrupts]
            batch.answer_rest(waiting, STOPPED)
            # `finish` shields it when the turn was cut.
            await self._keep(batch, message, context)  # noqa: ASYNC102
        return self._next(batch, message, account)

    def _decided(
        self, resume: Resumption, batch: ToolBatch, context: Context
    ) -> Sequence[ToolRequest]:
        """The calls that were approved; the others get their results."""
        answered = apply_answers(resume.snapshot, resume.answers)
        batch.edited = answered.edited
        for call, reason in answered.denied:
            batch.deny(call, reason)
        for call, content in answered.replied:
            batch.answer(call, "replied", content)
        ready: list[ToolRequest] = []
        for call in answered.approved:
            match self._gate.admit(call, context):
                case ToolRequest() as request:
                    ready.append(request)
                case Refused() as refused:
                    batch.refuse(refused)
        return ready

    async def _keep(
        self,
        batch: ToolBatch,
        message: AssistantMessage,
        context: Context,
        *,
        lose_pause: bool = False,
    ) -> None:
        """Keep the results that there are, though the turn may be cancelled by now."""
        account: TurnAccount = context.turn
        ended = batch.ended(message.tool_calls)
        account.calls.extend(each.record for each in ended)
        results = [storable(each.message) for each in ended]

        async def save() -> None:
            if self.memory is not None and results:
                await self.memory.append(context.conversation_id, results)
            if lose_pause:  # whether it was saved before the cut is not known
                await self.pauses.discard(context.conversation_id)

        await finish(save, what="keeping results of tools")

    def _fold(self, writes: Sequence[Mapping[str, Any]], account: TurnAccount) -> None:
        folded = fold_writes(account.values, writes, self.slots)
        account.values = folded.values
        for conflict in folded.conflicts:
            logger.warning("state slots: %s", conflict)

    def _next(
        self, batch: ToolBatch, message: AssistantMessage, account: TurnAccount
    ) -> IterationResponse:
        """The next iteration, unless the batch has ended the turn."""
        ended = batch.ended(message.tool_calls)
        self._fold([each.message.writes for each in ended], account)
        completed = partial(
            TurnCompleted,
            usage=add_usage(account.usage),
            calls=tuple(account.calls),
        )
        stopped_by = account.values.get(STOP_KEY)
        if stopped_by is not None:
            text, by = message.text, str(stopped_by)
            return completed(text=text, message=message, stopped_by=by)
        if self._is_direct(ended):
            text = "\n".join(each.message.text for each in ended)
            return completed(text=text, returned_direct=True)
        return NextIteration(messages=[storable(each.message) for each in ended])

    def _is_direct(self, ended: Sequence[Ended]) -> bool:
        """Whether all results are the answer: one that failed or was denied is not."""
        tools = [self.client.tools.find(each.record.name) for each in ended]
        direct = all(tool is not None and tool.return_direct for tool in tools)
        return direct and all(each.record.status == "ok" for each in ended)


def _left_open(call: ToolCall, discarded: Collection[str]) -> ToolMessage:
    """The truth about a call that an earlier turn left without a result."""
    if call.id in discarded:
        return history.synthetic_result(call, history.ABANDONED)
    text = history.CUT.format(why=history.UNRECORDED)
    return history.synthetic_result(call, text)


def _tell_results(results: Sequence[ToolMessage], emit: EventSink) -> None:
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


def _failed(error: AgentRTError, account: TurnAccount) -> TurnFailed:
    return TurnFailed(
        message=describe(error),
        code=error.code,
        retryable=isinstance(error, ModelError) and error.retryable,
        usage=add_usage(account.usage),
        calls=tuple(account.calls),
        error=error,
    )
