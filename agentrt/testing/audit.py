"""`no_leftovers`: a block after which nothing may be left running."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import trio
import trio.testing

__all__ = ["no_leftovers"]


@asynccontextmanager
async def no_leftovers(
    *, limiters: Sequence[trio.CapacityLimiter] = ()
) -> AsyncIterator[None]:
    """Fail if the block leaves a task, a permit of `limiters`, or a busy thread.

    Tasks of a nursery that was open before the block and got new children count too.

    Raises:
        AssertionError: something was left; says what.
    """
    tasks = trio.lowlevel.current_statistics().tasks_living
    threads = _busy_threads()
    held = [limiter.borrowed_tokens for limiter in limiters]
    yield
    await trio.testing.wait_all_tasks_blocked()
    left = trio.lowlevel.current_statistics().tasks_living - tasks
    assert left <= 0, f"{left} task(s) left running"
    for limiter, before in zip(limiters, held, strict=True):
        more = limiter.borrowed_tokens - before
        assert more <= 0, f"{more} permit(s) of {limiter!r} never given back"
    busy = _busy_threads() - threads
    assert busy <= 0, f"{busy} worker thread(s) still at work"


def _busy_threads() -> int:
    """Worker threads of Trio's that are running something; idle ones are kept for
    the next call and count for nothing."""
    limiter = trio.to_thread.current_default_thread_limiter()
    return limiter.borrowed_tokens
