"""What an agent makes of its fields, and one turn of a conversation at a time."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attrs import Attribute, define

from agentrt.agent.approval import ApprovalPolicy
from agentrt.agent.approvers import Approval
from agentrt.core.context import Context, Slot
from agentrt.core.errors import InputError, SessionBusyError
from agentrt.core.history import find_history_faults
from agentrt.core.ids import new_id
from agentrt.core.messages import Message, UserMessage
from agentrt.core.parts import Content
from agentrt.events.types import EventSink
from agentrt.filters.base import Filter
from agentrt.stores.base import ChatMemory, whole_memory
from agentrt.tools.base import Tool
from agentrt.tools.registry import ToolRegistry

__all__ = [
    "Occupied",
    "all_slots",
    "checked_id",
    "checked_input",
    "is_memory",
    "is_model",
    "is_pause_store",
    "new_context",
    "no_memory_filter",
    "not_below_0",
    "to_approval",
    "to_registry",
    "whole_of",
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
    given: Any = value
    match given:
        case Approval():
            return given
        case None:
            return Approval()
        case Sequence() if not isinstance(given, str):
            policies = tuple(given)
        case _:
            policies = (given,)
    for each in policies:
        if not callable(each):
            raise TypeError(f"approval has {each!r}, expected a policy: a function")
    return Approval(policies=policies)


def no_memory_filter(_: Any, __: Any, filters: Sequence[Filter]) -> None:
    """A validator: two memories would keep everything twice."""
    for each in filters:
        if each.memory is not None:
            raise ValueError(
                f"filters has the memory filter {each.name!r}: an agent makes its own, "
                "so hand the store in as memory=..."
            )


def _has(*names: str, opener: str) -> Callable[[Any, Any, Any], None]:
    """A validator: the value has what its contract asks for."""

    def check(_: Any, attribute: "Attribute[Any]", value: Any) -> None:
        missing = [name for name in names if not callable(getattr(value, name, None))]
        if missing:
            raise TypeError(
                f"{attribute.name} is {value!r}, which has no {missing[0]!r} method: "
                f"expected what `async with {opener}` gives, or one of your own"
            )

    return check


is_model = _has("call", opener="open_model(...)")
_is_store = _has("append", "history", "clear", opener="open_sqlite_stores(...)")
is_pause_store = _has("save", "load", "take", opener="open_sqlite_stores(...)")


def is_memory(agent: Any, attribute: "Attribute[Any]", value: Any) -> None:
    """A validator."""
    if value is not None:
        _is_store(agent, attribute, value)


def not_below_0(_: Any, attribute: "Attribute[int]", value: int) -> None:
    """A validator."""
    if value < 0:
        raise ValueError(f"{attribute.name} is {value}, expected 0 or more")


def whole_of(memory: ChatMemory | None) -> ChatMemory | None:
    """Where all of a history is: a window is for the model alone."""
    return None if memory is None else whole_memory(memory)


def all_slots(filters: Sequence[Filter], own: Mapping[str, Slot]) -> Mapping[str, Slot]:
    """The slots of filters, and an agent's own over them.

    Raises:
        ValueError: two filters fold one slot in different ways, and are not of one
            name, as two of one kind are.
    """
    found: dict[str, tuple[Slot, Filter]] = {}
    for each in filters:
        for key, slot in each.slots.items():
            known, owner = found.setdefault(key, (slot, each))
            if known != slot and owner.name != each.name and key not in own:
                raise ValueError(
                    f"the filters {owner.name!r} and {each.name!r} fold the slot "
                    f"{key!r} in different ways: give one of them another key, or the "
                    "agent a slot of its own for it"
                )
    return {**{key: slot for key, (slot, _) in found.items()}, **own}


def new_context(
    conversation_id: str, emit: EventSink | None, values: Mapping[str, Any] | None
) -> Context:
    """The context of a turn that no runtime runs."""
    return Context(
        conversation_id=checked_id(conversation_id),
        run_id=new_id(),
        emit=emit,
        values=values or {},
    )


def checked_id(conversation_id: Any) -> str:
    """The id of a conversation.

    Raises:
        InputError: it is no text, or empty.
    """
    if not isinstance(conversation_id, str) or not conversation_id:
        raise InputError(
            f"the conversation id is {conversation_id!r}, expected a text that is not "
            "empty"
        )
    return conversation_id


def checked_input(messages: Sequence[Message]) -> Sequence[Message]:
    """Input that leaves the history valid.

    Raises:
        InputError: a call in it has no result, or a result no call, or what a user said
            is empty, which vendors refuse.
    """
    faults = find_history_faults(messages)
    if faults:
        raise InputError(f"the input cannot be added to a history: {faults[0]}")
    for each in messages:
        if isinstance(each, UserMessage) and _is_empty(each.content):
            raise InputError(
                f"a user message of the input is {each.content!r}, expected words or "
                "parts"
            )
    return messages


def _is_empty(content: Content) -> bool:
    return not (content.strip() if isinstance(content, str) else content)


@define
class Occupied:
    """One turn of a conversation at a time."""

    _busy: dict[str, str]
    _conversation_id: str
    _run_id: str = "a turn"

    def __enter__(self) -> None:
        running = self._busy.get(self._conversation_id)
        if running is not None:
            raise SessionBusyError(self._conversation_id, running)
        self._busy[self._conversation_id] = self._run_id

    def __exit__(self, *_: object) -> None:
        del self._busy[self._conversation_id]
