"""A model made from any function, for tests and quick integrations."""

import inspect
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeAlias

import trio
from attrs import evolve, frozen

from agentrt.core.chat import (
    ChatRequest,
    ChatResponse,
    FinishReason,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
)
from agentrt.core.context import Context
from agentrt.core.ids import new_id
from agentrt.core.messages import AssistantMessage, text_of_value
from agentrt.models.attempt import one_attempt

__all__ = ["FunctionModel", "tell"]

Answer: TypeAlias = str | AssistantMessage | ChatResponse


@frozen
class FunctionModel:
    """A `ChatModel` that asks `function`, which may be async.

    It answers with a text, a message or a whole response. To a reader who streams,
    the answer comes in one piece.
    """

    function: Callable[[ChatRequest], Answer | Awaitable[Answer]]
    ref: str = "function/model"

    async def call(self, request: ChatRequest, context: Context) -> ChatResponse:
        return await one_attempt(partial(self._ask, request), context, ref=self.ref)

    async def _ask(self, request: ChatRequest, context: Context) -> ChatResponse:
        await trio.lowlevel.checkpoint()
        answer = self.function(request)
        if inspect.isawaitable(answer):
            answer = await answer
        response = _response(answer, context.message_id or new_id())
        tell(response.message, context)
        return response


def _response(answer: Answer, message_id: str) -> ChatResponse:
    if isinstance(answer, ChatResponse):
        return evolve(answer, message=evolve(answer.message, id=message_id))
    if isinstance(answer, str):
        answer = AssistantMessage(id=message_id, content=answer)
    reason = FinishReason.TOOL_USE if answer.tool_calls else FinishReason.STOP
    message = evolve(answer, id=message_id)
    return ChatResponse(message=message, finish_reason=reason)


def tell(message: AssistantMessage, context: Context) -> None:
    """Tell a whole message to the context's sink, if there is one."""
    sink = context.on_delta
    if sink is None:
        return
    if message.reasoning:
        sink(ReasoningDelta(text=message.reasoning))
    if message.text:
        sink(TextDelta(text=message.text))
    for index, call in enumerate(message.tool_calls):
        arguments = call.invalid_arguments or text_of_value(call.arguments)
        sink(
            ToolCallDelta(index=index, id=call.id, name=call.name, arguments=arguments)
        )
