"""P4 and what goes with it: a turn cancelled at every one of its scheduling points."""

from collections.abc import AsyncIterator, Sequence
from typing import Any

import trio
from attrs import define, field

from agentrt.agent.agent import Agent
from agentrt.core.chat import ChatRequest, ChatResponse
from agentrt.core.context import Context
from agentrt.core.errors import RateLimitError, ServerError
from agentrt.core.history import find_history_faults
from agentrt.core.messages import Message, ToolMessage
from agentrt.core.outcomes import Approve
from agentrt.events.types import RunStarted, TerminalEvent
from agentrt.filters.base import (
    ChatCall,
    Filter,
    IterationCall,
    ToolUse,
    TurnCall,
    hook,
)
from agentrt.models.chat_model import ProviderModel
from agentrt.models.retry import RetryPolicy
from agentrt.providers.base import Provider
from agentrt.runtime.runtime import Runtime, open_runtime
from agentrt.stores.in_memory import InMemoryChatMemory, InMemoryPauseStore
from agentrt.testing import Say, ScriptedModel, call, cancel_sweep, check_stream
from agentrt.tools.base import Tool, tool
from tests.flow.worlds import RecordingStore


@define
class ScriptedProvider:
    """A provider that says what a script holds, one attempt for each step."""

    model: ScriptedModel
    name: str = "scripted"

    async def call(
        self, request: ChatRequest, *, message_id: str, sink: object = None
    ) -> ChatResponse:
        context = Context(
            conversation_id="any",
            message_id=message_id,
            on_delta=sink,  # type: ignore[arg-type]
        )
        return await self.model.call(request, context)


def four_filters(log: list[str]) -> Sequence[Filter]:
    """One on each hook, of the kinds that are easy to get wrong."""

    @hook
    async def beat(call: TurnCall) -> AsyncIterator[None]:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            yield
            nursery.cancel_scope.cancel()

    @hook
    async def limit(call: IterationCall) -> AsyncIterator[None]:
        with trio.fail_after(1000):
            yield

    @hook
    async def count(call: ChatCall) -> AsyncIterator[None]:
        log.append("in")
        try:
            await trio.sleep(0.1)
            yield
        finally:
            log.append("out")

    @hook
    async def again(call: ToolUse) -> AsyncIterator[None]:
        yield
        if call.response.is_error and call.reruns_left == 3:
            await call.rerun()

    return [
        Filter(name="beat", turn=beat),
        Filter(name="limit", iteration=limit),
        Filter(name="count", chat=count),
        Filter(name="again", tool=again),
    ]


@define
class World:
    """What one run of the sweep used and left."""

    store: RecordingStore = field(factory=RecordingStore)
    memory: InMemoryChatMemory = field(factory=InMemoryChatMemory)
    limiter: trio.CapacityLimiter = field(factory=lambda: trio.CapacityLimiter(2))
    log: list[str] = field(factory=list)
    returned: list[str] = field(factory=list)
    model: ProviderModel = field(init=False)

    def __attrs_post_init__(self) -> None:
        script: Sequence[Any] = [
            RateLimitError("slow down", retry_after=1.0),
            Say(
                text=["let ", "me"],
                calls=[call("add"), call("wait"), call("fail")],
                delay_seconds=0.1,
            ),
            ServerError("oops"),
            Say(text=["so ", "be it"], delay_seconds=0.1),
        ]
        provider: Provider = ScriptedProvider(ScriptedModel(script))
        self.model = ProviderModel(
            provider=provider, model_id="m", retry=RetryPolicy(), random=lambda: 0.5
        )

    def tools(self) -> Sequence[Tool]:
        @tool
        async def add(context: Context) -> str:
            """Use the limiter."""
            async with self.limiter:
                await trio.sleep(0.2)
            self.returned.append(context.call_id)
            return "added"

        @tool
        async def wait(context: Context) -> str:
            """Open a nursery."""
            async with trio.open_nursery() as nursery:
                nursery.start_soon(trio.sleep, 0.3)
                nursery.start_soon(trio.sleep, 0.2)
            self.returned.append(context.call_id)
            return "waited"

        @tool
        async def fail() -> str:
            """Raise."""
            await trio.sleep(0.1)
            raise RuntimeError("failed")

        return [add, wait, fail]

    def agent(self) -> Agent:
        return Agent(
            model=self.model,
            tools=self.tools(),
            filters=four_filters(self.log),
            memory=self.memory,
        )

    async def check(self) -> None:
        """Nothing is left, and all promises are kept."""
        check_stream(self.store.everything)
        history = await self.memory.history("c")
        assert find_history_faults(history) == []
        kept = _kept(history)
        assert set(self.returned) <= kept, "the result of a tool is forgotten"
        assert self.log.count("in") == self.log.count("out")
        assert self.model.admission.in_flight(self.model.ref) == 0
        told = [type(envelope.event) for envelope in self.store.everything]
        assert told.count(RunStarted) == sum(
            isinstance(envelope.event, TerminalEvent)
            for envelope in self.store.everything
        )


def _kept(history: Sequence[Message]) -> set[str]:
    return {
        message.call_id
        for message in history
        if isinstance(message, ToolMessage) and not message.synthetic
    }


def test_a_turn_with_tools_and_filters_survives_a_cancel_anywhere() -> None:
    async def scenario(world: World) -> None:
        async with open_runtime(world.agent(), events=world.store) as runtime:
            run = await runtime.start_run("c", "go")
            await run.wait()

    report = cancel_sweep(
        World,
        scenario,
        World.check,
        seeds=range(3),
        limiters=lambda world: [world.limiter],
    )
    print(report)
    assert report.runs > 200


def test_a_stop_anywhere_ends_the_run_and_not_the_runtime() -> None:
    """The run's own scope is cut: what is around it goes on."""

    async def scenario(world: World) -> None:
        async with open_runtime(world.agent(), events=world.store) as runtime:
            with trio.CancelScope():
                run = await runtime.start_run("c", "go")
                await trio.sleep(0.4)
                runtime.stop("c")
                await run.wait()
            await _turn_after(runtime)

    async def _turn_after(runtime: Runtime) -> None:
        again = await runtime.start_run("c", "again")
        await again.wait()

    report = cancel_sweep(World, scenario, World.check, seeds=range(2))
    print(report)
    assert report.runs > 200


@hook
async def _ponder(call: TurnCall) -> AsyncIterator[None]:
    """Waits on both ways: a pause must survive it, or be given up as a whole."""
    await trio.sleep(0.1)
    yield
    await trio.sleep(0.1)


@define
class Paused:
    """A run that pauses, and is resumed with an approval."""

    store: RecordingStore = field(factory=RecordingStore)
    memory: InMemoryChatMemory = field(factory=InMemoryChatMemory)
    pauses: InMemoryPauseStore = field(factory=InMemoryPauseStore)
    ran: list[str] = field(factory=list)

    def agent(self) -> Agent:
        @tool(sensitive=True)
        async def delete(context: Context) -> str:
            """Delete."""
            await trio.sleep(0.1)
            self.ran.append(context.call_id)
            return "deleted"

        @tool
        async def read(context: Context) -> str:
            """Read."""
            await trio.sleep(0.1)
            self.ran.append(context.call_id)
            return "read"

        script: Sequence[Any] = [
            Say(calls=[call("delete"), call("read"), call("delete")]),
            "done",
        ]
        return Agent(
            model=ScriptedModel(script),
            tools=[delete, read],
            memory=self.memory,
            pauses=self.pauses,
            filters=[Filter(name="ponder", turn=_ponder)],
        )

    async def check(self) -> None:
        history = await self.memory.history("c")
        waiting = await self.pauses.load("c")
        asked = () if waiting is None else waiting.interrupts
        open_calls = [interrupt.call_id for interrupt in asked]
        assert find_history_faults(history, open_calls=open_calls) == []
        assert len(self.ran) == len(set(self.ran)), "a call ran twice"
        assert set(self.ran) <= _kept(history), "the result of a tool is forgotten"
        check_stream(self.store.everything)


def test_a_pause_and_its_resume_survive_a_cancel_anywhere() -> None:
    async def scenario(world: Paused) -> None:
        async with open_runtime(world.agent(), events=world.store) as runtime:
            run = await runtime.start_run("c", "go")
            await run.wait()
            status = await runtime.status("c")
            answers = {interrupt.id: Approve() for interrupt in status.interrupts}
            resumed = await runtime.resume("c", answers)
            await resumed.wait()

    report = cancel_sweep(Paused, scenario, Paused.check, seeds=range(2))
    print(report)
    assert report.runs > 100
