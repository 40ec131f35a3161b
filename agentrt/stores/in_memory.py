"""Stores that live and die with the process: the engine's defaults."""

from collections import defaultdict
from collections.abc import Sequence

import trio
from attrs import define, field

from agentrt.core.messages import Message
from agentrt.core.outcomes import PauseSnapshot
from agentrt.events.types import Envelope
from agentrt.stores.ring import MAX_BYTES, MAX_EVENTS, EventRing

__all__ = ["InMemoryChatMemory", "InMemoryEventStore", "InMemoryPauseStore"]


@define
class InMemoryChatMemory:
    """A `ChatMemory` that lives and dies with the process."""

    _histories: defaultdict[str, dict[str, Message]] = field(
        factory=lambda: defaultdict(dict), init=False, repr=False
    )
    """By conversation, then by message id, in the order of appending."""

    async def append(self, conversation_id: str, messages: Sequence[Message]) -> None:
        await trio.lowlevel.checkpoint()
        history = self._histories[conversation_id]
        for message in messages:
            history.setdefault(message.id, message)

    async def history(self, conversation_id: str) -> Sequence[Message]:
        await trio.lowlevel.checkpoint()
        return tuple(self._histories.get(conversation_id, {}).values())

    async def clear(self, conversation_id: str) -> None:
        await trio.lowlevel.checkpoint()
        self._histories.pop(conversation_id, None)


@define
class InMemoryPauseStore:
    """A `PauseStore` that lives and dies with the process."""

    _pauses: dict[str, PauseSnapshot] = field(factory=dict, init=False, repr=False)

    async def save(self, snapshot: PauseSnapshot) -> None:
        await trio.lowlevel.checkpoint()
        self._pauses[snapshot.conversation_id] = snapshot

    async def load(self, conversation_id: str) -> PauseSnapshot | None:
        await trio.lowlevel.checkpoint()
        return self._pauses.get(conversation_id)

    async def take(self, conversation_id: str, pause_id: str) -> PauseSnapshot | None:
        await trio.lowlevel.checkpoint()
        snapshot = self._pauses.get(conversation_id)
        if snapshot is None or snapshot.id != pause_id:
            return None
        return self._pauses.pop(conversation_id)

    async def discard(self, conversation_id: str) -> None:
        await trio.lowlevel.checkpoint()
        self._pauses.pop(conversation_id, None)


@define
class InMemoryEventStore:
    """An `EventStore` that keeps the newest events of each conversation.

    The last number of a conversation that was let go is kept for the life of the
    process: an integer for each conversation ever seen.
    """

    max_events: int = MAX_EVENTS
    """For each conversation; when full, the oldest go."""

    max_bytes: int = MAX_BYTES
    _rings: dict[str, EventRing] = field(factory=dict, init=False, repr=False)
    _heads: dict[str, int] = field(factory=dict, init=False, repr=False)

    def append(self, envelope: Envelope) -> None:
        self.ring(envelope.conversation_id).append(envelope)

    def ring(self, conversation_id: str) -> EventRing:
        ring = self._rings.get(conversation_id)
        if ring is None:
            head = self._heads.get(conversation_id, 0)
            ring = EventRing(head, self.max_events, self.max_bytes)
            self._rings[conversation_id] = ring
        return ring

    def head(self, conversation_id: str) -> int:
        ring = self._rings.get(conversation_id)
        return self._heads.get(conversation_id, 0) if ring is None else ring.head

    def let_go(self, conversation_id: str) -> None:
        ring = self._rings.pop(conversation_id, None)
        if ring is not None and ring.head:
            self._heads[conversation_id] = ring.head
