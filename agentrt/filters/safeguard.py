"""The safeguard filter: forbidden input gets a fixed answer, and no model sees it."""

import inspect
import unicodedata
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Final, TypeAlias

from agentrt.core.outcomes import TurnCompleted
from agentrt.filters.base import Filter, TurnCall, hook

__all__ = ["ANSWER", "safeguard_filter"]

ANSWER: Final = "I cannot help with that."

IsForbidden: TypeAlias = Callable[[str], bool | Awaitable[bool]]


def safeguard_filter(
    forbidden: Iterable[str] | IsForbidden, *, answer: str = ANSWER
) -> Filter:
    """Give `answer` to forbidden input; no model is asked, and nothing is stored.

    `forbidden` is words or phrases, found anywhere in a message whatever their case or
    their width; blank ones are ignored. Or it is a function that says so of a text, and
    that may be async. Each new message of the turn is looked at by its text; what tools
    return and what the model answers is not. The outcome has
    `stopped_by="safeguard"`, and the next turn knows nothing of the refused one.

    A paused turn that goes on passes, and so does what other filters ask in reruns.
    Register it first, so that no other filter works on what is refused.

    Raises:
        ValueError: no word is left.
    """
    is_forbidden = forbidden if callable(forbidden) else _any_of(forbidden)

    @hook
    async def turn(call: TurnCall) -> AsyncIterator[None]:
        request = call.request
        if request.resume is None and not request.is_rerun:
            for message in request.messages:
                found = is_forbidden(message.text)
                if await found if inspect.isawaitable(found) else found:
                    call.response = TurnCompleted(text=answer, stopped_by="safeguard")
                    break
        yield

    return Filter(name="safeguard", turn=turn)


def _any_of(words: Iterable[str]) -> IsForbidden:
    given = [words] if isinstance(words, str) else list(words)
    folded = [_fold(word) for word in given if word.strip()]
    if not folded:
        raise ValueError(f"the safeguard has no words to look for: got {given!r}")

    def is_forbidden(text: str) -> bool:
        seen = _fold(text)
        return any(word in seen for word in folded)

    return is_forbidden


def _fold(text: str) -> str:
    """Without case, and with letters of other widths and styles as the plain ones.

    Decomposed, since a composed letter would hide the plain one that it begins with.
    """
    return unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", text).casefold())
