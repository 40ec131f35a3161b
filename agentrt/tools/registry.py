"""The tools of one agent: built once, checked once, looked up by name."""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from attrs import define

from agentrt.core.chat import ToolSpec
from agentrt.core.errors import ToolDefinitionError
from agentrt.tools.arguments import ArgumentChecker, Checked, schema_fault
from agentrt.tools.base import Tool, ToolRetry, tool

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

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._tools.values())

    def __len__(self) -> int:
        return len(self._tools)

    def find(self, name: str) -> Tool | None:
        """The tool of that name."""
        return self._tools.get(name)

    def specs_with(
        self, tags: Collection[str], exclude_tags: Collection[str] = ()
    ) -> Sequence[ToolSpec]:
        """What the model is told in a turn that names tags; () names none.

        A tool without tags is always there.
        """
        return tuple(
            each.spec
            for each in self._tools.values()
            if not each.tags.intersection(exclude_tags)
            and (not tags or not each.tags or each.tags.intersection(tags))
        )

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
    if seconds is not None and not _is_seconds(seconds):
        yield f"{where}: timeout_seconds is {seconds!r}, expected seconds above 0"
    yield from _retry_faults(where, each.retry)
    if each.runs_elsewhere and (each.return_direct or each.retry is not None):
        yield f"{where} runs elsewhere: return_direct and retry do nothing for it"
    if (fault := schema_fault(each.parameters)) is not None:
        yield f"{where}: {fault}"


def _retry_faults(where: str, retry: Any) -> Iterable[str]:
    if retry is None:
        return
    if not isinstance(retry, ToolRetry):
        yield f"{where}: retry is {retry!r}, expected True, False or a ToolRetry"
        return
    count = retry.max_retries
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        yield f"{where}: retry.max_retries is {count!r}, expected 1 or more"
    if not _is_seconds(retry.initial_seconds):
        yield (
            f"{where}: retry.initial_seconds is {retry.initial_seconds!r}, "
            "expected seconds above 0"
        )


def _is_seconds(value: Any) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and 0 < value < float("inf")
