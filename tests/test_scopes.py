"""Deadlines that say which they are, and cancellations that are told apart."""

import pytest
import trio
import trio.testing

from agentrt.core.errors import DeadlineError
from agentrt.scopes import deadline, holds_only, only_cancelled


async def test_a_deadline_that_fires_names_itself(
    autojump_clock: trio.testing.MockClock,
) -> None:
    words = "the tool deadline of 2 s fired and cut x"
    with pytest.raises(DeadlineError, match=words), deadline("tool", 2, cut="x"):
        await trio.sleep_forever()
    assert trio.current_time() == 2


async def test_the_inner_of_two_deadlines_fires_first(
    autojump_clock: trio.testing.MockClock,
) -> None:
    with (
        pytest.raises(DeadlineError, match="the model deadline"),
        deadline("turn", 5),
        deadline("model", 3),
    ):
        await trio.sleep_forever()


async def test_a_cancellation_from_outside_is_no_deadline(
    autojump_clock: trio.testing.MockClock,
) -> None:
    with trio.move_on_after(1) as scope:
        with deadline("turn", 5):
            await trio.sleep_forever()
    assert scope.cancelled_caught


async def test_no_limit_is_no_limit(autojump_clock: trio.testing.MockClock) -> None:
    with deadline("turn", None):
        await trio.sleep(3600)


async def _cancelled() -> trio.Cancelled:
    with trio.CancelScope() as scope:
        scope.cancel()
        try:
            await trio.lowlevel.checkpoint()
        except trio.Cancelled as error:
            caught = error
            raise
    return caught


async def test_cancellations_are_told_from_failures() -> None:
    cancelled, failure = await _cancelled(), ValueError("x")
    alone = BaseExceptionGroup("g", [cancelled, BaseExceptionGroup("h", [cancelled])])
    mixed = BaseExceptionGroup("g", [cancelled, failure])
    two = BaseExceptionGroup("g", [failure, KeyError("y")])
    kinds = (cancelled, alone, mixed, failure)
    assert [only_cancelled(each) for each in kinds] == [True, True, False, False]
    assert [holds_only(each, failure) for each in (mixed, two, alone)] == [
        True, False, True,
    ]  # fmt: skip
