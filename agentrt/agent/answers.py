"""The layer between the memory and all other filters: what they answer is told.

A chat filter may answer in the model's place. Its words have not streamed, and its ids
need not be new: here they are told as events, under ids that nothing else has, before
the memory keeps them.
"""

from attrs import define, evolve

from agentrt.agent.message_stream import MessageStream
from agentrt.agent.turn import TurnAccount
from agentrt.core.chat import ChatResponse
from agentrt.filters.base import ChatCall, Filter

__all__ = ["answer_filter"]


def answer_filter() -> Filter:
    """Tell answers that no model gave. The agent registers it, within the memory."""
    return Filter(name="answer", chat=_TellAnswer)


@define
class _TellAnswer:
    """A hook; a class, as it lies around every model call."""

    _call: ChatCall

    async def __aenter__(self) -> None:
        pass

    async def __aexit__(
        self, kind: object, error: BaseException | None, trace: object
    ) -> None:
        account = self._call.context.turn
        response: ChatResponse = self._call.response
        if error is not None or not isinstance(account, TurnAccount):
            return
        if response.message.id not in account.told:
            self._call.response = self._tell(response, account)

    def _tell(self, response: ChatResponse, account: TurnAccount) -> ChatResponse:
        message_id = account.begin_message()
        account.begin_answer(message_id)
        stream = MessageStream(message_id, account.emit, account.taken.__contains__)
        stream.feed_whole(response.message)
        message = stream.finish(response.message)
        account.end_answer()
        return evolve(response, message=message)
