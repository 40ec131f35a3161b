"""JSON that came from outside, as values that can be written down again."""

import json
from collections.abc import Iterable
from typing import Any, Final

__all__ = ["load_json"]

MAX_DEPTH: Final = 100
"""Levels of lists and objects. Python's own limit is lower than what `json` reads, so
deeper ones would fail later: where they are checked, shown or stored."""


MAX_DIGITS: Final = 308


def load_json(text: str) -> Any:
    """The value that a JSON text stands for.

    Raises:
        ValueError: it is no JSON (`NaN` is none), nests too deep, or holds a number
            that no float can; says which, and where that is known.
    """
    try:
        value = json.loads(
            text, parse_constant=_refuse, parse_float=_finite, parse_int=_whole
        )
    except RecursionError:
        raise ValueError(TOO_DEEP) from None
    if _is_deeper(value, MAX_DEPTH):
        raise ValueError(TOO_DEEP)
    return value


TOO_DEEP: Final = f"lists and objects nest more than {MAX_DEPTH} levels"


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


def _whole(digits: str) -> int:
    """A whole number that a float can hold: more is no use to whom it is sent on."""
    if len(digits) > MAX_DIGITS:
        raise ValueError(f"{digits[:40]} is too large")
    return int(digits)


def _finite(digits: str) -> float:
    number = float(digits)
    if number in {float("inf"), float("-inf")}:
        raise ValueError(f"{digits[:40]} is too large")
    return number


def _is_deeper(value: Any, limit: int) -> bool:
    """Whether lists and objects nest more than `limit` levels."""
    level = [value]
    for _ in range(limit):
        level = [item for each in level for item in _items(each)]
        if not level:
            return False
    return any(isinstance(each, dict | list) for each in level)


def _items(value: Any) -> Iterable[Any]:
    match value:
        case dict():
            return value.values()
        case list():
            return value
        case _:
            return ()
