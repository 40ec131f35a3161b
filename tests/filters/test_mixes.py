"""Any mix of filters in any order: layers close in reverse, and all promises hold."""

import logging
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Final

import pytest
import trio
import trio.testing
from attrs import define, field
from hypothesis import given
from hypothesis import strategies as st

from agentrt.agent.agent import Agent
from agentrt.core.chat import ChatRequest
from agentrt.core.errors import ServerError
from agentrt.core.history import find_history_faults
from agentrt.core.messages import AssistantMessage, ToolCall
from agentrt.core.outcomes import (
    Approve,
    TurnCancelled,
    TurnCompleted,
    TurnFailed,
    TurnPaused,
)
from agentrt.events.types import MessageDelta, RunStarted, TerminalEvent
from agentrt.filters.base import Filter, hook
from agentrt.filters.budget import budget_filter
from agentrt.filters.compaction import compaction_filter
from agentrt.filters.logging import chat_logging_filter, tool_logging_filter
from agentrt.filters.normalize import normalize_filter
from agentrt.filters.redaction import hold_filter, redaction_filter
from agentrt.filters.rereading import rereading_filter
from agentrt.filters.safeguard import safeguard_filter
from agentrt.filters.structured_output import structured_output_filter
from agentrt.filters.tool_guard import tool_guard_filter
from agentrt.filters.tool_output import tool_output_filter
from agentrt.filters.tool_search import tool_search_filter
from agentrt.filters.validation import validation_filter
from agentrt.models.budget import Budget
from agentrt.models.function import FunctionModel
from agentrt.runtime.runtime import open_runtime
from agentrt.testing import check_stream, trio_property
from agentrt.tools.base import tool
from tests.flow.worlds import RecordingStore

NUMBER: Final = {
    "type": "object",
    "properties": {"n": {"type": "integer"}},
    "required": ["n"],
}

MAKERS: Final[Mapping[str, Callable[[], Filter]]] = {
    "chat log": chat_logging_filter,
    "tool log": tool_logging_filter,
    "normalize": lambda: normalize_filter(merge=True),
    "redact": lambda: redaction_filter(re.compile(r"sk-\w+")),
    "hold": lambda: hold_filter(lambda text: "draft" not in text),
    "reread": rereading_filter,
    "safeguard": lambda: safeguard_filter(["bomb"]),
    "form": lambda: structured_output_filter(NUMBER),
    "guard": lambda: tool_guard_filter(repeat_limit=1, stop_limit=3, disable_limit=2),
    "cut": lambda: tool_output_filter(400),
    "search": lambda: tool_search_filter(always=["add"]),
    "compact": lambda: compaction_filter(1_000, summarizer=FunctionModel(_short)),
    "budget": lambda: budget_filter(Budget(10**6, calls=10**3, seconds=10**6)),
    "check": lambda: validation_filter(lambda answer: _no_draft(answer.text)),
}


def _short(request: ChatRequest) -> str:
    return "short"


def _no_draft(text: str) -> Sequence[str]:
    return ["it is a draft"] if "draft" in text else []


@pytest.fixture(autouse=True)
def _quiet() -> None:
    logging.getLogger("agentrt").setLevel(logging.CRITICAL)


@define
class Log:
    """What probes saw: by task, since tools run side by side."""

    stacks: dict[Any, list[str]] = field(factory=dict)
    passes: list[str] = field(factory=list)
    faults: list[str] = field(factory=list)

    def probe(self, name: str) -> Filter:
        def around(kind: str) -> Any:
            @hook
            async def layer(call: Any) -> AsyncIterator[None]:
                mine = f"{name} {kind}"
                stack = self.stacks.setdefault(trio.lowlevel.current_task(), [])
                stack.append(mine)
                self.passes.append(mine)
                try:
                    yield
                finally:
                    if stack.pop() != mine:
                        self.faults.append(f"{mine} closed out of order")

            return layer

        return Filter(
            name=name,
            turn=around("turn"),
            iteration=around("iteration"),
            chat=around("chat"),
            tool=around("tool"),
        )


def _model(how: str) -> FunctionModel:
    """Calls tools twice, then a draft, then what was wanted; or ends otherwise."""
    rounds = iter(["calls", how, "draft"])

    async def answer(request: ChatRequest) -> Any:
        match next(rounds, "final"):
            case "calls" | "pause" as what:
                names = ["add", "fail", "add", "nothing"]
                names += ["ask"] if what == "pause" else []
                calls = [ToolCall(id="", name=name) for name in names]
                text = "I look. sk-secret"
                return AssistantMessage(id="", content=text, tool_calls=tuple(calls))
            case "error":
                raise ServerError("down")
            case "cut":
                await trio.sleep_forever()
            case "draft":
                return "a draft"
        return '{"n": 1}'

    return FunctionModel(answer)


@tool(sensitive=True)
async def ask() -> str:
    """Ask."""
    await trio.lowlevel.checkpoint()
    return "asked"


@tool
async def add() -> str:
    """Add."""
    await trio.lowlevel.checkpoint()
    return "x" * 900


@tool
async def fail() -> str:
    """Fail."""
    await trio.lowlevel.checkpoint()
    raise ValueError("no")


HOW: Final = st.sampled_from(["calls", "error", "cut", "pause"])


@given(st.permutations(sorted(MAKERS)), st.integers(0, len(MAKERS)), HOW, st.data())
@trio_property
async def test_any_mix_in_any_order_closes_in_reverse(
    names: list[str], count: int, how: str, data: st.DataObject
) -> None:
    """Also around a model that fails, a turn that is stopped, and a pause."""
    log, store = Log(), RecordingStore()
    filters = [MAKERS[name]() for name in names[:count]]
    for probe in ("outer", "inner"):
        place = data.draw(st.integers(0, len(filters)))
        filters.insert(place, log.probe(probe))
    agent = Agent(model=_model(how), tools=[add, fail, ask], filters=filters)
    async with open_runtime(agent, events=store) as runtime:
        run = await runtime.start_run("c", "add a number")
        await trio.testing.wait_all_tasks_blocked()
        runtime.stop("c")
        outcome = await run.wait()
        if isinstance(outcome, TurnPaused):
            assert not any(log.stacks.values()), "a layer was left open"
            answers = {each.id: Approve() for each in outcome.interrupts}
            outcome = await (await runtime.resume("c", answers)).wait()
    ends = {"error": TurnFailed, "cut": TurnCancelled}
    is_stopped = isinstance(outcome, TurnCompleted) and outcome.stopped_by
    assert isinstance(outcome, ends.get(how, TurnCompleted)) or is_stopped
    assert log.faults == []
    assert not any(log.stacks.values()), "a layer was left open"
    kinds = {name.partition(" ")[2] for name in log.passes}
    assert kinds == {"turn", "iteration", "chat", "tool"}
    check_stream(store.everything)
    shown = "".join(
        x.event.text for x in store.everything if isinstance(x.event, MessageDelta)
    )
    assert ("sk-secret" in shown) == ("redact" not in names[:count])
    events = [envelope.event for envelope in store.everything]
    starts = sum(isinstance(event, RunStarted) for event in events)
    assert starts == sum(isinstance(event, TerminalEvent) for event in events)
    assert find_history_faults(await agent.history("c")) == []
