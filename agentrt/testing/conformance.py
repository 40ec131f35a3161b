"""Checks of each contract's promises, for any implementation.

Each takes a way to open what it checks, so that it fits one in a process, in a file or
behind a network. A broken promise is an `AssertionError` that says which.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from math import isfinite
from typing import Any, TypeAlias

import trio
import trio.testing
from attrs import frozen

from agentrt.core.chat import (
    ChatRequest,
    ChatResponse,
    Delta,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    ToolSpec,
)
from agentrt.core.context import Context
from agentrt.core.errors import ModelError
from agentrt.core.messages import (
    AssistantMessage,
    Message,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from agentrt.core.outcomes import Interrupt, PauseSnapshot
from agentrt.core.parts import FilePart, TextPart
from agentrt.events.types import Envelope, RunStarted
from agentrt.models.base import ChatModel
from agentrt.models.embedding import EmbeddingModel
from agentrt.providers.base import Provider
from agentrt.stores.base import ChatMemory, EventStore, PauseStore

__all__ = [
    "check_chat_memory",
    "check_chat_model",
    "check_embedding_model",
    "check_event_store",
    "check_pause_store",
    "check_provider",
]

Opens: TypeAlias = Callable[[], AbstractAsyncContextManager[Any]]

CALL = ToolCall(id="c1", name="add", arguments={"a": 1, "b": [None, "ä", 1.5]})


async def check_chat_memory(
    open_memory: Callable[[], AbstractAsyncContextManager[ChatMemory]],
) -> None:
    """Check that what `open_memory` opens keeps the promises of `ChatMemory`.

    It must be empty when it is opened.

    Raises:
        AssertionError: a promise is broken.
    """
    hello = UserMessage(content="hello")
    asks = AssistantMessage(
        id="m1", content="hi \ud800 \u2028", reasoning="hm", tool_calls=(CALL,)
    )
    result = ToolMessage(call_id="c1", name="add", content="3", writes={"n": 3})
    picture = FilePart(media_type="image/png", data="aGk=")
    seen = UserMessage(content=(TextPart(text="see"), picture))
    all_of_them: Sequence[Message] = [hello, asks, result, seen]
    async with open_memory() as memory:
        with trio.testing.assert_checkpoints():
            assert list(await memory.history("never written")) == []
        with trio.testing.assert_checkpoints():
            await memory.append("a", [hello])
        await memory.append("a", all_of_them)
        await memory.append("b", [asks])
        _equal(await memory.history("a"), all_of_them, "what was appended, in order")
        _equal(await memory.history("b"), [asks], "conversations apart")
        await memory.append("a", [])
        _equal(await memory.history("a"), all_of_them, "nothing appended")
        await _append_cut(memory)
        await memory.clear("a")
        _equal(await memory.history("a"), [], "nothing after clear")
        await memory.append("a", [hello])
        _equal(await memory.history("a"), [hello], "written again after clear")


async def _append_cut(memory: ChatMemory) -> None:
    more = [UserMessage(content=str(number)) for number in range(20)]
    with trio.CancelScope() as scope:
        scope.cancel()
        await memory.append("cut", more)
    kept = len(await memory.history("cut"))
    assert kept in {0, len(more)}, f"append was cut in half: {kept} of {len(more)}"


async def check_pause_store(
    open_store: Callable[[], AbstractAsyncContextManager[PauseStore]],
) -> None:
    """Check that what `open_store` opens keeps the promises of `PauseStore`.

    Raises:
        AssertionError: a promise is broken.
    """
    async with open_store() as store:
        with trio.testing.assert_checkpoints():
            assert await store.load("a") is None, "a pause was there from the start"
        first, second = _pause("p1", "a"), _pause("p2", "a")
        with trio.testing.assert_checkpoints():
            await store.save(first)
        await store.save(_pause("p3", "b"))
        await store.save(second)
        assert await store.load("a") == second, "save did not replace what was there"
        assert await store.take("a", "p1") is None, "a replaced pause was taken"
        taken: list[PauseSnapshot | None] = []

        async def take() -> None:
            taken.append(await store.take("a", "p2"))

        async with trio.open_nursery() as nursery:
            for _ in range(10):
                nursery.start_soon(take)
        assert [each for each in taken if each] == [second], "not taken exactly once"
        assert await store.load("a") is None, "a taken pause is still there"
        await store.discard("b")
        await store.discard("b")
        assert await store.load("b") is None, "a discarded pause is still there"


def _pause(id_: str, conversation_id: str) -> PauseSnapshot:
    return PauseSnapshot(
        id=id_,
        conversation_id=conversation_id,
        run_id="r1",
        message=AssistantMessage(id="m1", tool_calls=(CALL,)),
        interrupts=(Interrupt(id="c1", reason="may I?", call=CALL),),
        values={"todo": ["milk"]},
        remaining=3,
    )


async def check_event_store(
    open_store: Callable[[], AbstractAsyncContextManager[EventStore]],
) -> None:
    """Check that what `open_store` opens keeps the promises of `EventStore`.

    Raises:
        AssertionError: a promise is broken.
    """
    async with open_store() as store:
        assert store.head("a") == 0, "a fresh conversation has a number"
        for seq in (1, 2, 3):
            store.append(_envelope("a", seq))
        store.append(_envelope("b", 1))
        assert (store.head("a"), store.head("b")) == (3, 1), "numbers got mixed"
        for wrong in (2, 3, 5):
            try:
                store.append(_envelope("a", wrong))
            except ValueError:
                continue
            raise AssertionError(f"number {wrong} was taken after 3")
        ring = store.ring("a")
        seqs = [envelope.seq for envelope in ring.after(0, limit=10)]
        assert seqs == [1, 2, 3], f"the ring holds {seqs}"
        store.let_go("a")
        assert store.head("a") == 3, "letting go forgot the last number"
        store.append(_envelope("a", 4))
        assert store.ring("a").oldest == 4, "a number came again after letting go"


def _envelope(conversation_id: str, seq: int) -> Envelope:
    return Envelope(
        seq=seq,
        conversation_id=conversation_id,
        run_id=f"r{seq}",
        at=0.0,
        event=RunStarted(),
    )


async def check_chat_model(
    open_model: Callable[[], AbstractAsyncContextManager[ChatModel]],
    *,
    prompts: Sequence[str] = ("hello",),
    tools: Sequence[ToolSpec] = (),
) -> None:
    """Check that what `open_model` opens keeps the promises of `ChatModel`.

    Raises:
        AssertionError: a promise is broken.
    """
    for prompt in prompts:
        request = ChatRequest(messages=[UserMessage(content=prompt)], tools=tools)
        async with open_model() as model:
            assert "/" in model.ref, f"ref is {model.ref!r}, expected 'vendor/model'"
            await _check_answer(model, request)
            with trio.testing.assert_checkpoints():
                await model.call(request, Context(conversation_id="quiet"))


async def _check_answer(model: ChatModel, request: ChatRequest) -> None:
    told: list[Delta] = []
    context = Context(conversation_id="loud", message_id="given", on_delta=told.append)
    response = await model.call(request, context)
    message = response.message
    assert message.id == "given", f"the answer's id is {message.id!r}, not the given"
    text = "".join(d.text for d in told if isinstance(d, TextDelta))
    assert text == message.text, f"streamed {text!r}, answered {message.text!r}"
    thought = "".join(d.text for d in told if isinstance(d, ReasoningDelta))
    assert thought == message.reasoning, "reasoning streamed and answered differ"
    empty = [d for d in told if not isinstance(d, ToolCallDelta) and not d.text]
    assert not empty, "an empty delta was told"
    names: dict[int, str] = {}
    for delta in told:
        if isinstance(delta, ToolCallDelta):
            names[delta.index] = names.get(delta.index, "") or delta.name
    expected = {index: call.name for index, call in enumerate(message.tool_calls)}
    assert names == expected, f"calls streamed {names}, answered {expected}"


async def check_embedding_model(
    open_model: Callable[[], AbstractAsyncContextManager[EmbeddingModel]],
    *,
    texts: Sequence[str] = ("a cat", "a dog and a cat", "ä \u2028 \U0001f389", " "),
) -> None:
    """Check that what `open_model` opens keeps the promises of `EmbeddingModel`.

    It must be able to embed the texts; what it raises must be a `ModelError`.

    Raises:
        AssertionError: a promise is broken.
    """
    async with open_model() as model:
        assert "/" in model.ref, f"ref is {model.ref!r}, expected 'vendor/model'"
        try:
            await _check_vectors(model, list(texts))
        except (AssertionError, ModelError):
            raise
        except Exception as error:
            raise AssertionError(f"{error!r} came out, and no ModelError") from error


async def _check_vectors(model: EmbeddingModel, texts: Sequence[str]) -> None:
    failures: list[Exception] = []

    async def embed(asked: Sequence[str]) -> Sequence[Sequence[float]]:
        with trio.testing.assert_checkpoints():
            vectors = (await model.embed(asked)).vectors
        found = len(vectors)
        assert found == len(asked), f"{len(asked)} texts have {found} vectors"
        return vectors

    async def check(asked: Sequence[str]) -> None:
        try:
            for text, vector in zip(asked, await embed(asked), strict=True):
                same = _is_near(vector, known[text])
                assert same, f"{text!r} has another vector among {len(asked)} texts"
        except Exception as error:  # noqa: BLE001  raised below, and without a group
            failures.append(error)

    assert not await embed([])
    known = dict(zip(texts, await embed(texts), strict=True))
    lengths = {len(vector) for vector in known.values()}
    assert len(lengths) == 1, f"vectors have lengths {sorted(lengths)}"
    finite = all(isfinite(number) for vector in known.values() for number in vector)
    assert finite, "a vector has a number that is not finite"
    async with trio.open_nursery() as nursery:
        nursery.start_soon(check, texts[::-1])
        nursery.start_soon(check, [texts[0], texts[0]])
        nursery.start_soon(check, [*texts] * 100)
    if failures:
        raise failures[0]


def _is_near(one: Sequence[float], other: Sequence[float]) -> bool:
    """The same, as vendors do: they round otherwise in other batches."""
    if len(one) != len(other):
        return False
    return all(abs(a - b) <= 1e-3 for a, b in zip(one, other, strict=True))


async def check_provider(
    open_provider: Callable[[], AbstractAsyncContextManager[Provider]],
    *,
    prompts: Sequence[str] = ("hello",),
) -> None:
    """Check that what `open_provider` opens keeps the promises of `Provider`.

    It must be able to answer each prompt, streaming and not; a scripted transport will
    do. What it raises must be a `ModelError`.

    Raises:
        AssertionError: a promise is broken.
    """
    for prompt in prompts:
        request = ChatRequest(messages=[UserMessage(content=prompt)])
        async with open_provider() as provider:
            assert provider.name, "the provider has no name"
            try:
                await _check_provider_answers(provider, request)
            except (AssertionError, ModelError):
                raise
            except Exception as error:
                raise AssertionError(
                    f"{error!r} came out, and no ModelError"
                ) from error


async def _check_provider_answers(provider: Provider, request: ChatRequest) -> None:
    model = _AsModel(provider)
    await _check_answer(model, request)
    with trio.testing.assert_checkpoints():
        quiet = await provider.call(request, message_id="quiet")
    assert quiet.message.id == "quiet", f"the answer's id is {quiet.message.id!r}"


@frozen
class _AsModel:
    """A provider as the `ChatModel` that makes one attempt."""

    provider: Provider

    @property
    def ref(self) -> str:
        return f"{self.provider.name}/checked"

    async def call(self, request: ChatRequest, context: Context) -> ChatResponse:
        return await self.provider.call(
            request, message_id=context.message_id, sink=context.on_delta
        )


def _equal(found: Sequence[Message], expected: Sequence[Message], what: str) -> None:
    assert list(found) == list(expected), f"{what}: expected {expected}, got {found}"
