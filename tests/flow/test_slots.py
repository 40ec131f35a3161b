"""Parallel tools share state: whoever ends first, the same calls give the same."""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import trio
from hypothesis import given
from hypothesis import strategies as st

from agentrt.agent.agent import Agent
from agentrt.core.context import Context, Slot, fold_writes
from agentrt.core.messages import ToolCall, ToolMessage
from agentrt.filters.base import Filter, IterationCall, hook
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
