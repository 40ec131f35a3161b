"""What is kept: contracts, the ring, and the defaults."""

from agentrt.stores.base import (
    ChatMemory,
    EventStore,
    PauseStore,
    WindowedMemory,
    whole_memory,
)
from agentrt.stores.in_memory import (
    InMemoryChatMemory,
    InMemoryEventStore,
    InMemoryPauseStore,
)
from agentrt.stores.ring import EventRing, weight

__all__ = [
    "ChatMemory",
    "EventRing",
    "EventStore",
    "InMemoryChatMemory",
    "InMemoryEventStore",
    "InMemoryPauseStore",
    "PauseStore",
    "WindowedMemory",
    "weight",
    "whole_memory",
]
