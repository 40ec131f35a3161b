"""Readers of a conversation, over all its runs: a place in the ring each.

A slow reader costs the run nothing. One that fell behind the ring, begins afresh, or
claims a number that was never given, gets a `Resync` and goes on from there.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Self, TypeAlias

import trio
from attrs import define, field

from agentrt.events.types import Envelope, Resync
from agentrt.runtime.session import Session
from agentrt.stores.ring import EventRing

__all__ = ["BATCH", "Reading", "Subscription"]

BATCH: Final = 64
"""Envelopes that `batch` gives at most, so that a burst does not hold the loop."""

Reading: TypeAlias = Envelope | Resync


@define
class Subscription:
    """One reader of a conversation: `async for` it, or take what is ready by `batch`.

    It ends when the runtime is closed or the conversation forgotten, after the last
    event. To stop reading, leave the loop: nothing is left behind. Cancelling a read
    loses nothing.
    """

    _open: Callable[[], Awaitable[Session | None]]
    """The session, opened if need be; None when there is nothing more to come."""

    _place: int | None
    """The number of the last event that this reader got; None: nothing yet."""

    _ring: EventRing | None = field(default=None, init=False)
    """Where it read last. Closed, it is read to its end and no other is opened: a
    conversation that was forgotten begins again with another ring."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Reading:
        ready = await self._read(1)
        if not ready:
            raise StopAsyncIteration
        return ready[0]

    async def batch(self) -> Sequence[Reading]:
        """Wait, then give all that is ready, up to `BATCH`; nothing at the end."""
        return await self._read(BATCH)

    async def _read(self, limit: int) -> Sequence[Reading]:
        await trio.lowlevel.checkpoint()
        while True:
            ring = self._ring
            if ring is None or not ring.closed or self._is_behind(ring):
                session = await self._open()
                if session is None or (_is_closed(ring) and session.ring is not ring):
                    return ()
                ring = self._ring = session.ring
                if self._is_behind(ring):
                    resync = session.resync()
                    self._place = resync.seq
                    return (resync,)
            place = self._place
            assert place is not None
            if place < ring.visible:
                ready = ring.after(place, limit=min(limit, ring.visible - place))
                self._place = ready[-1].seq
                return ready
            if ring.closed:
                return ()
            await ring.wait_for_more()

    def _is_behind(self, ring: EventRing) -> bool:
        """Whether the ring cannot go on from where this reader is."""
        place = self._place
        return place is None or place > ring.head or place + 1 < ring.oldest


def _is_closed(ring: EventRing | None) -> bool:
    return ring is not None and ring.closed
