"""What a turn did is kept as it was: through pauses, slow stores, cuts and edits."""

from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
import trio
import trio.testing
from attrs import define, evolve

from agentrt.agent.agent import Agent
from agentrt.agent.approval import Ruling, Verdict
from agentrt.core.chat import ChatResponse
from agentrt.core.context import Context
from agentrt.core.history import find_history_faults
from agentrt.core.messages import AssistantMessage, Message, ToolMessage
from agentrt.core.outcomes import Approve, TurnCompleted, TurnPaused
from agentrt.filters.base import ChatCall, Filter, ToolRequest, ToolUse, hook
from agentrt.stores.in_memory import InMemoryChatMemory
from agentrt.testing import Say, ScriptedModel, call
from agentrt.tools.base import ToolResult, tool


@tool
async def count(context: Context) -> ToolResult:
    """Add one to the counter."""
    await trio.lowlevel.checkpoint()
    number = context.values["counter"] + 1
    return ToolResult(content=str(number), writes={"counter": number})


@tool(sensitive=True)
async def delete(path: str) -> str:
    """Delete a file."""
    await trio.lowlevel.checkpoint()
    return f"deleted {path}"


def results(history: Sequence[Message]) -> Sequence[str]:
    return [message.text for message in history if isinstance(message, ToolMessage)]


async def test_state_that_tools_wrote_is_there_after_a_pause() -> None:
    steps: list[Any] = [call("count"), call("delete", path="/x"), call("count"), "done"]
    agent = Agent(
        model=ScriptedModel(steps), tools=[count, delete], values={"counter": 4}
    )
    paused = await agent.run("go", conversation_id="c")
    assert isinstance(paused, TurnPaused)
    await agent.resume("c", {paused.interrupts[0].id: Approve()})
    assert results(await agent.history("c")) == ["5", "deleted /x", "6"]


async def test_values_that_are_given_anew_win_over_those_of_a_pause() -> None:
    steps: list[Any] = [call("count"), call("delete", path="/x"), call("count"), "done"]
    agent = Agent(
        model=ScriptedModel(steps), tools=[count, delete], values={"counter": 4}
    )
    paused = await agent.run("go", conversation_id="c")
    assert isinstance(paused, TurnPaused)
    answers = {paused.interrupts[0].id: Approve()}
    await agent.resume("c", answers, values={"counter": 100})
    assert results(await agent.history("c"))[-1] == "101"


@define
class SlowMemory(InMemoryChatMemory):
    """Takes a minute for each append."""

    seconds: float = 60

    async def append(self, conversation_id: str, messages: Sequence[Message]) -> None:
        await trio.sleep(self.seconds)
        await InMemoryChatMemory.append(self, conversation_id, messages)


def answering() -> Filter:
    """Answers in the model's place once, with a call; its ids are no use."""
    calls = [call("count")]
    answers = [AssistantMessage(id="", content="I count.", tool_calls=calls)]

    @hook
    async def chat(call: ChatCall) -> AsyncIterator[None]:
        if answers:
            call.response = ChatResponse(message=answers.pop())
        yield

    return Filter(name="answering", chat=chat)


@pytest.mark.parametrize("answered_by", ["model", "filter"])
@pytest.mark.parametrize("cut_after", [1, 3, 5])
async def test_what_was_said_is_kept_once_and_with_results_wherever_it_is_cut(
    answered_by: str, cut_after: float, autojump_clock: trio.testing.MockClock
) -> None:
    """Before, while and after the answer is written down, whoever gave it."""
    steps: list[Any] = [Say(text="I count.", calls=(call("count"),))]
    filters = [answering()] if answered_by == "filter" else []
    agent = Agent(
        model=ScriptedModel([*steps, "done"]),
        tools=[count],
        values={"counter": 0},
        filters=filters,
        memory=SlowMemory(seconds=2),
    )
    with trio.move_on_after(cut_after):
        await agent.run("go", conversation_id="c")
    history = await agent.history("c")
    assert find_history_faults(history) == []
    assert all(message.id for message in history)
    said = [m for m in history if isinstance(m, AssistantMessage)]
    assert [m.text for m in said] == ["I count."] * len(said)
    assert len(said) <= 1
    if cut_after > 2:
        assert [len(m.tool_calls) for m in said] == [1]


async def test_a_slow_memory_loses_nothing(
    autojump_clock: trio.testing.MockClock,
) -> None:
    agent = Agent(
        model=ScriptedModel([call("count"), "done"]),
        tools=[count],
        values={"counter": 0},
        memory=SlowMemory(),
    )
    outcome = await agent.run("go", conversation_id="c")
    assert isinstance(outcome, TurnCompleted)
    texts = [message.text for message in await agent.history("c")]
    assert texts == ["go", "", "1", "done"]


async def test_a_result_is_kept_though_a_hook_around_its_tool_is_cut(
    autojump_clock: trio.testing.MockClock,
) -> None:
    @hook
    async def dawdle(call: ToolUse) -> AsyncIterator[None]:
        yield
        await trio.sleep(60)

    agent = Agent(
        model=ScriptedModel([call("count")]),
        tools=[count],
        values={"counter": 6},
        filters=[Filter(name="dawdle", tool=dawdle)],
    )
    with trio.move_on_after(1):
        await agent.run("go", conversation_id="c")
    assert results(await agent.history("c")) == ["7"]


async def test_a_tool_that_a_filter_hid_from_the_model_does_not_run() -> None:
    """X11."""

    @hook
    async def hide(call: ChatCall) -> AsyncIterator[None]:
        kept = [spec for spec in call.request.tools if spec.name != "delete"]
        call.request = evolve(call.request, tools=kept)
        yield

    agent = Agent(
        model=ScriptedModel([call("delete", path="/x"), "done"]),
        tools=[count, delete],
        filters=[Filter(name="hide", chat=hide)],
    )
    outcome = await agent.run("go", conversation_id="c")
    assert isinstance(outcome, TurnCompleted)
    text = "error: there is no tool 'delete'; there are 'count'"
    assert results(await agent.history("c")) == [text]


async def test_an_approval_with_edited_arguments_does_not_pass_a_policy() -> None:
    def not_the_root(request: ToolRequest, context: Context) -> Ruling:
        is_root = request.call.arguments.get("path") == "/"
        return Ruling(Verdict.FORBID if is_root else Verdict.ALLOW, "not the root")

    agent = Agent(
        model=ScriptedModel([call("delete", path="/x"), "done"]),
        tools=[delete],
        approval=not_the_root,
    )
    paused = await agent.run("go", conversation_id="c")
    assert isinstance(paused, TurnPaused)
    answers = {paused.interrupts[0].id: Approve(arguments={"path": "/"})}
    await agent.resume("c", answers)
    assert results(await agent.history("c")) == [
        "This call is not allowed: not the root"
    ]
