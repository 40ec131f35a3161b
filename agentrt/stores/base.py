"""Contracts of what is kept: histories, pauses, events.

The engine imports these and, as its defaults, `stores/in_memory.py`; every other
implementation is a leaf. `agentrt.testing` has a check for each contract.
"""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from agentrt.core.messages import Message
from agentrt.core.outcomes import PauseSnapshot
from agentrt.events.types import Envelope
from agentrt.stores.ring import EventRing

__all__ = [
    "ChatMemory",
    "EventStore",
    "PauseStore",
    "WindowedMemory",
    "whole_memory",
]


class ChatMemory(Protocol):
    """The message history of conversations, in order.

    Every implementation promises:

    * `append` is all or nothing, also when it is cancelled.
    * A message whose id is there already is not added again. So whoever doubts
      that a save went through may repeat it.
    * `history` gives back what was appended, in that order, as an own copy.
    * A conversation that was never written has an empty history; it is no error.
    * `clear` forgets one conversation; it may be written again.
    * Every method is a checkpoint.

    `agentrt.testing.check_chat_memory` tests these promises.
    """

    async def append(
        self, conversation_id: str, messages: Sequence[Message]
    ) -> None: ...

    async def history(self, conversation_id: str) -> Sequence[Message]: ...

    async def clear(self, conversation_id: str) -> None: ...


@runtime_checkable
class WindowedMemory(Protocol):
    """A `ChatMemory` whose `history` is a part of what it keeps, for a model to read.

    Where all of it is needed, `inner` is asked: for ids that are taken, for calls that
    were left open, for people.
    """

    @property
    def inner(self) -> ChatMemory:
        """What keeps the messages; `append` and `clear` go there."""
        ...

    def window(self, messages: Sequence[Message]) -> Sequence[Message]:
        """What a model is shown of the whole history; of something, never nothing."""
        ...


def whole_memory(memory: ChatMemory) -> ChatMemory:
    """The memory that shows all that is kept; most memories are it themselves."""
    while isinstance(memory, WindowedMemory):
        memory = memory.inner
    return memory


class PauseStore(Protocol):
    """The turn of a conversation that waits for people: at most one for each.

    Every implementation promises:

    * `save` puts a snapshot in place of the one before.
    * `load` gives it without taking it; None if there is none.
    * `take` removes and returns the snapshot with that id, at most once ever, however
      many ask at a time; None if it is gone or another one is there.
    * `discard` removes what is there; nothing is no error.
    * Every method is a checkpoint.

    `agentrt.testing.check_pause_store` tests these promises.
    """

    async def save(self, snapshot: PauseSnapshot) -> None: ...

    async def load(self, conversation_id: str) -> PauseSnapshot | None: ...

    async def take(
        self, conversation_id: str, pause_id: str
    ) -> PauseSnapshot | None: ...

    async def discard(self, conversation_id: str) -> None: ...


class EventStore(Protocol):
    """The events of conversations, by number.

    Every implementation promises:

    * `append` is plain and quick, and keeps the number it is given; it refuses a hole
      or a repeat with `ValueError`.
    * `ring` gives the newest events of a conversation, up to what readers may see.
    * `head` is the last number, also of a conversation that was let go: a number is
      never used twice. 0 is a conversation without events.
    * `let_go` frees what is held of a conversation and keeps its last number.

    `agentrt.testing.check_event_store` tests these promises.
    """

    def append(self, envelope: Envelope) -> None: ...

    def ring(self, conversation_id: str) -> EventRing: ...

    def head(self, conversation_id: str) -> int: ...

    def let_go(self, conversation_id: str) -> None: ...
