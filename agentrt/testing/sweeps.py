"""Cancel a scenario at each of its scheduling points in turn, and check every time.

A promise that holds wherever a task is cancelled holds by construction; one that holds
in the tests that somebody thought of may not. The sweep runs the scenario once for each
point, in two flavors: *blocked* (the task is parked when the cancellation comes) and
*woken* (it already holds what it waited for), under several orders of the run queue.

After each run it looks for what was left: tasks, permits of limiters, and whatever the
scenario's own check finds. Time jumps, so a hang is a failure at once.

Uses two hooks of Trio's that exist for Hypothesis: `_core._run._r` and
`_ALLOW_DETERMINISTIC_SCHEDULING`. A test fails loudly should they vanish.
"""

import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, Generic, Literal, TypeVar

import outcome
import trio
import trio.testing
from attrs import define, field, frozen
from trio._core import _run

__all__ = ["SweepFailure", "SweepReport", "cancel_sweep"]

WorldT = TypeVar("WorldT")

Flavor = Literal["blocked", "woken"]

FLAVORS: Final[tuple[Flavor, ...]] = ("blocked", "woken")

HANG_SECONDS: Final = 1e6
"""Of the clock that jumps."""

MAX_POINTS: Final = 20_000


@frozen(kw_only=True)
class SweepFailure:
    """One point at which the promise did not hold."""

    flavor: Flavor
    seed: int
    point: int
    """The scheduling point that was cancelled, from 1."""

    task: str
    """The name of the task that was there."""

    error: BaseException

    def __str__(self) -> str:
        return (
            f"{self.flavor} at point {self.point} (seed {self.seed}, task {self.task}):"
            f" {_in_words(self.error)}"
        )


@frozen(kw_only=True)
class SweepReport:
    """What a sweep found. `runs` without the last of each series, which is not cut."""

    runs: int
    failures: Sequence[SweepFailure]

    def __str__(self) -> str:
        lines = [f"cancel sweep: {self.runs} runs, {len(self.failures)} failures"]
        return "\n".join([*lines, *(f"  {failure}" for failure in self.failures[:10])])


@define(eq=False)
class _CancelAt(trio.abc.Instrument):
    """Cancels the scenario's scope at one scheduling point of its tasks."""

    point: int
    flavor: Flavor
    scope: trio.CancelScope | None = field(default=None, init=False)
    root: trio.lowlevel.Task | None = field(default=None, init=False)
    step: int = field(default=0, init=False)
    hit: str | None = field(default=None, init=False)

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._tick(task, "woken")

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        self._tick(task, "blocked")

    def _tick(self, task: trio.lowlevel.Task, flavor: Flavor) -> None:
        if self.scope is None or flavor != self.flavor or not self._is_mine(task):
            return
        self.step += 1
        if self.step == self.point:
            self.hit = task.name
            self.scope.cancel(reason=f"cancel sweep, point {self.point}")

    def _is_mine(self, task: trio.lowlevel.Task | None) -> bool:
        while task is not None:
            if task is self.root:
                return True
            nursery = task.parent_nursery
            task = None if nursery is None else nursery.parent_task
        return False


@define
class _Sweep(Generic[WorldT]):
    make_world: Callable[[], WorldT]
    scenario: Callable[[WorldT], Awaitable[Any]]
    check: Callable[[WorldT], Any]
    limiters: Callable[[WorldT], Sequence[trio.CapacityLimiter]]

    async def once(self, instrument: _CancelAt) -> None:
        """One run, cancelled at the instrument's point, and all the checks."""
        tasks_before = trio.lowlevel.current_statistics().tasks_living
        world = self.make_world()
        with trio.fail_after(HANG_SECONDS):
            with trio.CancelScope() as instrument.scope:
                instrument.root = trio.lowlevel.current_task()
                await self.scenario(world)
            instrument.scope = None
            await trio.testing.wait_all_tasks_blocked()
            left = trio.lowlevel.current_statistics().tasks_living - tasks_before
            assert left == 0, f"{left} task(s) left running"
            for limiter in self.limiters(world):
                held = limiter.borrowed_tokens
                assert held == 0, f"{held} permit(s) never given back"
            result = self.check(world)
            if isinstance(result, Awaitable):
                await result


def cancel_sweep(
    make_world: Callable[[], WorldT],
    scenario: Callable[[WorldT], Awaitable[Any]],
    check: Callable[[WorldT], Any],
    *,
    seeds: Sequence[int] = (0, 1),
    limiters: Callable[[WorldT], Sequence[trio.CapacityLimiter]] = lambda world: (),
) -> SweepReport:
    """Run `scenario` on a fresh world for each scheduling point, cancelled there.

    `check` is given the world after each run, with nothing of the scenario left; it
    raises when a promise is broken, and may be async. `limiters` names those whose
    permits must all be back. Everything must be in memory.

    Raises:
        AssertionError: a promise was broken; the message names flavor, point, task and
            seed.
    """
    report = sweep_report(_Sweep(make_world, scenario, check, limiters), seeds)
    if report.failures:
        raise AssertionError(str(report)) from report.failures[0].error
    return report


def sweep_report(sweep: "_Sweep[Any]", seeds: Sequence[int]) -> SweepReport:
    """Every run of a sweep, without raising."""
    runs = 0
    failures: list[SweepFailure] = []
    with _seeded_scheduling():
        for flavor in FLAVORS:
            for seed in seeds:
                for point in range(1, MAX_POINTS):
                    instrument = _CancelAt(point, flavor)
                    error = _run_once(sweep, instrument, seed)
                    if error is not None:
                        failures.append(
                            SweepFailure(
                                flavor=flavor,
                                seed=seed,
                                point=point,
                                task=instrument.hit or "none",
                                error=error,
                            )
                        )
                    if instrument.hit is None:
                        break  # it ran to its end: there is no such point
                    runs += 1
    return SweepReport(runs=runs, failures=failures)


def _run_once(
    sweep: "_Sweep[Any]", instrument: _CancelAt, seed: int
) -> BaseException | None:
    _run._r.seed(seed)
    random.seed(seed)
    ended = outcome.capture(
        trio.run,
        partial(sweep.once, instrument),
        instruments=[instrument],
        clock=trio.testing.MockClock(autojump_threshold=0),
    )
    if isinstance(ended, outcome.Value):
        return None
    if isinstance(ended.error, KeyboardInterrupt):
        raise ended.error
    return ended.error


@contextmanager
def _seeded_scheduling() -> Iterator[None]:
    """Trio's run queue in an order that a seed decides, for the length of the block."""
    before = _run._ALLOW_DETERMINISTIC_SCHEDULING
    state = _run._r.getstate()
    _run._ALLOW_DETERMINISTIC_SCHEDULING = True  # type: ignore[misc]  # a test hook
    try:
        yield
    finally:
        _run._ALLOW_DETERMINISTIC_SCHEDULING = before  # type: ignore[misc]
        _run._r.setstate(state)


def _in_words(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"
