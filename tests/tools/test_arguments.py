"""What a model plainly meant is taken; all else is told at once, with its place."""

import socket
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given

from agentrt.testing.strategies import json_objects
from agentrt.tools.arguments import ArgumentChecker, SchemaChecker, schema_fault


def checker(required: Sequence[str] = (), /, **properties: Any) -> ArgumentChecker:
    schema = {"type": "object", "properties": properties, "required": list(required)}
    return ArgumentChecker(schema)


INTEGER = {"type": "integer"}
NUMBER = {"type": "number"}
BOOLEAN = {"type": "boolean"}
STRING = {"type": "string"}
OPTIONAL = {"type": ["integer", "null"]}
LIST = {"type": "array", "items": INTEGER}


@pytest.mark.parametrize(
    ("schema", "given_", "taken"),
    [
        (INTEGER, "5", 5),
        (INTEGER, " -5 ", -5),
        (INTEGER, 5, 5),
        (NUMBER, "5", 5.0),
        (NUMBER, "-1.5e3", -1500.0),
        (BOOLEAN, "true", True),
        (BOOLEAN, " False ", False),
        (OPTIONAL, "5", 5),
        (OPTIONAL, None, None),
        ({"type": ["number", "boolean"]}, "true", True),
        ({"type": ["number", "boolean"]}, "1.5", 1.5),
        ({"type": ["integer", "string"]}, "5", "5"),
        ({"anyOf": [INTEGER, {"type": "null"}]}, "5", 5),
        ({"oneOf": [BOOLEAN, {"type": "null"}]}, "true", True),
        ({"anyOf": [INTEGER, STRING]}, "5", "5"),
        ({"anyOf": [INTEGER, {}]}, "5", "5"),
        (STRING, "5", "5"),
        ({}, "5", "5"),
        (LIST, ["1", 2], [1, 2]),
        ({"anyOf": [LIST, {"type": "null"}]}, ["1"], [1]),
        ({"type": "integer", "enum": [1, 2]}, "2", 2),
        (
            {"type": "object", "properties": {"n": INTEGER}},
            {"n": "5", "other": 1},
            {"n": 5},
        ),
        (
            {
                "anyOf": [
                    {"type": "object", "properties": {"n": INTEGER}},
                    {"type": "null"},
                ]
            },
            {"n": "5"},
            {"n": 5},
        ),
    ],
)
def test_what_is_plainly_meant_is_taken(
    schema: Mapping[str, Any], given_: Any, taken: Any
) -> None:
    checked = checker(["a"], a=schema).check({"a": given_})
    assert checked.faults == ()
    assert checked.arguments == {"a": taken}
    assert type(checked.arguments["a"]) is type(taken)


@pytest.mark.parametrize(
    ("schema", "value", "fault"),
    [
        (INTEGER, "ten", '$.a is "ten", expected an integer'),
        (INTEGER, 1.5, "$.a is 1.5, expected an integer"),
        (INTEGER, True, "$.a is true, expected an integer"),
        (NUMBER, "nan", '$.a is "nan", expected a number'),
        (NUMBER, "1e999", '$.a is "1e999", expected a number'),
        (BOOLEAN, "yes", '$.a is "yes", expected true or false'),
        (BOOLEAN, 1, "$.a is 1, expected true or false"),
        (OPTIONAL, "x", '$.a is "x", expected an integer or null'),
        (INTEGER, None, "$.a is null, expected an integer"),
        (STRING, 5, "$.a is 5, expected a text"),
        (LIST, [1, "x"], '$.a[1] is "x", expected an integer'),
        ({"enum": ["a", 1]}, "b", '$.a is "b", expected one of "a", 1'),
        ({"const": "a"}, "b", '$.a is "b", expected "a"'),
        ({"minimum": 1}, 0, "$.a is 0, expected at least 1"),
        ({"maximum": 1}, 2, "$.a is 2, expected at most 1"),
        ({"exclusiveMinimum": 1}, 1, "$.a is 1, expected more than 1"),
        ({"exclusiveMaximum": 1}, 1, "$.a is 1, expected less than 1"),
        ({"multipleOf": 2}, 3, "$.a is 3, expected a multiple of 2"),
        ({"minLength": 2}, "x", '$.a is "x", expected at least 2 characters'),
        ({"maxLength": 1}, "xy", '$.a is "xy", expected at most 1 characters'),
        ({"pattern": "^a"}, "b", '$.a is "b", expected a text that matches ^a'),
        ({"minItems": 1}, [], "$.a is [], expected at least 1 items"),
        ({"maxItems": 0}, [1], "$.a is [1], expected at most 0 items"),
        ({"uniqueItems": True}, [1, 1], "$.a is [1, 1], expected no item twice"),
        (
            {"type": "object", "required": ["n"]},
            {},
            "$.a: 'n' is missing",
        ),
        (
            {"type": "object", "properties": {}, "additionalProperties": False},
            {"x": 1},
            "$.a: Additional properties are not allowed ('x' was unexpected)",
        ),
    ],
)
def test_what_does_not_fit_is_told_with_its_place_and_what_was_expected(
    schema: Mapping[str, Any], value: Any, fault: str
) -> None:
    assert checker(["a"], a=schema).check({"a": value}).faults == (fault,)


def test_all_faults_are_told_at_once() -> None:
    checked = checker(["a", "b", "c"], a=INTEGER, b=STRING, c=LIST).check(
        {"a": "x", "c": ["y", 1, "z"]}
    )
    assert checked.faults == (
        "$: 'b' is missing",
        '$.a is "x", expected an integer',
        '$.c[0] is "y", expected an integer',
        '$.c[2] is "z", expected an integer',
    )


def test_a_long_value_is_shown_in_short() -> None:
    (fault,) = checker(a=INTEGER).check({"a": "x" * 1000}).faults
    assert len(fault) < 130


def test_null_for_a_parameter_that_may_be_absent_is_absent() -> None:
    checked = checker(a=INTEGER, b=OPTIONAL).check({"a": None, "b": None})
    assert (checked.arguments, checked.faults) == ({"b": None}, ())


def test_unknown_names_are_dropped_unless_the_schema_speaks_of_them() -> None:
    assert checker(a=INTEGER).check({"a": 1, "b": 2}).arguments == {"a": 1}
    forbids = ArgumentChecker(
        {"type": "object", "properties": {}, "additionalProperties": False}
    )
    assert forbids.check({"b": 2}).faults == (
        "$: Additional properties are not allowed ('b' was unexpected)",
    )


def test_what_was_handed_in_stays_as_it_is() -> None:
    arguments = {"a": "5", "b": ["1"], "c": None}
    checker(a=INTEGER, b=LIST, c=INTEGER).check(arguments)
    assert arguments == {"a": "5", "b": ["1"], "c": None}


@given(json_objects())
def test_a_schema_without_properties_changes_nothing(value: dict[str, Any]) -> None:
    checked = ArgumentChecker({"type": "object"}).check(value)
    assert (checked.arguments, checked.faults) == (value, ())


@given(json_objects())
def test_checking_twice_changes_nothing_more(value: dict[str, Any]) -> None:
    names = list(value)[:3]
    kinds = [INTEGER, OPTIONAL, {"anyOf": [LIST, BOOLEAN]}]
    properties = dict(zip(names, kinds, strict=False))
    check = ArgumentChecker({"type": "object", "properties": properties}).check
    once = check(value)
    assert check(once.arguments) == once


def test_references_are_followed_within_and_never_fetched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("a schema reached for the network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    inner = ArgumentChecker(
        {
            "type": "object",
            "properties": {"a": {"$ref": "#/$defs/n"}},
            "$defs": {"n": INTEGER},
        }
    )
    assert inner.check({"a": "x"}).faults == ('$.a is "x", expected an integer',)
    remote = "https://example.org/schema.json"
    checked = checker(a={"$ref": remote}).check({"a": 1})
    assert checked.faults == (f"the schema refers to '{remote}', which is not in it",)


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({}, "its schema has type None, expected 'object'"),
        ({"type": "array"}, "its schema has type 'array', expected 'object'"),
        (
            {"type": "object", "properties": {"a": {"type": "text"}}},
            "its schema is invalid at $.properties.a.type",
        ),
        (
            {"type": "object", "properties": {"a": {"pattern": "("}}},
            "its schema is invalid at $.properties.a.pattern",
        ),
        (
            {"type": "object", "properties": {"a": {"enum": [{1, 2}]}}},
            "its schema is no JSON: Object of type set",
        ),
    ],
)
def test_a_schema_that_cannot_work_is_named(
    schema: Mapping[str, Any], words: str
) -> None:
    assert (schema_fault(schema) or "").startswith(words)


def test_a_schema_that_works_has_no_fault() -> None:
    assert schema_fault({"type": "object"}) is None


def test_a_schema_that_was_changed_is_judged_anew() -> None:
    schema: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "text"}}}
    assert schema_fault(schema) is not None
    schema["properties"]["a"]["type"] = "string"
    assert schema_fault(schema) is None


def test_a_schema_need_not_be_of_an_object_where_none_is_asked_for() -> None:
    assert schema_fault({"type": "array"}, root=None) is None
    assert schema_fault({}, root=None) is None
    fault = schema_fault({"type": "text"}, root=None) or ""
    assert fault.startswith("its schema is invalid at $.type")


def test_any_value_is_checked_strictly_and_each_fault_has_its_path() -> None:
    """B69: a truth value is no integer; what is not declared is let be."""
    film = {"type": "object", "properties": {"year": INTEGER}, "required": ["title"]}
    films = SchemaChecker({"type": "array", "items": film})
    assert films.faults([{"title": "M", "year": 1931, "more": 1}]) == ()
    assert films.faults([{"title": "M", "year": 1931.0}, {"year": True}]) == (
        "$[1]: 'title' is missing",
        "$[1].year is true, expected an integer",
    )
    assert films.faults("M") == ('$ is "M", expected a list',)
    assert films.faults([{"title": "M", "year": "1931"}]) == (
        '$[0].year is "1931", expected an integer',
    )
