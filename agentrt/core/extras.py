"""Extras of the distribution: what is missing is named with what brings it."""

from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["from_extra"]


@contextmanager
def from_extra(extra: str) -> Iterator[None]:
    """Around the imports of what an extra brings.

    Raises:
        ModuleNotFoundError: one is not installed; says which, and what installs it.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"{error.name} is not installed; pip install 'agentrt[{extra}]' brings it",
            name=error.name,
        ) from error
