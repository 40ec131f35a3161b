"""Messages: what older programs wrote, arguments, and ids that stay the same."""

import json
import math
from collections.abc import Mapping
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from agentrt.core.messages import (
    AssistantMessage,
    Blocks,
    Message,
    SystemMessage,
    ToolCall,
    ToolMessage,
    UserMessage,
    is_assistant,
    is_system,
    is_tool,
    is_user,
    last_user_message,
    parse_arguments,
    read_message,
    result_id,
    role_of,
    text_of_value,
    tool_calls_of,
    user_messages,
    with_edits,
    without_blocks,
)
from agentrt.core.parts import NativePart, TextPart
from agentrt.testing.strategies import json_objects, messages

USER = UserMessage(id="u", content="hi")
CALL = ToolCall(id="c", name="add", arguments={"a": 1})


@given(messages())
def test_a_message_is_read_as_it_is(message: Message) -> None:
    assert read_message(message) is message


@pytest.mark.parametrize(
    ("legacy", "message"),
    [
        (
            {"role": "system", "content": "be kind", "id": "1"},
            SystemMessage(id="1", content="be kind"),
        ),
        (
            {"role": "developer", "content": "be kind", "id": "1"},
            SystemMessage(id="1", content="be kind"),
        ),
        ({"role": "user", "content": None, "id": 7}, UserMessage(id="7", content="")),
        (
            {"role": "user", "content": {"a": 1}, "id": "1"},
            UserMessage(id="1", content='{"a": 1}'),
        ),
        (
            {
                "role": "user",
                "id": "1",
                "content": [
                    {"type": "text", "text": "see"},
                    {"type": "image_url", "image_url": {"url": "https://x.org/a"}},
                    TextPart(text="this"),
                    "and that",
                ],
            },
            UserMessage(
                id="1",
                content=(
                    TextPart(text="see"),
                    NativePart(
                        block={
                            "type": "image_url",
                            "image_url": {"url": "https://x.org/a"},
                        }
                    ),
                    TextPart(text="this"),
                    TextPart(text="and that"),
                ),
            ),
        ),
        (
            {"role": "assistant", "content": None, "id": "m", "reasoning": "hm"},
            AssistantMessage(id="m", reasoning="hm"),
        ),
        (
            {"role": "assistant", "id": "m", "tool_calls": [CALL]},
            AssistantMessage(id="m", tool_calls=(CALL,)),
        ),
        (
            {
                "role": "assistant",
                "id": "m",
                "tool-calls": [{"id": "c", "name": "add", "args": {"a": 1}}],
            },
            AssistantMessage(id="m", tool_calls=(CALL,)),
        ),
        (
            {
                "role": "assistant",
                "id": "m",
                "tool_calls": [
                    {"id": "c", "function": {"name": "add", "arguments": '{"a": 1}'}},
                    {"id": "d", "function": {"name": "add", "arguments": "{"}},
                    {"id": "e", "function": {"name": "add", "arguments": ""}},
                    {"id": "f", "name": "add", "input": {"a": 1}},
                    {"id": "g", "name": "add", "input": [1]},
                ],
            },
            AssistantMessage(
                id="m",
                tool_calls=(
                    CALL,
                    ToolCall(id="d", name="add", invalid_arguments="{"),
                    ToolCall(id="e", name="add"),
                    ToolCall(id="f", name="add", arguments={"a": 1}),
                    ToolCall(id="g", name="add", invalid_arguments="[1]"),
                ),
            ),
        ),
        (
            {"role": "tool", "tool_call_id": "c", "name": "add", "content": "2"},
            ToolMessage(call_id="c", name="add", content="2"),
        ),
        (
            {
                "role": "tool",
                "tool-call-id": "c",
                "content": [],
                "is_error": True,
                "writes": {"n": 1},
            },
            ToolMessage(
                call_id="c", name="", content=(), is_error=True, writes={"n": 1}
            ),
        ),
    ],
)
def test_legacy_forms_are_read(legacy: Mapping[str, Any], message: Message) -> None:
    assert read_message(legacy) == message


def test_what_is_read_without_an_id_gets_one() -> None:
    first = read_message({"role": "user", "content": "x"})
    second = read_message({"role": "user", "content": "x"})
    assert first.id
    assert first.id != second.id


def test_a_role_that_nobody_knows_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="message role is 'robot', expected system"):
        read_message({"role": "robot"})


def test_a_result_must_say_which_call_it_answers() -> None:
    with pytest.raises(ValueError, match="which call does it answer"):
        read_message({"role": "tool", "content": "2", "call_id": ""})


@given(json_objects())
def test_arguments_are_parsed_also_when_encoded_twice(value: dict[str, Any]) -> None:
    assert parse_arguments(json.dumps(value)) == (value, None)
    assert parse_arguments(json.dumps(json.dumps(value))) == (value, None)


@pytest.mark.parametrize("text", ["", " ", "\n\t"])
def test_no_text_is_no_arguments(text: str) -> None:
    assert parse_arguments(text) == ({}, None)


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        "null",
        "1",
        '"text"',
        json.dumps(json.dumps(json.dumps({}))),
        '{"a": NaN}',
        '{"a": -Infinity}',
        '{"a": 1e999}',
        "{'a': 1}",
        '{"a": ' + "1" * 5000 + "}",
        '{"a": ' + "[" * 900 + "]" * 900 + "}",
        "[" * 100_000,
        '{"a":' * 100_000,
    ],
    ids=lambda text: text[:20],
)
def test_what_is_no_json_object_is_kept_as_text(text: str) -> None:
    assert parse_arguments(text) == ({}, text)


@given(st.text())
def test_arguments_never_raise_and_never_hold_what_json_cannot(text: str) -> None:
    arguments, invalid = parse_arguments(text)
    assert invalid in {None, text}
    json.dumps(arguments, allow_nan=False)


def test_arguments_hold_finite_numbers() -> None:
    arguments, _ = parse_arguments('{"a": 1e308, "b": -0.5}')
    assert all(math.isfinite(number) for number in arguments.values())


def test_the_id_of_a_result_derives_from_its_call() -> None:
    """B67: ids are the same in every snapshot."""
    message = ToolMessage(call_id="c", name="add", content="2")
    assert message.id == result_id("c") == "c-result"


def test_each_kind_of_message_has_its_role() -> None:
    kinds: list[Message] = [
        SystemMessage(content=""),
        USER,
        AssistantMessage(id="m"),
        ToolMessage(call_id="c", name="add", content=""),
    ]
    assert [role_of(kind) for kind in kinds] == ["system", "user", "assistant", "tool"]
    tests = (is_system, is_user, is_assistant, is_tool)
    for place, is_kind in enumerate(tests):
        assert [is_kind(kind) for kind in kinds] == [
            place == other for other in range(4)
        ]


def test_calls_are_the_models_alone() -> None:
    assert tool_calls_of(AssistantMessage(id="m", tool_calls=(CALL,))) == (CALL,)
    assert tool_calls_of(USER) == ()


def test_the_input_of_a_turn_is_text_or_messages() -> None:
    said = user_messages("hi")
    assert [(type(m), m.text) for m in said] == [(UserMessage, "hi")]
    assert user_messages(USER) == (USER,)
    assert user_messages([USER, USER]) == (USER, USER)


def test_the_last_thing_that_the_user_said_is_found() -> None:
    other = UserMessage(id="v", content="more")
    assert last_user_message([USER, other, AssistantMessage(id="m")]) is other
    assert last_user_message([AssistantMessage(id="m")]) is None


def test_blocks_are_left_out_and_all_else_stays_the_same() -> None:
    """B7: blocks of another vendor disappear without an error."""
    blocks = Blocks(provider="p", format="f", data=[1])
    with_blocks = AssistantMessage(id="m", content="x", blocks=blocks)
    plain = AssistantMessage(id="n", content="y")
    assert without_blocks([USER, with_blocks, plain]) == (
        USER,
        AssistantMessage(id="m", content="x"),
        plain,
    )


def test_a_value_becomes_text_for_the_model() -> None:
    assert text_of_value("as it is") == "as it is"
    assert text_of_value({"a": [1, None, "ä"]}) == '{"a": [1, null, "ä"]}'
    assert text_of_value({1}) == '"{1}"'


def test_a_call_that_was_edited_is_shown_as_it_ran() -> None:
    asked = AssistantMessage(
        id="m",
        tool_calls=[
            ToolCall(id="a", name="add", arguments={"n": 1}),
            ToolCall(id="b", name="add", arguments={"n": 1}),
        ],
    )
    plain = ToolMessage(call_id="a", name="add", content="1")
    edited = ToolMessage(
        call_id="b", name="add", content="2", edited_arguments={"n": 2}
    )
    seen = with_edits([USER, asked, plain, edited, asked, plain])
    calls = [m.tool_calls for m in seen if isinstance(m, AssistantMessage)]
    assert [[call.arguments["n"] for call in each] for each in calls] == [
        [1, 2],
        [1, 1],  # the id was used again, and that call was not edited
    ]
    assert with_edits(seen) == seen


@given(st.lists(messages()))
def test_a_history_without_edits_is_the_very_same(history: list[Message]) -> None:
    plain = [
        evolve(message, edited_arguments=None)
        if isinstance(message, ToolMessage)
        else message
        for message in history
    ]
    assert with_edits(plain) is plain
    assert [m.id for m in with_edits(history)] == [m.id for m in history]
