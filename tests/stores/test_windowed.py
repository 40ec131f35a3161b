"""A window on a history: what the model is shown, and what stays whole."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from agentrt.agent.agent import Agent
from agentrt.core.history import find_history_faults, mend
from agentrt.core.messages import (
    AssistantMessage,
    Message,
    SystemMessage,
    ToolCall,
    ToolMessage,
    UserMessage,
    tool_calls_of,
)
from agentrt.core.outcomes import Approve, TurnCompleted, TurnPaused
from agentrt.stores.base import ChatMemory, whole_memory
from agentrt.stores.in_memory import InMemoryChatMemory
from agentrt.stores.windowed import WindowedChatMemory
from agentrt.testing import ScriptedModel, call, check_chat_memory, trio_property
from agentrt.testing.strategies import histories
from agentrt.tools.base import tool


def user(name: str) -> UserMessage:
    return UserMessage(id=name, content=name)


def says(name: str, *calls: str) -> AssistantMessage:
    made = tuple(ToolCall(id=each, name="add") for each in calls)
    return AssistantMessage(id=name, content=name, tool_calls=made)


def result(call_id: str) -> ToolMessage:
    return ToolMessage(call_id=call_id, name="add", content="3")


def system(name: str) -> SystemMessage:
    return SystemMessage(id=name, content=name)


U1, U2, A1, A2 = user("u1"), user("u2"), says("a1"), says("a2")
ASKS, R1, R2 = says("asks", "c1", "c2"), result("c1"), result("c2")
S1, S2 = system("s1"), system("s2")


def window(limit: int, *messages: Message) -> Sequence[Message]:
    return list(WindowedChatMemory(InMemoryChatMemory(), limit).window(messages))


async def test_it_keeps_the_promises_of_a_memory_while_all_fits() -> None:
    """What does not fit is kept too; it is only not shown."""

    @asynccontextmanager
    async def opened() -> AsyncIterator[ChatMemory]:
        yield WindowedChatMemory(InMemoryChatMemory(), 20)

    await check_chat_memory(opened)


@pytest.mark.parametrize(
    ("limit", "messages", "shown"),
    [
        (2, [U1, A1, U2, A2], [U2, A2]),
        (3, [U1, A1, U2, A2], [A1, U2, A2]),
        (9, [U1, A1, U2, A2], [U1, A1, U2, A2]),
        (2, [S1, U1, A1, S2, U2, A2], [S1, S2, U2, A2]),
        (4, [U1, A1, U2, ASKS, R1, R2], [U2, ASKS, R1, R2]),
        (5, [U1, ASKS, R1, R2, A1], [U1, ASKS, R1, R2, A1]),
        (4, [U1, ASKS, R1, R2, U2, A2], [U2, A2]),
        (3, [R1, R2, U1], [U1]),
        (9, [R1, U1, R2, A1], [U1, A1]),
        (9, [], []),
    ],
)
def test_the_newest_are_shown_and_calls_are_not_parted_from_results(
    limit: int, messages: Sequence[Message], shown: Sequence[Message]
) -> None:
    """B64: systems are kept and first, orphan results dropped."""
    assert window(limit, *messages) == shown


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_a_tiny_window_shows_the_newest_block_and_its_question(limit: int) -> None:
    """X25"""
    assert window(limit, U1, A1, U2, ASKS, R1, R2) == [U2, ASKS, R1, R2]
    assert window(limit, ASKS, R1, R2) == [ASKS, R1, R2]


def test_a_long_turn_does_not_lose_its_question() -> None:
    more: list[Message] = [says("b", "c3"), result("c3"), says("c", "c4"), result("c4")]
    assert window(5, U1, A1, U2, ASKS, R1, R2, *more) == [U2, *more]


@given(histories(), st.integers(1, 6), st.lists(st.integers(0, 12), max_size=2))
def test_a_view_is_valid_bounded_and_in_order(
    messages: Sequence[Message], limit: int, places: Sequence[int]
) -> None:
    with_systems = list(messages)
    for number, place in enumerate(places):
        with_systems.insert(place, system(f"s{number}"))
    shown = window(limit, *with_systems)
    assert find_history_faults(shown) == []
    assert window(limit, *shown) == shown
    systems = [m for m in with_systems if isinstance(m, SystemMessage)]
    assert shown[: len(systems)] == systems
    others = [m for m in shown if not isinstance(m, SystemMessage)]
    assert others == [m for m in with_systems if m in others]
    if messages:
        assert others[-1] == messages[-1]
        last = next(m for m in reversed(messages) if not isinstance(m, ToolMessage))
        newest = 1 + len(tool_calls_of(last))
        assert len(others) <= max(limit, newest + 1)


@given(histories(valid=False), st.integers(1, 6))
def test_of_what_a_careless_store_holds_something_is_shown_that_can_be_mended(
    messages: Sequence[Message], limit: int
) -> None:
    """X25: whatever is more than results of no call."""
    shown = window(limit, *messages)
    assert bool(shown) == any(not isinstance(m, ToolMessage) for m in messages)
    assert find_history_faults(mend(shown)) == []


@given(histories(), st.integers(1, 4))
@trio_property
async def test_what_is_kept_is_all_that_was_appended(
    messages: Sequence[Message], limit: int
) -> None:
    """B64: reading never changes the store."""
    inner = InMemoryChatMemory()
    memory = WindowedChatMemory(inner, limit)
    await memory.append("c", messages)
    await memory.append("c", messages)
    assert list(await memory.history("c")) == window(limit, *messages)
    assert list(await inner.history("c")) == list(messages)
    assert whole_memory(memory) is inner


def test_a_window_on_a_window_is_the_smaller_one() -> None:
    inner = InMemoryChatMemory()
    messages: list[Message] = [U1, A1, U2, A2]
    for outer, inward in ((1, 3), (3, 1)):
        memory = WindowedChatMemory(WindowedChatMemory(inner, inward), outer)
        assert list(memory.window(messages)) == window(1, *messages)
        assert whole_memory(memory) is inner


@pytest.mark.parametrize("limit", [0, -1])
def test_a_window_of_nothing_is_refused(limit: int) -> None:
    with pytest.raises(
        ValueError, match=f"max_messages is {limit}, expected 1 or more"
    ):
        WindowedChatMemory(InMemoryChatMemory(), limit)


@tool
async def add(a: int, b: int) -> str:
    """Add."""
    await trio.lowlevel.checkpoint()
    return str(a + b)


def agent(
    memory: ChatMemory, *steps: Any, **options: Any
) -> tuple[Agent, ScriptedModel]:
    model = ScriptedModel(steps)
    return Agent(model=model, tools=[add], memory=memory, **options), model


async def test_the_model_is_shown_the_window_and_people_the_whole() -> None:
    memory = WindowedChatMemory(InMemoryChatMemory(), 3)
    made, model = agent(memory, "one", "two", "three")
    for text in ("a", "b", "c"):
        await made.run(text, conversation_id="c")
    assert [m.text for m in model.requests[-1].messages] == ["b", "two", "c"]
    texts = [message.text for message in await made.history("c")]
    assert texts == ["a", "one", "b", "two", "c", "three"]


async def test_several_new_messages_are_all_shown_in_order_and_kept_once() -> None:
    """More than the window: what is new is told from the whole history."""
    memory = WindowedChatMemory(InMemoryChatMemory(), 2)
    made, model = agent(memory, "ok")
    await made.run([U1, U2, user("u3")], conversation_id="c")
    assert list(model.requests[0].messages) == [U2, user("u3")]
    assert [m.text for m in await made.history("c")] == ["u1", "u2", "u3", "ok"]


async def test_an_id_from_before_the_window_is_not_given_again() -> None:
    """A model that counts its calls anew would else lose a result."""
    memory = WindowedChatMemory(InMemoryChatMemory(), 2)
    steps = [call("add", id="1", a=1, b=number) for number in range(3)]
    made, _ = agent(memory, *(each for s in steps for each in (s, "ok")))
    for _ in range(3):
        await made.run("go", conversation_id="c")
    history = await made.history("c")
    assert find_history_faults(history) == []
    told = [m.text for m in history if isinstance(m, ToolMessage)]
    assert told == ["1", "2", "3"]


async def test_a_call_that_was_left_open_is_healed_though_the_window_is_tiny() -> None:
    """X12"""
    inner = InMemoryChatMemory()
    await inner.append("c", [U1, ASKS])
    made, model = agent(WindowedChatMemory(inner, 1), "ok")
    await made.run("go", conversation_id="c")
    history = await made.history("c")
    assert find_history_faults(history) == []
    assert [m.id for m in history[2:4]] == ["c1-result", "c2-result"]
    assert [m.text for m in model.requests[0].messages] == ["go"]


async def test_a_pause_goes_on_in_a_tiny_window() -> None:
    @tool(sensitive=True)
    async def pay() -> str:
        """Pay."""
        await trio.lowlevel.checkpoint()
        return "paid"

    memory = WindowedChatMemory(InMemoryChatMemory(), 1)
    batch = [call("add", id="x", a=1, b=2), call("pay", id="y")]
    model = ScriptedModel([batch, "done"])
    made = Agent(model=model, tools=[add, pay], memory=memory)
    paused = await made.run("go", conversation_id="c")
    assert isinstance(paused, TurnPaused)
    outcome = await made.resume("c", {"y": Approve()})
    assert isinstance(outcome, TurnCompleted)
    texts = [message.text for message in model.requests[1].messages]
    assert texts == ["go", "", "3", "paid"]
