"""Cutting a text in its middle: head and tail stay, a marker says how much is gone.

How long a text is says a `measure`: characters, or an estimate of tokens. It may not
fall when text is added, and the whole may not be longer than its parts together. Pure.
"""

from bisect import bisect_right
from collections.abc import Callable
from typing import Final, TypeAlias

from attrs import frozen

__all__ = ["Cut", "Measure", "find_cut", "fitting_prefix", "truncate_middle"]

Measure: TypeAlias = Callable[[str], int]

MARKER: Final = "\n[... {:,} characters left out ...]\n"


@frozen(kw_only=True)
class Cut:
    """What of a text stays, in characters."""

    head: int
    tail: int
    left_out: int

    @property
    def marker(self) -> str:
        """What stands in the place of what is left out."""
        return MARKER.format(self.left_out)


def find_cut(text: str, limit: int, *, measure: Measure = len) -> Cut | None:
    """Where to cut, so that the rest and the marker fit; None if the text fits.

    Head and tail get the same room: errors often stand at the end.

    Raises:
        ValueError: not even the marker fits.
    """
    if measure(text) <= limit:
        return None
    marker = measure(MARKER.format(len(text)))
    room = limit - marker
    if room < 0:
        raise ValueError(f"limit is {limit}, expected {marker} or more for the marker")
    tail = _fitting(text, room // 2, lambda n: measure(text[len(text) - n :]))
    head = _fitting(text, room - room // 2, lambda n: measure(text[:n]))
    return Cut(head=head, tail=tail, left_out=len(text) - head - tail)


def truncate_middle(text: str, limit: int, *, measure: Measure = len) -> str:
    """The text, without its middle where it is too long.

    With the marker it fits the limit, so truncating again changes nothing.

    Raises:
        ValueError: not even the marker fits.
    """
    cut = find_cut(text, limit, measure=measure)
    if cut is None:
        return text
    return text[: cut.head] + cut.marker + text[len(text) - cut.tail :]


def fitting_prefix(text: str, limit: int, *, measure: Measure = len) -> str:
    """As much of the beginning as fits."""
    return text[: _fitting(text, limit, lambda n: measure(text[:n]))]


def _fitting(text: str, limit: int, measure: Callable[[int], int]) -> int:
    """The most characters whose measure is within the limit."""
    return bisect_right(range(len(text) + 1), limit, key=measure) - 1
