"""Mending: what every provider takes, and nothing that it took before is changed."""

from collections.abc import Sequence

import pytest
from hypothesis import given

from agentrt.core.history import (
    call_ids,
    denied_text,
    find_history_faults,
    mend,
    synthetic_result,
    unanswered_calls,
)
from agentrt.core.messages import (
    AssistantMessage,
    Message,
    ToolCall,
    ToolMessage,
    UserMessage,
    tool_calls_of,
)
from agentrt.testing.strategies import histories

USER = UserMessage(id="u", content="hi")
A, B = ToolCall(id="a", name="add"), ToolCall(id="b", name="sub")
ASKS = AssistantMessage(id="m", tool_calls=(A, B))


def result(call: ToolCall, text: str = "2") -> ToolMessage:
    return ToolMessage(call_id=call.id, name=call.name, content=text)


LOST = "This call was cut: its result was never recorded. It may have had effects."


@given(histories())
def test_a_valid_history_is_given_back_as_it_is(messages: Sequence[Message]) -> None:
    assert find_history_faults(messages) == []
    assert mend(messages) is messages


@given(histories(valid=False))
def test_a_mended_history_is_valid_and_mending_twice_changes_nothing(
    messages: Sequence[Message],
) -> None:
    """P5, U35"""
    before = list(messages)
    mended = mend(messages)
    assert find_history_faults(mended) == []
    assert mend(mended) is mended
    assert list(messages) == before


@given(histories(valid=False))
def test_mending_keeps_every_message_but_results_in_its_place(
    messages: Sequence[Message],
) -> None:
    """U36: nothing is inserted but results."""
    mended = mend(messages)
    assert [m for m in mended if not isinstance(m, ToolMessage)] == [
        m for m in messages if not isinstance(m, ToolMessage)
    ]


@pytest.mark.parametrize(
    ("messages", "mended"),
    [
        ([ASKS], [ASKS, synthetic_result(A, LOST), synthetic_result(B, LOST)]),
        (
            [ASKS, result(B), USER, result(A)],
            [ASKS, result(A), result(B), USER],
        ),
        ([result(A), USER], [USER]),
        ([ASKS, result(A), result(A), result(B)], [ASKS, result(A), result(B)]),
    ],
)
def test_results_stand_right_after_their_call(
    messages: Sequence[Message], mended: Sequence[Message]
) -> None:
    """X12"""
    assert list(mend(messages)) == list(mended)


def test_ids_that_were_used_again_keep_their_own_results() -> None:
    """X12"""
    first = AssistantMessage(id="m1", tool_calls=(A,))
    again = AssistantMessage(id="m2", tool_calls=(A,))
    messages: Sequence[Message] = [
        first,
        result(A, "one"),
        USER,
        again,
        result(A, "two"),
    ]
    assert list(mend(messages)) == messages


def test_faults_say_what_is_wrong() -> None:
    messages: Sequence[Message] = [result(A), ASKS, result(A), result(A), USER, ASKS]
    assert find_history_faults(messages) == [
        "result 'a' answers no open call",
        "result 'a' answers no open call",
        "call 'b' has no result",
        "call id 'a' comes twice",
        "call id 'b' comes twice",
        "call 'a' has no result",
        "call 'b' has no result",
    ]


def test_the_calls_of_a_pause_may_wait_at_the_end() -> None:
    assert find_history_faults([ASKS, result(B)], open_calls=["a"]) == []
    assert find_history_faults([ASKS, result(B), USER], open_calls=["a"]) == [
        "call 'a' has no result"
    ]


@pytest.mark.parametrize(
    ("messages", "left"),
    [
        ([], []),
        ([USER], []),
        ([ASKS], [A, B]),
        ([ASKS, result(B)], [A]),
        ([ASKS, result(A), result(B)], []),
        ([ASKS, USER], []),
        ([result(A)], []),
    ],
)
def test_calls_of_the_last_block_without_a_result_are_found(
    messages: Sequence[Message], left: Sequence[ToolCall]
) -> None:
    assert list(unanswered_calls(messages)) == left


def test_the_ids_of_all_calls_are_known() -> None:
    assert call_ids([USER, ASKS, result(A)]) == {"a", "b"}


def test_a_denial_gives_its_reason() -> None:
    """X20"""
    assert denied_text("") == "This call was denied by the user."
    assert denied_text("too dear").endswith("by the user: too dear")


def test_an_edit_goes_with_its_result_wherever_that_stood() -> None:
    asked = AssistantMessage(id="m", tool_calls=[ToolCall(id="a", name="add")])
    later = AssistantMessage(id="n", content="so")
    edited = ToolMessage(
        call_id="a", name="add", content="2", edited_arguments={"n": 2}
    )
    mended = mend([asked, later, edited])
    assert [type(each) for each in mended] == [
        AssistantMessage,
        ToolMessage,
        AssistantMessage,
    ]
    assert [c.arguments for m in mended for c in tool_calls_of(m)] == [{"n": 2}]
