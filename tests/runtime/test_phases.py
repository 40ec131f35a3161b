"""The table of phases: what is not in it is refused."""

import itertools

from agentrt.runtime.phases import NEXT_PHASE, Action, Phase, next_phase


def test_every_pair_leads_where_the_table_says_or_nowhere() -> None:
    for pair in itertools.product(Phase, Action):
        assert next_phase(*pair) == NEXT_PHASE.get(pair)


def test_every_phase_can_be_reached_and_left() -> None:
    assert {phase for phase, _ in NEXT_PHASE} == set(Phase)
    assert set(NEXT_PHASE.values()) == set(Phase)
    assert {action for _, action in NEXT_PHASE} == set(Action)


def test_a_run_cannot_start_over_another_nor_over_a_pause() -> None:
    """P3, P6"""
    for phase in (Phase.RUNNING, Phase.STOPPING, Phase.PAUSED):
        assert next_phase(phase, Action.START) is None
    for phase in (Phase.IDLE, Phase.RUNNING, Phase.STOPPING):
        assert next_phase(phase, Action.RESUME) is None
