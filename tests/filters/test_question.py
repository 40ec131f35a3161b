"""The question of a turn: which it is, and that only the model sees it changed."""

from typing import Any

import pytest
from hypothesis import given

from agentrt.core.chat import ChatRequest
from agentrt.core.messages import AssistantMessage, SystemMessage, UserMessage
from agentrt.core.parts import FilePart, TextPart
from agentrt.filters.base import Resumption, TurnRequest
from agentrt.filters.question import check_template, fill, question_of, rephrase
from agentrt.testing import texts

PICTURE = FilePart(media_type="image/png", data="aGk=")
FIRST = UserMessage(content="first")
LAST = UserMessage(content=(TextPart(text="the"), TextPart(text="last")))
SEEN = UserMessage(content=(TextPart(text="see"), PICTURE))
BLANK = UserMessage(content=" ")
RULE = SystemMessage(content="a rule")


@pytest.mark.parametrize(
    ("messages", "question"),
    [
        ([FIRST, LAST], LAST),
        ([LAST, FIRST, RULE], FIRST),
        ([FIRST, SEEN], FIRST),
        ([SEEN], None),
        ([FIRST, BLANK], None),
        ([UserMessage(content=())], None),
        ([RULE], None),
        ([], None),
    ],
)
def test_the_question_is_the_last_message_that_is_all_text(
    messages: Any, question: UserMessage | None
) -> None:
    assert question_of(TurnRequest(messages=messages)) is question


def test_a_resume_and_a_rerun_have_no_question() -> None:
    snapshot: Any = None
    resumption = Resumption(snapshot=snapshot, answers={})
    assert question_of(TurnRequest(messages=[FIRST], resume=resumption)) is None
    assert question_of(TurnRequest().again(FIRST)) is None


def test_only_the_one_message_changes() -> None:
    answer = AssistantMessage(id=FIRST.id, content="the same id, and another role")
    request = ChatRequest(messages=[FIRST, answer, SEEN, LAST], system="s")
    changed = rephrase(request, FIRST.id, "{question}, {mood}", mood="now")
    expected = UserMessage(id=FIRST.id, content="first, now")
    assert changed == ChatRequest(messages=[expected, answer, SEEN, LAST], system="s")
    assert rephrase(request, "no such id", "x") == request


@given(texts(), texts())
def test_what_is_filled_in_is_not_filled_itself(question: str, context: str) -> None:
    template = "{context} and {question}, {unknown} {} {question}"
    known = {"question": question + "{context}", "context": context + "{question}"}
    assert fill(template, known) == (
        f"{context}{{question}} and {question}{{context}}, {{unknown}} {{}} "
        f"{question}{{context}}"
    )


def test_a_template_without_a_place_is_refused() -> None:
    check_template("{context}: {question}", ["question", "context"])
    with pytest.raises(ValueError, match="has no place for the question"):
        check_template("{context}", ["question"])
