"""One attempt of a model call, and the deadlines within it."""

from collections.abc import Awaitable, Callable
from functools import partial
from math import inf

import trio
from attrs import define, evolve, field

from agentrt.core.chat import ChatResponse, Delta, DeltaSink
from agentrt.core.context import Context
from agentrt.core.deadlines import NO_DEADLINES, Deadlines
from agentrt.core.errors import ModelTimeoutError

__all__ = ["Told", "one_attempt", "timed_attempt"]


@define
class Told:
    """A sink that knows whether anything was told, and when to be told more."""

    sink: DeltaSink
    anything: bool = field(default=False, init=False)
    gap: trio.CancelScope | None = field(default=None, init=False, repr=False)
    """Around the attempt that is streaming; its deadline moves with each delta."""

    gap_seconds: float = field(default=inf, init=False)

    def __call__(self, delta: Delta) -> None:
        self.anything = True
        if self.gap is not None:
            self.gap.deadline = trio.current_time() + self.gap_seconds
        self.sink(delta)


async def one_attempt(
    ask: Callable[[Context], Awaitable[ChatResponse]], context: Context, *, ref: str
) -> ChatResponse:
    """Await `ask(context)` within the context's deadlines: for one attempt a call.

    Raises:
        ModelTimeoutError: one of them fired; says which.
    """
    if context.deadlines is NO_DEADLINES:
        return await ask(context)
    told = None if context.on_delta is None else Told(context.on_delta)
    heard = evolve(context, on_delta=told)
    return await timed_attempt(partial(ask, heard), told, context.deadlines, ref=ref)


async def timed_attempt(
    send: Callable[[], Awaitable[ChatResponse]],
    told: Told | None,
    deadlines: Deadlines,
    *,
    ref: str,
) -> ChatResponse:
    """Await `send()` within the deadlines of one attempt.

    Raises:
        ModelTimeoutError: one of them fired; says which.
    """
    if deadlines is NO_DEADLINES:
        return await send()
    first = deadlines.first_token_seconds if told is not None else None
    gap = deadlines.token_gap_seconds
    with trio.move_on_after(_limit(deadlines.attempt_seconds)) as whole:
        with trio.move_on_after(_limit(first)) as between:
            if told is not None:
                told.gap, told.gap_seconds = between, _limit(gap)
            return await send()
        if told is not None and told.anything:
            raise _timeout("token gap", gap, ref)
        raise _timeout("first token", first, ref)
    assert whole.cancelled_caught
    raise _timeout("attempt", deadlines.attempt_seconds, ref)


def _limit(seconds: float | None) -> float:
    return inf if seconds is None else seconds


def _timeout(name: str, seconds: float | None, ref: str) -> ModelTimeoutError:
    return ModelTimeoutError(
        f"the {name} deadline of {seconds:g} s fired and cut an attempt of {ref}",
        provider=ref.partition("/")[0],
        deadline=name,
    )
