"""The life of a session, as a table. No I/O.

What is not in the table is refused.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

__all__ = ["NEXT_PHASE", "Action", "Phase", "next_phase"]


class Phase(StrEnum):
    IDLE = "idle"
    RUNNING = "running"
    STOPPING = "stopping"
    """A stop was asked for, and the run is not over yet."""

    PAUSED = "paused"
    """The last run ended in a question."""


class Action(StrEnum):
    START = "start"
    RESUME = "resume"
    STOP = "stop"
    END = "end"
    PAUSE = "pause"
    DISCARD = "discard"
    """Give up the pause."""


NEXT_PHASE: Final[Mapping[tuple[Phase, Action], Phase]] = {
    (Phase.IDLE,     Action.START):   Phase.RUNNING,
    (Phase.RUNNING,  Action.STOP):    Phase.STOPPING,
    (Phase.RUNNING,  Action.END):     Phase.IDLE,
    (Phase.RUNNING,  Action.PAUSE):   Phase.PAUSED,
    (Phase.STOPPING, Action.END):     Phase.IDLE,
    (Phase.STOPPING, Action.PAUSE):   Phase.PAUSED,
    (Phase.PAUSED,   Action.RESUME):  Phase.RUNNING,
    (Phase.PAUSED,   Action.DISCARD): Phase.IDLE,
}  # fmt: skip


def next_phase(phase: Phase, action: Action) -> Phase | None:
    """Where `action` leads from `phase`; None if it may not happen."""
    return NEXT_PHASE.get((phase, action))
