"""The validation filter: a check of the answer by any function."""

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from typing import Any, TypeAlias

from agentrt.core.outcomes import TurnCompleted
from agentrt.filters.asking import Retries, ask_until_fine
from agentrt.filters.base import Filter, TurnCall, hook

__all__ = ["validation_filter"]

Faults: TypeAlias = Iterable[str] | None

Check: TypeAlias = Callable[[TurnCompleted], Faults | Awaitable[Faults]]


def validation_filter(
    check: Check, *, max_retries: int = 2, must_pass: bool = False
) -> Filter:
    """Check each answer; while it has faults, name them to the model and ask again.

    `check` is given the outcome and gives one line for each fault, for the model to
    read: none, or None, if all is well. It may be async; one that is not must be quick.
    What it raises comes out of the turn. An answer after a pause is checked too. A turn
    that a filter stopped (`stopped_by`), that paused or that failed is not.

    The model is asked again up to `max_retries` times (0 to 3). If the last answer
    still has faults it is the outcome as it is; with `must_pass` the turn fails, with
    code `invalid_answer`. The history keeps every answer and what was asked. Register
    it after (within) filters that change the question.

    Raises:
        ValueError: `max_retries` is out of range.
    """
    retries = Retries(max_retries=max_retries, must_pass=must_pass)

    async def faults_of(answer: TurnCompleted) -> Sequence[str]:
        found = check(answer)
        return _lines(await found if inspect.isawaitable(found) else found)

    @hook
    async def turn(call: TurnCall) -> AsyncIterator[None]:
        yield
        await ask_until_fine(call, faults_of, retries)

    return Filter(name="validation", turn=turn)


def _lines(faults: Any) -> Sequence[str]:
    lines = [faults] if isinstance(faults, str) else faults
    if lines is None:
        return ()
    if isinstance(lines, Iterable):
        given = list(lines)
        if all(isinstance(line, str) for line in given):
            return [line for line in given if line.strip()]
    raise TypeError(
        f"the check gave {str(faults)[:80]!r}, expected lines of text, one for each "
        "fault, or None"
    )
