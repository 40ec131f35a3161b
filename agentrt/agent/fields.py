"""How the fields of an agent are read, and one turn of a conversation at a time."""

from collections.abc import Callable, Sequence
from typing import Any

from attrs import Attribute, define

from agentrt.agent.approval import ApprovalPolicy
from agentrt.agent.approvers import Approval
from agentrt.core.errors import SessionBusyError
from agentrt.filters.base import Filter
from agentrt.tools.base import Tool
from agentrt.tools.registry import ToolRegistry

__all__ = [
    "Occupied",
    "no_memory_filter",
    "not_below_0",
    "to_approval",
    "to_registry",
]


def to_registry(
    tools: ToolRegistry | Sequence[Tool | Callable[..., Any]],
) -> ToolRegistry:
    """Tools, or plain functions, as a registry."""
    return tools if isinstance(tools, ToolRegistry) else ToolRegistry(tools)


def to_approval(
    value: Approval | ApprovalPolicy | Sequence[ApprovalPolicy] | None,
) -> Approval:
    """A policy, several of them, or all there is, as an `Approval`."""
    match value:
        case Approval():
            return value
        case None:
            return Approval()
        case _ if callable(value):
            return Approval(policies=(value,))
        case _:
            return Approval(policies=tuple(value))


def no_memory_filter(_: Any, __: Any, filters: Sequence[Filter]) -> None:
    """A validator: two memories would keep everything twice."""
    for each in filters:
        if each.memory is not None:
            raise ValueError(
                f"filters has the memory filter {each.name!r}: an agent makes its own, "
                "so hand the store in as memory=..."
            )


def not_below_0(_: Any, attribute: "Attribute[int]", value: int) -> None:
    """A validator."""
    if value < 0:
        raise ValueError(f"{attribute.name} is {value}, expected 0 or more")


@define
class Occupied:
    """One turn of a conversation at a time."""

    _busy: dict[str, str]
    _conversation_id: str

    def __enter__(self) -> None:
        running = self._busy.get(self._conversation_id)
        if running is not None:
            raise SessionBusyError(self._conversation_id, running)
        self._busy[self._conversation_id] = "a turn"

    def __exit__(self, *_: object) -> None:
        del self._busy[self._conversation_id]
