"""The rereading filter: the model reads the question twice."""

from collections.abc import AsyncIterator
from typing import Final

from agentrt.filters.base import ChatCall, Filter, TurnCall, hook
from agentrt.filters.question import check_template, question_of, rephrase

__all__ = ["TEMPLATE", "rereading_filter"]

TEMPLATE: Final = "{question}\n\nRead the question again: {question}"

KEY: Final = "agentrt/rereading"


def rereading_filter(template: str = TEMPLATE) -> Filter:
    """Repeat the user's question to the model, which helps it with hard ones.

    `{question}` in the template stands for the user's words. It is the last message of
    the turn that is all text; one with files is let be, and what other filters ask in
    reruns too. Every model call of the turn sees it so, also after a pause; the history
    keeps the user's own words.

    Source: Xu et al., Re-Reading Improves Reasoning in Large Language Models, 2023.

    Raises:
        ValueError: the template has no `{question}`.
    """
    check_template(template, ["question"])

    @hook
    async def turn(call: TurnCall) -> AsyncIterator[None]:
        question = question_of(call.request)
        if question is not None:
            call.request = call.request.keeping(KEY, question.id)
        yield

    @hook
    async def chat(call: ChatCall) -> AsyncIterator[None]:
        message_id = call.context.values.get(KEY)
        if message_id is not None:
            call.request = rephrase(call.request, message_id, template)
        yield

    return Filter(name="rereading", turn=turn, chat=chat)
