"""Asking again for an answer with faults: what the filters that check answers share.

Part of the trunk: a filter that checks answers in its own way builds on it.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from attrs import Attribute, field, frozen

from agentrt.core.messages import UserMessage
from agentrt.core.outcomes import TurnCompleted, TurnFailed
from agentrt.filters.base import MAX_RERUNS, TurnCall

__all__ = ["Retries", "ask_until_fine"]

logger = logging.getLogger(__name__)

MAX_FAULTS: Final = 20
MAX_CHARACTERS: Final = 500
"""Of one fault."""

ASK: Final = """\
This message is from the system, not from the user. Your last answer has faults:
{faults}
Give the whole answer again, without them."""


def _in_range(_: object, attribute: "Attribute[int]", value: int) -> None:
    if not 0 <= value <= MAX_RERUNS:
        raise ValueError(f"{attribute.name} is {value}, expected 0 to {MAX_RERUNS}")


@frozen(kw_only=True)
class Retries:
    """How often an answer with faults is asked for again, and what happens then.

    Raises:
        ValueError: `max_retries` is not from 0 to 3.
    """

    max_retries: int = field(default=2, validator=_in_range)
    """Beyond the first answer."""

    must_pass: bool = False
    """The last answer fails the turn if it has faults; else it is the outcome."""


async def ask_until_fine(
    call: TurnCall,
    check: Callable[[TurnCompleted], Awaitable[Sequence[str]]],
    retries: Retries,
) -> None:
    """Check the answer of a turn hook's call; while it has faults, ask again.

    To be awaited after the `yield`. The faults, the first 20, go to the model as one
    message that is kept in the history, as are the answers. Only an answer that the
    model completed is checked. With none without faults `call.response` is the last
    one as it is, or a `TurnFailed` of code `invalid_answer`: see `Retries.must_pass`.
    """
    left = retries.max_retries
    while isinstance(call.response, TurnCompleted) and not call.response.stopped_by:
        faults = await check(call.response)
        if not faults:
            return
        if not (left and call.reruns_left):
            _give_up(call, call.response, faults, retries)
            return
        left -= 1
        call.request = call.request.again(UserMessage(content=_ask(faults)))
        await call.rerun()


def _give_up(
    call: TurnCall, answer: TurnCompleted, faults: Sequence[str], retries: Retries
) -> None:
    logger.warning(
        "conversation %r: the answer has %d faults after %d retries",
        call.context.conversation_id,
        len(faults),
        retries.max_retries,
    )
    if retries.must_pass:
        call.response = TurnFailed(
            message=f"the answer has faults: {'; '.join(_shown(faults))}",
            code="invalid_answer",
            usage=answer.usage,
            calls=answer.calls,
        )


def _ask(faults: Sequence[str]) -> str:
    return ASK.format(faults="\n".join(f"- {fault}" for fault in _shown(faults)))


def _shown(faults: Sequence[str]) -> Sequence[str]:
    shown = [
        fault if len(fault) <= MAX_CHARACTERS else f"{fault[:MAX_CHARACTERS]}..."
        for fault in faults[:MAX_FAULTS]
    ]
    more = len(faults) - len(shown)
    return [*shown, f"and {more} more"] if more else shown
