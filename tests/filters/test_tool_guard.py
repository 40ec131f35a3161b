"""The tool guard: what counts, when the model is advised, refused, stopped."""

from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import pytest
import trio
import trio.testing
from attrs import define, field, frozen
from hypothesis import given
from hypothesis import strategies as st

from agentrt.agent.agent import Agent
from agentrt.core.errors import ToolError
from agentrt.core.messages import Message, ToolCall, ToolMessage
from agentrt.core.outcomes import Approve, Deny, TurnCompleted, TurnFailed, TurnPaused
from agentrt.filters.base import Filter, ToolUse, hook
from agentrt.filters.tool_guard import FAILURES_KEY, fingerprint, tool_guard_filter
from agentrt.stores.in_memory import InMemoryChatMemory, InMemoryPauseStore
from agentrt.testing import ScriptedModel, call, trio_property
from agentrt.testing.strategies import json_objects
from agentrt.tools.base import Tool, ToolResult, tool

ADVICE = "with the same arguments. Do not make it again as it is"
SHUT = "is shut for the rest of this turn"


@define
class Flaky:
    """A tool `work` that fails while `fails` says so of its argument."""

    fails: Any = field(default=lambda what: what != "good")
    ran: list[str] = field(factory=list)
    error: Exception = field(factory=lambda: ToolError("no"))

    def tool(self, name: str = "work", **options: Any) -> Tool:
        async def work(what: str) -> str:
            """Work on something."""
            await trio.lowlevel.checkpoint()
            self.ran.append(what)
            if self.fails(what):
                raise self.error
            return "done"

        return tool(name=name, **options)(work)


def results(history: Sequence[Message]) -> Sequence[ToolMessage]:
    return [message for message in history if isinstance(message, ToolMessage)]


def work(what: str = "bad", name: str = "work") -> ToolCall:
    return call(name, what=what)


async def turn(
    *steps: Any,
    flaky: Flaky | None = None,
    filters: Sequence[Filter] = (),
    **limits: Any,
) -> tuple[Any, Sequence[ToolMessage]]:
    """How a turn with these calls ended, and the results."""
    agent = Agent(
        model=ScriptedModel([*steps, "over"]),
        tools=[(flaky or Flaky()).tool()],
        filters=[tool_guard_filter(**limits), *filters],
        max_iterations=50,
    )
    outcome = await agent.run("go", conversation_id="c")
    return outcome, results(await agent.history("c"))


async def test_a_call_that_keeps_failing_gets_advice() -> None:
    _, told = await turn(*[work()] * 3)
    assert [ADVICE in message.text for message in told] == [False, False, True]
    assert told[2].text.startswith("error: no\n\nThis call has failed 3 times")
    assert all(message.is_error for message in told)


async def test_other_arguments_are_another_call() -> None:
    _, told = await turn(work("a"), work("b"), work("c"))
    assert not any(ADVICE in message.text for message in told)


async def test_a_tool_that_keeps_failing_is_shut_and_its_schema_stays() -> None:
    flaky = Flaky()
    steps = [work(what) for what in "abcde"]
    model = ScriptedModel([*steps, "over"])
    agent = Agent(model=model, tools=[flaky.tool()], filters=[tool_guard_filter()])
    await agent.run("go", conversation_id="c")
    told = results(await agent.history("c"))
    assert flaky.ran == ["a", "b", "c", "d"]
    assert [SHUT in message.text for message in told] == [False] * 4 + [True]
    assert {tuple(s.name for s in r.tools) for r in model.requests} == {("work",)}


async def test_a_shut_tool_is_open_again_in_the_next_turn() -> None:
    flaky = Flaky()
    model = ScriptedModel([*(work(w) for w in "abcd"), "over", work("e"), "over"])
    agent = Agent(model=model, tools=[flaky.tool()], filters=[tool_guard_filter()])
    await agent.run("go", conversation_id="c")
    await agent.run("again", conversation_id="c")
    assert flaky.ran == ["a", "b", "c", "d", "e"]


async def test_a_call_that_is_repeated_to_the_end_ends_the_turn() -> None:
    """Though its tool was shut at the fourth failure: the refusals count."""
    flaky = Flaky()
    outcome, told = await turn(*[work()] * 7, flaky=flaky)
    assert isinstance(outcome, TurnCompleted)
    assert outcome.stopped_by == "tool_guard"
    assert (len(told), len(flaky.ran)) == (6, 4)


async def test_one_success_clears_the_call_and_the_tool() -> None:
    flaky = Flaky()
    flaky.fails = lambda what: len(flaky.ran) % 3 != 0
    outcome, told = await turn(*[work()] * 12, flaky=flaky)
    assert outcome.stopped_by == ""
    assert len(flaky.ran) == 12
    assert not any(ADVICE in message.text or SHUT in message.text for message in told)


async def test_parallel_calls_all_count() -> None:
    """They see the same counts, and do not overwrite each other's."""
    flaky = Flaky()
    outcome, told = await turn([work("a"), work("b"), work("a")], work("a"), work("c"))
    assert ADVICE in told[3].text
    assert SHUT in told[4].text
    outcome, told = await turn([work()] * 6, [work()] * 2, flaky=flaky)
    assert (outcome.stopped_by, len(flaky.ran)) == ("tool_guard", 6)


async def test_two_calls_that_end_the_turn_at_once_are_no_conflict(
    caplog: pytest.LogCaptureFixture,
) -> None:
    await turn([work("a"), work("b")], stop_limit=1, repeat_limit=1)
    assert caplog.records == []


async def test_error_results_count_like_exceptions() -> None:
    @hook
    async def answer(use: ToolUse) -> AsyncIterator[None]:
        use.response = ToolResult(content="full", is_error=True, writes={"x": 1})
        yield

    inner = Filter(name="answer", tool=answer)
    _, told = await turn(*[work()] * 3, filters=[inner])
    assert told[2].text.startswith("full\n\nThis call has failed 3 times")


async def test_advice_is_a_part_where_the_result_has_parts() -> None:
    @hook
    async def answer(use: ToolUse) -> AsyncIterator[None]:
        use.response = ToolResult(content=(), is_error=True)
        yield

    inner = Filter(name="answer", tool=answer)
    _, told = await turn(work(), filters=[inner], repeat_limit=1)
    assert [ADVICE in part.text for part in told[0].content] == [True]  # type: ignore[union-attr]


async def test_a_call_that_is_retried_counts_once(
    autojump_clock: trio.testing.MockClock,
) -> None:
    flaky = Flaky(error=ToolError("busy", kind="transient"))
    agent = Agent(
        model=ScriptedModel([work(), work(), "over"]),
        tools=[flaky.tool(retry=True)],
        filters=[tool_guard_filter(repeat_limit=3)],
    )
    await agent.run("go", conversation_id="c")
    told = results(await agent.history("c"))
    assert len(flaky.ran) == 6
    assert not any(ADVICE in message.text for message in told)
    assert told[1].writes[FAILURES_KEY]["failed"]


async def test_a_failure_that_ends_the_run_does_so() -> None:
    flaky = Flaky(error=ValueError("broken"))
    agent = Agent(
        model=ScriptedModel([work(), "over"]),
        tools=[flaky.tool(fatal=True)],
        filters=[tool_guard_filter()],
    )
    with pytest.raises(ValueError, match="broken"):
        await agent.run("go")


async def test_what_is_denied_or_cut_does_not_count() -> None:
    flaky = Flaky()
    agent = Agent(
        model=ScriptedModel([*[work()] * 6, "over"]),
        tools=[flaky.tool(sensitive=True)],
        filters=[tool_guard_filter(repeat_limit=1, stop_limit=2, disable_limit=2)],
    )
    outcome: Any = await agent.run("go", conversation_id="c")
    for _ in range(5):
        outcome = await agent.resume("c", {outcome.interrupts[0].id: Deny()})
    assert isinstance(outcome, TurnPaused)
    told = results(await agent.history("c"))
    assert all(message.writes == {} for message in told)


async def test_counts_survive_a_pause_and_a_new_process() -> None:
    memory, pauses = InMemoryChatMemory(), InMemoryPauseStore()
    flaky = Flaky()

    def agent(*steps: Any) -> Agent:
        return Agent(
            model=ScriptedModel(steps),
            tools=[flaky.tool(), flaky.tool("ask", sensitive=True)],
            filters=[tool_guard_filter()],
            memory=memory,
            pauses=pauses,
        )

    steps = [work(), work(), [work("x"), work("good", "ask")]]
    paused = await agent(*steps).run("go", conversation_id="c")
    assert isinstance(paused, TurnPaused)
    second = agent(work(), work("y"), "over")
    await second.resume("c", {paused.interrupts[0].id: Approve()})
    told = results(await second.history("c"))
    assert "This call has failed 3 times" in told[4].text
    assert SHUT in told[5].text


async def test_limits_may_be_off() -> None:
    flaky = Flaky()
    outcome, told = await turn(
        *[work()] * 10,
        flaky=flaky,
        repeat_limit=None,
        stop_limit=None,
        disable_limit=None,
    )
    assert (outcome.text, len(flaky.ran)) == ("over", 10)
    assert {message.text for message in told} == {"error: no"}


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"repeat_limit": 0}, "repeat_limit is 0, expected 1 or more, or None"),
        ({"stop_limit": 0}, "stop_limit is 0"),
        ({"disable_limit": -1}, "disable_limit is -1"),
        ({"stop_limit": 2}, r"stop_limit is 2, below repeat_limit \(3\)"),
    ],
)
def test_bad_limits_fail_at_once(limits: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tool_guard_filter(**limits)


@given(json_objects())
def test_a_fingerprint_knows_no_order_and_every_difference(
    arguments: Mapping[str, Any],
) -> None:
    same = call("work")
    one = ToolCall(id="1", name="work", arguments=arguments)
    turned = dict(reversed(list(arguments.items())))
    assert fingerprint(one) == fingerprint(
        ToolCall(id="2", name="work", arguments=turned)
    )
    more = ToolCall(id="1", name="work", arguments={**arguments, "a new key": 1})
    assert fingerprint(one) != fingerprint(more)
    assert (fingerprint(one) == fingerprint(same)) == (arguments == {})


@frozen
class Try:
    name: str
    what: str
    fails: bool


TRIES = st.builds(
    Try,
    st.sampled_from("ab"),
    st.sampled_from("xy"),
    st.sampled_from([True, True, False]),
)
BATCHES = st.lists(st.lists(TRIES, min_size=1, max_size=3), min_size=1, max_size=8)


@define
class Model:
    """The guard in plain words: what becomes of batch after batch."""

    repeat: int
    stop: int
    disable: int
    calls: Counter[tuple[str, str]] = field(factory=Counter)
    tools: Counter[str] = field(factory=Counter)

    def run(self, batches: Sequence[Sequence[Try]]) -> tuple[Sequence[str], bool]:
        """Whether each call succeeds, fails or is refused, "+" with advice; whether the
        turn is stopped."""
        told: list[str] = []
        for batch in batches:
            before_calls, before_tools = self.calls.copy(), self.tools.copy()
            is_last = False
            for each in batch:
                key = (each.name, each.what)
                refused = before_tools[each.name] >= self.disable
                count = before_calls[key] + 1
                if not refused and not each.fails:
                    told.append("ok")
                    self.calls[key] = self.tools[each.name] = 0
                    continue
                advice = "+" if count >= self.repeat else ""
                told.append(("refused" if refused else "failed") + advice)
                is_last = is_last or count >= self.stop
                self.calls[key] += 1
                self.tools[each.name] += 1
            if is_last:
                return told, True
        return told, False


def as_word(message: ToolMessage) -> str:
    if not message.is_error:
        return "ok"
    word = "refused" if SHUT in message.text else "failed"
    return word + ("+" if ADVICE in message.text else "")


@given(BATCHES, st.integers(1, 3), st.integers(0, 2), st.integers(1, 4))
@trio_property
async def test_a_turn_goes_as_the_counts_say(
    batches: Sequence[Sequence[Try]], repeat: int, more: int, disable: int
) -> None:
    plan = {
        f"{i}-{j}": each.fails
        for i, batch in enumerate(batches)
        for j, each in enumerate(batch)
    }

    def make(name: str) -> Tool:
        async def work(what: str) -> str:
            """Work."""
            raise AssertionError

        return tool(name=name)(work)

    @hook
    async def play(use: ToolUse) -> AsyncIterator[None]:
        fails = plan[use.request.call.id]
        use.response = ToolResult(content="x", is_error=fails)
        yield

    steps = [
        [call(t.name, id=f"{i}-{j}", what=t.what) for j, t in enumerate(batch)]
        for i, batch in enumerate(batches)
    ]
    guard = tool_guard_filter(
        repeat_limit=repeat, stop_limit=repeat + more, disable_limit=disable
    )
    agent = Agent(
        model=ScriptedModel([*steps, "over"]),
        tools=[make("a"), make("b")],
        filters=[guard, Filter(name="play", tool=play)],
    )
    outcome = await agent.run("go", conversation_id="c")
    assert not isinstance(outcome, TurnFailed)
    told, is_stopped = Model(repeat, repeat + more, disable).run(batches)
    words = [as_word(message) for message in results(await agent.history("c"))]
    assert words == told
    assert (outcome.stopped_by == "tool_guard") == is_stopped  # type: ignore[union-attr]
