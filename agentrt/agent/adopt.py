"""Answers that a filter gave in the model's place: told and named like the model's own.

The layer lies within the memory and around all other filters, so that what is stored is
what was told. Ids are made fit here: a filter may give the same answer again and again,
and a store knows messages by id, a history results by their call's.
"""

from collections.abc import AsyncIterator

from attrs import evolve

from agentrt.agent.history import call_ids
from agentrt.agent.message_stream import MessageStream
from agentrt.agent.turn import TurnAccount
from agentrt.core.ids import new_id
from agentrt.filters.base import ChatCall, Filter, hook

__all__ = ["adopt_filter"]


def adopt_filter() -> Filter:
    """Tell an answer that no model told, under ids of ours. Register it second."""
    return Filter(name="adopt", chat=_adopt)


@hook
async def _adopt(call: ChatCall) -> AsyncIterator[None]:
    yield
    account: TurnAccount | None = call.context.turn
    message = call.response.message
    if account is None or message.id in account.told:
        return
    known = call_ids(call.request.messages)

    def is_taken(call_id: str) -> bool:
        return call_id in known or call_id in call.context.taken_ids

    stream = MessageStream(new_id(), account.emit, is_taken)
    stream.feed_whole(message)
    call.response = evolve(call.response, message=stream.finish(message))
