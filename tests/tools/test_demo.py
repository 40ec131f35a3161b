"""The demo's tools: harmless, and deterministic where they can be."""

from typing import Any

import pytest
import trio.testing

from agentrt.core.context import Context
from agentrt.core.errors import ToolError
from agentrt.tools.demo import demo_tools
from agentrt.tools.registry import ToolRegistry

CONTEXT = Context(conversation_id="c")


async def run(name: str, /, **arguments: Any) -> str:
    found = ToolRegistry(demo_tools()).find(name)
    assert found is not None
    return str(await found.run(arguments, CONTEXT))


def test_they_can_be_put_together_and_one_asks() -> None:
    registry = ToolRegistry(demo_tools())
    assert [each.name for each in registry if each.sensitive] == ["delete_database"]


async def test_the_weather_is_the_same_every_time(
    autojump_clock: trio.testing.MockClock,
) -> None:
    first = await run("get_weather", city="Paris")
    assert first == await run("get_weather", city="paris".title())
    assert first.startswith("In Paris it is ")


@pytest.mark.parametrize(
    ("expression", "answer"),
    [("2 * (3 + 4)", "14"), ("-1 / 4", "-0.25"), ("+1.5", "1.5")],
)
async def test_sums_are_worked_out(expression: str, answer: str) -> None:
    assert await run("calculate", expression=expression) == f"{expression} = {answer}"


@pytest.mark.parametrize(
    "expression",
    ["", "1/0", "2 **", "__import__('os')", "2 ** 9", "'a' * 3", "x", "(" * 150],
)
async def test_what_is_no_sum_is_told(expression: str) -> None:
    with pytest.raises(ToolError):
        await run("calculate", expression=expression)


async def test_the_time_is_told_somewhere() -> None:
    assert await run("get_time", place="Europe/Paris") != ""
    assert "UTC (I do not know that place)" in await run("get_time", place="Nowhere")


async def test_each_conversation_has_a_list_of_its_own() -> None:
    registry = ToolRegistry(demo_tools())
    add, read = registry.find("add_todo"), registry.find("list_todos")
    assert add is not None
    assert read is not None
    await add.run({"item": "milk"}, CONTEXT)
    assert await read.run({}, CONTEXT) == "- milk"
    other = Context(conversation_id="d")
    assert await read.run({}, other) == "The list is empty."
