"""The second half of an iteration: the calls that a message asks for.

They are judged, run, and kept; the turn pauses if a person is to decide on some. A
paused turn goes on here too, in the same way: `resume` is the batch again, without the
calls that are done.
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence

from attrs import define, evolve, field

from agentrt.agent.approvers import too_late
from agentrt.agent.client import ChatClient
from agentrt.agent.gate import Gate, Refused
from agentrt.agent.pause import apply_answers
from agentrt.agent.second_half import SecondHalf, discard_nested
from agentrt.agent.tool_batch import ToolBatch
from agentrt.agent.turn import TurnAccount
from agentrt.core import history
from agentrt.core.context import Context, Slot
from agentrt.core.messages import AssistantMessage, ToolCall, ToolMessage
from agentrt.core.outcomes import (
    CallRecord,
    Decision,
    Deny,
    Interrupt,
    Nested,
    PauseSnapshot,
    Suspended,
)
from agentrt.events.types import EventSink, ToolReturned
from agentrt.filters.base import (
    IterationResponse,
    Resumption,
    ToolRequest,
)
from agentrt.scopes import finish
from agentrt.stores.base import ChatMemory, PauseStore

__all__ = ["STOPPED", "Calls", "tell_results", "without_answer"]

logger = logging.getLogger(__name__)

STOPPED = "the run ended first"
NO_ITERATIONS = "the turn had no iterations left"


@define(kw_only=True)
class Calls:
    """Runs the calls of messages, for one agent; a turn's state is in its account."""

    client: ChatClient
    gate: Gate
    memory: ChatMemory | None
    pauses: PauseStore
    slots: Mapping[str, Slot]
    pause_on_environment: bool = False
    """A call that failed for want of something waits for a person to say what next."""

    clock: Callable[[], float] = time.time
    _pausing: dict[tuple[str, str], PauseSnapshot] = field(
        factory=dict, init=False, repr=False
    )
    """By conversation and run: saved by turns that have not ended yet."""

    async def run(
        self, message: AssistantMessage, context: Context, index: int
    ) -> IterationResponse:
        """Run the calls that may run; pause if a person is to decide on others."""
        account: TurnAccount = context.turn
        second_half = self._second_half(message, context, index)
        why = NO_ITERATIONS
        try:
            account.spend()
            why = STOPPED
            ready: list[ToolRequest] = []
            for call in message.tool_calls:
                match await self.gate.judge(
                    call, context, account.offered, second_half.history
                ):
                    case ToolRequest() as request:
                        ready.append(request)
                    case Interrupt() as interrupt:
                        second_half.asked.append(interrupt)
                    case Refused() as refused:
                        second_half.batch.refuse(refused)
            await second_half.run(ready)
        finally:
            # `finish` shields what waits in it when the turn was cut.
            await second_half.end(message.tool_calls, why)  # noqa: ASYNC102
        return second_half.response()

    async def resume(
        self, resumption: Resumption, context: Context
    ) -> IterationResponse:
        """The second half of the iteration that paused: what people decided."""
        account: TurnAccount = context.turn
        snapshot = resumption.snapshot
        account.take_up(snapshot)
        second_half = self._second_half(snapshot.message, context, snapshot.index)
        second_half.earlier = snapshot.results
        second_half.answered = snapshot.interrupts
        second_half.batch.had_begun(snapshot.nested)
        try:
            if self.memory is not None:
                # A process that was killed may have saved the pause and not these.
                await self.memory.append(context.conversation_id, snapshot.results)
                known = await self.memory.history(context.conversation_id)
                account.taken.of_history |= history.call_ids(known)
            ready = await self._decided(resumption, second_half.batch, context)
            await second_half.run(ready)
        finally:
            asked = {interrupt.call_id for interrupt in snapshot.interrupts}
            waiting = [c for c in snapshot.message.tool_calls if c.id in asked]
            # `finish` shields what waits in it when the turn was cut.
            await second_half.end(waiting, STOPPED)  # noqa: ASYNC102
        return second_half.response()

    def confirm_pause(self, context: Context) -> None:
        """The run ended as paused: its pause stays."""
        self._pausing.pop(_key(context), None)

    async def abandon_pause(self, context: Context) -> None:
        """Give up a pause of this run, which ended in another way after all."""
        snapshot = self._pausing.pop(_key(context), None)
        if snapshot is None:
            return
        text = history.NOT_STARTED.format(why=STOPPED)
        results = without_answers(snapshot, text)
        if context.emit is not None:
            tell_results(results, context.emit)
        await self._give_up(snapshot, results)

    async def discard(self, snapshot: PauseSnapshot) -> None:
        """Give up a pause that nobody will answer."""
        await self._give_up(snapshot, without_answers(snapshot, history.ABANDONED))

    async def _give_up(
        self, snapshot: PauseSnapshot, results: Sequence[ToolMessage]
    ) -> None:
        """Taken first: what somebody else has answered is not given up any more."""
        taken: list[PauseSnapshot] = []

        async def save() -> None:
            if not taken:
                given = await self.pauses.take(snapshot.conversation_id, snapshot.id)
                taken.extend(() if given is None else (given,))
            if taken and self.memory is not None:
                await self.memory.append(snapshot.conversation_id, results)
            if taken:
                calls = snapshot.message.tool_calls
                await self.discard_nested(
                    snapshot.interrupts, calls, taken[0].conversation_id
                )

        await finish(save, what="giving up a pause")

    async def discard_nested(
        self,
        interrupts: Sequence[Interrupt],
        calls: Sequence[ToolCall],
        conversation_id: str,
    ) -> None:
        """Let subagents forget what they asked, and nobody will answer."""
        await discard_nested(self.client.tools, interrupts, calls, conversation_id)

    def fault(
        self, snapshot: PauseSnapshot, interrupt: Interrupt, call: ToolCall
    ) -> str | None:
        """What is wrong with a call that a person edited; None if nothing is."""
        if not interrupt.parent_call_id:
            return self.gate.fault(call)
        names = {each.id: each.name for each in snapshot.message.tool_calls}
        tool = self.client.tools.find(names.get(interrupt.parent_call_id, ""))
        if tool is None or tool.nested is None:
            return "there is no tool any more that runs this subagent"
        return tool.nested.fault(call)

    async def pause(self, snapshot: PauseSnapshot) -> None:
        """Save a pause; until the turn has ended it may still be given up."""
        await self.pauses.save(snapshot)
        self._pausing[snapshot.conversation_id, snapshot.run_id] = snapshot

    def _second_half(
        self, message: AssistantMessage, context: Context, index: int
    ) -> SecondHalf:
        account: TurnAccount = context.turn
        batch = ToolBatch(self.client, context, account.emit, self.pause_on_environment)
        return SecondHalf(
            client=self.client,
            memory=self.memory,
            pauses=self.pauses,
            slots=self.slots,
            clock=self.clock,
            save=self.pause,
            batch=batch,
            message=message,
            context=context,
            index=index,
        )

    async def _decided(
        self, resumption: Resumption, batch: ToolBatch, context: Context
    ) -> Sequence[ToolRequest]:
        """The calls that were approved; the others get their results."""
        account: TurnAccount = context.turn
        snapshot = resumption.snapshot
        answers: Mapping[str, Decision] = resumption.answers
        if self._is_too_late(snapshot):
            reason = too_late(self.gate.human_seconds)
            answers = {each.id: Deny(reason=reason) for each in snapshot.interrupts}
        answered = apply_answers(snapshot, answers)
        account.ledger.calls.extend(_record(each) for each in answered.retried)
        for call, reason in answered.denied:
            batch.deny(call, reason)
        for call, content in answered.replied:
            batch.answer(call, "replied", content)
        for interrupt in answered.failed:
            assert interrupt.result is not None
            batch.keep_failure(interrupt.call, interrupt.result)
        judged = [await self.gate.admit(call, context) for call in answered.approved]
        self._note(snapshot, answers, judged, context)
        judged.extend(
            [
                await self._going_on(snapshot.nested.get(call.id), own, call, context)
                for call in snapshot.message.tool_calls
                if (own := answered.nested.get(call.id)) is not None
            ]
        )
        for each in judged:
            if isinstance(each, Refused):
                batch.refuse(each)
        order = [call.id for call in snapshot.message.tool_calls]
        ready = [
            evolve(each, edited=each.edited or each.call.id in answered.edited)
            for each in judged
            if isinstance(each, ToolRequest)
        ]
        return sorted(ready, key=lambda each: order.index(each.call.id))

    async def _going_on(
        self,
        suspended: Suspended | None,
        answers: Mapping[str, Decision],
        call: ToolCall,
        context: Context,
    ) -> ToolRequest | Refused:
        """A call whose subagent was answered: it was let run before, as it is here."""
        if suspended is None:
            return Refused(call=call, text="error: this call was never begun")
        judged = await self.gate.admit(suspended.call, context)
        if isinstance(judged, Refused):
            return judged
        if judged.tool.nested is None:
            return Refused(call=call, text="error: its tool runs no subagents any more")
        nested = Nested(answers=answers, state=suspended.state)
        return evolve(judged, nested=nested, edited=suspended.edited)

    def _note(
        self,
        snapshot: PauseSnapshot,
        answers: Mapping[str, Decision],
        judged: Sequence[ToolRequest | Refused],
        context: Context,
    ) -> None:
        """Remember the answers, each with the call as it runs."""
        as_run = {each.call.id: each.call for each in judged}
        for interrupt in snapshot.interrupts:
            if interrupt.kind == "approval" and not interrupt.parent_call_id:
                call = as_run.get(interrupt.id, interrupt.call)
                self.gate.approval.note(call, answers.get(interrupt.id), context)

    def _is_too_late(self, snapshot: PauseSnapshot) -> bool:
        # The one place where wall-clock times are compared: between them lie processes,
        # and nothing else goes on from one to the next.
        limit, began = self.gate.human_seconds, snapshot.paused_at
        return limit is not None and began > 0 and self.clock() - began > limit


def _key(context: Context) -> tuple[str, str]:
    return context.conversation_id, context.run_id


def without_answers(snapshot: PauseSnapshot, text: str) -> Sequence[ToolMessage]:
    """What is true of the calls of a pause that nobody will answer."""
    return [
        without_answer(call, snapshot.interrupts, text)
        for call in snapshot.message.tool_calls
        if call.id in {each.call_id for each in snapshot.interrupts}
    ]


def without_answer(
    call: ToolCall, interrupts: Sequence[Interrupt], text: str
) -> ToolMessage:
    """What is true of a call that waits for these; `text` is of one that never ran."""
    for each in interrupts:
        if each.call_id != call.id:
            continue
        if each.parent_call_id:
            return history.synthetic_result(call, history.GIVEN_UP)
        return each.result or history.synthetic_result(call, text)
    return history.synthetic_result(call, text)


def _record(interrupt: Interrupt) -> CallRecord:
    """The try that failed, of a call that is made again."""
    result = interrupt.result
    assert result is not None
    return CallRecord(
        id=interrupt.id,
        name=interrupt.call.name,
        arguments=interrupt.call.arguments,
        status="error",
        content=result.content,
    )


def tell_results(results: Sequence[ToolMessage], emit: EventSink) -> None:
    """Tell results that no batch has told."""
    for result in results:
        emit(
            ToolReturned(
                call_id=result.call_id,
                name=result.name,
                content=result.content,
                is_error=result.is_error,
                synthetic=result.synthetic,
                status="not_started" if result.synthetic else "error",
            )
        )
