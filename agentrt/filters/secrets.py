"""Secrets in a text that comes in pieces: found however it was cut.

Beneath `redaction`. Plain functions and objects; nothing here waits.
"""

import re
from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import Any, Final, TypeAlias

from attrs import define, field, frozen

__all__ = ["Secret", "Secrets", "Stretch", "secrets_of"]

Secret: TypeAlias = str | re.Pattern[str]

PATIENCE: Final = 8
"""Times the reach: how long a match that goes on and on is waited for."""


@frozen(kw_only=True)
class Secrets:
    """What is looked for, and how far it reaches."""

    texts: Sequence[str]
    """The longest first."""

    patterns: Sequence[re.Pattern[str]]
    """All of them, in the order in which they win; the first is that of the texts."""

    replacement: str
    reach: int
    """Characters that a pattern may match; as many are looked back at."""

    beginning: re.Pattern[str]
    """Finds where a text may begin, by its first character."""

    def redact(self, text: str) -> str:
        """A whole text without them."""
        stretch = Stretch(self)
        return stretch.feed(text) + stretch.finish()

    def settled(self, text: str, start: int) -> int:
        """Up to where no more text can begin another match than there is now."""
        only_texts = len(self.patterns) == bool(self.texts)
        end = len(text) if only_texts else max(start, len(text) - self.reach)
        longest = len(self.texts[0]) if self.texts else 0
        for match in self.beginning.finditer(text, max(start, len(text) - longest)):
            begun = text[match.start() :]
            if any(t.startswith(begun) and t != begun for t in self.texts):
                return min(end, match.start())
        return end

    def is_open(self, text: str, span: tuple[int, int]) -> bool:
        """Whether a match may look otherwise when more text has come."""
        if span[1] < len(text) or text[span[0] :] in self.texts:
            return False
        return span[1] - span[0] < PATIENCE * self.reach


@define(init=False)
class _Search:
    """What comes next in a text that stays as it is, from place to place.

    The next match of each pattern is kept: one that is rare, or never there, is not
    looked for again after each match of another.
    """

    _text: str
    _next: dict[re.Pattern[str], tuple[int, int] | None]
    """In the order in which they win; without those that do not come any more."""

    def __init__(self, patterns: Sequence[re.Pattern[str]], text: str) -> None:
        self._text = text
        self._next = dict.fromkeys(patterns)

    def first(self, place: int) -> tuple[int, int] | None:
        """Where the first of them is, from `place` on, which never goes back."""
        for pattern, span in list(self._next.items()):
            if span is not None and span[0] >= place:
                continue
            spans = (match.span() for match in pattern.finditer(self._text, place))
            found = next((each for each in spans if each[0] < each[1]), None)
            if found is None:
                del self._next[pattern]
            else:
                self._next[pattern] = found
        coming = [span for span in self._next.values() if span is not None]
        return min(coming, key=itemgetter(0), default=None)


@define
class Stretch:
    """A text that comes in pieces and leaves without secrets."""

    _secrets: Secrets
    _text: str = field(default="", init=False)
    """What was sent on last, for patterns that look back, and what is held."""

    _held: int = field(default=0, init=False)
    """Where what is held begins."""

    def feed(self, piece: str) -> str:
        """What may be shown now."""
        self._text += piece
        return self._advance(self._secrets.settled(self._text, self._held))

    def finish(self) -> str:
        """What was held: no more comes."""
        return self._advance(len(self._text), final=True)

    def _advance(self, end: int, *, final: bool = False) -> str:
        shown: list[str] = []
        place = self._held
        search = _Search(self._secrets.patterns, self._text)
        span = search.first(place)
        while span is not None and span[0] < end:
            if not final and self._secrets.is_open(self._text, span):
                end = span[0]
                break
            shown += [self._text[place : span[0]], self._secrets.replacement]
            place = span[1]
            span = search.first(place)
        if place < end:
            shown.append(self._text[place:end])
            place = end
        drop = max(0, place - self._secrets.reach)
        self._text, self._held = self._text[drop:], place - drop
        return "".join(shown)


def secrets_of(
    patterns: Secret | Iterable[Secret], replacement: str, max_length: int
) -> Secrets:
    if max_length < 1:
        raise ValueError(f"max_length is {max_length}, expected 1 or more characters")
    given = [patterns] if isinstance(patterns, str | re.Pattern) else list(patterns)
    _check_kinds(given)
    if not given:
        raise ValueError("there is nothing to redact: no pattern was given")
    texts = sorted((p for p in given if isinstance(p, str)), key=len, reverse=True)
    compiled = [p for p in given if isinstance(p, re.Pattern)]
    if "" in texts or any(pattern.search("") for pattern in compiled):
        raise ValueError("a pattern matches the empty text, which is everywhere")
    firsts = "".join({text[0] for text in texts})
    own = [re.compile("|".join(map(re.escape, texts)))] if texts else []
    return Secrets(
        texts=texts,
        patterns=[*own, *compiled],
        replacement=replacement,
        reach=max_length,
        beginning=re.compile(f"[{re.escape(firsts)}]" if texts else "(?!)"),
    )


def _check_kinds(patterns: Sequence[Any]) -> None:
    """A message names no pattern: it may be the secret itself."""
    for number, each in enumerate(patterns, 1):
        kind = type(each).__name__
        if isinstance(each, re.Pattern):
            if isinstance(each.pattern, str):
                continue
            kind = "pattern of bytes"
        if not isinstance(each, str):
            raise TypeError(
                f"pattern {number} of {len(patterns)} is a {kind}, expected a text or "
                "a compiled pattern of text: decode bytes, leave out what is unset"
            )
