"""Usage and finish reasons, under every name that vendors give them."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrt.core.chat import (
    COUNTS,
    FINISH_REASONS,
    FinishReason,
    Usage,
    add_usage,
    finish_reason,
    usage_from,
)
from agentrt.testing.strategies import json_values


def read(raw: Any) -> Usage | None:
    return usage_from(raw, provider="p", model="m")


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (
            {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 9},
            {"input_tokens": 5, "output_tokens": 2, "total_tokens": 9},
        ),
        (
            {"input_tokens": 5, "output_tokens": 2},
            {"input_tokens": 5, "output_tokens": 2, "total_tokens": 7},
        ),
        ({"input_tokens": 5}, {"input_tokens": 5, "total_tokens": 5}),
        ({"total_tokens": 5}, {"total_tokens": 5}),
        (
            {"total_tokens": 5, "cache_read_input_tokens": 3},
            {"total_tokens": 5, "cached_input_tokens": 3},
        ),
        (
            {"total_tokens": 5, "prompt_tokens_details": {"cached_tokens": 3}},
            {"total_tokens": 5, "cached_input_tokens": 3},
        ),
        (
            {"total_tokens": 5, "input_tokens_details": {"cached_tokens": 3}},
            {"total_tokens": 5, "cached_input_tokens": 3},
        ),
        (
            {"total_tokens": 5, "prompt_cache_hit_tokens": 3},
            {"total_tokens": 5, "cached_input_tokens": 3},
        ),
        (
            {"total_tokens": 5, "cache_creation_input_tokens": 3},
            {"total_tokens": 5, "cache_write_input_tokens": 3},
        ),
        (
            {"total_tokens": 5, "prompt_tokens_details": {"cache_write_tokens": 3}},
            {"total_tokens": 5, "cache_write_input_tokens": 3},
        ),
        (
            {"total_tokens": 5, "completion_tokens_details": {"reasoning_tokens": 3}},
            {"total_tokens": 5, "reasoning_tokens": 3},
        ),
        (
            {"total_tokens": 5, "output_tokens_details": {"thinking_tokens": 3}},
            {"total_tokens": 5, "reasoning_tokens": 3},
        ),
        ({"input_tokens": 5.0}, {"input_tokens": 5, "total_tokens": 5}),
        (
            {"input_tokens": None, "prompt_tokens": 5},
            {"input_tokens": 5, "total_tokens": 5},
        ),
        (
            {"input_tokens": 0, "output_tokens": 0},
            {"input_tokens": 0, "output_tokens": 0, "total_tokens": 0},
        ),
        (
            {"total_tokens": 5, "prompt_tokens_details": None},
            {"total_tokens": 5},
        ),
        (
            {"total_tokens": 5, "prompt_tokens_details": [3]},
            {"total_tokens": 5},
        ),
    ],
)
def test_usage_is_read_under_every_name(
    raw: Mapping[str, Any], expected: Mapping[str, int]
) -> None:
    assert read(raw) == Usage(provider="p", model="m", **expected)


@pytest.mark.parametrize(
    "raw",
    [
        None,
        [],
        "usage",
        {},
        {"input_tokens": -1},
        {"input_tokens": 1.5},
        {"input_tokens": True},
        {"input_tokens": "5"},
        {"input_tokens": float("nan")},
        {"input_tokens": float("inf")},
        {"prompt_tokens_details": {"cached_tokens": 3}},
    ],
)
def test_usage_that_says_nothing_is_none(raw: Any) -> None:
    assert read(raw) is None


@given(
    st.dictionaries(
        st.sampled_from(
            ["input_tokens", "prompt_tokens", "total_tokens", "prompt_tokens_details"]
        ),
        json_values() | st.floats() | st.integers() | st.just(10**400),
    )
)
def test_usage_never_raises_whatever_a_vendor_sends(raw: dict[str, Any]) -> None:
    usage = read(raw)
    counts = [] if usage is None else [getattr(usage, name) for name in COUNTS]
    assert all(count is None or count >= 0 for count in counts)


@given(st.text())
def test_asking_for_a_finish_reason_twice_changes_nothing(raw: str) -> None:
    """X1"""
    once = finish_reason(raw)
    assert finish_reason(once) is once


@pytest.mark.parametrize(("raw", "reason"), FINISH_REASONS.items())
def test_each_finish_reason_is_known_in_any_case(
    raw: str, reason: FinishReason
) -> None:
    assert finish_reason(raw) is finish_reason(raw.upper()) is reason
    assert finish_reason(reason) is reason


def test_no_finish_reason_stays_none_and_a_strange_one_is_unknown() -> None:
    assert finish_reason(None) is None
    assert finish_reason("tired") is FinishReason.UNKNOWN


def usages() -> st.SearchStrategy[Usage]:
    return st.builds(
        Usage,
        provider=st.sampled_from(["p", "q"]),
        model=st.sampled_from(["m", "n"]),
        **{name: st.none() | st.integers(0, 100) for name in COUNTS},
    )


@given(st.lists(usages()))
def test_usage_adds_up_by_provider_and_model(entries: Sequence[Usage]) -> None:
    added = add_usage(entries)
    keys = [(entry.provider, entry.model) for entry in added]
    assert keys == list(dict.fromkeys((u.provider, u.model) for u in entries))
    for name in COUNTS:
        known = [getattr(u, name) for u in entries if getattr(u, name) is not None]
        sums = [getattr(u, name) for u in added if getattr(u, name) is not None]
        assert sum(sums) == sum(known)
        assert bool(sums) == bool(known)
    assert add_usage(added) == added
