"""Finding tools by what is asked: the contract `ToolIndex`, by keyword, by pattern.

An index is made of one catalogue and never changes; for another, make another.
"""

import math
import re
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from typing import Any, Final, Protocol

import trio
from attrs import define, frozen

from agentrt.core.chat import ToolSpec

__all__ = ["KeywordIndex", "RegexIndex", "ToolIndex", "search_tokens"]

CJK: Final = (
    "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
    "\U00020000-\U0002fa1f"
)
RUN: Final = re.compile(rf"[{CJK}]+|[^\W_{CJK}]+")
IS_CJK: Final = re.compile(rf"[{CJK}]")
HUMP: Final = re.compile(
    rf"(?<=[^\W_A-Z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][^\W\d_A-Z{CJK}])"
)

REPEATED_GROUP: Final = re.compile(r"\)[*+{]|\\[1-9]|\(\?P=")
COSTLY: Final = re.compile(r"[*+?{(]")
MAX_COSTLY: Final = 3
MAX_PATTERN: Final = 200
"""Characters. The model writes the pattern: with more of these, or with a group that
repeats, one match could take minutes."""


class ToolIndex(Protocol):
    """Finds tools of one catalogue. May ask elsewhere, as for vectors."""

    async def search(self, query: str, limit: int) -> Sequence[str]:
        """Names of at most `limit` tools that fit, the best first; none is no error."""
        ...


def search_tokens(text: str) -> frozenset[str]:
    """The words of a text, in lower case, for comparing.

    `camelCase` and `snake_case` are split. Of Chinese, Japanese and Korean, which put
    no spaces between words, each two neighbors are a word; a lone character is one.
    """
    words: set[str] = set()
    for run in RUN.findall(HUMP.sub(" ", text)):
        if IS_CJK.match(run) and len(run) > 1:
            words.update(run[place : place + 2] for place in range(len(run) - 1))
        else:
            words.add(run.lower())
    return frozenset(words)


ENDINGS: Final = ("ing", "ed", "es", "s")


def _stem(word: str) -> str:
    """A word without `s`, `ing`, `ed` and what these change; the same on both sides."""
    if len(word) < 4 or not word.isascii():
        return word
    for ending in ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            shorter = word.removesuffix(ending)
            word = _stem(shorter) if ending in {"es", "s"} else shorter
            break
    word = word.removesuffix("e")
    return word[:-1] if len(word) > 3 and word[-1] == word[-2] else word


@frozen
class _Entry:
    name: str
    of_name: frozenset[str]
    of_description: frozenset[str]


@define(init=False)
class KeywordIndex:
    """Ranks tools by the words that they share with the query: no model, no network.

    A rare word counts for more; one that all tools have, for nothing. Words of the name
    count twice. A word that no tool has stands for its other forms in English: `emails`
    finds `send_email`. What shares any word that counts is found: one tool too many
    costs little, a missing one loses the task.
    """

    _entries: Sequence[_Entry]
    _weights: Mapping[str, float]

    def __init__(self, catalogue: Sequence[ToolSpec]) -> None:
        self._entries = [
            _Entry(spec.name, search_tokens(spec.name), search_tokens(spec.description))
            for spec in catalogue
        ]
        having = Counter(
            word
            for entry in self._entries
            for word in entry.of_name | entry.of_description
        )
        # With one tool alone every word would be in all of them, and count for nothing.
        total = max(len(self._entries), 2) + 1
        self._weights = {
            word: math.log(total / (count + 1)) for word, count in having.items()
        }

    async def search(self, query: str, limit: int) -> Sequence[str]:
        await trio.lowlevel.checkpoint()
        words = self._known(search_tokens(query))
        scored = [(self._score(entry, words), entry.name) for entry in self._entries]
        ranked = sorted((-score, name) for score, name in scored if score > 0)
        return [name for _, name in ranked[:limit]]

    def _known(self, words: frozenset[str]) -> frozenset[str]:
        """The words as the catalogue has them; of one that it lacks, other forms."""
        known = words & self._weights.keys()
        lacking = {_stem(each) for each in words - known}
        if not lacking:
            return known
        return known | {word for word in self._weights if _stem(word) in lacking}

    def _score(self, entry: _Entry, words: frozenset[str]) -> float:
        of_name = [2 * self._weights[word] for word in words & entry.of_name]
        rest = [self._weights[word] for word in words & entry.of_description]
        return math.fsum([*of_name, *rest])  # the same in any order


@define(init=False)
class RegexIndex:
    """Finds tools whose name has the pattern in it, in any case, in catalogue order.

    A pattern that is none, or that could take too long, is looked for as it stands.
    """

    _names: Sequence[str]

    def __init__(self, catalogue: Sequence[ToolSpec]) -> None:
        self._names = [spec.name for spec in catalogue]

    async def search(self, query: str, limit: int) -> Sequence[str]:
        await trio.lowlevel.checkpoint()
        pattern = _pattern(query)
        return [name for name in self._names if pattern.search(name)][:limit]


def _pattern(query: str) -> re.Pattern[str]:
    is_quick = (
        len(query) <= MAX_PATTERN
        and len(COSTLY.findall(query)) <= MAX_COSTLY
        and REPEATED_GROUP.search(query) is None
    )
    if is_quick:
        with suppress(re.error, OverflowError, RecursionError), _quiet():
            return re.compile(query, re.IGNORECASE)
    return re.compile(re.escape(query), re.IGNORECASE)


def _quiet() -> AbstractContextManager[Any]:
    """No warnings of patterns that a later Python may read in another way."""
    return warnings.catch_warnings(action="ignore", category=FutureWarning)
