"""The stores of the process keep their contracts' promises."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio

from agentrt.core.messages import UserMessage
from agentrt.events.types import Envelope, RunStarted
from agentrt.stores.base import ChatMemory, EventStore, PauseStore
from agentrt.stores.in_memory import (
    InMemoryChatMemory,
    InMemoryEventStore,
    InMemoryPauseStore,
)
from agentrt.testing import check_chat_memory, check_event_store, check_pause_store


async def test_the_chat_memory_keeps_its_promises() -> None:
    @asynccontextmanager
    async def opened() -> AsyncIterator[ChatMemory]:
        yield InMemoryChatMemory()

    await check_chat_memory(opened)


async def test_the_pause_store_keeps_its_promises() -> None:
    """X24"""

    @asynccontextmanager
    async def opened() -> AsyncIterator[PauseStore]:
        yield InMemoryPauseStore()

    await check_pause_store(opened)


async def test_the_event_store_keeps_its_promises() -> None:
    @asynccontextmanager
    async def opened() -> AsyncIterator[EventStore]:
        yield InMemoryEventStore()

    await check_event_store(opened)


async def test_a_history_is_a_copy() -> None:
    memory = InMemoryChatMemory()
    await memory.append("c", [UserMessage(id="1", content="x")])
    before = await memory.history("c")
    await memory.append("c", [UserMessage(id="2", content="y")])
    assert [message.id for message in before] == ["1"]


async def test_asking_for_a_conversation_does_not_make_one() -> None:
    """U43"""
    memory = InMemoryChatMemory()
    await memory.history("never written")
    await memory.clear("never written")
    assert memory._histories == {}


async def test_an_event_store_lets_go_of_everything_but_the_number() -> None:
    """P1"""
    store = InMemoryEventStore(max_events=2)
    for seq in range(1, 4):
        store.append(
            Envelope(seq=seq, conversation_id="c", run_id="r", at=0, event=RunStarted())
        )
    assert store.ring("c").oldest == 2
    store.let_go("c")
    store.let_go("c")
    store.let_go("never seen")
    assert (store.head("c"), store.head("never seen")) == (3, 0)
    assert list(store.ring("c").after(3, limit=9)) == []
    with pytest.raises(ValueError, match="seq is 3, expected 4"):
        store.append(
            Envelope(seq=3, conversation_id="c", run_id="r", at=0, event=RunStarted())
        )


async def test_appends_of_many_tasks_all_arrive() -> None:
    memory = InMemoryChatMemory()

    async def write(task: int) -> None:
        for number in range(25):
            message = UserMessage(id=f"{task}-{number}", content="x")
            await memory.append("c", [message])

    async with trio.open_nursery() as nursery:
        for task in range(8):
            nursery.start_soon(write, task)
    assert len(await memory.history("c")) == 200
