"""The tools of one agent: built once, checked once, looked up by name."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from attrs import define

from agentrt.core.chat import ToolSpec
from agentrt.core.errors import ToolDefinitionError
from agentrt.tools.arguments import ArgumentChecker, Checked, schema_fault
from agentrt.tools.base import Tool, tool

__all__ = ["ToolRegistry"]

NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""What every vendor takes."""


@define(init=False)
class ToolRegistry:
    """Tools by name, in the order in which they were given."""

    _tools: Mapping[str, Tool]
    _checkers: Mapping[str, ArgumentChecker]
    specs: Sequence[ToolSpec]
    """What the model is told."""

    def __init__(self, tools: Iterable[Tool | Callable[..., Any]] = ()) -> None:
        """Take `tools`; a plain function becomes one.

        Raises:
            ToolDefinitionError: names every tool that cannot work, and why.
        """
        made, unmade = _make_all(tools)
        of_each = (fault for each in made for fault in _faults(each))
        faults = [*_duplicates(made), *unmade, *of_each]
        if faults:
            raise ToolDefinitionError("; ".join(faults))
        self._tools = {each.name: each for each in made}
        self._checkers = {each.name: ArgumentChecker(each.parameters) for each in made}
        self.specs = tuple(each.spec for each in made)

    def __iter__(self) -> Any:
        return iter(self._tools.values())

    def __len__(self) -> int:
        return len(self._tools)

    def find(self, name: str) -> Tool | None:
        """The tool of that name."""
        return self._tools.get(name)

    def check(self, name: str, arguments: Mapping[str, Any]) -> Checked:
        """The arguments as the tool will get them, or every fault in them.

        Raises:
            KeyError: there is no such tool.
        """
        return self._checkers[name].check(arguments)


def _make_all(
    tools: Iterable[Tool | Callable[..., Any]],
) -> tuple[Sequence[Tool], Sequence[str]]:
    """The tools that can be made, and why the others cannot."""
    made: list[Tool] = []
    faults: list[str] = []
    for each in tools:
        try:
            made.append(each if isinstance(each, Tool) else tool(each))
        except ToolDefinitionError as error:
            faults.append(str(error))
    return made, faults


def _duplicates(tools: Sequence[Tool]) -> Iterable[str]:
    for name, count in Counter(each.name for each in tools).items():
        if count > 1:
            yield f"{count} tools are named {name!r}: give one another name"


def _faults(each: Tool) -> Iterable[str]:
    where = f"tool {each.name!r}"
    if not NAME.fullmatch(each.name):
        yield f"{where}: a name has 1 to 64 letters, digits, '_' or '-'"
    seconds = each.timeout_seconds
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if seconds is not None and not (is_number and 0 < seconds < float("inf")):
        yield f"{where}: timeout_seconds is {seconds!r}, expected seconds above 0"
    if (fault := schema_fault(each.parameters)) is not None:
        yield f"{where}: {fault}"
