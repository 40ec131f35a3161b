"""The tools of the demo agent: harmless, and one of each kind that matters."""

import ast
import operator
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Final
from zoneinfo import ZoneInfo, available_timezones

import trio

from agentrt.core.context import Context
from agentrt.core.errors import ToolError
from agentrt.tools.base import Tool, tool
from agentrt.tools.signature import Param

__all__ = ["demo_tools"]

SKIES: Final = ("sunny", "cloudy", "rainy", "windy", "foggy")


@tool
async def get_weather(city: Annotated[str, Param("A city", min_length=1)]) -> str:
    """Tell today's weather in a city. It is made up, and the same every time."""
    await trio.sleep(0.5)
    number = sum(city.lower().encode())
    return f"In {city} it is {SKIES[number % 5]}, {number % 25 + 3} °C."


OPERATORS: Mapping[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}


@tool
def calculate(
    expression: Annotated[str, Param("As in '2 * (3 + 4)'", max_length=200)],
) -> str:
    """Work out a sum with + - * / and parentheses."""
    try:
        value = _evaluate(ast.parse(expression, mode="eval").body)
    except (SyntaxError, ZeroDivisionError, OverflowError) as error:
        raise ToolError(f"{expression!r} cannot be worked out: {error}") from None
    return f"{expression} = {value:g}"


def _evaluate(node: ast.AST) -> float:
    match node:
        case ast.Constant(value=int() | float() as value):
            return float(value)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS:
            result: float = OPERATORS[type(op)](_evaluate(left), _evaluate(right))
            return result
        case ast.UnaryOp(op=op, operand=operand) if type(op) in OPERATORS:
            negated: float = OPERATORS[type(op)](_evaluate(operand))
            return negated
    raise ToolError("only numbers, + - * / and parentheses are allowed")


@tool
def get_time(
    place: Annotated[str, "A city or a time zone, as 'Tokyo' or 'Europe/Paris'"],
) -> str:
    """Tell the time somewhere."""
    wanted = place.replace(" ", "_").lower()
    zones = sorted(available_timezones())
    named = [zone for zone in zones if zone.lower().endswith(wanted)]
    zone = ZoneInfo(named[0]) if named else UTC
    now = datetime.now(zone)
    where = place if named else "UTC (I do not know that place)"
    return f"It is {now:%H:%M} in {where}."


def todo_tools(lists: dict[str, list[str]]) -> Sequence[Tool]:
    """The todo list, kept for each conversation while the process lives."""

    @tool
    async def add_todo(
        item: Annotated[str, Param("What to do", min_length=1)], context: Context
    ) -> str:
        """Put something on the todo list."""
        await trio.lowlevel.checkpoint()
        lists.setdefault(context.conversation_id, []).append(item)
        return f"“{item}” is on the list."

    @tool
    async def list_todos(context: Context) -> str:
        """Read the todo list."""
        await trio.lowlevel.checkpoint()
        items = lists.get(context.conversation_id, [])
        return "\n".join(f"- {item}" for item in items) or "The list is empty."

    return (add_todo, list_todos)


@tool(sensitive=True)
async def delete_database(name: Annotated[str, "Which one"]) -> str:
    """Delete a database. There is none: this only says so."""
    await trio.sleep(0.5)
    return f"The database “{name}” is gone (there never was one)."


@tool(timeout_seconds=60)
async def slow_task(
    seconds: Annotated[float, Param("How long", maximum=50)] = 30,
) -> str:
    """Take a while, so that there is something to stop."""
    await trio.sleep(seconds)
    return f"That took {seconds:g} seconds."


@tool
def broken_tool() -> str:
    """Fail, so that there is a failure to see."""
    raise ToolError("this tool is always broken")


def demo_tools() -> Sequence[Tool]:
    """All of them, with a todo list of their own."""
    return (
        get_weather,
        calculate,
        get_time,
        *todo_tools({}),
        delete_database,
        slow_task,
        broken_tool,
    )
