"""When a failed call is sent again, and after how long."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import trio
import trio.testing
from attrs import define, field
from hypothesis import given
from hypothesis import strategies as st

from agentrt.core.errors import (
    AuthenticationError,
    EmptyCompletionError,
    ModelError,
    NetworkError,
    RateLimitError,
    ServerError,
)
from agentrt.models.retry import RetryPolicy, call_with_retry

POLICY = RetryPolicy()


@define
class Sender:
    """Raises what it is given, then answers; notes when it was asked."""

    errors: list[Exception]
    times: list[float] = field(factory=list)

    async def __call__(self) -> str:
        await trio.lowlevel.checkpoint()
        self.times.append(trio.current_time())
        if self.errors:
            raise self.errors.pop(0)
        return "answer"

    @property
    def waits(self) -> Sequence[float]:
        pairs = zip(self.times[1:], self.times, strict=False)
        return [round(later - earlier, 6) for later, earlier in pairs]


async def send(
    *errors: Exception,
    policy: RetryPolicy = POLICY,
    may_repeat: Callable[[], bool] = lambda: True,
) -> tuple[str | Exception, Sender]:
    sender = Sender(list(errors))
    try:
        answer = await call_with_retry(
            sender, policy=policy, may_repeat=may_repeat, random=lambda: 0.5
        )
    except Exception as error:  # noqa: BLE001  it is what the test is about
        return error, sender
    return answer, sender


jitters = st.floats(0, 1, exclude_max=True)


@given(
    st.integers(1, 2000),
    jitters,
    st.floats(0, 100),
    st.floats(0, 100),
)
def test_a_delay_is_below_its_doubled_base_and_the_cap(
    retry: int, jitter: float, base: float, cap: float
) -> None:
    policy = RetryPolicy(base_seconds=base, cap_seconds=cap)
    delay = policy.delay(retry, retry_after=None, jitter=jitter)
    assert 0 <= delay <= cap
    assert delay <= base * 2.0 ** min(retry - 1, 100)
    assert policy.delay(retry, retry_after=None, jitter=0.0) == 0


@given(jitters, st.floats(0, 1e9))
def test_what_the_vendor_asks_for_is_a_minimum_up_to_the_cap(
    jitter: float, asked: float
) -> None:
    """B33: a little is added by chance."""
    least = min(asked, POLICY.cap_seconds)
    delay = POLICY.delay(1, retry_after=asked, jitter=jitter)
    assert least <= delay <= 1.1 * least


@given(jitters, st.floats(max_value=0) | st.just(float("nan")))
def test_a_wait_that_makes_no_sense_is_none(jitter: float, asked: float) -> None:
    assert POLICY.delay(1, retry_after=asked, jitter=jitter) == 0


async def test_a_call_is_sent_again_until_it_succeeds(
    autojump_clock: trio.testing.MockClock,
) -> None:
    answer, sender = await send(ServerError("1"), NetworkError("2"))
    assert (answer, sender.waits) == ("answer", [0.5, 1.0])


async def test_the_last_error_is_raised_as_it_is(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """B34"""
    last = ServerError("3")
    error, sender = await send(ServerError("1"), ServerError("2"), last)
    assert error is last
    assert last.__cause__ is None
    assert len(sender.times) == 3


async def test_what_is_not_retryable_is_raised_at_once() -> None:
    """B34"""
    for refusal in (AuthenticationError("no"), ModelError("no"), ValueError("bug")):
        error, sender = await send(refusal)
        assert error is refusal
        assert len(sender.times) == 1


async def test_the_error_knows_better_than_its_class(
    autojump_clock: trio.testing.MockClock,
) -> None:
    spent = RateLimitError("all used up")
    spent.retryable = False
    assert (await send(spent))[0] is spent
    odd = ModelError("odd")
    odd.retryable = True
    assert (await send(odd))[0] == "answer"


async def test_empty_answers_have_a_budget_of_their_own(
    autojump_clock: trio.testing.MockClock,
) -> None:
    empty = [EmptyCompletionError(str(n)) for n in range(3)]
    failed = [ServerError(str(n)) for n in range(2)]
    answer, sender = await send(empty[0], failed[0], empty[1], failed[1])
    assert (answer, sender.waits) == ("answer", [0.5, 0.5, 1.0, 1.0])
    error, sender = await send(*empty)
    assert (error, len(sender.times)) == (empty[2], 3)


async def test_a_wait_that_was_asked_for_is_kept(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """B33"""
    _, sender = await send(RateLimitError("slow", retry_after=7.0))
    assert sender.waits == [7.35]


async def test_no_retries_is_one_try() -> None:
    policy = RetryPolicy(max_retries=0, empty_retries=0)
    for error in (ServerError("x"), EmptyCompletionError("x")):
        assert (await send(error, policy=policy))[0] is error


async def test_what_was_told_is_not_sent_again() -> None:
    """B36"""
    error, sender = await send(ServerError("1"), may_repeat=lambda: False)
    assert isinstance(error, ServerError)
    assert len(sender.times) == 1


async def test_a_wait_ends_when_it_is_cancelled(
    autojump_clock: trio.testing.MockClock,
) -> None:
    sender = Sender([RateLimitError("slow", retry_after=20.0)])
    with trio.move_on_after(5) as scope:
        await call_with_retry(sender, policy=POLICY)
    assert scope.cancelled_caught
    assert trio.current_time() == sender.times[0] + 5


@pytest.mark.parametrize(
    "name",
    ["max_retries", "stream_retries", "empty_retries", "base_seconds", "cap_seconds"],
)
def test_a_policy_counts_and_waits_from_0_on(name: str) -> None:
    wrong: dict[str, Any] = {name: -1}
    with pytest.raises(ValueError, match=f"{name} is -1, expected 0 or more"):
        RetryPolicy(**wrong)
