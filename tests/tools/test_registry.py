"""Tools are checked when they are put together, and all that cannot work are named."""

from collections.abc import Mapping
from typing import Any

import pytest
import trio

from agentrt.core.context import Context
from agentrt.core.errors import ToolDefinitionError
from agentrt.tools.base import Tool, tool
from agentrt.tools.registry import ToolRegistry


async def run(arguments: Mapping[str, Any], context: Context) -> str:
    await trio.lowlevel.checkpoint()
    return "ran"


def add(a: int, b: int = 1) -> int:
    """Add."""
    return a + b


def made(name: str, **more: Any) -> Tool:
    return Tool(name=name, run=run, **more)


def test_tools_are_found_by_name_and_kept_in_order() -> None:
    registry = ToolRegistry([made("zeta"), add, made("alpha")])
    assert [each.name for each in registry] == ["zeta", "add", "alpha"]
    assert [spec.name for spec in registry.specs] == ["zeta", "add", "alpha"]
    assert len(registry) == 3
    found = registry.find("add")
    assert found is not None
    assert found.function is add
    assert registry.find("gone") is None


def test_arguments_are_checked_by_the_tools_schema() -> None:
    registry = ToolRegistry([add])
    assert registry.check("add", {"a": "1"}).arguments == {"a": 1}
    assert registry.check("add", {}).faults == ("$: 'a' is missing",)
    with pytest.raises(KeyError):
        registry.check("gone", {})


@pytest.mark.parametrize(
    "tools",
    [[add, add], [made("add"), made("add")], [add, made("add")]],
    ids=["functions", "by hand", "mixed"],
)
def test_two_tools_of_one_name_are_refused(tools: list[Any]) -> None:
    """B10"""
    with pytest.raises(ToolDefinitionError, match="2 tools are named 'add'"):
        ToolRegistry(tools)


@pytest.mark.parametrize("seconds", ["5s", -1, 0, True, float("nan"), float("inf")])
def test_a_timeout_that_cannot_be_is_refused(seconds: Any) -> None:
    """B11"""
    with pytest.raises(ToolDefinitionError, match="expected seconds above 0"):
        ToolRegistry([made("a", timeout_seconds=seconds)])


@pytest.mark.parametrize("name", ["", "a b", "é", "x" * 65, "a.b"])
def test_a_name_that_a_vendor_would_refuse_is_refused(name: str) -> None:
    with pytest.raises(ToolDefinitionError, match="a name has 1 to 64 letters"):
        ToolRegistry([made(name)])


def no_annotation(a) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001  the case
    """Do it."""


def bad_type(a: bytes) -> None:
    """Do it."""


def test_all_offenders_are_named_duplicates_first() -> None:
    """B10"""
    with pytest.raises(ToolDefinitionError) as caught:
        ToolRegistry(
            [
                no_annotation,
                made("late", timeout_seconds=0),
                bad_type,
                made("list", parameters={"type": "array"}),
                made("twice"),
                made("twice"),
            ]
        )
    faults = str(caught.value).split("; ")
    assert [fault.partition(":")[0] for fault in faults] == [
        "2 tools are named 'twice'",
        "tool 'no_annotation'",
        "tool 'bad_type'",
        "tool 'late'",
        "tool 'list'",
    ]


def test_an_option_reaches_a_tool_of_either_kind() -> None:
    """B12"""
    options: dict[str, Any] = {
        "sensitive": True,
        "serial": True,
        "timeout_seconds": 2.0,
        "fatal": True,
    }
    declared = tool(name="declared", tags=["x"], **options)(add)
    by_hand = made("hand", tags=frozenset({"x"}), **options)
    for each in (declared, by_hand):
        assert {name: getattr(each, name) for name in options} == options
        assert each.tags == {"x"}
