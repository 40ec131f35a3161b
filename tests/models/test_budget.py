"""A budget: what is spent and reserved never exceeds a limit together."""

from collections.abc import Sequence
from typing import Any

import pytest
import trio
import trio.testing
from attrs import define, field
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    invariant,
    multiple,
    precondition,
    rule,
)

from agentrt.core.errors import BudgetExceededError
from agentrt.models.budget import Budget, Reservation, Spending
from agentrt.testing import trio_property

LIMIT = Spending(tokens=100, calls=5, cost=1.0)
AMOUNTS = {
    "tokens": st.integers(0, 60),
    "calls": st.integers(0, 3),
    "cost": st.sampled_from([0.0, 0.1, 0.3, 0.7]),
}


def test_what_does_not_fit_is_refused_and_nothing_is_set_aside() -> None:
    budget = Budget(100, calls=2)
    held = budget.reserve(tokens=60)
    with pytest.raises(BudgetExceededError) as refused:
        budget.reserve(tokens=41, calls=1)
    error = refused.value
    assert (error.name, error.limit, error.spent) == ("tokens", 100, 0)
    assert (error.reserved, error.wanted, error.code) == (60, 41, "budget_exceeded")
    assert str(error) == (
        "the budget of 100 tokens is used up: 0 spent, 60 reserved, 41 more needed; "
        "raise its 'tokens', or ask for less"
    )
    assert budget.reserved == Spending(tokens=60)
    budget.reserve(tokens=40)
    held.settle(tokens=10)
    assert (budget.spent, budget.left("tokens")) == (Spending(tokens=10), 50)


def test_a_settlement_holds_and_a_second_changes_nothing() -> None:
    budget = Budget(100)
    held = budget.reserve(tokens=60)
    held.settle(tokens=7)
    held.settle(tokens=50)
    held.release()
    assert (budget.spent, budget.reserved) == (Spending(tokens=7), Spending())


def test_a_block_that_settles_nothing_counts_all_of_it() -> None:
    budget = Budget(100, calls=5)
    with pytest.raises(ValueError, match="broken"), budget.reserve(tokens=60, calls=1):
        raise ValueError("broken")
    assert budget.spent == Spending(tokens=60, calls=1)
    with budget.reserve(tokens=10) as held:
        held.release()
    assert budget.spent == Spending(tokens=60, calls=1)


def test_more_than_was_reserved_is_counted_and_nothing_more_given() -> None:
    budget = Budget(100)
    budget.reserve(tokens=90).settle(tokens=130)
    assert (budget.spent.tokens, budget.left("tokens")) == (130, 0)
    with pytest.raises(BudgetExceededError, match="130 spent, 1 more needed"):
        budget.reserve(tokens=1)
    budget.reserve(calls=1, cost=3.0)


def test_a_budget_without_limits_only_counts() -> None:
    budget = Budget()
    budget.reserve(tokens=10**9, calls=10**6, cost=1e9).settle()
    assert budget.spent.tokens == 10**9
    assert (budget.left("tokens"), budget.deadline(5.0)) == (float("inf"),) * 2


def test_its_time_starts_with_its_first_use() -> None:
    budget = Budget(seconds=10)
    assert [budget.deadline(now) for now in (5.0, 9.0, 20.0)] == [15.0] * 3
    error = budget.out_of_time(17.0)
    assert (error.name, error.limit, error.spent) == ("seconds", 10, 12)


TIMES = st.integers(0, 1_000).map(float)


@given(
    st.lists(st.tuples(TIMES, st.lists(TIMES, min_size=1, max_size=4)), max_size=5),
    st.integers(1, 3_000),
)
def test_its_time_goes_on_in_another_run_of_trio_whose_clock_begins_elsewhere(
    runs: list[tuple[float, list[float]]], seconds: int
) -> None:
    budget = Budget(seconds=seconds)
    passed = 0.0

    async def use(steps: list[float]) -> None:
        nonlocal passed
        for number, step in enumerate([0.0, *steps]):
            await trio.sleep(step)
            passed += step if number else 0.0
            now = trio.current_time()
            assert budget.deadline(now) - now == pytest.approx(seconds - passed)
            assert budget.out_of_time(now).spent == pytest.approx(passed)

    for start, steps in runs:
        clock = trio.testing.MockClock(autojump_threshold=0)
        clock.jump(start)
        trio.run(use, steps, clock=clock)


@pytest.mark.parametrize(
    "limits", [{"tokens": 0}, {"calls": -1}, {"seconds": float("nan")}]
)
def test_limits_that_allow_nothing_are_refused(limits: Any) -> None:
    (name,) = limits
    with pytest.raises(
        ValueError, match=f"{name} is .*, expected more than 0, or None"
    ):
        Budget(**limits)


@pytest.mark.parametrize("amount", [{"tokens": -1}, {"cost": float("inf")}])
def test_amounts_that_are_none_are_refused(amount: Any) -> None:
    budget = Budget(10)
    with pytest.raises(ValueError, match=r"is .*, expected 0 or more"):
        budget.reserve(**amount)
    assert budget.reserved == Spending()


class BudgetMachine(RuleBasedStateMachine):
    """A budget beside a list of what is reserved and a sum of what was spent."""

    held = Bundle("held")

    def __init__(self) -> None:
        super().__init__()
        self.budget = Budget(LIMIT.tokens, calls=LIMIT.calls, cost=LIMIT.cost)
        self.open: dict[Reservation, dict[str, Any]] = {}
        self.spent: dict[str, Any] = {"tokens": 0, "calls": 0, "cost": 0.0}
        self.overdrawn = False

    @rule(target=held, amount=st.fixed_dictionaries(AMOUNTS))
    def reserve(self, amount: dict[str, Any]) -> Any:
        fits = all(
            not amount[name]
            or self.spent[name] + sum(each[name] for each in self.open.values())
            <= getattr(LIMIT, name) - amount[name] + 1e-9
            for name in AMOUNTS
        )
        try:
            made = self.budget.reserve(**amount)
        except BudgetExceededError:
            assert not fits or amount["cost"]  # a sum of floats may be a hair above
            return multiple()
        assert fits
        self.open[made] = amount
        return made

    @rule(made=consumes(held), share=st.sampled_from([0, 1, 3]))
    def settle(self, made: Reservation, share: int) -> None:
        reserved = self.open.pop(made)
        taken = {name: value * share / 3 for name, value in reserved.items()}
        taken["tokens"], taken["calls"] = int(taken["tokens"]), int(taken["calls"])
        made.settle(**taken)
        for name in AMOUNTS:
            self.spent[name] += taken[name]

    @rule(made=consumes(held), more=st.integers(1, 50))
    @precondition(lambda self: not self.overdrawn)
    def overdraw(self, made: Reservation, more: int) -> None:
        reserved = self.open.pop(made)
        made.settle(tokens=reserved["tokens"] + more)
        self.overdrawn = True
        self.spent["tokens"] += reserved["tokens"] + more
        for name in ("calls", "cost"):
            self.spent[name] += reserved[name]

    @invariant()
    def nothing_is_exceeded(self) -> None:
        spent, reserved = self.budget.spent, self.budget.reserved
        for name in AMOUNTS:
            assert getattr(spent, name) == pytest.approx(self.spent[name])
            held = sum(each[name] for each in self.open.values())
            assert getattr(reserved, name) == pytest.approx(held)
            if name != "tokens" or not self.overdrawn:
                total = getattr(spent, name) + getattr(reserved, name)
                assert total <= getattr(LIMIT, name) + 1e-9
        if not self.open:
            assert reserved == Spending()


TestBudgetMachine = BudgetMachine.TestCase


@define
class Fan:
    """Tasks that draw on one budget at once, and what they saw."""

    budget: Budget
    most: int = 0
    refused: int = 0
    spent: list[int] = field(factory=list)

    async def spend(self, reserve: int, use: int, seconds: int) -> None:
        try:
            with self.budget.reserve(tokens=reserve) as held:
                self.look()
                await trio.sleep(seconds)
                held.settle(tokens=min(use, reserve))
                self.spent.append(min(use, reserve))
        except BudgetExceededError:
            self.refused += 1
        self.look()

    def look(self) -> None:
        total = self.budget.spent.tokens + self.budget.reserved.tokens
        self.most = max(self.most, total)


@given(
    st.lists(
        st.tuples(st.integers(1, 50), st.integers(0, 60), st.integers(0, 3)),
        min_size=1,
        max_size=30,
    ),
    st.integers(0, 4),
)
@trio_property
async def test_many_tasks_never_exceed_it_together(
    tasks: Sequence[tuple[int, int, int]], cut_after: int
) -> None:
    """U49: also when some are cut while they spend."""
    fan = Fan(Budget(100))
    with trio.move_on_after(cut_after + 0.5):
        async with trio.open_nursery() as nursery:
            for task in tasks:
                nursery.start_soon(fan.spend, *task)
    assert fan.most <= 100
    assert fan.budget.reserved == Spending()
    if cut_after >= 3:
        assert fan.budget.spent.tokens == sum(fan.spent)
        assert len(fan.spent) + fan.refused == len(tasks)
