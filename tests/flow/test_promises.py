"""The promises, over random agents, people, filters and stores."""

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from agentrt.core.messages import Message, ToolMessage
from agentrt.filters.base import Filter
from agentrt.testing import Say, trio_property
from tests.flow.worlds import Step, World, filters, steps, turns


@given(turns(), steps())
@settings(max_examples=150)
@trio_property
async def test_whatever_agents_and_people_do_the_promises_hold(
    scripts: Sequence[Sequence[Say]], plan: Sequence[Step]
) -> None:
    world = World(scripts)
    await world.live(plan)
    world.check()
    assert world.drops == 0


@given(turns(), filters(), steps())
@settings(max_examples=150)
@trio_property
async def test_whatever_filters_do_the_promises_hold(
    scripts: Sequence[Sequence[Say]], layers: Sequence[Filter], plan: Sequence[Step]
) -> None:
    world = World(scripts, layers)
    await world.live(plan)
    world.check()
    assert world.drops == 0


@given(turns(), steps(), st.frozensets(st.integers(1, 60), max_size=4))
@settings(max_examples=100)
@trio_property
async def test_a_store_that_refuses_events_costs_those_events_and_no_number(
    scripts: Sequence[Sequence[Say]], plan: Sequence[Step], refuses: frozenset[int]
) -> None:
    world = World(scripts, refuses=refuses)
    await world.live(plan)
    seqs = [envelope.seq for envelope in world.store.everything]
    assert seqs == list(range(1, len(seqs) + 1))
    assert all(run.is_over for run in world.runs)
    for reader in world.readers:
        reader.check()


@given(turns(), steps())
@settings(max_examples=100)
@trio_property
async def test_what_readers_are_shown_is_what_the_history_holds(
    scripts: Sequence[Sequence[Say]], plan: Sequence[Step]
) -> None:
    world = World(scripts)
    await world.live(plan)
    assert sorted(map(repr, world.transcript)) == sorted(map(repr, world.history))
    assert asked_of(world.transcript) == asked_of(world.history)


def asked_of(messages: Sequence[Message]) -> Sequence[str]:
    """The order of all but results: those of a pause come when it is answered."""
    return [m.id for m in messages if not isinstance(m, ToolMessage)]
