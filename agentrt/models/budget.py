"""Budgets: what may be spent, reserved before it is and settled after.

One `Budget` is handed to all who share it: agents, subagents, models. Whoever is about
to spend reserves the most that it may take; so a fan-out is refused before it starts,
and not when its bill comes. Plain functions: nothing comes between a check and its
reservation.
"""

from math import fsum, inf
from typing import Any, Final, Self

from attrs import Attribute, define, field, frozen
from trio.lowlevel import TrioToken, current_trio_token, in_trio_run

from agentrt.core.errors import BudgetExceededError

__all__ = ["Budget", "Reservation", "Spending"]

COUNTED: Final = ("tokens", "calls", "cost")


def _amount(_: Any, attribute: "Attribute[Any]", value: Any) -> None:
    if not 0 <= value < inf:
        raise ValueError(f"{attribute.name} is {value!r}, expected 0 or more")


def _limit(_: Any, attribute: "Attribute[Any]", value: Any) -> None:
    if value is not None and not 0 < value < inf:
        raise ValueError(
            f"{attribute.name} is {value!r}, expected more than 0, or None for no limit"
        )


@frozen(kw_only=True)
class Spending:
    """So much of each."""

    tokens: int = field(default=0, validator=_amount)
    """Into models and out of them."""

    calls: int = field(default=0, validator=_amount)
    """Of tools."""

    cost: float = field(default=0.0, validator=_amount)
    """In the currency of the prices."""


@define(eq=False)
class Budget:
    """What may be spent in all, by everybody who has it; None is no limit.

    `spent` and what is reserved never exceed a limit together. What is settled may be
    more than was reserved, since it is true; then nothing more is given.
    """

    tokens: int | None = field(default=None, validator=_limit)
    """Into models and out of them."""

    calls: int | None = field(default=None, validator=_limit, kw_only=True)
    """Of tools."""

    cost: float | None = field(default=None, validator=_limit, kw_only=True)
    """In the currency of the prices."""

    seconds: float | None = field(default=None, validator=_limit, kw_only=True)
    """From when it is first used. Time between two runs of Trio does not count."""

    spent: Spending = field(factory=Spending, init=False)
    _open: set["Reservation"] = field(factory=set, init=False, repr=False)
    _began: float | None = field(default=None, init=False)
    """On the clock of `_run`; None before it is used."""

    _seen: float = field(default=0.0, init=False)
    """When it was last asked, on that clock."""

    _run: TrioToken | None = field(default=None, init=False, repr=False)
    """Each run of Trio has a clock of its own, which begins anywhere."""

    @property
    def reserved(self) -> Spending:
        """What is reserved and not settled yet."""
        amounts = [each.amount for each in self._open]
        return Spending(
            tokens=sum(each.tokens for each in amounts),
            calls=sum(each.calls for each in amounts),
            cost=fsum(each.cost for each in amounts),
        )

    def reserve(
        self, *, tokens: int = 0, calls: int = 0, cost: float = 0.0
    ) -> "Reservation":
        """Set so much aside, until the reservation is settled.

        Raises:
            BudgetExceededError: a limit would be exceeded; nothing was set aside.
        """
        amount = Spending(tokens=tokens, calls=calls, cost=cost)
        reserved = self.reserved
        for name in COUNTED:
            limit, wanted = getattr(self, name), getattr(amount, name)
            spent, held = getattr(self.spent, name), getattr(reserved, name)
            if limit is not None and wanted and spent + held + wanted > limit:
                raise BudgetExceededError(
                    name, limit=limit, spent=spent, reserved=held, wanted=wanted
                )
        reservation = Reservation(self, amount)
        self._open.add(reservation)
        return reservation

    def left(self, name: str) -> float:
        """How much of `tokens`, `calls` or `cost` may still be reserved."""
        limit = getattr(self, name)
        taken = getattr(self.spent, name) + getattr(self.reserved, name)
        return inf if limit is None else max(0, limit - taken)

    def deadline(self, now: float) -> float:
        """When its time is up; `inf` for never. Its first call starts the time.

        `now` and what comes back are of `trio.current_time`. Of a run that is over, the
        time until its last call counts: call it when work ends, too.
        """
        self._see(now)
        assert self._began is not None
        return inf if self.seconds is None else self._began + self.seconds

    def out_of_time(self, now: float) -> BudgetExceededError:
        """The error that says so."""
        assert self.seconds is not None
        self._see(now)
        assert self._began is not None
        spent = now - self._began
        return BudgetExceededError("seconds", limit=self.seconds, spent=spent)

    def _see(self, now: float) -> None:
        """Note the time. What has passed in another run is carried over to this one."""
        run = current_trio_token() if in_trio_run() else None
        if self._began is None:
            self._began = now
        elif run is not self._run:
            self._began = now - (self._seen - self._began)
        self._run, self._seen = run, now

    def _settle(self, reservation: "Reservation", spent: Spending) -> None:
        self._open.remove(reservation)
        self.spent = Spending(
            tokens=self.spent.tokens + spent.tokens,
            calls=self.spent.calls + spent.calls,
            cost=self.spent.cost + spent.cost,
        )


@define(eq=False)
class Reservation:
    """A part of a budget that was set aside. Made by `Budget.reserve`.

    As a `with` block, leaving it without a settlement counts all of it as spent.
    """

    _budget: Budget = field(repr=False)
    amount: Spending
    is_open: bool = field(default=True, init=False)

    def settle(
        self,
        *,
        tokens: int | None = None,
        calls: int | None = None,
        cost: float | None = None,
    ) -> None:
        """Count what was spent, None as much as was reserved, and free the rest.

        Settling again changes nothing: the first one holds.
        """
        if not self.is_open:
            return
        amount = self.amount
        spent = Spending(
            tokens=amount.tokens if tokens is None else tokens,
            calls=amount.calls if calls is None else calls,
            cost=amount.cost if cost is None else cost,
        )
        self.is_open = False
        self._budget._settle(self, spent)

    def release(self) -> None:
        """Count nothing."""
        self.settle(tokens=0, calls=0, cost=0.0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.settle()
