"""Checking what a model wrote against a schema. The only door to jsonschema.

Arguments are read leniently where a model's meaning is plain: numbers and truth values
written as text, null for a parameter that may be absent, names that no parameter has.
All else is a fault; all faults are found at once, each with its JSON path, in words
that the model can act on. A schema's references are never fetched.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import lru_cache
from typing import Any, Final

from attrs import frozen
from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, ValidationError
from referencing import Registry
from referencing.exceptions import Unresolvable

__all__ = ["ArgumentChecker", "Checked", "SchemaChecker", "schema_fault"]


@frozen(kw_only=True)
class Checked:
    """Arguments as the tool will get them, or why it will not."""

    arguments: Mapping[str, Any]
    faults: Sequence[str] = ()
    """One line each."""


class SchemaChecker:
    """Checks values against one schema, which it compiles once."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._validator = Draft202012Validator(dict(schema), registry=Registry())

    def faults(self, value: Any) -> Sequence[str]:
        """All that does not fit, one line each, with its JSON path."""
        try:
            errors = sorted(self._validator.iter_errors(value), key=_place)
        except Unresolvable as error:
            return (f"the schema refers to {error.ref!r}, which is not in it",)
        return tuple(_word(error) for error in errors)


class ArgumentChecker:
    """Checks arguments against one schema, which it compiles once."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._schema = schema
        self._checker = SchemaChecker(schema)

    def check(self, arguments: Mapping[str, Any]) -> Checked:
        """Coerce and check; the arguments that were handed in stay as they are."""
        coerced = _coerce(arguments, self._schema)
        return Checked(arguments=coerced, faults=self._checker.faults(coerced))


def schema_fault(
    schema: Mapping[str, Any], *, root: str | None = "object"
) -> str | None:
    """Why this is no schema, or not of the type `root` as those of tools; else None."""
    if root is not None and schema.get("type") != root:
        return f"its schema has type {schema.get('type')!r}, expected {root!r}"
    try:
        text = json.dumps(dict(schema))
    except (TypeError, ValueError) as error:
        return f"its schema is no JSON: {error}"
    return _invalid(text)


# 600 us for a small schema, and programs make an agent for each request.
@lru_cache(maxsize=1024)
def _invalid(schema: str) -> str | None:
    try:
        Draft202012Validator.check_schema(json.loads(schema))
    except SchemaError as error:
        return f"its schema is invalid at {error.json_path}: {error.message}"
    return None


def _place(error: ValidationError) -> tuple[str, str]:
    return error.json_path, str(error.validator)


def _coerce(value: Any, schema: Any) -> Any:
    """`value` with what a model plainly meant; unchanged where nothing fits."""
    if not isinstance(schema, Mapping):
        return value
    match value:
        case str():
            return _coerce_text(value, _types(schema))
        case Mapping():
            return _coerce_object(value, _option(schema, "object"))
        case list():
            items = _option(schema, "array").get("items")
            return [_coerce(item, items) for item in value]
        case _:
            return value


def _options(schema: Mapping[str, Any]) -> Sequence[Any]:
    options = schema.get("anyOf", schema.get("oneOf"))
    return options if isinstance(options, list) else [schema]


def _option(schema: Mapping[str, Any], type_: str) -> Mapping[str, Any]:
    """The one alternative of this type; an empty schema where it is not clear."""
    fit = [each for each in _options(schema) if isinstance(each, Mapping)]
    if len(fit) > 1:
        fit = [each for each in fit if type_ in _types(each)]
    return fit[0] if len(fit) == 1 else {}


def _types(schema: Any) -> AbstractSet[str]:
    """The types that a schema names; empty where it allows any."""
    if not isinstance(schema, Mapping):
        return frozenset()
    options = _options(schema)
    if options != [schema]:
        named = [_types(option) for option in options]
        return frozenset().union(*named) if all(named) else frozenset()
    type_ = schema.get("type", ())
    return frozenset([type_] if isinstance(type_, str) else type_)


def _coerce_object(value: Mapping[str, Any], schema: Mapping[str, Any]) -> Any:
    properties = schema.get("properties")
    if not isinstance(properties, Mapping):
        return value
    required = schema.get("required", ())
    keep_unknown = "additionalProperties" in schema or "patternProperties" in schema
    coerced = {}
    for name, item in value.items():
        if name not in properties:
            if keep_unknown:
                coerced[name] = item
        elif item is not None or name in required or _allows_null(properties[name]):
            coerced[name] = _coerce(item, properties[name])
    return coerced


def _allows_null(schema: Any) -> bool:
    if not isinstance(schema, Mapping):
        return True
    type_ = schema.get("type")
    if type_ is not None:
        return type_ == "null" or (isinstance(type_, list) and "null" in type_)
    if "enum" in schema:
        return None in schema["enum"]
    options = schema.get("anyOf", schema.get("oneOf"))
    return options is None or any(_allows_null(option) for option in options)


def _coerce_text(text: str, types: AbstractSet[str]) -> Any:
    if "string" in types:
        return text
    if "boolean" in types and text.strip().lower() in TRUTHS:
        return TRUTHS[text.strip().lower()]
    for type_, read in (("integer", int), ("number", float)):
        if type_ in types and (number := _number(text, read)) is not None:
            return number
    return text


def _number(text: str, read: Callable[[str], float]) -> float | None:
    try:
        number = read(text)
    except ValueError:
        return None
    is_finite = number - number == 0
    return number if is_finite else None


TRUTHS: Final[Mapping[str, bool]] = {"true": True, "false": False}

KINDS: Final[Mapping[str, str]] = {
    "string": "a text",
    "integer": "an integer",
    "number": "a number",
    "boolean": "true or false",
    "object": "an object",
    "array": "a list",
    "null": "null",
}


def _of_type(types: Any) -> str:
    names = [types] if isinstance(types, str) else types
    return "expected " + " or ".join(KINDS.get(name, str(name)) for name in names)


EXPECTATIONS: Final[Mapping[str, Callable[[Any], str]]] = {
    "type": _of_type,
    "enum": lambda values: "expected one of " + ", ".join(_show(v) for v in values),
    "const": lambda value: f"expected {_show(value)}",
    "minimum": lambda limit: f"expected at least {limit:g}",
    "maximum": lambda limit: f"expected at most {limit:g}",
    "exclusiveMinimum": lambda limit: f"expected more than {limit:g}",
    "exclusiveMaximum": lambda limit: f"expected less than {limit:g}",
    "multipleOf": lambda step: f"expected a multiple of {step:g}",
    "minLength": lambda count: f"expected at least {count} characters",
    "maxLength": lambda count: f"expected at most {count} characters",
    "pattern": lambda pattern: f"expected a text that matches {pattern}",
    "minItems": lambda count: f"expected at least {count} items",
    "maxItems": lambda count: f"expected at most {count} items",
    "uniqueItems": lambda _: "expected no item twice",
}
"""By keyword of JSON Schema: what was expected, from the keyword's value."""


def _word(error: ValidationError) -> str:
    keyword, path = str(error.validator), error.json_path
    if keyword == "required":
        missing = next(iter(_missing(error)), "?")
        return f"{path}: '{missing}' is missing"
    if keyword == "additionalProperties":
        return f"{path}: {error.message}"
    if keyword in EXPECTATIONS:
        expected = EXPECTATIONS[keyword](error.validator_value)
        return f"{path} is {_show(error.instance)}, {expected}"
    return f"{path} is {_show(error.instance)}: {error.message[:200]}"


def _missing(error: ValidationError) -> Iterable[str]:
    """The one name that this error is about: jsonschema reports each on its own."""
    names: Any = error.validator_value
    instance: Any = error.instance
    return (n for n in names if n not in instance and repr(n) in error.message)


def _show(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 80 else text[:77] + "..."
