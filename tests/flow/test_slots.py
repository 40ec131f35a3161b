"""Parallel tools share state: whoever ends first, the same calls give the same."""

import operator
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from agentrt.agent.agent import Agent
from agentrt.core.context import Context, Slot, fold_writes
from agentrt.core.messages import ToolCall, ToolMessage
from agentrt.filters.base import Filter, IterationCall, hook
from agentrt.filters.tool_guard import tool_guard_filter
from agentrt.testing import ScriptedModel, trio_property
from agentrt.tools.base import ToolResult, tool

SLOTS: Mapping[str, Slot] = {
    "log": Slot(reduce=lambda old, new: [*old, new], init=[]),
    "sum": Slot(reduce=lambda old, new: old + new, init=0),
}
KEYS = ["log", "sum", "last"]

WORK = st.tuples(
    st.floats(0, 10),  # seconds
    st.dictionaries(st.sampled_from(KEYS), st.integers(-9, 9)),
    st.sampled_from(["ok", "error", "raises"]),
)


@given(st.lists(WORK, min_size=1, max_size=6))
@trio_property
async def test_slots_fold_the_same_in_any_order_of_completion(
    work: Sequence[tuple[float, Mapping[str, int], str]],
) -> None:
    """B42: failed calls write nothing, and no call sees what its siblings wrote."""
    seen: list[Any] = []
    states: list[Mapping[str, Any]] = []

    @tool
    async def write(place: int, context: Context) -> ToolResult:
        """Write after a while."""
        seconds, writes, how = work[place]
        await trio.sleep(seconds)
        seen.append(dict(context.values))
        if how == "raises":
            raise ValueError("no")
        return ToolResult(content=str(place), writes=writes, is_error=how == "error")

    @hook
    async def look(call: IterationCall) -> AsyncIterator[None]:
        states.append(dict(call.context.values))
        yield

    batch = [
        ToolCall(id=str(place), name="write", arguments={"place": place})
        for place in range(len(work))
    ]
    agent = Agent(
        model=ScriptedModel([batch, "done"]),
        tools=[write],
        slots=SLOTS,
        filters=[Filter(name="look", iteration=look)],
        values={"sum": 100},
    )
    await agent.run("go", conversation_id="c")
    written = [writes for _, writes, how in work if how == "ok"]
    assert states[1] == fold_writes({"sum": 100}, written, SLOTS).values
    assert seen == [{"sum": 100}] * len(work)
    history = await agent.history("c")
    results = [m.call_id for m in history if isinstance(m, ToolMessage)]
    assert results == [call.id for call in batch]


def test_two_filters_that_fold_one_slot_in_different_ways_are_refused() -> None:
    adding = Filter(name="adding", slots={"k": Slot(reduce=operator.add, init=1)})
    growing = Filter(name="growing", slots={"k": Slot(reduce=operator.mul, init=1)})
    words = "the filters 'adding' and 'growing' fold the slot 'k' in different ways"

    def agent(filters: Sequence[Filter], own: Mapping[str, Slot]) -> Agent:
        return Agent(model=ScriptedModel([]), filters=filters, slots=own)

    with pytest.raises(ValueError, match=words):
        agent([adding, growing], {})
    agent([adding, growing], {"k": Slot(reduce=operator.add)})  # the agent's own wins
    agent([adding, adding], {})
    agent([tool_guard_filter(), tool_guard_filter()], {})
