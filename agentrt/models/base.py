"""The contract of a model: one logical call."""

from typing import Protocol

from agentrt.core.chat import ChatRequest, ChatResponse
from agentrt.core.context import Context

__all__ = ["ChatModel"]


class ChatModel(Protocol):
    """One logical model call, over whatever attempts it takes.

    Every implementation promises:

    * It streams if `context.on_delta` is a sink: all deltas are told before the
      response is returned, and their joined text is the response's. Without a sink
      nothing is told. The response is whole in both cases.
    * Nothing is sent twice after the first delta was told.
    * The answer's id is `context.message_id`, or a new one where that is "".
    * Calls in the answer stand in the order of their deltas' `index`.
    * What fails raises a `ModelError`; cancellation passes through.
    * The call is a checkpoint. Several may be in flight; they share no state that
      a caller could see.

    `agentrt.testing.check_chat_model` tests these promises.
    """

    @property
    def ref(self) -> str:
        """`vendor/model-id`."""
        ...

    async def call(self, request: ChatRequest, context: Context) -> ChatResponse: ...
