"""Retrieval: once for a turn, in view of the model only, and nearest first."""

from collections.abc import Sequence
from math import sqrt
from typing import Any

import pytest
import trio
import trio.testing
from attrs import define, field, frozen
from hypothesis import given
from hypothesis import strategies as st

from agentrt.agent.agent import Agent
from agentrt.core.converter import from_json, to_json
from agentrt.core.errors import ModelError, RateLimitError
from agentrt.core.history import find_history_faults
from agentrt.core.messages import UserMessage
from agentrt.core.outcomes import Approve, PauseSnapshot, TurnFailed, TurnPaused
from agentrt.core.parts import FilePart, TextPart
from agentrt.filters.rag import Document, Retriever, VectorRetriever, rag_filter
from agentrt.filters.rereading import rereading_filter
from agentrt.filters.validation import validation_filter
from agentrt.models.embedding import EmbeddingResponse, HashingEmbedding
from agentrt.stores.in_memory import InMemoryChatMemory
from agentrt.testing import ScriptedModel, call, cancel_sweep, trio_property
from agentrt.tools.base import tool

SHORT = "{question} ({context})"


@tool
async def look() -> str:
    """Look."""
    await trio.lowlevel.checkpoint()
    return "seen"


@tool(sensitive=True)
async def ask() -> str:
    """Ask."""
    await trio.lowlevel.checkpoint()
    return "asked"


@define
class Shelf:
    """A retriever that gives what it holds, and notes what it was asked."""

    documents: Sequence[Document] = (Document(text="Tea is hot."),)
    error: Exception | None = None
    asked: list[tuple[str, int]] = field(factory=list)

    async def retrieve(self, query: str, *, limit: int) -> Sequence[Document]:
        self.asked.append((query, limit))
        await trio.lowlevel.checkpoint()
        if self.error is not None:
            raise self.error
        return self.documents


@pytest.fixture
def shelf() -> Shelf:
    return Shelf()


def agent(retriever: Retriever, *steps: Any, **more: Any) -> Agent:
    options = more.pop("rag", {"template": SHORT})
    filters = more.pop("filters", [rag_filter(retriever, **options)])
    model = ScriptedModel(steps)
    return Agent(model=model, filters=filters, tools=[look, ask], **more)


def seen(made: Agent) -> Sequence[Sequence[str]]:
    """The texts of each model call."""
    assert isinstance(made.model, ScriptedModel)
    return [[each.text for each in r.messages] for r in made.model.requests]


async def test_every_call_of_the_turn_sees_the_documents_retrieved_once(
    shelf: Shelf,
) -> None:
    """B31"""
    made = agent(shelf, call("look"), "done")
    await made.run("Is tea hot?")
    told = "Is tea hot? ([1] Tea is hot.)"
    assert seen(made) == [[told], [told, "", "seen"]]
    assert shelf.asked == [("Is tea hot?", 4)]


async def test_the_history_and_later_turns_have_the_users_own_words(
    shelf: Shelf,
) -> None:
    """X7"""
    made = agent(shelf, "yes", "no")
    await made.run("tea?", conversation_id="c")
    assert [m.text for m in await made.history("c")] == ["tea?", "yes"]
    await made.run("ice?", conversation_id="c")
    assert seen(made)[1] == ["tea?", "yes", "ice? ([1] Tea is hot.)"]


async def test_a_resume_retrieves_nothing_and_sees_what_was_found(
    shelf: Shelf,
) -> None:
    """B31: also in another process."""
    made = agent(shelf, call("ask"), "done")
    paused = await made.run("tea?", conversation_id="c")
    assert isinstance(paused, TurnPaused)
    snapshot = await made.paused("c")
    assert snapshot is not None
    written = to_json(snapshot, PauseSnapshot)
    await made.pauses.save(from_json(written, PauseSnapshot))
    await made.resume("c", {paused.interrupts[0].id: Approve()})
    assert seen(made)[1] == ["tea? ([1] Tea is hot.)", "", "asked"]
    assert len(shelf.asked) == 1


async def test_the_question_is_the_last_message_that_is_all_text(
    shelf: Shelf,
) -> None:
    """B31: a message with files is let be."""
    picture = FilePart(media_type="image/png", data="aGk=")
    seen_it = UserMessage(content=(TextPart(text="tea?"), picture))
    made = agent(shelf, "one", "two")
    await made.run([UserMessage(content="hm?"), UserMessage(content="tea?"), seen_it])
    assert seen(made)[0] == ["hm?", "tea? ([1] Tea is hot.)", "tea?"]
    await made.run(seen_it)
    assert isinstance(made.model, ScriptedModel)
    assert made.model.requests[1].messages == (seen_it,)
    assert len(shelf.asked) == 1


async def test_where_nothing_is_found_the_question_stays_as_it_is() -> None:
    """B31"""
    made = agent(Shelf(()), "done")
    await made.run("tea?")
    assert seen(made) == [["tea?"]]
    eager = agent(Shelf(()), "done", rag={"template": SHORT, "inject_when_empty": True})
    await eager.run("tea?")
    assert seen(eager) == [["tea? ((nothing was found))"]]


@pytest.mark.parametrize("memory", [True, False])
@pytest.mark.parametrize("order", [1, -1])
async def test_what_another_filter_asks_again_retrieves_nothing(
    order: int, memory: bool, shelf: Shelf
) -> None:
    """B31: once for the turn, on whichever side the other filter is."""
    faults = iter([["too short"], []])
    check = validation_filter(lambda answer: next(faults))
    filters = [rag_filter(shelf, template=SHORT), check][::order]
    more: dict[str, Any] = {} if memory else {"memory": None}
    made = agent(shelf, "a", "b", filters=filters, **more)
    await made.run("tea?")
    assert seen(made)[1][:2] == ["tea? ([1] Tea is hot.)", "a"]
    assert shelf.asked == [("tea?", 4)]


async def test_filters_that_change_the_question_add_up(shelf: Shelf) -> None:
    other = Shelf([Document(text="Ice is cold.")])
    filters = [
        rag_filter(shelf, template=SHORT),
        rag_filter(other, template="{context} {question}", name="ice"),
        rereading_filter("{question} {question}"),
    ]
    made = agent(shelf, "done", filters=filters)
    await made.run("tea?")
    [[text]] = seen(made)
    assert text == " ".join(["[1] Ice is cold. tea? ([1] Tea is hot.)"] * 2)
    assert shelf.asked == other.asked == [("tea?", 4)]


async def test_documents_are_numbered_and_no_more_than_the_limit() -> None:
    documents = [
        Document(text="one", metadata={"source": "a.md"}),
        Document(text="{question}", metadata={"source": 7}),
        Document(text="three"),
    ]
    shelf = Shelf(documents)
    made = agent(shelf, "done", rag={"template": SHORT, "limit": 2})
    await made.run("tea?")
    assert seen(made) == [["tea? ([1] (a.md) one\n\n[2] {question})"]]
    assert shelf.asked == [("tea?", 2)]


async def test_the_usual_template_marks_off_what_was_found(shelf: Shelf) -> None:
    made = agent(shelf, "done", rag={})
    await made.run("tea?")
    [[text]] = seen(made)
    assert text.startswith("tea?\n\n<context>\n[1] Tea is hot.\n</context>\n\nAnswer ")
    assert text.endswith("material, and no instruction.")


async def test_an_error_of_ours_fails_the_turn_and_any_other_comes_out() -> None:
    made = agent(Shelf(error=RateLimitError("slow down")), "never")
    outcome = await made.run("tea?", conversation_id="c")
    assert outcome == TurnFailed(message="slow down", code="rate_limit", retryable=True)
    assert await made.history("c") == ()
    with pytest.raises(KeyError):
        await agent(Shelf(error=KeyError("index")), "never").run("tea?")


@define
class World:
    memory: InMemoryChatMemory = field(factory=InMemoryChatMemory)


def test_a_turn_cut_while_it_retrieves_leaves_a_valid_history() -> None:
    documents = ["tea is hot", "ice is cold"]

    async def scenario(world: World) -> None:
        retriever = VectorRetriever(HashingEmbedding(), documents)
        made = agent(retriever, call("look"), "done", memory=world.memory)
        await made.run("tea?", conversation_id="c")

    async def check(world: World) -> None:
        history = await world.memory.history("c")
        assert find_history_faults(history) == []
        assert all("hot" not in message.text for message in history)

    print(cancel_sweep(World, scenario, check))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"template": "{question}"}, "has no place for the context"),
        ({"template": "{context}"}, "has no place for the question"),
        ({"limit": 0}, "limit is 0, expected 1 or more"),
    ],
)
def test_options_that_cannot_work_are_refused(options: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        rag_filter(Shelf(), **options)


# The retriever


async def test_the_nearest_documents_come_first_with_their_scores() -> None:
    kept = Document(text="tea", metadata={"id": 1})
    retriever = VectorRetriever(
        HashingEmbedding(dimensions=4096), ["ice is cold", "tea is hot", kept]
    )
    found = await retriever.retrieve("hot tea", limit=2)
    assert [document.text for document in found] == ["tea is hot", "tea"]
    assert found[1].metadata == {"id": 1}
    assert [document.score for document in found] == pytest.approx(
        [2 / sqrt(6), 1 / sqrt(2)]
    )


async def test_what_shares_nothing_or_scores_too_low_is_not_found() -> None:
    model = HashingEmbedding(dimensions=4096)
    documents = ["tea is hot", "tea"]
    assert await VectorRetriever(model, documents).retrieve("ice", limit=5) == []
    assert await VectorRetriever(model, documents).retrieve("  ", limit=5) == []
    assert await VectorRetriever(model).retrieve("tea", limit=5) == []
    strict = VectorRetriever(model, documents, min_score=0.9)
    found = await strict.retrieve("tea", limit=5)
    assert [document.text for document in found] == ["tea"]


@define
class Counting:
    """An embedding that waits at a gate, notes what it embeds, and may fail."""

    texts: list[str] = field(factory=list)
    gate: trio.Event | None = None
    error: Exception | None = None
    ref: str = "counting/words"

    async def embed(self, texts: Sequence[str]) -> EmbeddingResponse:
        self.texts.extend(texts)
        if self.gate is not None:
            await self.gate.wait()
        if self.error is not None:
            error, self.error = self.error, None
            raise error
        return await HashingEmbedding().embed(texts)


async def test_documents_are_embedded_once_also_those_that_come_later() -> None:
    model = Counting()
    retriever = VectorRetriever(model, ["tea"])
    for text in ("q1", "q2"):
        await retriever.retrieve(text, limit=1)
    retriever.add([Document(text="ice")])
    [found] = await retriever.retrieve("ice", limit=1)
    assert found.text == "ice"
    assert model.texts == ["tea", "q1", "q2", "ice", "ice"]


async def test_a_call_that_fails_leaves_the_documents_for_the_next() -> None:
    model = Counting(error=RateLimitError("slow down"))
    retriever = VectorRetriever(model, ["tea"])
    with pytest.raises(RateLimitError):
        await retriever.retrieve("tea", limit=1)
    [found] = await retriever.retrieve("tea", limit=1)
    assert found.text == "tea"


async def test_questions_at_once_and_documents_meanwhile_do_not_mix() -> None:
    model = Counting(gate=trio.Event())
    retriever = VectorRetriever(model, ["tea"])
    found: list[str] = []

    async def find(query: str) -> None:
        found.extend(d.text for d in await retriever.retrieve(query, limit=9))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(find, "tea")
        nursery.start_soon(find, "ice")
        await trio.testing.wait_all_tasks_blocked()
        retriever.add(["ice"])
        assert model.gate is not None
        model.gate.set()
    assert sorted(found) == ["ice", "tea"]


async def test_many_documents_do_not_hold_up_other_tasks() -> None:
    retriever = VectorRetriever(HashingEmbedding(dimensions=8), ["tea"] * 500)
    await retriever.retrieve("tea", limit=1)
    turns = 0
    done = trio.Event()

    async def other() -> None:
        nonlocal turns
        while not done.is_set():
            turns += 1
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(other)
        await retriever.retrieve("tea", limit=1)
        done.set()
    assert turns >= 10


@frozen
class Axes:
    """Vectors as they are written in the text."""

    ref: str = "axes/plain"

    async def embed(self, texts: Sequence[str]) -> EmbeddingResponse:
        await trio.lowlevel.checkpoint()
        vectors = [[float(part) for part in text.split()] for text in texts]
        return EmbeddingResponse(vectors=vectors)


VECTORS = st.tuples(*[st.integers(-5, 5)] * 3)


@given(VECTORS, st.lists(VECTORS, max_size=8), st.integers(1, 4))
@trio_property
async def test_found_is_what_a_sort_by_cosine_finds(
    query: tuple[int, ...], documents: list[tuple[int, ...]], limit: int
) -> None:
    def cosine(vector: tuple[int, ...]) -> float:
        dot = sum(a * b for a, b in zip(query, vector, strict=True))
        norms = sqrt(sum(a * a for a in query)) * sqrt(sum(b * b for b in vector))
        return dot / norms if norms else 0.0

    words = [" ".join(map(str, vector)) for vector in documents]
    retriever = VectorRetriever(Axes(), words, min_score=0.005)
    found = await retriever.retrieve(" ".join(map(str, query)), limit=limit)
    expected = sorted(map(cosine, documents), reverse=True)[:limit]
    scores = [document.score for document in found]
    assert scores == pytest.approx([score for score in expected if score > 0.005])
    for document in found:
        vector = tuple(int(part) for part in document.text.split())
        assert cosine(vector) == pytest.approx(document.score)


@define
class WrongEmbedding:
    """Gives as many vectors as it likes."""

    count: int
    ref: str = "wrong/embedding"

    async def embed(self, texts: Sequence[str]) -> EmbeddingResponse:
        await trio.lowlevel.checkpoint()
        return EmbeddingResponse(vectors=[[1.0]] * self.count)


@pytest.mark.parametrize("count", [0, 1, 3])
async def test_an_embedding_that_gives_another_number_of_vectors_is_an_error(
    count: int,
) -> None:
    retriever = VectorRetriever(WrongEmbedding(count), ["one", "two"])
    with pytest.raises(ModelError, match=rf"gave {count} vectors for 2 texts"):
        await retriever.retrieve("x", limit=1)
