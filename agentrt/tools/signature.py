"""A function's signature and docstring as a JSON Schema. The only door to griffe.

Types become schemas by a table; what is not in it is refused when the tool is made, not
when the model calls it. Values that came as JSON become what the annotation says
(an enum's member, an attrs object) just before the function is called.
"""

import datetime
import enum
import inspect
import pathlib
import types
import typing
import uuid
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

import attrs
import griffe
from attrs import field, frozen

from agentrt.core.context import Context
from agentrt.core.converter import plain, structure
from agentrt.core.errors import ToolDefinitionError

__all__ = ["Param", "Signature", "annotation_schema", "read_signature"]


@frozen
class Param:
    """What a model should know of a parameter, in `Annotated[int, Param(...)]`.

    `Annotated[int, "how many"]` is short for a description alone.
    """

    description: str = ""
    pattern: str | None = field(default=None, kw_only=True)
    minimum: float | None = field(default=None, kw_only=True)
    maximum: float | None = field(default=None, kw_only=True)
    exclusive_minimum: float | None = field(default=None, kw_only=True)
    exclusive_maximum: float | None = field(default=None, kw_only=True)
    min_length: int | None = field(default=None, kw_only=True)
    """Of a text, in characters; of a list, in items."""

    max_length: int | None = field(default=None, kw_only=True)


@frozen(kw_only=True)
class Signature:
    """A function as a model may call it."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    context_name: str | None
    """The parameter that gets the context, if there is one."""

    types: Mapping[str, Any]
    """The annotation of each parameter that the model fills."""

    def bind(self, arguments: Mapping[str, Any], context: Context) -> dict[str, Any]:
        """The keyword arguments for the function. An absent one gets its default."""
        bound = {
            name: structure(value, self.types[name])
            for name, value in arguments.items()
            if name in self.types
        }
        if self.context_name is not None:
            bound[self.context_name] = context
        return bound


SCALARS: Final[Mapping[Any, Mapping[str, Any]]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    type(None): {"type": "null"},
    Any: {},
    object: {},
    dict: {"type": "object"},
    list: {"type": "array"},
    tuple: {"type": "array"},
    set: {"type": "array", "uniqueItems": True},
    datetime.datetime: {"type": "string", "format": "date-time"},
    datetime.date: {"type": "string", "format": "date"},
    uuid.UUID: {"type": "string", "format": "uuid"},
    pathlib.Path: {"type": "string"},
}

ENUM_TYPES: Final[Mapping[type, str]] = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    type(None): "null",
}

NUMBER_KEYS: Final = {
    "pattern": "pattern",
    "minimum": "minimum",
    "maximum": "maximum",
    "exclusive_minimum": "exclusiveMinimum",
    "exclusive_maximum": "exclusiveMaximum",
    # the names that the package annotated-types uses
    "ge": "minimum",
    "le": "maximum",
    "gt": "exclusiveMinimum",
    "lt": "exclusiveMaximum",
}


UNREADABLE: Final = (NameError, AttributeError, SyntaxError, TypeError)
"""What reading an annotation that was written as text may raise."""


def read_signature(function: Callable[..., Any]) -> Signature:
    """The schema of a function.

    Raises:
        ToolDefinitionError: a parameter has no annotation, or one that has no JSON
            form; `*args`, `**kwargs` and positional-only parameters likewise.
    """
    inner = _unwrap(function)
    name = getattr(inner, "__name__", type(inner).__name__)
    hints = _hints(name, inner)
    description, described = _read_docstring(inspect.getdoc(inner) or "")
    properties: dict[str, Any] = {}
    required: list[str] = []
    context_name = None
    annotations: dict[str, Any] = {}
    for parameter in _parameters(name, function):
        where = f"tool {name!r}: parameter {parameter.name!r}"
        _check_kind(where, parameter)
        annotation = hints.get(parameter.name, inspect.Parameter.empty)
        if _is_context(annotation):
            context_name = parameter.name
            continue
        if annotation is inspect.Parameter.empty:
            raise ToolDefinitionError(f"{where} has no annotation, as in 'city: str'")
        schema = annotation_schema(annotation, where)
        if parameter.name in described:
            schema.setdefault("description", described[parameter.name])
        if parameter.default is inspect.Parameter.empty:
            required.append(parameter.name)
        elif parameter.default is not None:
            schema["default"] = plain(parameter.default)
        properties[parameter.name] = schema
        annotations[parameter.name] = annotation
    parameters: dict[str, Any] = {"type": "object", "properties": properties}
    if required:
        parameters["required"] = required
    return Signature(
        name=name,
        description=description,
        parameters=parameters,
        context_name=context_name,
        types=annotations,
    )


def _unwrap(function: Callable[..., Any]) -> Callable[..., Any]:
    """What a partial was made from: it has the name, the words and the types."""
    while isinstance(function, partial):
        function = function.func
    return function


def _parameters(name: str, function: Callable[..., Any]) -> Sequence[inspect.Parameter]:
    """Those that are left to fill: what a partial gives already, no model can."""
    try:
        parameters = inspect.signature(function).parameters
    except ValueError as error:
        raise ToolDefinitionError(f"tool {name!r}: {error}") from None
    given: set[str] = set()
    while isinstance(function, partial):
        given |= function.keywords.keys()
        function = function.func
    return [each for each in parameters.values() if each.name not in given]


def _hints(name: str, function: Callable[..., Any]) -> Mapping[str, Any]:
    is_object = not (inspect.isroutine(function) or inspect.isclass(function))
    target = type(function).__call__ if is_object else function
    try:
        return typing.get_type_hints(target, include_extras=True)
    except UNREADABLE as error:
        raise ToolDefinitionError(
            f"tool {name!r}: an annotation cannot be read ({error}); "
            "define the type at the top of its module"
        ) from None


def _is_context(annotation: Any) -> bool:
    """Whether it is `Context`, or an optional or annotated one."""
    if get_origin(annotation) in {Annotated, Union, types.UnionType}:
        return Context in get_args(annotation)
    return annotation is Context


def annotation_schema(annotation: Any, where: str) -> dict[str, Any]:
    """The JSON Schema of what an annotation allows; `where` it stands goes into errors.

    Raises:
        ToolDefinitionError: it has no JSON form, or cannot be read.
    """
    try:
        return _schema_of(annotation, where)
    except RecursionError:
        raise ToolDefinitionError(
            f"{where} is {annotation!r}, which holds itself: use dict for the part "
            "that repeats"
        ) from None
    except UNREADABLE as error:
        raise ToolDefinitionError(
            f"{where}: an annotation within it cannot be read ({error}); "
            "define the type at the top of its module"
        ) from None


def _check_kind(where: str, parameter: inspect.Parameter) -> None:
    allowed = (
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
        inspect.Parameter.KEYWORD_ONLY,
    )
    if parameter.kind not in allowed:
        raise ToolDefinitionError(
            f"{where} is {parameter.kind.description}; a model calls by name"
        )


def _schema_of(annotation: Any, where: str) -> dict[str, Any]:
    if get_origin(annotation) is Annotated:
        inner, *extras = get_args(annotation)
        return _constrain(_schema_of(inner, where), extras)
    if type(annotation).__name__ == "TypeAliasType":  # not there before Python 3.12
        return _schema_of(annotation.__value__, where)
    try:
        if annotation in SCALARS:
            return dict(SCALARS[annotation])
    except TypeError:  # unhashable, so it is none of them
        pass
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is not None:
        return _generic_schema(origin, arguments, annotation, where)
    if isinstance(annotation, type):
        return _class_schema(annotation, where)
    raise _no_form(annotation, where)


def _generic_schema(
    origin: Any, arguments: tuple[Any, ...], annotation: Any, where: str
) -> dict[str, Any]:
    if origin is Literal:
        return _enum_schema(arguments, where)
    if origin in {Union, types.UnionType}:
        return _union_schema(arguments, where)
    if origin in {typing.Required, typing.NotRequired}:
        return _schema_of(arguments[0], where)
    if not isinstance(origin, type):
        raise _no_form(annotation, where)
    if issubclass(origin, Mapping):
        value = arguments[1] if len(arguments) == 2 else Any
        return {"type": "object", "additionalProperties": _schema_of(value, where)}
    if issubclass(origin, Sequence | set | frozenset):
        return _array_schema(origin, arguments, where)
    raise _no_form(annotation, where)


def _array_schema(
    origin: type, arguments: tuple[Any, ...], where: str
) -> dict[str, Any]:
    if origin is tuple and arguments[-1:] != (Ellipsis,):
        items = [_schema_of(item, where) for item in arguments]
        count = len(items)
        bounds = {"minItems": count, "maxItems": count}
        places = {"prefixItems": items} if items else {}
        return {"type": "array", **places, **bounds}
    schema = {"type": "array", "items": _schema_of(arguments[0], where)}
    return (
        {**schema, "uniqueItems": True} if issubclass(origin, AbstractSet) else schema
    )


def _union_schema(members: tuple[Any, ...], where: str) -> dict[str, Any]:
    schemas = [_schema_of(member, where) for member in members]
    if all(set(schema) == {"type"} for schema in schemas):
        return {"type": [schema["type"] for schema in schemas]}
    return {"anyOf": schemas}


def _class_schema(cls: type, where: str) -> dict[str, Any]:
    if issubclass(cls, enum.Enum):
        return _enum_schema([member.value for member in cls], where)
    if typing.is_typeddict(cls):
        hints = typing.get_type_hints(cls, include_extras=True)
        required = [name for name in hints if name in cls.__required_keys__]  # type: ignore[attr-defined]  # every TypedDict has it
        return _object_schema(hints, required, {}, where)
    if attrs.has(cls) or hasattr(cls, "__dataclass_fields__"):
        return _fields_schema(cls, where)
    raise _no_form(cls, where)


def _fields_schema(cls: type, where: str) -> dict[str, Any]:
    """The schema of an attrs class or a dataclass: what its constructor takes."""
    hints = typing.get_type_hints(cls, include_extras=True)
    parameters = inspect.signature(cls).parameters
    names = {name: name for name in parameters}
    if attrs.has(cls):
        names = {f.alias or f.name: f.name for f in attrs.fields(cls) if f.init}
    own = {alias: hints[name] for alias, name in names.items()}
    empty = inspect.Parameter.empty
    required = [name for name in own if parameters[name].default is empty]
    _, described = _read_docstring(inspect.getdoc(cls) or "")
    return _object_schema(own, required, described, where)


def _object_schema(
    hints: Mapping[str, Any],
    required: Sequence[str],
    described: Mapping[str, str],
    where: str,
) -> dict[str, Any]:
    properties = {name: _schema_of(hint, where) for name, hint in hints.items()}
    for name, text in described.items():
        if name in properties:
            properties[name].setdefault("description", text)
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    if required:
        schema["required"] = list(required)
    return schema


def _enum_schema(values: Sequence[Any], where: str) -> dict[str, Any]:
    odd = [value for value in values if type(value) not in ENUM_TYPES]
    if odd:
        raise ToolDefinitionError(f"{where} allows {odd[0]!r}, which has no JSON form")
    kinds = {ENUM_TYPES[type(value)] for value in values}
    schema: dict[str, Any] = {"enum": list(values)}
    if len(kinds) == 1:
        schema = {"type": kinds.pop(), **schema}
    return schema


def _constrain(schema: dict[str, Any], extras: Sequence[Any]) -> dict[str, Any]:
    is_list = schema.get("type") == "array"
    lengths = ("minItems", "maxItems") if is_list else ("minLength", "maxLength")
    keys = {
        **NUMBER_KEYS,
        "min_length": lengths[0],
        "max_length": lengths[1],
    }
    for extra in extras:
        if isinstance(extra, str):
            schema["description"] = extra
            continue
        description = getattr(extra, "description", "")
        if isinstance(description, str) and description:
            schema["description"] = description
        for name, key in keys.items():
            value = getattr(extra, name, None)
            if isinstance(value, int | float | str):
                schema[key] = value
    return schema


def _no_form(annotation: Any, where: str) -> ToolDefinitionError:
    return ToolDefinitionError(
        f"{where} is {annotation!r}, which has no JSON form: use str, int, float, "
        "bool, a list, dict, Literal, Enum, TypedDict, dataclass or attrs class"
    )


def _read_docstring(text: str) -> tuple[str, Mapping[str, str]]:
    """What it says before its sections, and what it says of each parameter."""
    if not text:
        return "", {}
    docstring = griffe.Docstring(text)
    style = griffe.infer_docstring_style(docstring)[0] or griffe.Parser.google
    sections = docstring.parse(style, warnings=False, warn_unknown_params=False)
    described: dict[str, str] = {}
    words: list[str] = []
    for section in sections:
        if section.kind in {
            griffe.DocstringSectionKind.parameters,
            griffe.DocstringSectionKind.attributes,
        }:
            for parameter in section.value:
                described[parameter.name] = " ".join(parameter.description.split())
        elif section.kind is griffe.DocstringSectionKind.text:
            words.append(section.value)
    return "\n\n".join(words).strip(), described
