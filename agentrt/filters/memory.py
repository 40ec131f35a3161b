"""The memory filter: history in front of each model call, and what is new into it."""

from collections.abc import AsyncIterator

import trio
from attrs import evolve

from agentrt.core.messages import AssistantMessage
from agentrt.filters.base import ChatCall, Filter, hook
from agentrt.scopes import CLEANUP_SECONDS
from agentrt.stores.base import ChatMemory

__all__ = ["memory_filter"]


def memory_filter(memory: ChatMemory) -> Filter:
    """Give the model the conversation so far, and keep what is new.

    What is new is saved before the model is asked, its answer after it. So a call that
    fails or is stopped forgets nothing. An answer without a word and without a call is
    not kept. Register it first.
    """

    @hook
    async def chat(call: ChatCall) -> AsyncIterator[None]:
        conversation_id = call.context.conversation_id
        await memory.append(conversation_id, call.request.messages)
        history = await memory.history(conversation_id)
        call.request = evolve(call.request, messages=history)
        yield
        message = call.response.message
        if not is_empty(message):
            # All of it was told, calls included: a stop that comes now is too late.
            with trio.move_on_after(CLEANUP_SECONDS, shield=True):
                await memory.append(conversation_id, [message])

    return Filter(name="memory", chat=chat)


def is_empty(message: AssistantMessage) -> bool:
    """Whether there is nothing in it that anyone would miss."""
    return not (message.content or message.tool_calls or message.blocks)
