"""Answers to a pause: what is refused before anything is touched, and what they do."""

from collections.abc import Mapping
from typing import Any

import pytest

from agentrt.agent.pause import Answered, apply_answers, check_answers
from agentrt.core.errors import AnswerError
from agentrt.core.messages import AssistantMessage, ToolCall
from agentrt.core.outcomes import (
    Approve,
    Decision,
    Deny,
    Interrupt,
    PauseSnapshot,
    Reply,
    Retry,
)

A = ToolCall(id="a", name="add", arguments={"n": 1})
B = ToolCall(id="b", name="sub")
ASKED = [Interrupt(id=each.id, reason="?", call=each) for each in (A, B)]
SNAPSHOT = PauseSnapshot(
    id="p",
    conversation_id="c",
    run_id="r",
    message=AssistantMessage(id="m", tool_calls=(A, B)),
    interrupts=ASKED,
    remaining=3,
)


def check(interrupt: Interrupt, call: ToolCall) -> str | None:
    return None if call.arguments.get("n") == 2 else "n must be 2"


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        ({}, "interrupt 'a' has no answer; all of 'a', 'b' need one"),
        ({"a": Approve()}, "interrupt 'b' has no answer"),
        (
            {"a": Approve(), "b": Approve(), "x": Approve()},
            "interrupt 'x' is not open; open are 'a', 'b'",
        ),
        (
            {"a": Retry(), "b": Approve()},
            "'a' is of kind 'approval' and takes Approve, Reply, Deny, got Retry",
        ),
        ({"a": Reply(content=""), "b": Deny()}, "the answer to 'a' says nothing"),
        ({"a": Reply(content=()), "b": Deny()}, "the answer to 'a' says nothing"),
        (
            {"a": Approve(arguments={"n": 3}), "b": Deny()},
            "the arguments in the answer to 'a' do not fit: n must be 2",
        ),
    ],
)
def test_answers_that_do_not_fit_are_refused(
    answers: Mapping[str, Decision], words: str
) -> None:
    """B61, B59"""
    with pytest.raises(AnswerError) as caught:
        check_answers(ASKED, answers, check)
    assert words in str(caught.value)


def test_answers_that_fit_pass() -> None:
    check_answers(ASKED, {"a": Approve(arguments={"n": 2}), "b": Deny()}, check)
    check_answers(ASKED, {"a": Approve(), "b": Reply(content="x")}, check)


@pytest.mark.parametrize(
    ("answer", "answered"),
    [
        (Approve(), Answered(approved=(A,))),
        (
            Approve(arguments={"n": 2}),
            Answered(
                approved=(ToolCall(id="a", name="add", arguments={"n": 2}),),
                edited=frozenset({"a"}),
            ),
        ),
        (
            Approve(arguments={}),
            Answered(
                approved=(ToolCall(id="a", name="add", arguments={}),),
                edited=frozenset({"a"}),
            ),
        ),
        (Reply(content="mine"), Answered(replied=((A, "mine"),))),
        (Deny(reason="no"), Answered(denied=((A, "no"),))),
        (Retry(), Answered(denied=((A, "no clear answer was given"),))),
        (None, Answered(denied=((A, "no clear answer was given"),))),
        ("approve", Answered(denied=((A, "no clear answer was given"),))),
        (True, Answered(denied=((A, "no clear answer was given"),))),
    ],
)
def test_only_an_approval_runs_a_tool(answer: Any, answered: Answered) -> None:
    """P6, X21"""
    one = PauseSnapshot(
        id="p",
        conversation_id="c",
        run_id="r",
        message=SNAPSHOT.message,
        interrupts=ASKED[:1],
        remaining=3,
    )
    assert apply_answers(one, {"a": answer}) == answered
    assert apply_answers(one, {}) == Answered(
        denied=((A, "no clear answer was given"),)
    )


def test_each_call_gets_its_own_answer() -> None:
    """X18"""
    answers: Mapping[str, Decision] = {"b": Approve(), "a": Deny(reason="no")}
    assert apply_answers(SNAPSHOT, answers) == Answered(
        approved=(B,), denied=((A, "no"),)
    )
