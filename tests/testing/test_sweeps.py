"""The cancel sweep finds what it is there to find: planted faults, each of a kind."""

import pytest
import trio
import trio._core._run
from attrs import define, field

from agentrt.testing import cancel_sweep


@define(eq=False)
class World:
    """A pool and a log, as the smallest thing that has a life cycle."""

    pool: trio.CapacityLimiter = field(factory=lambda: trio.CapacityLimiter(2))
    log: list[str] = field(factory=list)

    def check(self) -> None:
        """Exactly one end, and nothing after it."""
        if self.log:
            assert self.log.count("end") == 1, f"ends: {self.log}"
            assert self.log[-1] == "end", f"after the end: {self.log}"


def sweep(scenario: object, *, seeds: int = 3) -> str:
    """What the sweep says of a scenario; a broken promise is its message."""
    try:
        report = cancel_sweep(
            World,
            scenario,  # type: ignore[arg-type]
            World.check,
            seeds=range(seeds),
            limiters=lambda world: [world.pool],
        )
    except AssertionError as error:
        return str(error)
    return str(report)


async def work(world: World) -> None:
    async with trio.open_nursery() as nursery:
        for _ in range(4):
            nursery.start_soon(use, world)


async def use(world: World) -> None:
    async with world.pool:
        await trio.sleep(1)


def test_what_is_right_passes_at_every_point() -> None:
    async def right(world: World) -> None:
        world.log.append("start")
        try:
            await work(world)
        finally:
            world.log.append("end")

    verdict = sweep(right)
    assert verdict.endswith(" runs, 0 failures")
    assert int(verdict.split()[2]) > 50


def test_a_permit_that_is_not_given_back_is_found() -> None:
    async def leaks(world: World) -> None:
        await world.pool.acquire_on_behalf_of(world)
        await trio.sleep(1)  # cancelled here, the permit stays out
        world.pool.release_on_behalf_of(world)

    assert "permit(s) never given back" in sweep(leaks)


def test_a_terminal_event_in_except_cancelled_is_found() -> None:
    async def groups_do_not_match(world: World) -> None:
        world.log.append("start")
        try:
            await work(world)
        except trio.Cancelled:
            world.log.append("end")
            raise
        world.log.append("end")

    assert "ends: ['start']" in sweep(groups_do_not_match)


def test_an_event_after_the_terminal_is_found() -> None:
    async def talks_on(world: World) -> None:
        try:
            await work(world)
            world.log.append("end")
            await trio.lowlevel.checkpoint()  # an end of its own, and then the other
        except BaseException:
            world.log.append("end")
            raise

    assert "ends: ['end', 'end']" in sweep(talks_on)


def test_a_task_that_is_left_running_is_found() -> None:
    async def forgets(world: World) -> None:
        trio.lowlevel.spawn_system_task(trio.sleep, 10)
        await trio.sleep(1)

    assert "task(s) left running" in sweep(forgets)


def test_what_never_ends_is_found() -> None:
    async def waits_for_nobody(world: World) -> None:
        await trio.Event().wait()

    assert "TooSlowError" in sweep(waits_for_nobody, seeds=1)


def test_a_failure_names_flavor_point_task_and_seed() -> None:
    async def leaks(world: World) -> None:
        await world.pool.acquire_on_behalf_of(world)
        await trio.sleep(1)
        world.pool.release_on_behalf_of(world)

    assert "blocked at point 2 (seed 0, task " in sweep(leaks)


def test_the_hooks_of_trio_that_the_sweep_uses_are_still_there() -> None:
    assert hasattr(trio._core._run, "_ALLOW_DETERMINISTIC_SCHEDULING")
    assert hasattr(trio._core._run._r, "seed")


def test_scheduling_is_left_as_it_was() -> None:
    before = trio._core._run._ALLOW_DETERMINISTIC_SCHEDULING
    with pytest.raises(AssertionError, match="failures"):
        cancel_sweep(World, work, lambda world: 1 / 0)
    assert trio._core._run._ALLOW_DETERMINISTIC_SCHEDULING is before
