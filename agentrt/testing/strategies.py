"""Hypothesis strategies for agentrt's values, and for what agents may do."""

from collections.abc import Sequence
from typing import Any

from agentrt.core.extras import from_extra
from agentrt.core.messages import (
    AssistantMessage,
    Message,
    SystemMessage,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from agentrt.core.parts import Content, FilePart, NativePart, TextPart
from agentrt.testing.scripted import Say

with from_extra("testing"):
    from hypothesis import strategies as st

__all__ = [
    "contents",
    "histories",
    "json_objects",
    "json_values",
    "messages",
    "scripts",
    "texts",
    "tool_calls",
]


def texts(*, min_size: int = 0) -> st.SearchStrategy[str]:
    """Any text that Unicode allows, line separators and astral characters included."""
    return st.text(min_size=min_size, max_size=30)


def json_values() -> st.SearchStrategy[Any]:
    """Any JSON value, nested a few levels."""
    scalars = (
        st.none()
        | st.booleans()
        | st.integers(-(2**53), 2**53)
        | st.floats(allow_nan=False, allow_infinity=False)
        | texts()
    )
    return st.recursive(
        scalars,
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(texts(), inner, max_size=3)
        ),
        max_leaves=8,
    )


def json_objects() -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(texts(), json_values(), max_size=4)


def contents() -> st.SearchStrategy[Content]:
    """A text, or parts of every kind."""
    files = st.builds(
        FilePart,
        media_type=st.sampled_from(["image/png", "application/pdf", "audio/wav"]),
        data=st.sampled_from(["aGk=", "AAAA"]),
        filename=st.none() | texts(min_size=1),
    )
    parts = (
        st.builds(TextPart, text=texts())
        | files
        | st.builds(NativePart, block=json_objects())
    )
    return texts() | st.lists(parts, max_size=4).map(tuple)


def tool_calls() -> st.SearchStrategy[ToolCall]:
    return st.builds(
        ToolCall,
        id=st.uuids().map(str),
        name=st.sampled_from(["add", "look_up", "delete_file"]),
        arguments=json_objects(),
        invalid_arguments=st.none() | st.just("{"),
    )


def messages() -> st.SearchStrategy[Message]:
    """One message of any kind."""
    ids = st.uuids().map(str)
    return st.one_of(
        st.builds(SystemMessage, id=ids, content=contents()),
        st.builds(UserMessage, id=ids, content=contents()),
        st.builds(
            AssistantMessage,
            id=ids,
            content=texts(),
            reasoning=texts(),
            tool_calls=st.lists(tool_calls(), max_size=3).map(tuple),
            partial=st.booleans(),
        ),
        st.builds(
            ToolMessage,
            call_id=ids,
            name=texts(min_size=1),
            content=contents(),
            is_error=st.booleans(),
            writes=json_objects(),
            edited_arguments=st.none() | json_objects(),
        ),
    )


@st.composite
def histories(draw: st.DrawFn, *, valid: bool = True) -> Sequence[Message]:
    """A conversation as a store may hold it.

    A valid one has one result for each call, before any later message. Others lack
    some, have some twice, in the wrong place, or without a call.
    """
    built: list[Message] = []
    for number in range(draw(st.integers(0, 4))):
        built.append(UserMessage(id=f"u{number}", content=draw(texts(min_size=1))))
        count = draw(st.integers(0, 3))
        calls = tuple(
            ToolCall(id=f"c{number}-{place}", name="add") for place in range(count)
        )
        built.append(
            AssistantMessage(id=f"m{number}", content=draw(texts()), tool_calls=calls)
        )
        results = [
            ToolMessage(call_id=each.id, name=each.name, content=draw(texts()))
            for each in draw(st.permutations(calls))
        ]
        built.extend(results)
    if valid or not built:
        return built
    return _damaged(draw, built)


def _damaged(draw: st.DrawFn, built: list[Message]) -> Sequence[Message]:
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.integers(0, len(built) - 1))
        match draw(st.sampled_from(["drop", "double", "move"])):
            case "drop":
                if len(built) > 1:
                    del built[place]
            case "double":
                if isinstance(built[place], ToolMessage):
                    built.insert(place, built[place])
            case _:
                moved = built.pop(place)
                built.insert(draw(st.integers(0, len(built))), moved)
    return built


@st.composite
def scripts(
    draw: st.DrawFn, tools: Sequence[str], *, max_rounds: int = 3
) -> Sequence[Say]:
    """What a model may say in one turn: rounds of calls of `tools`, then a text.

    Ids of calls may be missing or repeated, arguments may be no JSON, and a name may be
    no tool's.
    """
    steps: list[Say] = []
    for _ in range(draw(st.integers(0, max_rounds))):
        calls = draw(st.lists(_calls(tools), min_size=1, max_size=3))
        steps.append(Say(text=draw(_pieces()), calls=tuple(calls), delay_seconds=0.1))
    reasoning = draw(texts())
    last = Say(text=draw(_pieces()), reasoning=reasoning, delay_seconds=0.1)
    return [*steps, last]


def _pieces() -> st.SearchStrategy[list[str]]:
    return st.lists(texts(min_size=1), max_size=3)


def _calls(tools: Sequence[str]) -> st.SearchStrategy[ToolCall]:
    return st.builds(
        ToolCall,
        id=st.sampled_from(["", "1", "1", "2"]),
        name=st.sampled_from([*tools, "no_such_tool"]),
        arguments=st.just({}),
        invalid_arguments=st.none() | st.just("{") | st.none(),
    )
