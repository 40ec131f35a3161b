"""Functions that block: in a thread, with the caller's context, and never forgotten.

Real threads take real time, so order is made by events and not by a clock.
"""

import contextvars
import os
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from attrs import define, field

from agentrt.agent.agent import Agent
from agentrt.core.context import Context, Leftover
from agentrt.core.errors import ToolDefinitionError
from agentrt.core.outcomes import RunAudit
from agentrt.events.types import Envelope, RunCancelled
from agentrt.runtime.runtime import open_runtime
from agentrt.testing import Say, ScriptedModel, call, no_leftovers
from agentrt.tools.base import Tool, tool
from agentrt.tools.workers import run_in_thread

WHO: contextvars.ContextVar[str] = contextvars.ContextVar("WHO", default="nobody")
REAL_SECONDS = 5.0


@define
class Gate:
    """A function that waits in its thread until the test lets it go."""

    entered: threading.Event = field(factory=threading.Event)
    open: threading.Event = field(factory=threading.Event)
    done: threading.Event = field(factory=threading.Event)

    def __call__(self) -> str:
        self.entered.set()
        assert self.open.wait(REAL_SECONDS)
        self.done.set()
        return "through"

    async def wait_entered(self) -> None:
        assert await trio.to_thread.run_sync(self.entered.wait, REAL_SECONDS)

    async def wait_done(self) -> None:
        self.open.set()
        assert await trio.to_thread.run_sync(self.done.wait, REAL_SECONDS)


@pytest.fixture
def gate() -> Iterator[Gate]:
    made = Gate()
    yield made
    made.open.set()


async def run(made: Tool, context: Context | None = None) -> Any:
    return await made.run({}, context or Context(conversation_id="c"))


async def test_a_sync_tool_runs_in_another_thread_with_the_callers_variables() -> None:
    """B43, U42"""

    @tool
    def where(context: Context) -> list[object]:
        """Tell."""
        return [threading.get_ident(), WHO.get(), context.conversation_id]

    WHO.set("me")
    ident, *rest = await run(where)
    assert ident != threading.get_ident()
    assert rest == ["me", "c"]


async def test_an_async_tool_runs_here_through_partials_and_objects() -> None:
    class Here:
        """Tell."""

        async def __call__(self) -> int:
            await trio.lowlevel.checkpoint()
            return threading.get_ident()

    for made in (tool(Here()), tool(partial(Here()))):
        assert await run(made) == threading.get_ident()


async def test_two_sync_tools_run_at_once(gate: Gate) -> None:
    """U42: each waits for the other."""
    barrier = threading.Barrier(2, timeout=REAL_SECONDS)

    @tool
    def meet() -> int:
        """Meet."""
        return barrier.wait()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run, meet)
        nursery.start_soon(run, meet)


async def test_what_a_sync_tool_raises_comes_out_and_nothing_is_left_behind() -> None:
    left: list[Leftover] = []
    context = Context(conversation_id="c", leave_behind=left.append)

    @tool
    def fail() -> None:
        """Fail."""
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await run(fail, context)
    assert left == []


async def test_an_abandoned_thread_is_reported_while_it_runs(gate: Gate) -> None:
    """U10"""
    left: list[Leftover] = []
    context = Context(conversation_id="c", leave_behind=left.append)

    async def work() -> None:
        await run_in_thread(gate, name="gate", context=context)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(work)
        await gate.wait_entered()
        nursery.cancel_scope.cancel()
    assert [(each.name, each.is_running()) for each in left] == [("gate", True)]
    await gate.wait_done()
    while left[0].is_running():
        await trio.lowlevel.checkpoint()


async def test_a_thread_cut_as_it_starts_is_reported_or_never_runs() -> None:
    """P4: whatever the order of the cancel and the start, each time anew."""
    limiter = trio.CapacityLimiter(200)

    async def cut(checkpoints: int) -> tuple[list[Leftover], list[str]]:
        left: list[Leftover] = []
        ran: list[str] = []
        release = threading.Event()
        context = Context(
            conversation_id="c", leave_behind=left.append, thread_limiter=limiter
        )

        def work() -> None:
            ran.append("ran")
            assert release.wait(REAL_SECONDS)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(run_in_thread, work, name="w", context=context))
            for _ in range(checkpoints):
                await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()
        reported = list(left)
        release.set()
        while limiter.borrowed_tokens:
            await trio.lowlevel.checkpoint()
        return reported, ran

    for number in range(200):
        reported, ran = await cut(number % 4)
        assert len(reported) == len(ran)


async def test_the_audit_of_a_stopped_run_names_the_thread(gate: Gate) -> None:
    """P4, P8: the call gets a truthful result, the run says what it left."""

    @tool
    def blocks() -> str:
        """Block."""
        return gate()

    agent = Agent(
        model=ScriptedModel([Say(calls=[call("blocks", id="c1")])]), tools=[blocks]
    )
    async with no_leftovers(), open_runtime(agent) as runtime:
        run = await runtime.start_run("c", "go")
        await gate.wait_entered()
        runtime.stop("c")
        await run.wait()
        last = (await runtime.subscribe("c", since=0).batch())[-1]
        assert isinstance(last, Envelope)
        assert isinstance(last.event, RunCancelled)
        assert last.event.audit == RunAudit(threads=("blocks",))
        (record,) = last.event.calls
        assert record.status == "cut"
        assert "may have had effects" in str(record.content)
        await gate.wait_done()


async def test_threads_of_one_runtime_are_counted_by_its_own_limiter() -> None:
    limiter = trio.CapacityLimiter(1)
    context = Context(conversation_id="c", thread_limiter=limiter)
    gate = Gate()

    async def work() -> None:
        await run_in_thread(gate, name="gate", context=context)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(work)
        await gate.wait_entered()
        assert limiter.borrowed_tokens == 1
        nursery.cancel_scope.cancel()
    await gate.wait_done()


# Functions for a process are found by name, so they stand at the top of this module.


def spin_for_ever(path: str) -> None:
    """Never ends, and says so in a pipe."""
    Path(path).write_text(str(os.getpid()))
    while True:
        pass


@tool(isolation="process")
def divide(a: int, b: int) -> float:
    """Divide."""
    return a / b


@tool(isolation="process")
def die() -> None:
    """End the process."""
    os._exit(1)


@pytest.mark.integration
async def test_a_tool_runs_in_a_process_of_its_own() -> None:
    context = Context(conversation_id="c")
    assert await divide.run({"a": 6, "b": 4}, context) == 1.5
    with pytest.raises(ZeroDivisionError):
        await divide.run({"a": 6, "b": 0}, context)
    assert divide(a=1, b=2) == 0.5


@pytest.mark.integration
async def test_a_method_of_a_class_runs_in_a_process() -> None:
    plus = tool(isolation="process")(Box.plus)
    assert await plus.run({"a": 1}, Context(conversation_id="c")) == 4


@pytest.mark.integration
async def test_a_process_is_killed_when_its_call_is_cut(tmp_path: Path) -> None:
    """A thread would spin on."""
    told = trio.Path(tmp_path / "pid")
    os.mkfifo(told)
    spin = tool(isolation="process")(spin_for_ever)
    async with trio.open_nursery() as nursery:
        context = Context(conversation_id="c")
        nursery.start_soon(spin.run, {"path": str(told)}, context)
        pid = int(await told.read_text())  # waits until somebody writes
        nursery.cancel_scope.cancel()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.integration
async def test_a_process_that_dies_is_a_failed_call() -> None:
    model = ScriptedModel([call("die"), "ok"])
    outcome = await Agent(model=model, tools=[die]).run("go")
    assert [each.status for each in outcome.calls] == ["error"]


def with_context(context: Context) -> None:
    """Takes a context."""


class Box:
    """Holds a number."""

    def times(self, a: int) -> int:
        """Multiply."""
        return a * 3

    @classmethod
    def plus(cls, a: int) -> int:
        """Add."""
        return a + 3


async def not_blocking() -> None:
    """Is async."""


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (not_blocking, "is async"),
        (with_context, "takes a Context"),
        (lambda: None, "at the top of a module"),
        (Box().times, "is a method of an object"),
    ],
)
def test_what_cannot_run_in_a_process_is_refused(function: Any, why: str) -> None:
    with pytest.raises(ToolDefinitionError, match=why):
        tool(isolation="process", name="it")(function)


def test_an_unknown_isolation_is_refused() -> None:
    with pytest.raises(ToolDefinitionError, match="expected 'thread' or 'process'"):
        tool(isolation="fibre")(with_context)  # type: ignore[call-overload]
