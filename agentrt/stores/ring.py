"""The newest events of one conversation, shared by all its readers.

A reader is a place in the ring, so a slow one costs nothing: when the ring has passed
its place, it is told so. Bounded by events and by bytes; when full, the oldest go.
Waiting readers are woken together, once for all events that came since they slept.
"""

from collections.abc import Sequence
from typing import Any, Final

import trio
from attrs import define, field

from agentrt.events import types as e
from agentrt.events.types import Envelope

__all__ = ["EventRing", "weight"]

MAX_EVENTS: Final = 4096
MAX_BYTES: Final = 4 * 1024 * 1024

ENVELOPE_BYTES: Final = 200
"""What an envelope and a small event take, roughly."""


def weight(envelope: Envelope) -> int:
    """Roughly how many bytes an envelope takes: its texts, and a constant."""
    event: Any = envelope.event
    match event:
        case e.MessageDelta() | e.MessageThinking() | e.ToolArgsDelta():
            return ENVELOPE_BYTES + len(event.text)
        case e.ToolEnded():
            return ENVELOPE_BYTES + len(str(event.arguments))
        case e.ToolReturned():
            return ENVELOPE_BYTES + len(str(event.content)) + len(str(event.writes))
        case e.RunStarted():
            return ENVELOPE_BYTES + len(str(event.input))
        case e.RunFinished() | e.RunCancelled():
            return ENVELOPE_BYTES + len(event.text) + len(str(event.calls))
        case e.RunFailed() | e.RunPaused():
            return ENVELOPE_BYTES + len(str(event.calls))
        case _:
            return ENVELOPE_BYTES


_DROPPED: Final[Any] = None


@define
class EventRing:
    """Events from `oldest` to `head`; readers may go up to `visible`."""

    head: int = 0
    """The last number that was appended."""

    max_events: int = MAX_EVENTS
    max_bytes: int = MAX_BYTES
    closed: bool = field(default=False, init=False)
    """No more will come: readers end when they have read on to `visible`."""

    bytes: int = field(default=0, init=False)
    _events: list[Envelope] = field(factory=list, init=False, repr=False)
    _sizes: list[int] = field(factory=list, init=False, repr=False)
    _first: int = field(default=0, init=False, repr=False)
    """Index of the oldest event: what lies before it is dropped now and then."""

    _readers: trio.lowlevel.ParkingLot = field(
        factory=trio.lowlevel.ParkingLot, init=False, repr=False
    )

    @property
    def visible(self) -> int:
        """Up to where readers may go: here, as nothing is written behind, `head`."""
        return self.head

    @property
    def readers(self) -> int:
        """How many wait for more."""
        return len(self._readers)

    @property
    def oldest(self) -> int:
        """The first number that is still here; `head + 1` when none is."""
        return self.head + 1 - (len(self._events) - self._first)

    def append(self, envelope: Envelope) -> None:
        """Keep the event and wake all readers; drop the oldest beyond the bounds.

        Raises:
            ValueError: the number is not the next one.
        """
        if envelope.seq != self.head + 1:
            raise ValueError(f"seq is {envelope.seq}, expected {self.head + 1}")
        size = weight(envelope)
        self._events.append(envelope)
        self._sizes.append(size)
        self.head += 1
        self.bytes += size
        while self._is_over_full():
            self.bytes -= self._sizes[self._first]
            self._events[self._first] = _DROPPED  # or its bytes would stay
            self._first += 1
        if self._first > len(self._events) // 2:  # rarely, so that it costs little
            del self._events[: self._first], self._sizes[: self._first]
            self._first = 0
        if self._readers:
            self._readers.unpark_all()

    def _is_over_full(self) -> bool:
        count = len(self._events) - self._first
        return count > 1 and (count > self.max_events or self.bytes > self.max_bytes)

    def __getitem__(self, seq: int) -> Envelope:
        return self._events[self._first + seq - self.oldest]

    def after(self, seq: int, *, limit: int) -> Sequence[Envelope]:
        """Up to `limit` events with numbers after `seq`, which must still be here."""
        start = self._first + seq + 1 - self.oldest
        return self._events[start : start + limit]

    async def wait_for_more(self) -> None:
        """Wait until something is appended or the ring is closed."""
        await self._readers.park()

    def close(self) -> None:
        """No more will come. Waiting readers are woken."""
        self.closed = True
        self._readers.unpark_all()
