"""The second half of one iteration: a message's calls, until the turn knows what next.

Made for one message and used once. Whatever ends it, each call has a result then, or is
in a pause.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from attrs import define, evolve, field

from agentrt.agent.client import ChatClient
from agentrt.agent.tool_batch import ToolBatch, is_json, storable
from agentrt.agent.turn import TurnAccount
from agentrt.core.chat import add_usage
from agentrt.core.context import STOP_KEY, Context, Slot, fold_writes
from agentrt.core.ids import new_id
from agentrt.core.messages import AssistantMessage, Message, ToolCall, ToolMessage
from agentrt.core.options import TurnOptions
from agentrt.core.outcomes import Interrupt, PauseSnapshot, TurnPaused
from agentrt.filters.base import IterationResponse, NextIteration, ToolRequest
from agentrt.scopes import finish
from agentrt.stores.base import ChatMemory, PauseStore
from agentrt.tools.registry import ToolRegistry

__all__ = ["SecondHalf", "discard_nested"]

logger = logging.getLogger(__name__)


@define(kw_only=True)
class SecondHalf:
    """One message's calls, from judgment to what the turn does next."""

    client: ChatClient
    memory: ChatMemory | None
    pauses: PauseStore
    slots: Mapping[str, Slot]
    clock: Callable[[], float]
    save: Callable[[PauseSnapshot], Awaitable[None]]
    """Keeps a pause."""

    batch: ToolBatch
    message: AssistantMessage
    context: Context
    index: int
    """Of the iteration."""

    earlier: Sequence[ToolMessage] = ()
    """Results from before a pause; the history has them."""

    answered: Sequence[Interrupt] = ()
    """The questions of the pause that it goes on from."""

    asked: list[Interrupt] = field(factory=list, init=False)
    paused: TurnPaused | None = field(default=None, init=False)

    @property
    def account(self) -> TurnAccount:
        account: TurnAccount = self.context.turn
        return account

    async def history(self) -> Sequence[Message]:
        """The conversation so far, for who decides on a call."""
        memory = self.memory
        if memory is None:
            return [*self.account.ledger.kept, self.message]
        return await memory.history(self.context.conversation_id)

    async def run(self, ready: Sequence[ToolRequest]) -> None:
        """Run what may run, then pause if anything is left to decide."""
        await self.batch.run(ready)
        held = self.batch.held.values()
        self.asked.extend(
            Interrupt(
                id=each.record.id,
                kind="environment",
                reason=f"{each.record.name!r} failed: {each.message.text}",
                call=ToolCall(
                    id=each.record.id,
                    name=each.record.name,
                    arguments=each.record.arguments,
                ),
                result=storable(each.message),
            )
            for each in held
        )
        self.asked.extend(self._nested_questions())
        if self.asked:
            self.paused = await self._pause()

    def _nested_questions(self) -> Sequence[Interrupt]:
        """What subagents ask, as questions of this turn."""
        return [
            _nested(call_id, each)
            for call_id, suspended in self.batch.suspended.items()
            for each in suspended.interrupts
        ]

    async def end(self, calls: Sequence[ToolCall], why: str) -> None:
        """Keep what came of `calls`, however it ended; a plain answer for the rest."""
        if self.paused is None:
            self.batch.answer_rest(calls, why)
        ended = self.batch.ended(self.message.tool_calls)
        self.account.ledger.calls.extend(each.record for each in ended)
        results = [storable(each.message) for each in ended]
        conversation_id = self.context.conversation_id
        lost = bool(self.asked) and self.paused is None

        async def save() -> None:
            if self.memory is not None and results:
                await self.memory.append(conversation_id, results)
            if lost:  # whether it was saved before the cut is not known
                await self.pauses.discard(conversation_id)
            if self.paused is None:  # subagents that were answered may not have run
                questions = [*self.answered, *self._nested_questions()]
                tools = self.client.tools
                await discard_nested(tools, questions, calls, conversation_id)

        await finish(save, what="keeping results of tools")

    def response(self) -> IterationResponse:
        """What the turn does next: pause, end, or ask the model again."""
        if self.paused is not None:
            return self.paused
        ended = self.batch.ended(self.message.tool_calls)
        self._fold([each.message.writes for each in ended])
        results = [storable(each.message) for each in ended]
        account, message = self.account, self.message
        stopped_by = account.ledger.values.get(STOP_KEY)
        if stopped_by is not None:
            text, by = message.text, str(stopped_by)
            return account.completed(text=text, message=message, stopped_by=by)
        all_results = self._in_order([*self.earlier, *results])
        if self._is_direct(all_results):
            text = "\n".join(each.text for each in all_results)
            return account.completed(text=text, returned_direct=True)
        return NextIteration(messages=results)

    async def _pause(self) -> TurnPaused:
        account, context = self.account, self.context
        ended = self.batch.ended(self.message.tool_calls)
        self._fold([each.message.writes for each in ended])
        calls = (*account.ledger.calls, *(each.record for each in ended))
        results = [*self.earlier, *(storable(each.message) for each in ended)]
        order = [call.id for call in self.message.tool_calls]
        known = {each.id for each in results}
        snapshot = PauseSnapshot(
            id=new_id(),
            conversation_id=context.conversation_id,
            run_id=context.run_id,
            message=self.message,
            results=self._in_order(results),
            interrupts=tuple(
                sorted(self.asked, key=lambda each: order.index(each.call_id))
            ),
            transcript=tuple(m for m in account.ledger.kept if m.id not in known),
            values=self._storable(account.ledger.values),
            index=self.index,
            remaining=account.remaining,
            calls=calls,
            nested=self.batch.nested(),
            options=_storable_options(account.options),
            paused_at=self.clock(),
        )
        await self.save(snapshot)
        return TurnPaused(
            interrupts=snapshot.interrupts,
            pause_id=snapshot.id,
            conversation_id=snapshot.conversation_id,
            usage=add_usage(account.ledger.usage),
            calls=calls,
        )

    def _storable(self, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """What can be written down: live objects come again with the agent's values."""
        given = self.account.ledger.given
        kept = {key: value for key, value in values.items() if is_json(value)}
        for key in values.keys() - kept.keys():
            if values[key] is not given.get(key):
                kind = type(values[key]).__name__
                logger.warning(
                    "value %r is of type %s, which no pause can keep: lost", key, kind
                )
        return kept

    def _in_order(self, results: Sequence[ToolMessage]) -> Sequence[ToolMessage]:
        order = [call.id for call in self.message.tool_calls]
        return tuple(sorted(results, key=lambda each: order.index(each.call_id)))

    def _is_direct(self, results: Sequence[ToolMessage]) -> bool:
        """Whether all results are the answer: one that failed or was denied is not."""
        tools = [self.client.tools.find(each.name) for each in results]
        direct = all(tool is not None and tool.return_direct for tool in tools)
        said = all(not each.is_error and not each.synthetic for each in results)
        return bool(results) and direct and said

    def _fold(self, writes: Sequence[Mapping[str, Any]]) -> None:
        ledger = self.account.ledger
        folded = fold_writes(ledger.values, writes, self.slots)
        ledger.values = folded.values
        for conflict in folded.conflicts:
            logger.warning("state slots: %s", conflict)


async def discard_nested(
    tools: ToolRegistry,
    interrupts: Sequence[Interrupt],
    calls: Sequence[ToolCall],
    conversation_id: str,
) -> None:
    """Let subagents forget what they asked by these calls: nobody will answer."""
    asked = {each.parent_call_id for each in interrupts}
    for call in calls:
        tool = tools.find(call.name) if call.id in asked else None
        if tool is not None and tool.nested is not None:
            await tool.nested.discard(conversation_id, call.id)


def _nested(call_id: str, interrupt: Interrupt) -> Interrupt:
    """A subagent's question, as one of this turn."""
    return evolve(interrupt, id=f"{call_id}/{interrupt.id}", parent_call_id=call_id)


def _storable_options(options: TurnOptions) -> TurnOptions:
    """Without what is no data, as a `RetryPolicy`."""
    given = options.options
    kept = {key: value for key, value in given.items() if is_json(value)}
    if len(kept) == len(given):
        return options
    lost = sorted(given.keys() - kept.keys())
    logger.warning("options %r are no data, which no pause can keep: lost", lost)
    return evolve(options, options=kept)
