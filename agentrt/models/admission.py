"""May this call go now? Permits for calls in flight, by key.

One permit is one attempt. It is taken within the retry loop and not held while backing
off. Who waits is served first come, first served; waiting ends by a permit or by being
cancelled, and takes nothing with it.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import trio
from attrs import define, field

__all__ = ["AdmissionPool"]

PERMITS: Final = 8


@define
class AdmissionPool:
    """At most `permits` calls in flight for each key. Share it by handing it on."""

    permits: int = PERMITS
    _limiters: dict[str, trio.CapacityLimiter] = field(
        factory=dict, init=False, repr=False
    )

    def __attrs_post_init__(self) -> None:
        if self.permits < 1:
            raise ValueError(f"permits is {self.permits}, expected at least 1")

    @asynccontextmanager
    async def permit(self, key: str) -> AsyncIterator[None]:
        """Hold one permit of `key` for the length of the block."""
        limiter = self._limiters.setdefault(key, trio.CapacityLimiter(self.permits))
        attempt = object()  # not the task: one task may hold two
        try:
            limiter.acquire_on_behalf_of_nowait(attempt)
        except trio.WouldBlock:
            await limiter.acquire_on_behalf_of(attempt)
        try:
            yield
        finally:
            limiter.release_on_behalf_of(attempt)

    def in_flight(self, key: str) -> int:
        """How many permits of `key` are held now."""
        limiter = self._limiters.get(key)
        return 0 if limiter is None else limiter.borrowed_tokens
