"""How one turn differs from the next."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from attrs import Attribute, field, frozen

from agentrt.core.chat import ToolChoice

__all__ = ["DEFAULT_TURN_OPTIONS", "TurnOptions", "fault_of_texts"]


def _not_below_0(_: Any, attribute: "Attribute[int | None]", value: Any) -> None:
    if value is None:
        return
    if type(value) is not int or value < 0:
        raise ValueError(f"{attribute.name} is {value!r}, expected 0 or more")


def _texts(_: Any, attribute: "Attribute[Sequence[str]]", value: Any) -> None:
    fault = fault_of_texts(value)
    if fault is not None:
        raise ValueError(f"{attribute.name} is {fault}")


def fault_of_texts(value: Any) -> str | None:
    """What is wrong with a value that should be several texts; None: nothing is.

    A single text is a sequence too, of its letters: nobody means that.
    """
    if isinstance(value, str):
        return f"the text {value!r}, expected a sequence of texts: write [{value!r}]"
    is_several = isinstance(value, Collection)
    if not (is_several and all(isinstance(each, str) for each in value)):
        return f"{value!r}, expected a sequence of texts"
    return None


@frozen(kw_only=True)
class TurnOptions:
    """What one turn does unlike its agent's others. Only data: a pause keeps it."""

    system: str | None = None
    """The system prompt in place of the agent's; None keeps that."""

    extra_system: Sequence[str] = field(default=(), validator=_texts)
    """Added to the system prompt, each after an empty line."""

    tool_choice: ToolChoice | None = None
    """For the first model call of the turn: a choice that holds for all of them would
    never let the model answer."""

    max_iterations: int | None = field(default=None, validator=_not_below_0)
    """In place of the agent's."""

    tags: Sequence[str] = field(default=(), validator=_texts)
    """Offer only tools with one of these tags, and those without any; () is all."""

    exclude_tags: Sequence[str] = field(default=(), validator=_texts)
    """Do not offer tools with one of these. What is not offered cannot be called."""

    options: Mapping[str, Any] = field(factory=dict)
    """For each model call, as `temperature`; over the agent's own."""

    def system_prompt(self, of_agent: str) -> str:
        """The system prompt of the turn."""
        first = of_agent if self.system is None else self.system
        return "\n\n".join(part for part in (first, *self.extra_system) if part)


DEFAULT_TURN_OPTIONS: Final = TurnOptions()
