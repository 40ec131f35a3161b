"""The limits of time that an agent sets."""

from typing import Any, Final

from attrs import frozen

__all__ = ["NO_DEADLINES", "Deadlines", "check_seconds"]


@frozen(kw_only=True)
class Deadlines:
    """Limits of one agent, in seconds; None is no limit.

    They lie within each other; the error says which one fired, and what it cut. A run's
    own deadline is given when the run is started.
    """

    turn_seconds: float | None = None
    iteration_seconds: float | None = None
    model_seconds: float | None = None
    """One logical model call, retries and waiting for a permit included."""

    attempt_seconds: float | None = None
    """One attempt of it, without the wait for its permit. It may be retried."""

    first_token_seconds: float | None = None
    """Until an attempt that streams has said anything. It may be retried."""

    token_gap_seconds: float | None = None
    """Between one delta and the next. Not retried: a reader has seen a part."""

    tool_seconds: float | None = None
    """For a tool that names none of its own. It fails the call, not the turn."""

    human_seconds: float | None = None
    """For approvers to decide on a call, and for people to answer a pause. An answer
    that comes later is a denial."""

    def __attrs_post_init__(self) -> None:
        for name in DEADLINES:
            seconds = getattr(self, name)
            if seconds is not None:
                check_seconds(name, seconds)


DEADLINES: Final = (
    "turn_seconds",
    "iteration_seconds",
    "model_seconds",
    "attempt_seconds",
    "first_token_seconds",
    "token_gap_seconds",
    "tool_seconds",
    "human_seconds",
)

NO_DEADLINES: Final = Deadlines()


def check_seconds(name: str, value: Any) -> None:
    """Raise unless it is a number of seconds that a limit may have.

    Raises:
        ValueError: it is not; says which limit, and what it is.
    """
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not (is_number and value > 0):
        raise ValueError(f"{name} is {value!r}, expected seconds above 0")
