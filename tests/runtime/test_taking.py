"""A pause, a conversation and a runtime are taken once, and given back if need be."""

from collections.abc import Sequence
from typing import Any

import pytest
import trio
import trio.testing
from attrs import define, field

from agentrt.agent.agent import Agent
from agentrt.core.errors import InputError, RuntimeClosedError
from agentrt.core.history import find_history_faults
from agentrt.core.messages import AssistantMessage, ToolCall, ToolMessage, UserMessage
from agentrt.core.outcomes import Approve, PauseSnapshot, TurnFailed, TurnPaused
from agentrt.runtime.run import RunOptions
from agentrt.runtime.runtime import Runtime, open_runtime
from agentrt.stores.in_memory import InMemoryChatMemory, InMemoryPauseStore
from agentrt.testing import Say, ScriptedModel, call
from agentrt.tools.base import tool


@tool(sensitive=True)
async def delete() -> str:
    """Delete."""
    await trio.lowlevel.checkpoint()
    return "deleted"


async def paused_run(runtime: Runtime) -> TurnPaused:
    run = await runtime.start_run("c", "go")
    outcome = await run.wait()
    assert isinstance(outcome, TurnPaused)
    return outcome


async def test_an_input_that_does_not_fit_costs_no_pause() -> None:
    agent = Agent(model=ScriptedModel([call("delete"), "done"]), tools=[delete])
    async with open_runtime(agent) as runtime:
        await paused_run(runtime)
        orphan = ToolMessage(call_id="nobody", name="x", content="?")
        with pytest.raises(InputError, match="answers no open call"):
            await runtime.start_run("c", [orphan], RunOptions(discard_pause=True))
        assert await agent.paused("c") is not None
        assert (await runtime.status("c")).phase == "paused"


async def test_an_input_may_not_leave_calls_open() -> None:
    agent = Agent(model=ScriptedModel([]))
    asks = AssistantMessage(id="m", tool_calls=(ToolCall(id="x", name="y"),))
    async with open_runtime(agent) as runtime:
        with pytest.raises(InputError, match="call 'x' has no result"):
            await runtime.start_run("c", [UserMessage(content="hi"), asks])


@define
class ClosesWhenTaken(InMemoryPauseStore):
    """The runtime closes while a pause is being taken."""

    runtime: Runtime | None = field(default=None)

    async def take(self, conversation_id: str, pause_id: str) -> PauseSnapshot | None:
        taken = await InMemoryPauseStore.take(self, conversation_id, pause_id)
        if self.runtime is not None:
            self.runtime._is_closed = True
        return taken


async def test_a_pause_is_put_back_when_its_run_cannot_start() -> None:
    pauses = ClosesWhenTaken()
    agent = Agent(model=ScriptedModel([call("delete")]), tools=[delete], pauses=pauses)
    async with open_runtime(agent) as runtime:
        outcome = await paused_run(runtime)
        pauses.runtime = runtime
        with pytest.raises(RuntimeClosedError):
            await runtime.resume("c", {outcome.interrupts[0].id: Approve()})
    assert await agent.paused("c") is not None


@define
class SlowToClear(InMemoryChatMemory):
    async def clear(self, conversation_id: str) -> None:
        await trio.sleep(1)
        await InMemoryChatMemory.clear(self, conversation_id)


async def test_no_run_starts_while_its_conversation_is_forgotten(
    autojump_clock: trio.testing.MockClock,
) -> None:
    steps: Sequence[Any] = ["one", Say(text="two", delay_seconds=0.1)]
    agent = Agent(model=ScriptedModel(steps), memory=SlowToClear())
    async with open_runtime(agent) as runtime, trio.open_nursery() as nursery:
        first = await runtime.start_run("c", "first")
        await first.wait()
        nursery.start_soon(runtime.forget, "c")
        await trio.testing.wait_all_tasks_blocked()
        options = RunOptions(on_busy="supersede")
        second = await runtime.start_run("c", "second", options)
        await second.wait()
    history = await agent.history("c")
    assert [message.text for message in history] == ["second", "two"]
    assert find_history_faults(history) == []


async def test_closing_stops_all_runs_at_once(
    autojump_clock: trio.testing.MockClock,
) -> None:
    @tool
    async def clean_up_long() -> str:
        """Take ten seconds to clean up."""
        try:
            await trio.sleep_forever()
        finally:
            with trio.move_on_after(10, shield=True):
                await trio.sleep_forever()

    script: Sequence[Any] = [call("clean_up_long")] * 6
    agent = Agent(model=ScriptedModel(script), tools=[clean_up_long])
    async with open_runtime(agent) as runtime:
        for number in range(6):
            await runtime.start_run(f"c{number}", "go")
        await trio.sleep(1)
        start = trio.current_time()
        await runtime.close()
        assert trio.current_time() - start == pytest.approx(10)


async def test_words_of_a_foreign_error_stay_in_the_process() -> None:
    class Broken:
        ref = "broken/model"

        async def call(self, *_: Any) -> Any:
            await trio.lowlevel.checkpoint()
            raise OSError("postgres://app:hunter2@db/prod is gone")

    async with open_runtime(Agent(model=Broken())) as runtime:
        run = await runtime.start_run("c", "go")
        outcome = await run.wait()
    assert isinstance(outcome, TurnFailed)
    assert outcome.message == "the run failed (OSError)"
    assert "hunter2" in str(outcome.error)


async def test_no_client_can_hide_a_result_behind_a_message_of_its_own() -> None:
    quick = tool(plain)
    agent = Agent(model=ScriptedModel([call("plain", id="k0"), "done"]), tools=[quick])
    async with open_runtime(agent) as runtime:
        said = UserMessage(id="k0-result", content="go")
        run = await runtime.start_run("c", [said])
        await run.wait()
    history = await agent.history("c")
    assert find_history_faults(history) == []
    assert [message.text for message in history] == ["go", "", "plain", "done"]


async def plain() -> str:
    """Say so."""
    await trio.lowlevel.checkpoint()
    return "plain"
