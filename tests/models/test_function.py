"""A model from a function: it answers with a text, a message or a whole response."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from agentrt.core.chat import (
    ChatRequest,
    ChatResponse,
    Delta,
    FinishReason,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
)
from agentrt.core.context import Context
from agentrt.core.messages import AssistantMessage, ToolCall
from agentrt.models.base import ChatModel
from agentrt.models.function import FunctionModel, tell
from agentrt.testing import check_chat_model

MESSAGE = AssistantMessage(
    id="own",
    content="hi",
    reasoning="hm",
    tool_calls=(
        ToolCall(id="c", name="add", arguments={"a": 1}),
        ToolCall(id="d", name="add", invalid_arguments="{"),
    ),
)


async def later(request: ChatRequest) -> str:
    await trio.lowlevel.checkpoint()
    return "hi"


ANSWERS: list[Callable[[ChatRequest], Any]] = [
    lambda request: "hi",
    later,
    lambda request: MESSAGE,
    lambda request: ChatResponse(message=MESSAGE),
]


@pytest.mark.parametrize("function", ANSWERS)
async def test_whatever_it_answers_with_the_promises_hold(
    function: Callable[[ChatRequest], str | Awaitable[str]],
) -> None:
    @asynccontextmanager
    async def opened() -> AsyncIterator[ChatModel]:
        yield FunctionModel(function)

    await check_chat_model(opened)


async def test_the_finish_reason_says_whether_tools_are_asked_for() -> None:
    context = Context(conversation_id="c")
    calls = await FunctionModel(lambda request: MESSAGE).call(ChatRequest(), context)
    words = await FunctionModel(lambda request: "hi").call(ChatRequest(), context)
    assert calls.finish_reason is FinishReason.TOOL_USE
    assert words.finish_reason is FinishReason.STOP


def test_a_whole_message_is_told_in_order() -> None:
    told: list[Delta] = []
    tell(MESSAGE, Context(conversation_id="c", on_delta=told.append))
    assert told == [
        ReasoningDelta(text="hm"),
        TextDelta(text="hi"),
        ToolCallDelta(index=0, id="c", name="add", arguments='{"a": 1}'),
        ToolCallDelta(index=1, id="d", name="add", arguments="{"),
    ]


def test_nothing_is_told_where_nobody_listens() -> None:
    tell(MESSAGE, Context(conversation_id="c"))
