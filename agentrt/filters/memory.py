"""The memory filter: history in front of each model call, and what is new into it."""

from collections.abc import AsyncIterator
from functools import partial

from attrs import evolve

from agentrt.core.messages import AssistantMessage
from agentrt.filters.base import ChatCall, Filter, hook
from agentrt.scopes import finish
from agentrt.stores.base import ChatMemory, WindowedMemory, whole_memory

__all__ = ["memory_filter"]


def memory_filter(memory: ChatMemory) -> Filter:
    """Give the model the conversation so far, and keep what is new.

    What is new is saved before the model is asked, its answer after it. So a call that
    fails or is stopped forgets nothing. An answer without a word and without a call is
    not kept. A memory with a window shows the model that; what is new is told from what
    is known by all that is kept. Register it first.
    """
    whole = whole_memory(memory)
    window = memory.window if isinstance(memory, WindowedMemory) else None

    @hook
    async def chat(call: ChatCall) -> AsyncIterator[None]:
        conversation_id = call.context.conversation_id
        history = await whole.history(conversation_id)
        known = {message.id for message in history}
        new = [each for each in call.request.messages if each.id not in known]
        if new:
            await whole.append(conversation_id, new)
            history = [*history, *new]
        if window is not None:
            history = window(history)
        call.request = evolve(call.request, messages=history)
        yield
        message = call.response.message
        if not is_empty(message):
            # It is whole and was shown: it is kept, also if we are stopped now.
            save = partial(whole.append, conversation_id, [message])
            await finish(save, what="keeping an answer")

    return Filter(name="memory", chat=chat, memory=memory)


def is_empty(message: AssistantMessage) -> bool:
    """Whether there is nothing in it that anyone would miss."""
    return not (message.content or message.tool_calls or message.blocks)
