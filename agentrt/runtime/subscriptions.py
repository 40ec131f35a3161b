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

    _find: Callable[[], Session | None]
    """The session, if it is open."""

    _open: Callable[[], Awaitable[Session | None]]
    """The session, opened if need be; None when there is nothing more to come."""

    _place: int | None
    """The number of the last event that this reader got; None: nothing yet."""

    _session: Session | None = field(default=None, init=False)
    """Where it read last."""

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
        # One pass through the scheduler for each read, whether it waits or not. The
        # place moves after the last checkpoint, so a cancelled read loses nothing.
        scheduled = False
        while True:
            session = self._forgotten() or self._find() or await self._open()
            self._session = session
            if session is not None and self._is_up_to_date(session):
                await session.ring.wait_for_more()
                scheduled = True
            elif not scheduled:
                await trio.lowlevel.checkpoint()
                scheduled = True
            elif session is None:
                return ()
            else:
                return self._take(session, limit)

    def _forgotten(self) -> Session | None:
        """Where it read last, if that is over: then nothing else is opened."""
        last = self._session
        return last if last is not None and last.ring.closed else None

    def _is_up_to_date(self, session: Session) -> bool:
        """Whether there is nothing to read, and more may come."""
        ring = session.ring
        return self._place == ring.visible and not ring.closed

    def _take(self, session: Session, limit: int) -> Sequence[Reading]:
        ring, place = session.ring, self._place
        if place is None or place > ring.head or place + 1 < ring.oldest:
            resync = session.resync()
            self._place = resync.seq
            return (resync,)
        ready = ring.after(place, limit=min(limit, ring.visible - place))
        if ready:
            self._place = ready[-1].seq
        return ready
