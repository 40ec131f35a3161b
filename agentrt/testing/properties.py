"""Hypothesis on Trio: properties that wait, and state machines that wait.

Each example gets a fresh Trio run and a clock that jumps. Trio's own plug-in makes its
scheduler deterministic under Hypothesis, so failures shrink and repeat.
"""

import queue
from collections.abc import Awaitable, Callable
from functools import partial, wraps
from typing import Any, Final, ParamSpec, TypeVar

import outcome
import trio
import trio.testing

from agentrt.core.extras import from_extra

with from_extra("testing"):
    from hypothesis.stateful import RuleBasedStateMachine

__all__ = ["TrioMachine", "trio_property"]

P = ParamSpec("P")
T = TypeVar("T")

STUCK_SECONDS: Final = 10.0
"""Real seconds without a turn of the loop, after which a rule counts as stuck."""


def trio_property(function: Callable[P, Awaitable[None]]) -> Callable[P, None]:
    """Run an async test function in a Trio run of its own; put it under `@given`.

    Time does not pass, it jumps: all must happen in memory.
    """

    @wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        clock = trio.testing.MockClock(autojump_threshold=0)
        trio.run(partial(function, *args, **kwargs), clock=clock)

    return run


class TrioMachine(RuleBasedStateMachine):
    """A state machine whose rules call async functions by `self.run`.

    Trio runs as a guest whose loop turns only while a rule runs, so that nothing, not
    even the clock, moves between rules. `self.nursery` is there for tasks that outlive
    a rule; they are cancelled at the end, and what they raise fails the test.
    """

    nursery: trio.Nursery

    def __init__(self) -> None:
        super().__init__()
        self._turns: queue.Queue[Callable[[], Any]] = queue.Queue()
        self._done: outcome.Outcome[None] | None = None
        self._send: trio.MemorySendChannel[Any] | None = None
        trio.lowlevel.start_guest_run(
            self._serve,
            run_sync_soon_threadsafe=self._turns.put,
            done_callback=self._finish_run,
            clock=trio.testing.MockClock(autojump_threshold=0),
        )
        self._turn_until(lambda: self._send is not None)
        self.run(self.setup)

    async def setup(self) -> None:
        """Override to open what the rules use."""

    async def cleanup(self) -> None:
        """Override to close it again."""

    def run(self, function: Callable[..., Awaitable[T]], *args: Any) -> T:
        """Call an async function from a rule and wait for it."""
        assert self._send is not None
        answers: list[outcome.Outcome[T]] = []
        self._send.send_nowait((partial(function, *args), answers))
        self._turn_until(lambda: bool(answers))
        return answers[0].unwrap()

    def settle(self) -> None:
        """Let all tasks run until each of them waits."""
        self.run(trio.testing.wait_all_tasks_blocked)

    def teardown(self) -> None:
        if self._done is None:
            try:
                self.run(self.cleanup)
            finally:
                assert self._send is not None
                self._send.close()
                self._turn_until(lambda: self._done is not None)
        assert self._done is not None
        self._done.unwrap()  # what failed in the background surfaces here

    async def _serve(self) -> None:
        async with trio.open_nursery() as self.nursery:
            self._send, receive = trio.open_memory_channel[Any](1)
            async for function, answers in receive:
                answers.append(await outcome.acapture(function))
            self.nursery.cancel_scope.cancel(reason="the machine is torn down")

    def _finish_run(self, done: outcome.Outcome[None]) -> None:
        self._done = done

    def _turn_until(self, is_reached: Callable[[], bool]) -> None:
        while not is_reached():
            if self._done is not None:
                self._done.unwrap()
                raise RuntimeError("the Trio run ended before its machine did")
            self._turns.get(timeout=STUCK_SECONDS)()
