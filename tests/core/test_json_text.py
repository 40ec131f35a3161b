"""JSON from outside: what is read can be written down again, and faults have words."""

import json
from typing import Any

import pytest
from hypothesis import given

from agentrt.core.json_text import load_json
from agentrt.testing import json_values


@given(json_values())
def test_every_json_value_is_read_as_it_was_written(value: Any) -> None:
    assert load_json(json.dumps(value)) == value


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "Expecting value: line 1"),
        ('{"a": 1,\n}', "line 2 column 1"),
        ("[NaN]", "NaN is no JSON"),
        ("-Infinity", "-Infinity is no JSON"),
        ("1e999", "1e999 is too large"),
        ("1" * 5000, "is too large"),
        ("[" * 101 + "]" * 101, "nest more than 100 levels"),
        ("[" * 100_000, "nest more than 100 levels"),
    ],
    ids=lambda text: text[:20],
)
def test_what_could_not_be_written_down_again_is_refused(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        load_json(text)


def test_a_hundred_levels_are_read() -> None:
    assert load_json("[" * 100 + "]" * 100)


@pytest.mark.parametrize("digits", ["1" + "0" * 400, "-" + "9" * 400])
def test_a_whole_number_that_no_float_can_hold_is_refused(digits: str) -> None:
    with pytest.raises(ValueError, match="is too large"):
        load_json(f'{{"n": {digits}}}')
