"""The contract of a model that makes vectors of texts, and one that needs no network.

No leaf: what retrieves by meaning builds on the contract.
"""

import re
import unicodedata
from collections.abc import Sequence
from math import sqrt
from typing import Final, Protocol
from zlib import crc32

import trio
from attrs import field, frozen

from agentrt.core.chat import Usage

__all__ = ["EmbeddingModel", "EmbeddingResponse", "HashingEmbedding"]


@frozen(kw_only=True)
class EmbeddingResponse:
    """What a model made of texts."""

    vectors: Sequence[Sequence[float]]
    """One for each text, in the order of the texts; all of one length."""

    usage: Usage | None = None
    model: str = ""
    """As the vendor names it, which need not be what was asked for."""


class EmbeddingModel(Protocol):
    """Makes vectors of texts: what is alike in meaning is near in direction.

    Every implementation promises:

    * One vector for each text, in order; all of one length, which is the same in every
      call; every number is finite.
    * A text has the same vector, but for rounding, whatever texts come with it.
    * No text gives no vector, and asks nobody. A blank text has a vector too.
    * How many texts a vendor takes at once is its own business: it splits them.
    * What fails raises a `ModelError`; cancellation passes through.
    * The call is a checkpoint. Several may be in flight.

    `agentrt.testing.check_embedding_model` tests these promises.
    """

    @property
    def ref(self) -> str:
        """`vendor/model-id`."""
        ...

    async def embed(self, texts: Sequence[str]) -> EmbeddingResponse: ...


WORD: Final = re.compile(r"\w+")


def _above_0(_: object, attribute: object, value: int) -> None:
    if value < 1:
        raise ValueError(f"dimensions is {value}, expected 1 or more")


@frozen(kw_only=True)
class HashingEmbedding:
    """An `EmbeddingModel` that counts words, for tests and for trying things out.

    Texts are near if they share words, whatever their case; of meaning it knows
    nothing. Deterministic, also across processes. A text without words is all zeros.
    """

    dimensions: int = field(default=256, validator=_above_0)
    """Numbers of a vector. Words that fall into one place by chance look alike: the
    more there are, the fewer do."""

    @property
    def ref(self) -> str:
        return f"hashing/words-{self.dimensions}"

    async def embed(self, texts: Sequence[str]) -> EmbeddingResponse:
        await trio.lowlevel.checkpoint()
        vectors = [self._vector(text) for text in texts]
        return EmbeddingResponse(vectors=vectors, model=f"words-{self.dimensions}")

    def _vector(self, text: str) -> Sequence[float]:
        counts = [0.0] * self.dimensions
        folded = unicodedata.normalize("NFKC", text).casefold()
        for word in WORD.findall(folded):
            place = crc32(word.encode("utf-8", "surrogatepass"))
            counts[place % self.dimensions] += 1.0
        length = sqrt(sum(count * count for count in counts))
        return [count / length for count in counts] if length else counts
