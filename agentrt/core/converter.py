"""Values to JSON and back, for stores. The only door to cattrs.

Unions carry their member's name in `_type`. What is read is not coerced: a number where
a text belongs is an error that says so, and so is a field that no class has.
"""

import json
import uuid
from collections.abc import Mapping
from typing import Any, Final, TypeVar, get_args

import cattrs
from cattrs.preconf.json import make_converter
from cattrs.v import format_exception

from agentrt.core.messages import Message
from agentrt.core.outcomes import SNAPSHOT_VERSION, Decision, PauseSnapshot
from agentrt.core.parts import Content, Part

__all__ = [
    "check_type",
    "from_json",
    "message_from_json",
    "message_to_json",
    "plain",
    "snapshot_from_json",
    "snapshot_to_json",
    "structure",
    "to_json",
]

T = TypeVar("T")

TAG: Final = "_type"


def to_json(value: Any, type_: Any) -> str:
    """`value`, which is of `type_`, as JSON text."""
    return json.dumps(
        CONVERTER.unstructure(value, unstructure_as=type_),
        separators=(",", ":"),
    )


def from_json(text: str, type_: Any) -> Any:
    """The value of `type_` that `to_json` wrote.

    Raises:
        ValueError: the text is no JSON, or does not fit `type_`; says where.
    """
    try:
        return CONVERTER.structure(json.loads(text), type_)
    except cattrs.BaseValidationError as error:
        faults = "; ".join(cattrs.transform_error(error, format_exception=_in_words))
        raise ValueError(f"stored value does not fit: {faults}") from None
    except (KeyError, TypeError) as error:
        raise ValueError(f"stored value does not fit: {error!r}") from None


def _in_words(error: BaseException, type_: type | None) -> str:
    """What our own hooks say, with the value; else what cattrs says."""
    is_ours = isinstance(error, TypeError | ValueError) and "expected" in str(error)
    return str(error) if is_ours else format_exception(error, type_)


def message_to_json(message: Message) -> str:
    return to_json(message, Message)


def message_from_json(text: str) -> Message:
    message: Message = from_json(text, Message)
    return message


def snapshot_to_json(snapshot: PauseSnapshot) -> str:
    return to_json(snapshot, PauseSnapshot)


def snapshot_from_json(text: str) -> PauseSnapshot:
    """A pause as `snapshot_to_json` wrote it, by this version or one before.

    Raises:
        ValueError: it is of a newer version, or is none; says where.
    """
    try:
        raw = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it is no JSON: {error}") from None
    version = raw.get("version", 1) if isinstance(raw, Mapping) else None
    if type(version) is not int or not 1 <= version <= SNAPSHOT_VERSION:
        raise ValueError(f"$.version is {version!r}, expected 1 to {SNAPSHOT_VERSION}")
    try:
        snapshot: PauseSnapshot = from_json(text, PauseSnapshot)
    except RecursionError:
        raise ValueError("it nests too deep") from None
    return snapshot


def _make_converter() -> cattrs.Converter:
    converter = make_converter(forbid_extra_keys=True)
    for type_ in (str, int, bool):
        converter.register_structure_hook(type_, _strict)
    converter.register_structure_hook(float, _strict_float)
    for union in (Part, Message, Decision):
        _register_union(converter, union)
    _register_content(converter)
    return converter


def _strict(value: Any, type_: type[T]) -> T:
    if type(value) is not type_:
        raise TypeError(f"expected {type_.__name__}, got {value!r}")
    return value


def _strict_float(value: Any, _: type[float]) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"expected float, got {value!r}")
    return float(value)


def _register_union(converter: cattrs.Converter, union: Any) -> None:
    members: Mapping[str, type] = {cls.__name__: cls for cls in get_args(union)}

    def structure(value: Any, _: Any) -> Any:
        name = str(value.get(TAG)) if isinstance(value, Mapping) else ""
        if name not in members:
            raise ValueError(f"{TAG} is {name!r}, expected one of {', '.join(members)}")
        rest = {key: item for key, item in value.items() if key != TAG}
        return converter.structure(rest, members[name])

    def unstructure(value: Any) -> Any:
        if type(value) not in members.values():
            names = ", ".join(members)
            raise ValueError(f"{str(value)[:80]!r} is none of {names}")
        return {TAG: type(value).__name__, **converter.unstructure(value)}

    converter.register_structure_hook_func(lambda type_: type_ == union, structure)
    converter.register_unstructure_hook_func(lambda type_: type_ == union, unstructure)


def _register_content(converter: cattrs.Converter) -> None:
    """A text, or parts: cattrs cannot tell the two apart by itself."""

    part_type: Any = Part

    def structure(value: Any, _: Any) -> Content:
        if isinstance(value, str):
            return value
        if not isinstance(value, list):
            raise TypeError(f"expected a text or a list of parts, got {value!r}")
        return tuple(converter.structure(part, part_type) for part in value)

    def unstructure(value: Content) -> Any:
        if isinstance(value, str):
            return value
        return [converter.unstructure(part, unstructure_as=Part) for part in value]

    converter.register_structure_hook_func(lambda type_: type_ == Content, structure)
    converter.register_unstructure_hook_func(
        lambda type_: type_ == Content, unstructure
    )


CONVERTER: Final = _make_converter()


def _make_lenient() -> cattrs.Converter:
    converter = make_converter(use_alias=True)  # the names that a constructor takes
    converter.register_structure_hook(uuid.UUID, lambda value, _: uuid.UUID(value))
    converter.register_unstructure_hook(uuid.UUID, str)
    converter.register_structure_hook_func(
        lambda type_: type_ in {object, type(None)}, lambda value, _: value
    )
    return converter


LENIENT: Final = _make_lenient()
"""For arguments of tools: these were checked against a schema before."""


def structure(value: Any, type_: Any) -> Any:
    """A JSON value as what an annotation says.

    Raises:
        ValueError: it does not fit, or the class of a value refuses it; says where.
    """
    try:
        return LENIENT.structure(value, type_)
    except cattrs.BaseValidationError as error:
        faults = cattrs.transform_error(error, format_exception=_with_reason)
        raise ValueError("; ".join(faults)) from None
    except TypeError as error:
        raise ValueError(_reason(error)) from None


def check_type(type_: Any) -> None:
    """Check that `structure` can make values of this type.

    Raises:
        TypeError: it cannot; says why.
    """
    try:
        LENIENT.get_structure_hook(type_)
    except (TypeError, cattrs.StructureHandlerNotFoundError) as error:
        raise TypeError(f"no value can be made of {type_!r}: {error}") from None


def _with_reason(error: BaseException, type_: type | None) -> str:
    """What cattrs says, and what was raised: a class says best what it refuses."""
    if isinstance(error, KeyError):
        return format_exception(error, type_)
    if type_ is None:
        return _reason(error)
    return f"{format_exception(error, type_)} ({_reason(error)})"


def _reason(error: BaseException) -> str:
    return str(error)[:200] or type(error).__name__


def plain(value: Any) -> Any:
    """Any value as JSON types: an enum's value, an object's fields."""
    return LENIENT.unstructure(value)
