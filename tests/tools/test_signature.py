"""A function's signature as a schema, and arguments as the function gets them."""

import datetime
import enum
import inspect
import pathlib
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal, NotRequired, Required, TypedDict

import attrs
import pytest
from attrs import frozen
from jsonschema import Draft202012Validator

from agentrt.core.context import Context
from agentrt.core.errors import ToolDefinitionError
from agentrt.tools.signature import Param, read_signature

CONTEXT = Context(conversation_id="c")


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


@frozen(kw_only=True)
class Item:
    """A thing.

    Attributes:
        name: What it is called.
    """

    name: str
    _size: int = 3
    tags: Sequence[str] = ()
    seen: int = attrs.field(default=0, init=False)


@dataclass
class Point:
    x: float
    y: float = 0.0


class Address(TypedDict, total=False):
    city: Required[str]
    zip: NotRequired[int]


ITEM = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "description": "What it is called."},
        "size": {"type": "integer"},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["name"],
}


def takes(annotation: Any, default: Any = ...) -> Callable[..., Any]:
    """A function with one parameter."""

    def function(a: Any = None) -> None:
        """Do it."""

    function.__annotations__["a"] = annotation
    function.__defaults__ = None if default is ... else (default,)
    return function


KINDS: Sequence[tuple[Any, Mapping[str, Any], Any, Any]] = [
    (str, {"type": "string"}, "x", "x"),
    (int, {"type": "integer"}, 3.0, 3),
    (float, {"type": "number"}, 3, 3.0),
    (bool, {"type": "boolean"}, True, True),
    (None, {"type": "null"}, None, None),
    (Any, {}, [1], [1]),
    (object, {}, [1], [1]),
    (dict, {"type": "object"}, {"a": [1]}, {"a": [1]}),
    (list, {"type": "array"}, [1, "x"], [1, "x"]),
    (tuple, {"type": "array"}, [1, "x"], (1, "x")),
    (set, {"type": "array", "uniqueItems": True}, [1, 2], {1, 2}),
    (
        datetime.datetime,
        {"type": "string", "format": "date-time"},
        "2026-01-02T03:04:05",
        datetime.datetime(2026, 1, 2, 3, 4, 5),
    ),
    (
        datetime.date,
        {"type": "string", "format": "date"},
        "2026-01-02",
        datetime.date(2026, 1, 2),
    ),
    (
        uuid.UUID,
        {"type": "string", "format": "uuid"},
        str(uuid.UUID(int=7)),
        uuid.UUID(int=7),
    ),
    (pathlib.Path, {"type": "string"}, "a/b", pathlib.Path("a/b")),
    (Color, {"type": "string", "enum": ["red", "blue"]}, "blue", Color.BLUE),
    (Level, {"type": "integer", "enum": [1, 2]}, 2, Level.HIGH),
    (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}, "b", "b"),
    (Literal["a", 1, True], {"enum": ["a", 1, True]}, 1, 1),
    (list[int], {"type": "array", "items": {"type": "integer"}}, [1], [1]),
    (Sequence[str], {"type": "array", "items": {"type": "string"}}, ["a"], ("a",)),
    (
        frozenset[str],
        {"type": "array", "items": {"type": "string"}, "uniqueItems": True},
        ["a"],
        frozenset({"a"}),
    ),
    (
        tuple[int, str],
        {
            "type": "array",
            "prefixItems": [{"type": "integer"}, {"type": "string"}],
            "minItems": 2,
            "maxItems": 2,
        },
        [1, "a"],
        (1, "a"),
    ),
    (tuple[int, ...], {"type": "array", "items": {"type": "integer"}}, [1], (1,)),
    (tuple[()], {"type": "array", "minItems": 0, "maxItems": 0}, [], ()),
    (
        dict[str, int],
        {"type": "object", "additionalProperties": {"type": "integer"}},
        {"a": 1},
        {"a": 1},
    ),
    (
        Mapping[str, Color],
        {
            "type": "object",
            "additionalProperties": {"type": "string", "enum": ["red", "blue"]},
        },
        {"a": "red"},
        {"a": Color.RED},
    ),
    (int | None, {"type": ["integer", "null"]}, None, None),
    (int | str, {"type": ["integer", "string"]}, "x", "x"),
    (
        list[int] | None,
        {"anyOf": [{"type": "array", "items": {"type": "integer"}}, {"type": "null"}]},
        [1],
        [1],
    ),
    (Item, ITEM, {"name": "a", "size": 4}, Item(name="a", size=4)),
    (
        list[Item],
        {"type": "array", "items": ITEM},
        [{"name": "a"}],
        [Item(name="a")],
    ),
    (Item | None, {"anyOf": [ITEM, {"type": "null"}]}, {"name": "a"}, Item(name="a")),
    (
        Point,
        {
            "type": "object",
            "properties": {"x": {"type": "number"}, "y": {"type": "number"}},
            "required": ["x"],
        },
        {"x": 1},
        Point(1.0),
    ),
    (
        Address,
        {
            "type": "object",
            "properties": {"city": {"type": "string"}, "zip": {"type": "integer"}},
            "required": ["city"],
        },
        {"city": "Rome"},
        {"city": "Rome"},
    ),
]


@pytest.mark.parametrize(
    ("annotation", "schema", "value", "expected"), KINDS, ids=[str(k[0]) for k in KINDS]
)
def test_every_kind_of_annotation_has_a_schema_and_arrives_as_what_it_says(
    annotation: Any, schema: Mapping[str, Any], value: Any, expected: Any
) -> None:
    signature = read_signature(takes(annotation))
    assert signature.parameters == {
        "type": "object",
        "properties": {"a": schema},
        "required": ["a"],
    }
    Draft202012Validator.check_schema(signature.parameters)
    Draft202012Validator(signature.parameters).validate({"a": value})
    bound = signature.bind({"a": value}, CONTEXT)
    assert bound == {"a": expected}
    assert type(bound["a"]) is type(expected)


@pytest.mark.parametrize(
    ("annotation", "default", "shown"),
    [
        (int, 3, 3),
        (Color, Color.RED, "red"),
        (tuple[int, ...], (1, 2), [1, 2]),
        (Item, Item(name="a"), None),
        (datetime.date, datetime.date(2026, 1, 2), "2026-01-02"),
        (uuid.UUID, uuid.UUID(int=7), str(uuid.UUID(int=7))),
        (pathlib.Path, pathlib.Path("a"), "a"),
        (bool, False, False),
    ],
)
def test_a_default_is_shown_and_makes_the_parameter_optional(
    annotation: Any, default: Any, shown: Any
) -> None:
    """B17: what the model leaves out, the function fills."""
    signature = read_signature(takes(annotation, default))
    assert "required" not in signature.parameters
    told = signature.parameters["properties"]["a"]["default"]
    assert told == shown or annotation is Item
    assert signature.bind({}, CONTEXT) == {}


def test_a_default_of_none_is_not_shown() -> None:
    properties = read_signature(takes(int | None, None)).parameters["properties"]
    assert properties == {"a": {"type": ["integer", "null"]}}


class Ge:
    """As the package annotated-types has it."""

    def __init__(self, ge: float) -> None:
        self.ge = ge


class Len:
    def __init__(self, low: int, high: int) -> None:
        self.min_length = low
        self.max_length = high


@pytest.mark.parametrize(
    ("annotation", "schema"),
    [
        (Annotated[int, "how many"], {"type": "integer", "description": "how many"}),
        (
            Annotated[int, Param("how many", minimum=1, maximum=5)],
            {"type": "integer", "description": "how many", "minimum": 1, "maximum": 5},
        ),
        (
            Annotated[float, Param(exclusive_minimum=0, exclusive_maximum=1)],
            {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
        ),
        (
            Annotated[str, Param(pattern="^a", min_length=1, max_length=9)],
            {"type": "string", "pattern": "^a", "minLength": 1, "maxLength": 9},
        ),
        (
            Annotated[list[str], Len(1, 3)],
            {
                "type": "array",
                "items": {"type": "string"},
                "minItems": 1,
                "maxItems": 3,
            },
        ),
        (
            Annotated[int, Ge(2), "text"],
            {"type": "integer", "minimum": 2, "description": "text"},
        ),
        (
            list[Annotated[int, Param(minimum=1)]],
            {"type": "array", "items": {"type": "integer", "minimum": 1}},
        ),
    ],
)
def test_constraints_go_with_the_annotation(
    annotation: Any, schema: Mapping[str, Any]
) -> None:
    signature = read_signature(takes(annotation))
    assert signature.parameters["properties"] == {"a": schema}


def google(city: str, days: int = 1) -> None:
    """Tell the weather.

    It is made up.

    Args:
        city: Where.
        days: How many,
            from today.

    Returns:
        A text.
    """


def numpy(city: str, days: int = 1) -> None:
    """Tell the weather.

    It is made up.

    Parameters
    ----------
    city : str
        Where.
    days : int
        How many,
        from today.

    Returns
    -------
    str
        A text.
    """


def sphinx(city: str, days: int = 1) -> None:
    """Tell the weather.

    It is made up.

    :param city: Where.
    :param days: How many,
        from today.
    :returns: A text.
    """


@pytest.mark.parametrize("function", [google, numpy, sphinx])
def test_docstrings_of_every_style_describe(function: Callable[..., Any]) -> None:
    signature = read_signature(function)
    assert signature.description == "Tell the weather.\n\nIt is made up."
    assert signature.parameters["properties"] == {
        "city": {"type": "string", "description": "Where."},
        "days": {
            "type": "integer",
            "description": "How many, from today.",
            "default": 1,
        },
    }


def test_a_description_by_the_annotation_wins_over_the_docstring() -> None:
    def function(city: Annotated[str, "by the annotation"]) -> None:
        """Do it.

        Args:
            city: By the docstring.
        """

    (schema,) = read_signature(function).parameters["properties"].values()
    assert schema["description"] == "by the annotation"


def test_properties_keep_their_order() -> None:
    """B18"""

    order = ["z", "b", "a", "i", "e", "m", "n", "x", "p", "r", "t"]
    parameters = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=int)
        for name in order
    ]
    function = takes(int)
    function.__annotations__ = dict.fromkeys(order, int)
    vars(function)["__signature__"] = inspect.Signature(parameters)
    schema = read_signature(function).parameters
    assert list(schema["properties"]) == schema["required"] == order


@pytest.mark.parametrize(
    "annotation", [Context, Context | None, Annotated[Context, "ours"]]
)
def test_the_context_is_handed_in_and_not_shown(annotation: Any) -> None:
    signature = read_signature(takes(annotation, None))
    assert signature.parameters == {"type": "object", "properties": {}}
    assert signature.bind({}, CONTEXT) == {"a": CONTEXT}


def test_a_model_cannot_hand_in_a_context() -> None:
    signature = read_signature(takes(Context))
    assert signature.bind({"a": "mine", "b": 1}, CONTEXT) == {"a": CONTEXT}


class Adder:
    """Add to what it holds."""

    def __call__(self, n: int) -> int:
        return n

    def method(self, n: int) -> int:
        """Do it."""
        return n

    @classmethod
    def of_class(cls, n: int) -> int:
        """Do it."""
        return n


def add(a: int, b: int, c: int = 0) -> int:
    """Add numbers."""
    return a + b + c


@pytest.mark.parametrize(
    ("function", "name", "description", "names"),
    [
        (Adder(), "Adder", "Add to what it holds.", ["n"]),
        (Adder().method, "method", "Do it.", ["n"]),
        (Adder.of_class, "of_class", "Do it.", ["n"]),
        (partial(add, 1), "add", "Add numbers.", ["b", "c"]),
        (partial(add, b=1), "add", "Add numbers.", ["a"]),
        (partial(partial(add, 1), c=2), "add", "Add numbers.", ["b"]),
        (partial(Adder()), "Adder", "Add to what it holds.", ["n"]),
    ],
)
def test_whatever_can_be_called_can_be_read(
    function: Callable[..., Any], name: str, description: str, names: Sequence[str]
) -> None:
    signature = read_signature(function)
    assert (signature.name, signature.description) == (name, description)
    left = [n for n in signature.parameters["properties"] if n in names]
    assert left == names


def test_what_a_partial_gives_is_not_the_models_to_fill() -> None:
    """A live object given by keyword needs no JSON form."""
    given: Any = partial(takes(Iterable[int]), a=iter([1]))
    signature = read_signature(given)
    assert signature.parameters == {"type": "object", "properties": {}}


@dataclass
class Tree:
    children: "list[Tree]"


@dataclass
class Broken:
    x: "Missing"  # type: ignore[name-defined]  # noqa: F821  that is the case


def no_annotation(a) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001  the case
    """Do it."""


def star(*a: int) -> None:
    """Do it."""


def stars(**a: int) -> None:
    """Do it."""


def positional(a: int, /) -> None:
    """Do it."""


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (no_annotation, "parameter 'a' has no annotation, as in 'city: str'"),
        (star, "parameter 'a' is variadic positional; a model calls by name"),
        (stars, "parameter 'a' is variadic keyword"),
        (positional, "parameter 'a' is positional-only"),
        (takes(bytes), "parameter 'a' is <class 'bytes'>, which has no JSON form"),
        (takes(Iterable[int]), "which has no JSON form"),
        (takes(Callable[[int], int]), "which has no JSON form"),
        (takes(list[bytes]), "<class 'bytes'>, which has no JSON form"),
        (takes(Literal[b"x"]), "allows b'x', which has no JSON form"),
        (takes("Nowhere"), "an annotation cannot be read"),
        (takes("not valid("), "an annotation cannot be read"),
        (takes(Tree), "which holds itself"),
        (takes(Broken), "an annotation within it cannot be read"),
        (max, "tool 'max': no signature found"),
    ],
)
def test_what_cannot_work_is_refused_when_it_is_made(
    function: Callable[..., Any], words: str
) -> None:
    with pytest.raises(ToolDefinitionError) as caught:
        read_signature(function)
    assert words in str(caught.value)


def test_an_argument_that_does_not_fit_its_type_is_a_value_error() -> None:
    signature = read_signature(takes(datetime.date))
    with pytest.raises(ValueError, match="Invalid isoformat"):
        signature.bind({"a": "yesterday"}, CONTEXT)
