"""Running a tool's function: an async one here, any other in a worker thread.

A thread cannot be stopped. When the call is cancelled the thread is left to itself, and
that is reported to the run, whose audit names it. Where that will not do, a function
runs in a process, which is killed. The only door to trio-parallel.
"""

import importlib
import inspect
import threading
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from types import ModuleType
from typing import Any, Literal, TypeAlias

import trio
from attrs import define, field

from agentrt.core.context import Context, Leftover
from agentrt.core.errors import ToolDefinitionError
from agentrt.core.extras import from_extra
from agentrt.tools.signature import Signature

__all__ = ["Isolation", "run_in_process", "run_in_thread", "runner"]

Isolation: TypeAlias = Literal["thread", "process"]


def runner(
    function: Callable[..., Any], signature: Signature, isolation: Isolation = "thread"
) -> Callable[[Mapping[str, Any], Context], Awaitable[Any]]:
    """What runs `function` with the arguments that a model gave.

    Raises:
        ToolDefinitionError: it cannot run in a process, and is to.
    """
    if isolation == "process":
        place = _place(function, signature)

        async def run(arguments: Mapping[str, Any], context: Context) -> Any:
            bound = signature.bind(arguments, context)
            return await run_in_process(place, bound)

    elif isolation != "thread":
        raise ToolDefinitionError(
            f"tool {signature.name!r}: isolation is {isolation!r}, "
            "expected 'thread' or 'process'"
        )
    elif is_async(function):

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
    """A function on its way to a thread: it has begun, or it never will."""

    function: Callable[[], Any]
    _began: bool = field(default=False, init=False)
    _ended: bool = field(default=False, init=False)
    _abandoned: bool = field(default=False, init=False)
    _lock: threading.Lock = field(factory=threading.Lock, init=False, repr=False)
    """Between the thread that begins and the one that abandons."""

    @property
    def is_running(self) -> bool:
        return self._began and not self._ended

    def abandon(self) -> None:
        """From now on it does not begin."""
        with self._lock:
            self._abandoned = True

    def __call__(self) -> Any:
        with self._lock:
            if self._abandoned:
                return None
            self._began = True
        try:
            return self.function()
        finally:
            self._ended = True


async def run_in_thread(
    function: Callable[[], Any], *, name: str, context: Context
) -> Any:
    """Run a function that blocks, in one worker thread of Trio's.

    When it is cancelled, a function that has begun goes on alone and is told to
    `context.leave_behind`; what it returns or raises then is lost. One that has not
    begun never does.
    """
    work = _Work(function)
    ended = False
    try:
        result = await trio.to_thread.run_sync(
            work, abandon_on_cancel=True, limiter=context.thread_limiter
        )
        ended = True
    finally:
        work.abandon()
        if not ended and work.is_running and context.leave_behind is not None:
            leftover = Leftover(name=name, is_running=lambda: work.is_running)
            context.leave_behind(leftover)
    return result


Place: TypeAlias = tuple[str, str]
"""A module and a name in it: how another process finds a function."""


def _place(function: Callable[..., Any], signature: Signature) -> Place:
    where = f"tool {signature.name!r} with isolation='process'"
    if is_async(function):
        raise ToolDefinitionError(f"{where} is async: it would run here, so leave it")
    if signature.context_name is not None:
        raise ToolDefinitionError(
            f"{where} takes a Context, which cannot go to another process"
        )
    owner = getattr(function, "__self__", None)
    if owner is not None and not isinstance(owner, type | ModuleType):
        raise ToolDefinitionError(
            f"{where} is a method of an object, which another process does not have: "
            "write a function at the top of a module that makes it"
        )
    name = getattr(function, "__qualname__", "")
    if not name or "<" in name:
        raise ToolDefinitionError(
            f"{where} is {name or function!r}: another process finds only what is "
            "defined at the top of a module"
        )
    return function.__module__, name


async def run_in_process(place: Place, arguments: Mapping[str, Any]) -> Any:
    """Run a function in a worker process, which is killed when this is cancelled.

    Arguments and result are pickled. Processes are kept for the next call; as many work
    at once as there are CPUs.

    Raises:
        ModuleNotFoundError: the extra `process` is not installed.
    """
    with from_extra("process"):
        trio_parallel = importlib.import_module("trio_parallel")
    return await trio_parallel.run_sync(
        _call_there, place, dict(arguments), kill_on_cancel=True
    )


def _call_there(place: Place, arguments: dict[str, Any]) -> Any:
    """In the other process: find the function, through the tool made of it."""
    module, name = place
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return getattr(found, "function", found)(**arguments)
