"""The memory filter: what is new goes in once, and what nobody said stays out."""

from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
import trio
from attrs import define, evolve, field

from agentrt.core.chat import ChatRequest, ChatResponse
from agentrt.core.context import Context
from agentrt.core.errors import ServerError
from agentrt.core.messages import (
    AssistantMessage,
    Blocks,
    Message,
    ToolCall,
    UserMessage,
)
from agentrt.filters.base import ChatCall, Filter, compile_hooks, hook
from agentrt.filters.memory import memory_filter
from agentrt.stores.in_memory import InMemoryChatMemory

CONTEXT = Context(conversation_id="c")
FIRST = UserMessage(id="u1", content="one")
SECOND = UserMessage(id="u2", content="two")


@define
class Model:
    """Answers with what it is given, one after the other."""

    answers: list[AssistantMessage | Exception]
    asked: list[Sequence[Message]] = field(factory=list)

    async def call(self, request: ChatRequest, context: Context) -> ChatResponse:
        await trio.lowlevel.checkpoint()
        self.asked.append(list(request.messages))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return ChatResponse(message=answer)


def says(id_: str, **more: Any) -> AssistantMessage:
    return AssistantMessage(id=id_, **more)


async def ask(
    memory: InMemoryChatMemory, model: Model, *messages: Message, **around: Filter
) -> ChatResponse:
    outer, inner = around.get("outer"), around.get("inner")
    layers = [each for each in (outer, memory_filter(memory), inner) if each]
    run = compile_hooks([f.chat for f in layers if f.chat], model.call)
    return await run(ChatRequest(messages=messages), CONTEXT)


async def test_the_model_gets_the_history_and_the_history_the_answer() -> None:
    memory = InMemoryChatMemory()
    model = Model([says("m1", content="a"), says("m2", content="b")])
    await ask(memory, model, FIRST)
    await ask(memory, model, SECOND)
    assert model.asked == [[FIRST], [FIRST, says("m1", content="a"), SECOND]]
    assert await memory.history("c") == (
        FIRST,
        says("m1", content="a"),
        SECOND,
        says("m2", content="b"),
    )


async def test_a_call_that_fails_forgets_nothing() -> None:
    memory = InMemoryChatMemory()
    with pytest.raises(ServerError):
        await ask(memory, Model([ServerError("no")]), FIRST)
    assert await memory.history("c") == (FIRST,)


@pytest.mark.parametrize(
    ("answer", "is_kept"),
    [
        (says("m"), False),
        (says("m", reasoning="hm"), False),
        (says("m", content=()), False),
        (says("m", content="x"), True),
        (says("m", tool_calls=(ToolCall(id="c", name="add"),)), True),
        (says("m", blocks=Blocks(provider="p", format="f", data=[])), True),
    ],
)
async def test_an_answer_without_a_word_or_call_is_not_kept(
    answer: AssistantMessage, is_kept: bool
) -> None:
    """X17"""
    memory = InMemoryChatMemory()
    await ask(memory, Model([answer]), FIRST)
    assert (answer in await memory.history("c")) == is_kept


async def test_a_rerun_around_the_memory_adds_only_its_question() -> None:
    """X5: no delta is doubled."""

    @hook
    async def again(call: ChatCall) -> AsyncIterator[None]:
        yield
        call.request = evolve(call.request, messages=[SECOND])
        await call.rerun()

    memory = InMemoryChatMemory()
    model = Model([says("m1", content="a"), says("m2", content="b")])
    await ask(memory, model, FIRST, outer=Filter(name="again", chat=again))
    assert await memory.history("c") == (
        FIRST,
        says("m1", content="a"),
        SECOND,
        says("m2", content="b"),
    )


async def test_what_a_filter_within_adds_is_not_stored() -> None:
    """X7: a rewritten question is not the user's words."""

    @hook
    async def add(call: ChatCall) -> AsyncIterator[None]:
        more = [*call.request.messages, SECOND]
        call.request = evolve(call.request, messages=more)
        yield

    memory = InMemoryChatMemory()
    model = Model([says("m1", content="a")])
    await ask(memory, model, FIRST, inner=Filter(name="add", chat=add))
    assert model.asked == [[FIRST, SECOND]]
    assert await memory.history("c") == (FIRST, says("m1", content="a"))


async def test_an_answer_that_was_given_is_kept_also_when_the_call_is_cut() -> None:
    """P5: readers saw all of it, so it is whole and not partial."""
    memory = InMemoryChatMemory()
    answer = says("m", content="x")
    with trio.CancelScope() as scope:

        @hook
        async def stop(call: ChatCall) -> AsyncIterator[None]:
            yield
            scope.cancel()

        inner = Filter(name="stop", chat=stop)
        await ask(memory, Model([answer]), FIRST, inner=inner)
        await trio.lowlevel.checkpoint()
    assert scope.cancelled_caught
    assert await memory.history("c") == (FIRST, answer)
