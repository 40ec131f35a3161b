"""State slots: the same calls always give the same state."""

from collections.abc import Mapping, Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from agentrt.core.context import Slot, fold_writes

APPEND = Slot(reduce=lambda old, new: [*old, new], init=[])


@given(
    st.lists(
        st.dictionaries(st.sampled_from(["log", "last", "other"]), st.integers()),
        max_size=6,
    )
)
def test_writes_are_folded_in_call_order(writes: Sequence[Mapping[str, int]]) -> None:
    """B42: the fold knows nothing of the order of completion."""
    folded = fold_writes({"log": [0]}, writes, {"log": APPEND})
    logged = [each["log"] for each in writes if "log" in each]
    assert folded.values["log"] == [0, *logged]
    for key in ("last", "other"):
        written = [each[key] for each in writes if key in each]
        assert folded.values.get(key) == (written[-1] if written else None)
        told = [line for line in folded.conflicts if repr(key) in line]
        assert len(told) == max(0, len(written) - 1)
    assert not [line for line in folded.conflicts if "'log'" in line]


@given(
    st.dictionaries(st.sampled_from(["a", "b"]), st.integers()),
    st.lists(st.dictionaries(st.sampled_from(["a", "b"]), st.integers())),
)
def test_folding_changes_nothing_that_it_was_given(
    values: dict[str, Any], writes: list[dict[str, Any]]
) -> None:
    before = (dict(values), [dict(each) for each in writes])
    fold_writes(values, writes, {"a": Slot(reduce=lambda old, new: new)})
    assert (values, writes) == before


def test_a_slot_begins_with_its_init() -> None:
    folded = fold_writes({}, [{"log": 1}], {"log": APPEND})
    assert folded.values == {"log": [1]}
    assert APPEND.init == []


def test_a_value_of_none_is_a_value() -> None:
    count = Slot(reduce=lambda old, new: (old, new), init="init")
    assert fold_writes({"a": None}, [{"a": 1}], {"a": count}).values == {"a": (None, 1)}


def test_a_reducer_that_raises_leaves_the_value_as_it_was() -> None:
    """X16"""
    add = Slot(reduce=lambda old, new: old + new, init=0)
    folded = fold_writes({"n": 1}, [{"n": "x"}, {"n": 2}], {"n": add})
    assert folded.values == {"n": 3}
    assert [line.partition("(")[0] for line in folded.conflicts] == [
        "the reducer of 'n' raised TypeError"
    ]


def test_a_key_that_is_no_text_is_dropped_and_told() -> None:
    writes: list[Any] = [{1: 2, "a": 3}]
    folded = fold_writes({}, writes, {})
    assert folded.values == {"a": 3}
    assert folded.conflicts == ["1 is no text, as a key must be: the write was dropped"]
