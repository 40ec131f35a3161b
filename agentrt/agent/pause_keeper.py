"""The life of a pause: saved, confirmed, taken once, or given up with truthful results.

What waits beneath a call, in subagents, goes the same way as the pause above it.
"""

from collections.abc import Mapping, Sequence
from functools import partial

from attrs import define, field

from agentrt.agent.gate import Gate
from agentrt.agent.pause import check_answers, find_snapshot_faults
from agentrt.agent.second_half import discard_nested
from agentrt.core import history
from agentrt.core.context import Context
from agentrt.core.errors import NotPausedError, SnapshotError
from agentrt.core.messages import ToolCall, ToolMessage
from agentrt.core.outcomes import Decision, Interrupt, PauseSnapshot
from agentrt.events.types import EventSink, ToolReturned
from agentrt.filters.base import Resumption
from agentrt.scopes import finish
from agentrt.stores.base import ChatMemory, PauseStore
from agentrt.tools.registry import ToolRegistry

__all__ = ["STOPPED", "PauseKeeper", "tell_results", "without_answer"]

STOPPED = "the run ended first"


@define(kw_only=True)
class PauseKeeper:
    """The pauses of one agent's conversations."""

    store: PauseStore
    memory: ChatMemory | None
    tools: ToolRegistry
    gate: Gate
    _pausing: dict[tuple[str, str], PauseSnapshot] = field(
        factory=dict, init=False, repr=False
    )
    """By conversation and run: saved by turns that have not ended yet."""

    def confirm(self, context: Context) -> None:
        """The run ended as paused: its pause stays."""
        self._pausing.pop(_key(context), None)

    async def abandon(self, context: Context) -> None:
        """Give up a pause of this run, which ended in another way after all."""
        snapshot = self._pausing.pop(_key(context), None)
        if snapshot is None:
            return
        text = history.NOT_STARTED.format(why=STOPPED)
        results = without_answers(snapshot, text)
        if context.emit is not None:
            tell_results(results, context.emit)
        await self._give_up(snapshot, results)

    async def load(self, conversation_id: str) -> PauseSnapshot | None:
        """A pause that a turn can go on from; None if none is there.

        Raises:
            SnapshotError: something else is stored.
        """
        snapshot = await self.store.load(conversation_id)
        if snapshot is None:
            return None
        faults = find_snapshot_faults(snapshot, conversation_id)
        if faults:
            raise SnapshotError(conversation_id, "; ".join(faults))
        return snapshot

    async def take(
        self, conversation_id: str, answers: Mapping[str, Decision]
    ) -> Resumption:
        """Check the answers, then take the pause, at most once.

        Raises:
            NotPausedError: nothing waits, or somebody else has taken it.
            SnapshotError: no turn can go on from what is stored.
            AnswerError: the answers do not fit; the pause stays as it was.
        """
        snapshot = await self.load(conversation_id)
        if snapshot is None:
            raise NotPausedError(conversation_id)
        check_answers(snapshot.interrupts, answers, partial(self.fault, snapshot))
        taken = await self.store.take(conversation_id, snapshot.id)
        if taken is None:
            raise NotPausedError(conversation_id)
        return Resumption(snapshot=taken, answers=answers)

    async def discard(self, conversation_id: str) -> bool:
        """Give up a pause that nobody will answer; False if there is none."""
        try:
            snapshot = await self.load(conversation_id)
        except SnapshotError:
            # Nothing in it is to be trusted: the next turn closes its calls.
            await self.store.discard(conversation_id)
            return True
        if snapshot is not None:
            results = without_answers(snapshot, history.ABANDONED)
            await self._give_up(snapshot, results)
        return snapshot is not None

    async def forget(self, conversation_id: str) -> None:
        """Drop a pause with all that waits beneath it, and the history."""
        try:
            snapshot = await self.load(conversation_id)
        except SnapshotError:
            snapshot = None
        if snapshot is not None:
            calls = snapshot.message.tool_calls
            await self.discard_nested(snapshot.interrupts, calls, conversation_id)
        await self.store.discard(conversation_id)
        if self.memory is not None:
            await self.memory.clear(conversation_id)

    async def _give_up(
        self, snapshot: PauseSnapshot, results: Sequence[ToolMessage]
    ) -> None:
        """Taken first: what somebody else has answered is not given up any more."""
        taken: list[PauseSnapshot] = []

        async def save() -> None:
            if not taken:
                given = await self.store.take(snapshot.conversation_id, snapshot.id)
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
        await discard_nested(self.tools, interrupts, calls, conversation_id)

    def fault(
        self, snapshot: PauseSnapshot, interrupt: Interrupt, call: ToolCall
    ) -> str | None:
        """What is wrong with a call that a person edited; None if nothing is."""
        if not interrupt.parent_call_id:
            return self.gate.fault(call)
        names = {each.id: each.name for each in snapshot.message.tool_calls}
        tool = self.tools.find(names.get(interrupt.parent_call_id, ""))
        if tool is None or tool.nested is None:
            return "there is no tool any more that runs this subagent"
        return tool.nested.fault(call)

    async def save(self, snapshot: PauseSnapshot) -> None:
        """Save a pause; until the turn has ended it may still be given up."""
        await self.store.save(snapshot)
        self._pausing[snapshot.conversation_id, snapshot.run_id] = snapshot


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
