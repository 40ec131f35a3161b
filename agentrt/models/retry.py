"""Retry of one logical model call.

Sits beneath the filters on purpose: a filter sees one call however often it was sent,
so history and accounts are written once. Whether a failure may be retried at all is the
error's to say; no status is looked at here.
"""

import random as stdlib_random
from collections.abc import Awaitable, Callable
from typing import TypeVar

import trio
from attrs import evolve, frozen

from agentrt.core.errors import EmptyCompletionError, ModelError

__all__ = ["RetryPolicy", "call_with_retry"]

T = TypeVar("T")


@frozen(kw_only=True)
class RetryPolicy:
    """When to send a failed model call again, and after how long."""

    max_retries: int = 2
    """Beyond the first try; 0 is none."""

    stream_retries: int | None = None
    """In place of `max_retries` for a call that streams; None is the same. Nothing is
    sent again once a delta was told, whatever this says."""

    empty_retries: int = 2
    """For answers without content, from a budget of their own."""

    base_seconds: float = 1.0
    cap_seconds: float = 30.0

    def __attrs_post_init__(self) -> None:
        for name in ("max_retries", "stream_retries", "empty_retries"):
            count = getattr(self, name)
            if count is not None and count < 0:
                raise ValueError(f"{name} is {count}, expected 0 or more")
        for name in ("base_seconds", "cap_seconds"):
            seconds = getattr(self, name)
            if not seconds >= 0:  # NaN is not
                raise ValueError(f"{name} is {seconds}, expected 0 or more")

    def for_call(self, *, streams: bool) -> "RetryPolicy":
        """The policy of one call: how often it is retried, if it streams or not."""
        if not streams or self.stream_retries is None:
            return self
        return evolve(self, max_retries=self.stream_retries)

    def delay(self, retry: int, *, retry_after: float | None, jitter: float) -> float:
        """Seconds to wait before retry number `retry`, counted from 1.

        Exponential back-off with full jitter; `jitter` is in [0, 1). A wait that the
        provider asked for is a minimum, up to the cap; a tenth is added by chance, so
        that callers do not return on one beat.
        """
        if retry_after is not None:
            asked = retry_after if retry_after > 0 else 0.0  # NaN is none too
            return min(asked, self.cap_seconds) * (1 + 0.1 * jitter)
        doublings = min(retry - 1, 32)  # 2.0 ** 1024 overflows
        return jitter * min(self.cap_seconds, self.base_seconds * 2.0**doublings)


async def call_with_retry(
    send: Callable[[], Awaitable[T]],
    *,
    policy: RetryPolicy,
    may_repeat: Callable[[], bool] = lambda: True,
    on_retry: Callable[[int, float, ModelError], None] | None = None,
    random: Callable[[], float] = stdlib_random.random,
) -> T:
    """Call `send` until it succeeds or the policy gives up.

    `may_repeat` is asked after each failure: a stream whose first delta was told may
    not be sent again. `on_retry` hears of each attempt that failed, from 1, of the wait
    in seconds and the error, before the wait.

    Raises:
        ModelError: the last failure, when it is not retryable or the retries
            are used up.
    """
    retries = empties = 0
    while True:
        try:
            return await send()
        except ModelError as error:
            is_empty = isinstance(error, EmptyCompletionError)
            used, limit = (
                (empties, policy.empty_retries)
                if is_empty
                else (retries, policy.max_retries if error.retryable else 0)
            )
            if used >= limit or not may_repeat():
                raise
            empties += is_empty
            retries += not is_empty
            wait = policy.delay(
                used + 1, retry_after=error.retry_after, jitter=random()
            )
            if on_retry is not None:
                on_retry(retries + empties, wait, error)
        await trio.sleep(wait)
