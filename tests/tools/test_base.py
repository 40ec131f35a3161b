"""`@tool`, and what a tool's return value comes to."""

from typing import Any

import pytest
import trio
from attrs import frozen
from hypothesis import given
from hypothesis import strategies as st

from agentrt.core.context import Context
from agentrt.core.errors import ToolDefinitionError
from agentrt.core.parts import FilePart, NativePart, Part, TextPart
from agentrt.tools.base import Tool, ToolResult, ToolRetry, tool

CONTEXT = Context(conversation_id="c")
PART = TextPart(text="x")
PICTURE = FilePart(media_type="image/png", data="aGk=")
PARTS: list[Part] = [PART, PICTURE, NativePart(block={"a": 1})]


@tool
def add(a: int, b: int = 1) -> int:
    """Add numbers."""
    return a + b


@tool(name="minus", description="Take away.", sensitive=True)
async def sub(a: int) -> int:
    """Not this."""
    await trio.lowlevel.checkpoint()
    return -a


async def test_a_tool_stays_callable_as_its_function_was() -> None:
    assert add(1, b=2) == 3
    assert await sub(1) == -1


def test_a_tool_is_what_its_function_says_unless_told_otherwise() -> None:
    assert (add.name, add.description, add.sensitive) == ("add", "Add numbers.", False)
    assert (sub.name, sub.description, sub.sensitive) == ("minus", "Take away.", True)
    assert add.spec.parameters == {
        "type": "object",
        "properties": {
            "a": {"type": "integer"},
            "b": {"type": "integer", "default": 1},
        },
        "required": ["a"],
    }


def test_an_option_that_no_tool_has_is_refused() -> None:
    options: Any = {"sensitve": True}
    with pytest.raises(TypeError, match="sensitve"):
        tool(**options)(lambda: None)


def test_a_tool_made_by_hand_has_no_function_to_call() -> None:
    by_hand = Tool(name="x", run=add.run)
    assert by_hand.parameters == {"type": "object", "properties": {}}
    with pytest.raises(TypeError, match="'x' was not made from a function"):
        by_hand()


async def test_an_async_tool_runs_with_its_arguments() -> None:
    assert await sub.run({"a": 2}, CONTEXT) == -2


@frozen
class Opaque:
    """What has no JSON form."""

    a: int = 1


@pytest.mark.parametrize(
    ("value", "content"),
    [
        ("text", "text"),
        ("", ""),
        (None, ""),
        (0, "0"),
        (False, "false"),
        ([], "[]"),
        ({"writes": 1}, '{"writes": 1}'),
        ({"ä": [1]}, '{"ä": [1]}'),
        (Opaque(), '"Opaque(a=1)"'),
        (PART, (PART,)),
        ([PART, PICTURE], (PART, PICTURE)),
        (NativePart(block={"a": 1}), (NativePart(block={"a": 1}),)),
        ([PART, 1], None),
    ],
)
def test_what_a_tool_returns_becomes_content(value: Any, content: Any) -> None:
    result = ToolResult.of(value)
    assert (result.is_error, result.writes) == (False, {})
    if content is None:
        assert isinstance(result.content, str)
    else:
        assert result.content == content


def test_a_result_stays_as_it_is() -> None:
    result = ToolResult(content="x", is_error=True, writes={"a": 1})
    assert ToolResult.of(result) is result


@given(st.lists(st.sampled_from(PARTS), min_size=1, max_size=4))
def test_parts_are_content_in_whatever_holds_them(parts: list[Part]) -> None:
    assert ToolResult.of(parts) == ToolResult.of(tuple(parts))
    assert ToolResult.of(parts).content == tuple(parts)


@pytest.mark.parametrize("tags", ["time", ["time", 1], None, 7])
def test_tags_of_a_tool_are_several_texts(tags: Any) -> None:
    with pytest.raises(ToolDefinitionError, match="expected a sequence of texts"):
        Tool(name="clock", tags=tags)


@pytest.mark.parametrize("name", ["max_retries", "initial_seconds"])
@pytest.mark.parametrize("value", [-1, float("nan")])
def test_a_retry_counts_and_waits_from_0_on(name: str, value: float) -> None:
    wrong: dict[str, Any] = {name: value}
    with pytest.raises(ValueError, match=f"{name} is {value}, expected 0 or more"):
        ToolRetry(**wrong)
