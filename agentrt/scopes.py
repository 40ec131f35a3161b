"""Named deadlines, and telling one cancellation from another.

A cancel token is a Trio cancel scope, and nothing else means "stop". What is ours
becomes an outcome; what comes from outside passes through untouched.
"""

import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Final

import trio

from agentrt.core.errors import DeadlineError

__all__ = [
    "CLEANUP_SECONDS",
    "deadline",
    "finish",
    "holds_only",
    "only_cancelled",
    "only_leaf",
]

logger = logging.getLogger(__name__)

CLEANUP_SECONDS: Final = 5.0
"""How long a cleanup that has to wait may take when its task was cancelled: under
`trio.move_on_after(CLEANUP_SECONDS, shield=True)`, and nowhere else a shield."""


@contextmanager
def deadline(name: str, seconds: float | None, *, cut: str = "") -> Iterator[None]:
    """Cut the block after `seconds`; None is no limit and costs nothing.

    Raises:
        DeadlineError: this deadline fired. A cancellation from outside passes.
    """
    if seconds is None:
        yield
        return
    with trio.move_on_after(seconds) as scope:
        yield
    if scope.cancelled_caught:
        raise DeadlineError(name, seconds, cut=cut)


async def finish(save: Callable[[], Awaitable[None]], *, what: str) -> None:
    """Await `save()` to its end, though the task may be cancelled.

    When that happens it is called once more, under a shield, for `CLEANUP_SECONDS`; so
    it must be harmless twice. The cancellation then goes on. Without one it may take as
    long as it likes.
    """
    try:
        await save()
    except BaseException as error:
        if only_cancelled(error):
            with trio.move_on_after(CLEANUP_SECONDS, shield=True) as scope:
                await save()
            if scope.cancelled_caught:
                logger.error("%s was cut after %g s", what, CLEANUP_SECONDS)
        raise


def only_cancelled(error: BaseException) -> bool:
    """Whether nothing but cancellations was raised."""
    if isinstance(error, BaseExceptionGroup):
        return all(only_cancelled(inner) for inner in error.exceptions)
    return isinstance(error, trio.Cancelled)


def holds_only(
    group: BaseExceptionGroup[BaseException], failure: BaseException
) -> bool:
    """Whether the group holds `failure` and cancellations, and nothing else."""
    _, rest = group.split(lambda e: e is failure or isinstance(e, trio.Cancelled))
    return rest is None


def only_leaf(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """What one task raised, plain; the whole group when several did."""
    _, failures = group.split(trio.Cancelled)
    leaf: BaseException | None = failures
    while isinstance(leaf, BaseExceptionGroup) and len(leaf.exceptions) == 1:
        leaf = leaf.exceptions[0]
    if leaf is None or isinstance(leaf, BaseExceptionGroup):
        return group
    return leaf
