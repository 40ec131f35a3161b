"""Checking an event stream: that it keeps the grammar, from wherever it was read."""

from collections.abc import Iterable, Sequence

from agentrt.events.grammar import find_faults
from agentrt.events.types import Envelope
from agentrt.runtime.subscriptions import Reading, Subscription

__all__ = ["check_stream", "read_stream"]


def check_stream(
    envelopes: Iterable[Envelope], *, since: int = 0, complete: bool = True
) -> None:
    """Check that one conversation's stream keeps every rule of `events/grammar.py`.

    `since` is the number before the first envelope; `complete` says that no run is
    still going on.

    Raises:
        AssertionError: names each broken rule, and the number at which it broke.
    """
    faults = find_faults(envelopes, since=since, complete=complete)
    assert not faults, "\n".join(str(fault) for fault in faults)


async def read_stream(subscription: Subscription) -> Sequence[Reading]:
    """Everything that a subscription gives, until it ends."""
    return [reading async for reading in subscription]
