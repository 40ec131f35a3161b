"""Which piece belongs to which call, whatever index, id and name a vendor sends."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrt.core.chat import ToolCallDelta
from agentrt.core.messages import ToolCall
from agentrt.providers.openai_calls import CallAccumulator


def entry(
    arguments: Any = None,
    *,
    index: Any = None,
    id_: str | None = None,
    name: str | None = None,
) -> dict[str, Any]:
    """An element of `tool_calls`, with what is given and nothing else."""
    function = {"name": name, "arguments": arguments}
    known = {key: value for key, value in function.items() if value is not None}
    place = {"index": index, "id": id_}
    given_ = {key: value for key, value in place.items() if value is not None}
    return {**given_, "function": known}


def collected(
    *entries: Any, cut: bool = False
) -> tuple[Sequence[ToolCall], Sequence[ToolCallDelta]]:
    """The calls that the pieces make, and what was told of them."""
    told: list[ToolCallDelta] = []
    calls = CallAccumulator(told.append)
    for piece in entries:
        calls.feed(piece)
    return calls.finish(cut=cut), told


def test_calls_are_told_by_index_with_id_and_name_first() -> None:
    calls, told = collected(
        entry("", index=1, id_="a", name="f"),
        entry('{"x"', index=1),
        entry("{}", index=2, id_="b", name="g"),
        entry(":1}", index=1),
    )
    assert told == [
        ToolCallDelta(index=0, id="a", name="f"),
        ToolCallDelta(index=0, arguments='{"x"'),
        ToolCallDelta(index=1, id="b", name="g", arguments="{}"),
        ToolCallDelta(index=0, arguments=":1}"),
    ]
    assert calls == (
        ToolCall(id="a", name="f", arguments={"x": 1}),
        ToolCall(id="b", name="g"),
    )


def test_arguments_are_held_until_the_name_is_known() -> None:
    _, told = collected(
        entry('{"x"', index=0, id_="a"), entry(":1}", index=0, name="f")
    )
    assert told == [ToolCallDelta(index=0, id="a", name="f", arguments='{"x":1}')]


def test_an_id_that_comes_after_the_name_stays_unknown() -> None:
    calls, told = collected(entry("{}", index=0, name="f"), entry(index=0, id_="late"))
    assert told == [ToolCallDelta(index=0, name="f", arguments="{}")]
    assert calls == (ToolCall(id="", name="f"),)


def test_the_second_of_two_equal_ids_is_dropped() -> None:
    calls, _ = collected(
        entry("{}", index=0, id_="a", name="f"), entry("{}", index=1, id_="a", name="g")
    )
    assert calls == (ToolCall(id="a", name="f"), ToolCall(id="", name="g"))


def test_a_call_without_a_name_is_told_at_the_end() -> None:
    calls, told = collected(entry('{"x":1}', index=0, id_="a"))
    assert told == [ToolCallDelta(index=0, id="a", arguments='{"x":1}')]
    assert calls == (ToolCall(id="a", name="", arguments={"x": 1}),)


def test_a_piece_of_nothing_is_no_call() -> None:
    assert collected({}, entry(), {"index": 0}, {"function": None}) == ((), [])


def test_pieces_without_index_go_by_their_id() -> None:
    calls, _ = collected(
        entry('{"x"', id_="a", name="f"),
        entry('{"y"', id_="b", name="g"),
        entry(":1}", id_="a"),
        entry(":2}", id_="b"),
    )
    assert calls == (
        ToolCall(id="a", name="f", arguments={"x": 1}),
        ToolCall(id="b", name="g", arguments={"y": 2}),
    )


def test_pieces_without_index_and_id_go_to_the_last_call() -> None:
    calls, _ = collected(
        entry("{}", id_="a", name="f"), entry('{"y"', id_="b", name="g"), entry(":2}")
    )
    assert calls[-1] == ToolCall(id="b", name="g", arguments={"y": 2})


def test_two_equal_calls_without_index_and_id_are_two() -> None:
    calls, _ = collected(entry("{}", name="f"), entry("{}", name="f"))
    assert calls == (ToolCall(id="", name="f"),) * 2


def test_braces_that_are_no_json_do_not_end_a_call() -> None:
    calls, _ = collected(
        entry('{"x": {}', index=0, name="f"), entry("}", index=0, name="f")
    )
    assert calls == (ToolCall(id="", name="f", arguments={"x": {}}),)


def test_another_id_without_a_name_is_no_other_call() -> None:
    calls, _ = collected(
        entry('{"x"', index=0, id_="a", name="f"), entry(":1}", index=0, id_="b")
    )
    assert calls == (ToolCall(id="a", name="f", arguments={"x": 1}),)


@pytest.mark.parametrize(
    ("arguments", "expected", "invalid"),
    [
        ("", {}, None),
        (None, {}, None),
        ({"x": 1}, {"x": 1}, None),
        ('"{\\"x\\": 1}"', {"x": 1}, None),
        ("[1]", {}, "[1]"),
        ([1], {}, "[1]"),
        ('{"x": ', {}, '{"x": '),
        ("{x}", {}, "{x}"),
        ("NaN", {}, "NaN"),
    ],
)
def test_arguments_are_an_object_or_invalid(
    arguments: Any, expected: Any, invalid: str | None
) -> None:
    calls, _ = collected(entry(arguments, index=0, id_="a", name="f"))
    call = ToolCall(id="a", name="f", arguments=expected, invalid_arguments=invalid)
    assert calls == (call,)


def test_a_last_call_that_was_cut_before_its_arguments_is_invalid() -> None:
    pieces = [
        entry("", index=0, id_="a", name="f"),
        entry("", index=1, id_="b", name="g"),
    ]
    whole, _ = collected(*pieces)
    cut, _ = collected(*pieces, cut=True)
    assert whole == (ToolCall(id="a", name="f"), ToolCall(id="b", name="g"))
    assert cut == (
        ToolCall(id="a", name="f"),
        ToolCall(id="b", name="g", invalid_arguments=""),
    )


CALLS = st.lists(
    st.tuples(
        st.sampled_from(["f", "g"]),
        st.dictionaries(st.sampled_from("xy"), st.integers(0, 9), max_size=2),
    ),
    min_size=1,
    max_size=4,
)
"""Calls as they are meant: names and arguments."""

INDEXED: Mapping[str, Callable[[int], int | None]] = {
    "own": lambda n: n,
    "gaps": lambda n: 3 * n + 1,
    "same": lambda n: 0,
    "none": lambda n: None,
}


@given(CALLS, st.sampled_from(list(INDEXED)), st.data())
def test_calls_with_ids_are_never_merged_whatever_their_index(
    meant: Any, style: str, data: Any
) -> None:
    pieces = []
    for place, (name, arguments) in enumerate(meant):
        text = json.dumps(arguments)
        cut = data.draw(st.integers(0, len(text)))
        index, again = INDEXED[style](place), data.draw(st.booleans())
        pieces += [
            entry(text[:cut], index=index, id_=f"id{place}", name=name),
            entry(
                text[cut:],
                index=index,
                id_=data.draw(st.sampled_from(["", f"id{place}"])),
                name=name if again and cut < len(text) else "",
            ),
        ]
    calls, _ = collected(*pieces)
    assert calls == tuple(
        ToolCall(id=f"id{place}", name=name, arguments=arguments)
        for place, (name, arguments) in enumerate(meant)
    )


@given(CALLS, st.booleans())
def test_whole_calls_without_ids_are_never_merged(meant: Any, indexed: bool) -> None:
    numbered = [(name, {**found, "n": n}) for n, (name, found) in enumerate(meant)]
    index = 0 if indexed else None
    calls, _ = collected(
        *(entry(json.dumps(found), index=index, name=name) for name, found in numbered)
    )
    assert [(call.name, call.arguments) for call in calls] == numbered


@given(CALLS, st.data())
def test_pieces_of_calls_may_mix(meant: Any, data: Any) -> None:
    queues = [
        [entry("", index=n, id_=f"id{n}", name=name)]
        + [entry(character, index=n) for character in json.dumps(arguments)]
        for n, (name, arguments) in enumerate(meant)
    ]
    mixed = []
    while any(queues):
        queue = data.draw(st.sampled_from([queue for queue in queues if queue]))
        mixed.append(queue.pop(0))
    calls, _ = collected(*mixed)
    found = {call.id: (call.name, call.arguments) for call in calls}
    assert found == {f"id{n}": call for n, call in enumerate(meant)}


WORDS = st.sampled_from(["", "a", "f", "{}", '{"x":', "1}", "0"])
VALUES: st.SearchStrategy[Any] = (
    st.none() | st.integers(-1, 2) | WORDS | st.booleans() | st.just([]) | st.just({})
)
FUNCTIONS = st.fixed_dictionaries({}, optional={"name": VALUES, "arguments": VALUES})
ENTRIES = st.fixed_dictionaries(
    {},
    optional={
        "index": VALUES,
        "id": VALUES,
        "function": FUNCTIONS | VALUES,
        "extra_content": VALUES,
    },
)


@given(st.lists(ENTRIES, max_size=8), st.booleans())
def test_any_pieces_at_all_give_deltas_that_add_up(entries: Any, cut: bool) -> None:
    calls, told = collected(*entries, cut=cut)
    firsts: dict[int, ToolCallDelta] = {}
    for delta in told:
        firsts.setdefault(delta.index, delta)
    assert sorted(firsts) == list(range(len(calls)))
    for index, call in enumerate(calls):
        assert (firsts[index].id, firsts[index].name) == (call.id, call.name)
    ids = [call.id for call in calls if call.id]
    assert len(ids) == len(set(ids))
