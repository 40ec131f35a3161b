"""Cutting a text in its middle: it fits, and cutting again changes nothing."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrt.core.truncate import find_cut, fitting_prefix, truncate_middle
from agentrt.models.estimate import estimate_text

MEASURES = st.sampled_from([len, estimate_text])
TEXTS = st.text(max_size=400) | st.text(alphabet="ab天\n", max_size=400)
MARKER = "\n[... {:,} characters left out ...]\n"


@given(TEXTS, st.integers(60, 300), MEASURES)
def test_what_was_cut_fits_and_is_not_cut_again(
    text: str, limit: int, measure: Callable[[str], int]
) -> None:
    """B70: the marker is within the limit."""
    once = truncate_middle(text, limit, measure=measure)
    assert measure(once) <= limit
    assert truncate_middle(once, limit, measure=measure) == once


@given(TEXTS, st.integers(60, 300), MEASURES)
def test_head_and_tail_stay_and_the_marker_counts_the_rest(
    text: str, limit: int, measure: Callable[[str], int]
) -> None:
    cut = find_cut(text, limit, measure=measure)
    cut_text = truncate_middle(text, limit, measure=measure)
    if measure(text) <= limit:
        assert (cut, cut_text) == (None, text)
        return
    assert cut is not None
    head, tail = text[: cut.head], text[len(text) - cut.tail :]
    assert cut_text == head + MARKER.format(cut.left_out) + tail
    assert len(head) + cut.left_out + len(tail) == len(text)
    assert cut.left_out > 0


@given(TEXTS, st.integers(60, 300), MEASURES)
def test_no_room_is_wasted(
    text: str, limit: int, measure: Callable[[str], int]
) -> None:
    once = truncate_middle(text, limit, measure=measure)
    if once != text:
        assert measure(once) >= limit - 4


@given(TEXTS, st.integers(0, 50), MEASURES)
def test_a_prefix_fits_and_the_next_character_would_not(
    text: str, limit: int, measure: Callable[[str], int]
) -> None:
    prefix = fitting_prefix(text, limit, measure=measure)
    assert text.startswith(prefix)
    assert measure(prefix) <= limit
    assert prefix == text or measure(text[: len(prefix) + 1]) > limit


def test_a_limit_below_the_marker_is_refused() -> None:
    with pytest.raises(
        ValueError, match="limit is 10, expected 35 or more for the marker"
    ):
        truncate_middle("x" * 100, 10)
    assert truncate_middle("x" * 10, 10) == "x" * 10
