"""What a tool declares: retries, time limits, results that are the answer."""

from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
import trio
import trio.testing
from attrs import define, evolve, field

from agentrt.agent.agent import Agent
from agentrt.core.context import STOP_KEY
from agentrt.core.errors import ToolError
from agentrt.core.messages import Message, ToolMessage
from agentrt.core.outcomes import Approve, Deny, TurnCompleted, TurnPaused
from agentrt.events.types import Event, ToolReturned
from agentrt.filters.base import Filter, ToolUse, hook
from agentrt.testing import ScriptedModel, call
from agentrt.tools.base import Tool, ToolResult, ToolRetry, tool


@define
class Flaky:
    """Raises what it is told to, one error for each call, then succeeds."""

    errors: list[Exception]
    times: list[float] = field(factory=list)

    async def __call__(self) -> str:
        await trio.lowlevel.checkpoint()
        self.times.append(trio.current_time())
        if self.errors:
            raise self.errors.pop(0)
        return "done"

    def tool(self, **options: Any) -> Tool:
        return tool(name="flaky", description="Flaky.", **options)(self)


def results(history: Sequence[Message]) -> Sequence[str]:
    return [message.text for message in history if isinstance(message, ToolMessage)]


def transient() -> Exception:
    return ToolError("busy", kind="transient")


async def run(made: Tool, *steps: Any, **options: Any) -> tuple[Any, Sequence[str]]:
    """How one turn with this tool ended, and the results that the history has."""
    script = [call(made.name), *(steps or ["ok"])]
    agent = Agent(model=ScriptedModel(script), tools=[made], **options)
    outcome = await agent.run("go", conversation_id="c")
    return outcome, results(await agent.history("c"))


@pytest.mark.parametrize(
    ("errors", "retry", "calls"),
    [
        ([transient(), transient()], True, 3),
        ([transient(), transient(), transient()], True, 3),
        ([ToolError("wrong")], True, 1),
        ([transient()], False, 1),
        ([ConnectionResetError("gone")], True, 2),
        ([transient()] * 4, ToolRetry(max_retries=4), 5),
    ],
)
async def test_only_transient_failures_of_tools_that_allow_it_are_retried(
    errors: list[Exception],
    retry: Any,
    calls: int,
    autojump_clock: trio.testing.MockClock,
) -> None:
    """B46"""
    flaky = Flaky(list(errors))
    await run(flaky.tool(retry=retry))
    assert len(flaky.times) == calls


async def test_a_success_after_a_retry_is_one_result(
    autojump_clock: trio.testing.MockClock,
) -> None:
    flaky = Flaky([transient(), transient()])
    events: list[Event] = []
    agent = Agent(
        model=ScriptedModel([call("flaky"), "ok"]), tools=[flaky.tool(retry=True)]
    )
    outcome = await agent.run("go", conversation_id="c", emit=events.append)
    assert [each.status for each in outcome.calls] == ["ok"]
    assert results(await agent.history("c")) == ["done"]
    assert sum(isinstance(event, ToolReturned) for event in events) == 1
    first, second, third = flaky.times
    assert (second - first, third - second) == pytest.approx((0.2, 0.4))


async def test_a_retry_goes_through_the_filters_again(
    autojump_clock: trio.testing.MockClock,
) -> None:
    passes: list[str] = []

    @hook
    async def count(use: ToolUse) -> AsyncIterator[None]:
        passes.append(use.request.name)
        yield

    flaky = Flaky([transient()])
    await run(flaky.tool(retry=True), filters=[Filter(name="count", tool=count)])
    assert passes == ["flaky", "flaky"]


async def test_a_timeout_is_retried_like_any_transient_failure(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """B47"""
    tries: list[int] = []

    @tool(timeout_seconds=1, retry=True)
    async def slow() -> str:
        """Hang the first time."""
        tries.append(1)
        if len(tries) == 1:
            await trio.sleep_forever()
        await trio.lowlevel.checkpoint()
        return "quick"

    _, told = await run(slow)
    assert told == ["quick"]


async def test_a_stop_during_a_retry_has_no_old_result(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """What the first try said is not true of the second, which was cut."""
    tries: list[int] = []

    @tool(retry=True)
    async def halting() -> ToolResult:
        """Fail for a time, then hang."""
        tries.append(1)
        if len(tries) == 2:
            await trio.sleep_forever()
        await trio.lowlevel.checkpoint()
        return ToolResult(content="busy", is_error=True, failure="transient")

    agent = Agent(model=ScriptedModel([call("halting")]), tools=[halting])
    with trio.move_on_after(5):
        await agent.run("go", conversation_id="c")
    (result,) = results(await agent.history("c"))
    assert result == "This call was cut: the run ended first. It may have had effects."


def direct(name: str, answer: Any) -> Tool:
    @tool(name=name, return_direct=True)
    async def answering() -> Any:
        """Answer."""
        await trio.lowlevel.checkpoint()
        if isinstance(answer, Exception):
            raise answer
        return answer

    return answering


async def test_the_results_of_direct_tools_are_the_answer() -> None:
    """B49"""
    script: list[Any] = [[call("one"), call("two")], "next"]
    model = ScriptedModel(script)
    agent = Agent(model=model, tools=[direct("one", "1"), direct("two", "2")])
    outcome = await agent.run("go", conversation_id="c")
    assert isinstance(outcome, TurnCompleted)
    assert (outcome.text, outcome.returned_direct) == ("1\n2", True)
    assert len(model.requests) == 1
    assert results(await agent.history("c")) == ["1", "2"]
    await agent.run("more", conversation_id="c")
    roles = [type(m).__name__ for m in model.requests[1].messages]
    assert roles == [
        "UserMessage",
        "AssistantMessage",
        "ToolMessage",
        "ToolMessage",
        "UserMessage",
    ]


async def test_a_direct_tool_beside_another_goes_back_to_the_model() -> None:
    script: list[Any] = [[call("one"), call("flaky")], "said by the model"]
    agent = Agent(
        model=ScriptedModel(script), tools=[direct("one", "1"), Flaky([]).tool()]
    )
    outcome: Any = await agent.run("go")
    assert (outcome.text, outcome.returned_direct) == ("said by the model", False)


async def test_a_direct_tool_that_failed_is_no_answer() -> None:
    """X15"""
    outcome, told = await run(direct("one", ValueError("no")), "sorry")
    assert (outcome.text, told) == ("sorry", ["error: no"])


@pytest.mark.parametrize(
    ("decision", "text"), [(Approve(), "1"), (Deny(), "said by the model")]
)
async def test_a_direct_tool_is_the_answer_after_an_approval_too(
    decision: Any, text: str
) -> None:
    """X23, X15"""
    made = evolve(direct("one", "1"), sensitive=True)
    agent = Agent(model=ScriptedModel([call("one"), "said by the model"]), tools=[made])
    paused = await agent.run("go", conversation_id="c")
    assert isinstance(paused, TurnPaused)
    answers = {paused.interrupts[0].id: decision}
    outcome: Any = await agent.resume("c", answers)
    assert outcome.text == text


def stopper() -> Filter:
    @hook
    async def stop(use: ToolUse) -> AsyncIterator[None]:
        yield
        use.response = evolve(use.response, writes={STOP_KEY: "stopper"})

    return Filter(name="stopper", tool=stop)


@pytest.mark.parametrize("errors", [[], [ToolError("wrong")]])
async def test_a_filter_ends_the_turn_when_the_batch_is_over(
    errors: list[Exception],
) -> None:
    filters = [stopper()]
    flaky = Flaky(list(errors)).tool()
    if errors:

        @hook
        async def catch(use: ToolUse) -> AsyncIterator[None]:
            try:
                yield
            except ToolError:
                use.response = ToolResult(content="failed", is_error=True)

        filters.append(Filter(name="catch", tool=catch))
    outcome, told = await run(flaky, filters=filters)
    assert isinstance(outcome, TurnCompleted)
    assert outcome.stopped_by == "stopper"
    assert told == ["failed" if errors else "done"]


async def test_a_turn_that_was_stopped_while_it_paused_ends_when_it_goes_on() -> None:
    asks = evolve(direct("asks", "yes"), sensitive=True, return_direct=False)
    script: list[Any] = [[call("flaky"), call("asks")]]
    agent = Agent(
        model=ScriptedModel(script), tools=[Flaky([]).tool(), asks], filters=[stopper()]
    )
    paused = await agent.run("go", conversation_id="c")
    assert isinstance(paused, TurnPaused)
    outcome = await agent.resume("c", {paused.interrupts[0].id: Deny()})
    assert isinstance(outcome, TurnCompleted)
    assert outcome.stopped_by == "stopper"
