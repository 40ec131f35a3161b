"""The limits of time that an agent sets."""

from typing import Any, Final

from attrs import field, frozen

__all__ = ["NO_DEADLINES", "Deadlines", "check_seconds", "seconds_or_none"]


def check_seconds(name: str, value: Any) -> None:
    """Raise unless it is a number of seconds that a limit may have.

    Raises:
        ValueError: it is not; says which limit, and what it is.
    """
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not (is_number and value > 0):
        raise ValueError(f"{name} is {value!r}, expected seconds above 0")


def seconds_or_none(_: Any, attribute: Any, value: Any) -> None:
    """A validator of a field: None, or seconds above 0."""
    if value is not None:
        check_seconds(attribute.name, value)


@frozen(kw_only=True)
class Deadlines:
    """Limits of one agent, in seconds; None is no limit.

    They lie within each other; the error says which one fired, and what it cut. A run's
    own deadline is given when the run is started.
    """

    turn_seconds: float | None = field(default=None, validator=seconds_or_none)
    iteration_seconds: float | None = field(default=None, validator=seconds_or_none)
    model_seconds: float | None = field(default=None, validator=seconds_or_none)
    """One logical model call, retries and waiting for a permit included."""

    attempt_seconds: float | None = field(default=None, validator=seconds_or_none)
    """One attempt of it, without the wait for its permit. It may be retried."""

    first_token_seconds: float | None = field(default=None, validator=seconds_or_none)
    """Until an attempt that streams has said anything. It may be retried."""

    token_gap_seconds: float | None = field(default=None, validator=seconds_or_none)
    """Between one delta and the next. Not retried: a reader has seen a part."""

    tool_seconds: float | None = field(default=None, validator=seconds_or_none)
    """For a tool that names none of its own. It fails the call, not the turn."""

    human_seconds: float | None = field(default=None, validator=seconds_or_none)
    """For approvers to decide on a call, and for people to answer a pause. An answer
    that comes later is a denial."""


NO_DEADLINES: Final = Deadlines()
