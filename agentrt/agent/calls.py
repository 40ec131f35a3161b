"""The second half of an iteration: the calls that a message asks for.

They are judged, run, and kept; the turn pauses if a person is to decide on some. A
paused turn goes on here too, in the same way: `resume` is the batch again, without the
calls that are done.
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence

from attrs import define, evolve

from agentrt.agent.approvers import too_late
from agentrt.agent.client import ChatClient
from agentrt.agent.gate import Gate, Refused
from agentrt.agent.pause import apply_answers
from agentrt.agent.pause_keeper import STOPPED, PauseKeeper
from agentrt.agent.second_half import SecondHalf
from agentrt.agent.tool_batch import ToolBatch
from agentrt.agent.turn import TurnAccount
from agentrt.core import history
from agentrt.core.context import Context, Slot
from agentrt.core.messages import AssistantMessage, ToolCall
from agentrt.core.outcomes import (
    CallRecord,
    Decision,
    Deny,
    Interrupt,
    Nested,
    PauseSnapshot,
    Suspended,
)
from agentrt.filters.base import (
    IterationResponse,
    Resumption,
    ToolRequest,
)
from agentrt.stores.base import ChatMemory

__all__ = ["Calls"]

logger = logging.getLogger(__name__)

NO_ITERATIONS = "the turn had no iterations left"


@define(kw_only=True)
class Calls:
    """Runs the calls of messages, for one agent; a turn's state is in its account."""

    client: ChatClient
    gate: Gate
    keeper: PauseKeeper
    memory: ChatMemory | None
    slots: Mapping[str, Slot]
    pause_on_environment: bool = False
    """A call that failed for want of something waits for a person to say what next."""

    clock: Callable[[], float] = time.time

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

    def _second_half(
        self, message: AssistantMessage, context: Context, index: int
    ) -> SecondHalf:
        account: TurnAccount = context.turn
        batch = ToolBatch(self.client, context, account.emit, self.pause_on_environment)
        return SecondHalf(
            client=self.client,
            memory=self.memory,
            pauses=self.keeper.store,
            slots=self.slots,
            clock=self.clock,
            save=self.keeper.save,
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
