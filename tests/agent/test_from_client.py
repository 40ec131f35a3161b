"""An agent on a ready client: whose memory it has, and in what order filters lie."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from agentrt.agent.agent import Agent
from agentrt.agent.client import ChatClient
from agentrt.core.deadlines import Deadlines
from agentrt.filters.base import ChatCall, Filter, hook
from agentrt.filters.memory import memory_filter
from agentrt.stores.in_memory import InMemoryChatMemory
from agentrt.testing import ScriptedModel


def watching(name: str, seen: list[tuple[str, int]]) -> Filter:
    """Takes down how much of the history it was shown."""

    @hook
    async def chat(call: ChatCall) -> AsyncIterator[None]:
        seen.append((name, len(call.request.messages)))
        yield

    return Filter(name=name, chat=chat)


def ready(*filters: Filter) -> ChatClient:
    return ChatClient(ScriptedModel(["one", "two"]), filters=filters)


async def test_the_clients_own_store_is_used() -> None:
    """B65"""
    store = InMemoryChatMemory()
    agent = Agent.from_client(ready(memory_filter(store)))
    assert agent.memory is store
    await agent.run("hi", conversation_id="c")
    assert len(await store.history("c")) == 2


async def test_another_store_takes_its_place() -> None:
    """B65"""
    old, new = InMemoryChatMemory(), InMemoryChatMemory()
    agent = Agent.from_client(ready(memory_filter(old)), memory=new)
    await agent.run("hi", conversation_id="c")
    assert (len(await old.history("c")), len(await new.history("c"))) == (0, 2)


async def test_none_leaves_the_memory_out() -> None:
    """B65"""
    store = InMemoryChatMemory()
    agent = Agent.from_client(ready(memory_filter(store)), memory=None)
    await agent.run("hi", conversation_id="c")
    assert agent.memory is None
    assert len(await store.history("c")) == 0


async def test_a_client_without_a_memory_gets_one() -> None:
    agent = Agent.from_client(ready())
    await agent.run("hi", conversation_id="c")
    assert len(await agent.history("c")) == 2


async def test_the_memory_is_outermost_and_the_others_keep_their_order() -> None:
    """B65: wherever the client had it."""
    seen: list[tuple[str, int]] = []
    filters = [
        watching("first", seen),
        memory_filter(InMemoryChatMemory()),
        watching("second", seen),
    ]
    agent = Agent.from_client(ready(*filters))
    await agent.run("hi", conversation_id="c")
    await agent.run("again", conversation_id="c")
    assert seen == [("first", 1), ("second", 1), ("first", 3), ("second", 3)]


def test_deadlines_are_the_clients_unless_given() -> None:
    limits = Deadlines(model_seconds=3)
    client = ChatClient(ScriptedModel([]), deadlines=limits)
    assert Agent.from_client(client).deadlines is limits
    other = Deadlines(turn_seconds=1)
    assert Agent.from_client(client, deadlines=other).deadlines is other


def test_a_memory_filter_among_an_agents_filters_is_refused() -> None:
    filters: list[Any] = [memory_filter(InMemoryChatMemory())]
    with pytest.raises(ValueError, match="hand the store in as memory="):
        Agent(model=ScriptedModel([]), filters=filters)
