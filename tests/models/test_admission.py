"""Permits: first come, first served, and nobody who leaves takes one along."""

import pytest
import trio
import trio.testing

from agentrt.models.admission import AdmissionPool


async def test_a_permit_is_handed_over_in_the_order_of_asking() -> None:
    """B40"""
    pool = AdmissionPool(1)
    order: list[int] = []

    async def work(number: int) -> None:
        async with pool.permit("a/b"):
            order.append(number)
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery, pool.permit("a/b"):
        for number in range(5):
            nursery.start_soon(work, number)
            await trio.testing.wait_all_tasks_blocked()
        assert order == []
    assert order == [0, 1, 2, 3, 4]


async def test_who_comes_later_does_not_overtake_a_waiter() -> None:
    """B40: a permit that is given back belongs to who waits for it."""
    pool = AdmissionPool(1)
    order: list[str] = []

    async def wait() -> None:
        async with pool.permit("a/b"):
            order.append("waiter")

    async with trio.open_nursery() as nursery:
        async with pool.permit("a/b"):
            nursery.start_soon(wait)
            await trio.testing.wait_all_tasks_blocked()
        async with pool.permit("a/b"):
            order.append("latecomer")
    assert order == ["waiter", "latecomer"]


async def test_a_waiter_who_is_cancelled_frees_its_place() -> None:
    """B40"""
    pool = AdmissionPool(1)
    order: list[str] = []

    async def wait(name: str, scope: trio.CancelScope) -> None:
        with scope:
            async with pool.permit("a/b"):
                order.append(name)

    async with trio.open_nursery() as nursery, pool.permit("a/b"):
        leaves = trio.CancelScope()
        nursery.start_soon(wait, "leaves", leaves)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(wait, "stays", trio.CancelScope())
        await trio.testing.wait_all_tasks_blocked()
        leaves.cancel()
        await trio.testing.wait_all_tasks_blocked()
    assert order == ["stays"]
    assert pool.in_flight("a/b") == 0


async def test_keys_do_not_wait_for_each_other_and_one_task_may_hold_two() -> None:
    pool = AdmissionPool(2)
    async with pool.permit("a/b"), pool.permit("a/b"), pool.permit("c/d"):
        assert (pool.in_flight("a/b"), pool.in_flight("c/d")) == (2, 1)
    assert (pool.in_flight("a/b"), pool.in_flight("never")) == (0, 0)


async def test_a_failure_gives_the_permit_back() -> None:
    pool = AdmissionPool(1)
    with pytest.raises(KeyError):
        async with pool.permit("a/b"):
            raise KeyError
    assert pool.in_flight("a/b") == 0


async def test_the_bound_holds() -> None:
    """B54"""
    pool = AdmissionPool(3)
    most = 0

    async def work() -> None:
        nonlocal most
        async with pool.permit("a/b"):
            most = max(most, pool.in_flight("a/b"))
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(work)
    assert most == 3


@pytest.mark.parametrize("permits", [0, -1])
def test_a_pool_without_a_permit_is_refused(permits: int) -> None:
    """B54"""
    with pytest.raises(ValueError, match="expected at least 1"):
        AdmissionPool(permits)
