"""Embeddings: what a model promises, and a model for tests that keeps it."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from math import nan
from typing import Any

import pytest
import trio
from attrs import frozen
from hypothesis import given
from hypothesis import strategies as st

from agentrt.core.errors import ServerError
from agentrt.models.embedding import (
    EmbeddingModel,
    EmbeddingResponse,
    HashingEmbedding,
)
from agentrt.testing import check_embedding_model, texts, trio_property


def opens(model: EmbeddingModel) -> Any:
    @asynccontextmanager
    async def open_model() -> AsyncIterator[EmbeddingModel]:
        await trio.lowlevel.checkpoint()
        yield model

    return open_model


async def test_the_hashing_embedding_keeps_the_promises() -> None:
    await check_embedding_model(opens(HashingEmbedding()))
    await check_embedding_model(opens(HashingEmbedding(dimensions=1)))


@given(st.lists(texts(), max_size=5), st.integers(1, 40))
@trio_property
async def test_it_keeps_them_for_any_texts(asked: list[str], dimensions: int) -> None:
    model = HashingEmbedding(dimensions=dimensions)
    unique = tuple(dict.fromkeys(["a", *asked]))
    await check_embedding_model(opens(model), texts=unique)


def near(one: Sequence[float], other: Sequence[float]) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True))


async def test_texts_are_near_that_share_words_whatever_their_case() -> None:
    model = HashingEmbedding(dimensions=4096)
    asked = ["A cat sleeps", "THE CAT, it sleeps!", "dogs bark", "a cat sleeps", "…"]
    first, alike, other, same, none = (await model.embed(asked)).vectors
    assert near(first, same) == pytest.approx(1)
    assert near(first, alike) > 0.5
    assert near(first, other) == 0
    assert set(none) == {0}
    assert model.ref == "hashing/words-4096"


async def test_the_same_text_has_the_same_vector_in_every_process() -> None:
    made = await HashingEmbedding(dimensions=4).embed(["a cat and a dog"])
    assert made.vectors == [[1 / 3, 2 / 3, 0.0, 2 / 3]]


def test_no_dimension_is_refused() -> None:
    with pytest.raises(ValueError, match="dimensions is 0, expected 1 or more"):
        HashingEmbedding(dimensions=0)


Vectors = Sequence[Sequence[float]]


@frozen
class Broken:
    """A model that breaks one promise."""

    change: Callable[[Sequence[str], Vectors], Vectors]
    ref: str = "broken/model"
    waits: bool = True

    async def embed(self, texts: Sequence[str]) -> EmbeddingResponse:
        if self.waits:
            await trio.lowlevel.checkpoint()
        made = [HashingEmbedding(dimensions=64)._vector(text) for text in texts]
        return EmbeddingResponse(vectors=self.change(texts, made))


def as_they_are(texts: Sequence[str], vectors: Vectors) -> Vectors:
    return vectors


def at_most_a_hundred(texts: Sequence[str], vectors: Vectors) -> Vectors:
    if len(texts) > 100:
        raise ServerError("too many texts")
    return vectors


def by_name(texts: Sequence[str], vectors: Vectors) -> Vectors:
    answer: dict[str, Vectors] = {}
    return answer["data"]


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (Broken(lambda texts, made: made[::-1]), "has another vector among 2 texts"),
        (Broken(lambda texts, made: made[:-1]), "4 texts have 3 vectors"),
        (
            Broken(lambda texts, made: [[n + len(texts) for n in v] for v in made]),
            "has another vector among",
        ),
        (
            Broken(lambda texts, made: [v[: 60 + n % 4] for n, v in enumerate(made)]),
            r"vectors have lengths \[60, 61, 62, 63\]",
        ),
        (
            Broken(lambda texts, made: [v[len(texts) :] for v in made]),
            "has another vector among",
        ),
        (Broken(lambda texts, made: [[nan, *v] for v in made]), "not finite"),
        (Broken(lambda texts, made: made or [[1.0]]), "0 texts have 1 vectors"),
        (Broken(by_name), "KeyError.* came out, and no ModelError"),
        (Broken(as_they_are, waits=False), "assert_checkpoints"),
        (Broken(as_they_are, ref="plain"), "expected 'vendor/model'"),
    ],
)
async def test_the_check_finds_what_is_broken(model: Broken, words: str) -> None:
    with pytest.raises(AssertionError, match=words):
        await check_embedding_model(opens(model))


async def test_the_check_lets_model_errors_out() -> None:
    with pytest.raises(ServerError, match="too many texts"):
        await check_embedding_model(opens(Broken(at_most_a_hundred)))
