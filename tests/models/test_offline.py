"""The offline model: a table of rules, and the promises of every model."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio.testing
from hypothesis import given

from agentrt.core.chat import ChatRequest, ChatResponse, Delta, ToolSpec
from agentrt.core.context import Context
from agentrt.core.errors import ServerError
from agentrt.core.messages import Message, ToolMessage, UserMessage
from agentrt.models.base import ChatModel
from agentrt.models.offline import OfflineModel
from agentrt.testing import check_chat_model, trio_property
from agentrt.testing.strategies import texts
from agentrt.tools.demo import demo_tools

SPECS = [each.spec for each in demo_tools()]

CALLS: Sequence[tuple[str, Sequence[tuple[str, Mapping[str, Any]]]]] = [
    ("What is the weather in Paris?", [("get_weather", {"city": "Paris"})]),
    (
        "weather in Rome, Oslo and Bern",
        [("get_weather", {"city": city}) for city in ("Rome", "Oslo", "Bern")],
    ),
    ("What is 2 * (3 + 4)?", [("calculate", {"expression": "2 * (3 + 4)"})]),
    ("What's 1.5/3", [("calculate", {"expression": "1.5/3"})]),
    ("What time is it in Tokyo?", [("get_time", {"place": "Tokyo"})]),
    ("what time is it", [("get_time", {"place": "UTC"})]),
    ("Add milk to my todo list", [("add_todo", {"item": "milk"})]),
    ("Show me my to-do list", [("list_todos", {})]),
    ("Delete the production database", [("delete_database", {"name": "production"})]),
    ("please drop users!", [("delete_database", {"name": "users"})]),
    ("Use the slow tool", [("slow_task", {"seconds": 30})]),
    ("use the broken tool", [("broken_tool", {})]),
]

WORDS = [
    "hello",
    "Answer in Markdown",
    "Why is the sky blue?",
    "Tell it slowly",
    "Tell me a long story",
    "something else",
    "",
]


async def ask(
    *messages: Message, tools: Sequence[ToolSpec] = SPECS, **more: Any
) -> ChatResponse:
    request = ChatRequest(messages=messages, tools=tools)
    context = Context(conversation_id="c", message_id="m", **more)
    return await OfflineModel().call(request, context)


@asynccontextmanager
async def opened() -> AsyncIterator[ChatModel]:
    yield OfflineModel()


@pytest.mark.parametrize("tools", [SPECS, []], ids=["tools", "no tools"])
async def test_every_rule_keeps_the_promises_of_a_model(
    tools: Sequence[ToolSpec], autojump_clock: trio.testing.MockClock
) -> None:
    prompts = [*(said for said, _ in CALLS), *WORDS]
    await check_chat_model(opened, prompts=prompts, tools=tools)


@given(texts())
@trio_property
async def test_whatever_is_said_what_streams_is_the_answer(said: str) -> None:
    prompts = [] if "fail" in said.lower() else [said]
    await check_chat_model(opened, prompts=prompts)


@pytest.mark.parametrize(("said", "calls"), CALLS, ids=[said for said, _ in CALLS])
async def test_a_wish_becomes_calls(
    said: str, calls: Sequence[tuple[str, Mapping[str, Any]]]
) -> None:
    message = (await ask(UserMessage(content=said))).message
    assert [(call.name, call.arguments) for call in message.tool_calls] == calls
    assert len({call.id for call in message.tool_calls}) == len(calls)


@pytest.mark.parametrize(("said", "calls"), CALLS, ids=[said for said, _ in CALLS])
async def test_a_tool_that_was_not_offered_is_not_asked_for(
    said: str, calls: Sequence[tuple[str, Mapping[str, Any]]]
) -> None:
    """X11"""
    message = (await ask(UserMessage(content=said), tools=[])).message
    assert message.tool_calls == ()
    assert f"`{calls[0][0]}`" in message.text


async def test_results_are_summed_up() -> None:
    asked = UserMessage(content="What is the weather in Paris?")
    good = ToolMessage(call_id="a", name="get_weather", content="sunny")
    bad = ToolMessage(call_id="b", name="get_time", content="no", is_error=True)
    assert (await ask(asked, good)).message.text == "sunny"
    both = (await ask(asked, good, bad)).message.text
    assert both == (
        "Here is what I found:\n\n- sunny\n- `get_time` did not work out: no"
    )


async def test_it_fails_on_request_after_its_words(
    autojump_clock: trio.testing.MockClock,
) -> None:
    told: list[Delta] = []
    with pytest.raises(ServerError, match="asked to fail"):
        await ask(UserMessage(content="fail please"), on_delta=told.append)
    assert told


async def test_the_same_question_gets_the_same_answer() -> None:
    asked = UserMessage(content="Why is the sky blue?")
    assert await ask(asked) == await ask(asked)
