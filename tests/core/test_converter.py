"""Every value survives being written down, and what does not fit says where."""

import datetime
import json
from typing import Any

import pytest
from attrs import frozen
from hypothesis import given
from hypothesis import strategies as st

from agentrt.core.chat import Usage
from agentrt.core.converter import (
    check_type,
    from_json,
    message_from_json,
    message_to_json,
    plain,
    structure,
    to_json,
)
from agentrt.core.messages import (
    AssistantMessage,
    Blocks,
    Message,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from agentrt.core.outcomes import (
    Approve,
    CallRecord,
    Decision,
    Deny,
    Interrupt,
    PauseSnapshot,
    Reply,
    Retry,
)
from agentrt.testing.strategies import (
    contents,
    json_objects,
    json_values,
    messages,
    texts,
    tool_calls,
)


@given(messages())
def test_a_message_survives_being_written_down(message: Message) -> None:
    """B6"""
    assert message_from_json(message_to_json(message)) == message


@given(json_values())
def test_blocks_survive_being_written_down(data: Any) -> None:
    """B7"""
    blocks = Blocks(provider="p", format="f", data=data)
    message = AssistantMessage(id="m", blocks=blocks)
    assert message_from_json(message_to_json(message)) == message


def records() -> st.SearchStrategy[CallRecord]:
    return st.builds(
        CallRecord,
        id=texts(),
        name=texts(),
        arguments=json_objects(),
        status=st.sampled_from(["ok", "error", "denied", "replied", "cut"]),
        content=contents(),
    )


def snapshots() -> st.SearchStrategy[PauseSnapshot]:
    asked = st.builds(Interrupt, id=texts(), reason=texts(), call=tool_calls())
    says = st.builds(AssistantMessage, id=texts(), content=texts())
    tools = st.builds(ToolMessage, call_id=texts(), name=texts(), content=contents())
    return st.builds(
        PauseSnapshot,
        id=texts(),
        conversation_id=texts(),
        run_id=texts(),
        message=says,
        results=st.lists(tools, max_size=2).map(tuple),
        interrupts=st.lists(asked, max_size=2).map(tuple),
        transcript=st.lists(messages(), max_size=2).map(tuple),
        values=json_objects(),
        index=st.integers(0, 10),
        remaining=st.integers(0, 10),
        calls=st.lists(records(), max_size=2).map(tuple),
    )


@given(snapshots())
def test_a_pause_survives_being_written_down(snapshot: PauseSnapshot) -> None:
    """B57: all that a resume needs is in the text."""
    assert from_json(to_json(snapshot, PauseSnapshot), PauseSnapshot) == snapshot


@given(
    st.one_of(
        st.builds(Approve, arguments=st.none() | json_objects()),
        st.builds(Reply, content=contents()),
        st.builds(Deny, reason=texts()),
        st.just(Retry()),
    )
)
def test_a_decision_survives_being_written_down(decision: Decision) -> None:
    assert from_json(to_json(decision, Decision), Decision) == decision


@given(messages())
def test_what_is_written_is_one_line_of_ascii(message: Message) -> None:
    text = message_to_json(message)
    assert text.isascii()
    assert "\n" not in text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"_type":"UserMessage","id":1,"content":"x"}', r"expected str, got 1.*\$.id"),
        ('{"_type":"UserMessage","id":"u"}', "required field missing"),
        ('{"_type":"UserMessage","id":"u","content":"x","x":1}', "extra fields"),
        ('{"_type":"UserMessage","id":"u","content":[{}]}', "_type is 'None'"),
        ('{"_type":"UserMessage","id":"u","content":7}', "a list of parts, got 7"),
        ('{"_type":"Robot"}', "_type is 'Robot', expected one of SystemMessage"),
        ("[]", "_type is ''"),
        ("null", "_type is ''"),
        ("{", "Expecting property name"),
        (
            '{"_type":"AssistantMessage","id":"m","partial":1}',
            r"expected bool, got 1.*\$.partial",
        ),
        (
            '{"_type":"AssistantMessage","id":"m","tool_calls":[{"id":"c","name":2}]}',
            r"expected str, got 2.*\$.tool_calls\[0\].name",
        ),
    ],
)
def test_what_does_not_fit_says_where(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        message_from_json(text)


def test_numbers_are_not_coerced() -> None:
    text = json.dumps({"input_tokens": 1.5})
    with pytest.raises(ValueError, match=r"expected int, got 1\.5"):
        from_json(text, Usage)


@given(json_values())
def test_whatever_was_stored_is_read_or_refused_in_words(value: Any) -> None:
    with pytest.raises(ValueError, match=r"fit|expected"):
        message_from_json(json.dumps(value))


def test_a_message_of_an_unknown_field_is_refused_whatever_its_kind() -> None:
    value = json.loads(message_to_json(UserMessage(content="x")))
    value["mood"] = "good"
    with pytest.raises(ValueError, match="mood"):
        message_from_json(json.dumps(value))


def test_an_argument_becomes_what_its_annotation_says_or_a_value_error() -> None:
    call = {"id": "c", "name": "add"}
    assert structure(call, ToolCall) == ToolCall(id="c", name="add")
    with pytest.raises(ValueError, match="required field missing"):
        structure({"id": "c"}, ToolCall)


def test_any_value_becomes_json_types() -> None:
    assert plain(ToolCall(id="c", name="add")) == {
        "id": "c",
        "name": "add",
        "arguments": {},
        "invalid_arguments": None,
    }
    assert plain({1}) == [1]


@frozen
class Span:
    first: datetime.date
    last: datetime.date

    def __attrs_post_init__(self) -> None:
        if self.last < self.first:
            raise ValueError("it ends before it begins")


@pytest.mark.parametrize(
    ("value", "type_", "words"),
    [
        (
            [{"first": "2024-01-02", "last": "2024-01-01"}],
            list[Span],
            r"^it ends before it begins @ \$\[0\]$",
        ),
        (
            {"first": "today", "last": "x"},
            Span,
            r"expected date \(Invalid isoformat string: 'today'\) @ \$\.first; invalid",
        ),
        ({"first": "2024-01-02"}, Span, r"^required field missing @ \$\.last$"),
        ("today", datetime.date, "^Invalid isoformat string: 'today'$"),
        (3, datetime.date, "argument must be str"),
        ({"first": "x" * 1000, "last": "2024-01-02"}, Span, "^.{0,300}$"),
    ],
)
def test_why_a_value_does_not_fit_is_said_in_its_own_words(
    value: Any, type_: Any, words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        structure(value, type_)


def test_a_type_that_no_value_can_be_made_of_is_named() -> None:
    check_type(list[Span] | None)
    with pytest.raises(TypeError, match=r"no value can be made of .*Unsupported type"):
        check_type(list[Span] | Span)
