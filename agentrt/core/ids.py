"""Ids for whatever comes without one."""

import secrets

__all__ = ["new_id"]


def new_id() -> str:
    """Sixteen hexadecimal digits by chance: unlike any other id there is.

    Whoever needs the same ids twice (a test, a replay) hands in another source.
    """
    return secrets.token_hex(8)
