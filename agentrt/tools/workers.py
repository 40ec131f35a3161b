"""Running a tool's function: an async one here, any other in a worker thread.

A thread cannot be stopped. When the call is cancelled the thread is left to itself, and
that is reported to the run, whose audit names it.
"""

import inspect
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

import trio
from attrs import define, field

from agentrt.core.context import Context, Leftover
from agentrt.tools.signature import Signature

__all__ = ["run_in_thread", "runner"]


def runner(
    function: Callable[..., Any], signature: Signature
) -> Callable[[Mapping[str, Any], Context], Awaitable[Any]]:
    """What runs `function` with the arguments that a model gave."""
    if is_async(function):

        async def run(arguments: Mapping[str, Any], context: Context) -> Any:
            return await function(**signature.bind(arguments, context))

    else:

        async def run(arguments: Mapping[str, Any], context: Context) -> Any:
            call = partial(function, **signature.bind(arguments, context))
            return await run_in_thread(call, name=signature.name, context=context)

    return run


def is_async(function: Callable[..., Any]) -> bool:
    """Whether calling it gives something to await, through partials and objects."""
    while isinstance(function, partial):
        function = function.func
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004
    )


@define
class _Work:
    function: Callable[[], Any]
    started: bool = field(default=False, init=False)
    ended: bool = field(default=False, init=False)

    @property
    def is_running(self) -> bool:
        return self.started and not self.ended

    def __call__(self) -> Any:
        self.started = True
        try:
            return self.function()
        finally:
            self.ended = True


async def run_in_thread(
    function: Callable[[], Any], *, name: str, context: Context
) -> Any:
    """Run a function that blocks, in one worker thread of Trio's.

    When it is cancelled, the thread goes on alone and is told to
    `context.leave_behind`; what it returns or raises then is lost.
    """
    work = _Work(function)
    ended = False
    try:
        result = await trio.to_thread.run_sync(
            work, abandon_on_cancel=True, limiter=context.thread_limiter
        )
        ended = True
    finally:
        if not ended and work.is_running and context.leave_behind is not None:
            leftover = Leftover(name=name, is_running=lambda: work.is_running)
            context.leave_behind(leftover)
    return result
