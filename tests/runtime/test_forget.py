"""Forgetting a conversation: what runs is stopped, and who reads is told."""

import trio
import trio.testing

from agentrt.agent.agent import Agent
from agentrt.events.types import Envelope, RunCancelled
from agentrt.runtime.runtime import open_runtime
from agentrt.testing import Say, ScriptedModel


async def test_a_reader_of_a_forgotten_conversation_gets_the_end_and_ends(
    autojump_clock: trio.testing.MockClock,
) -> None:
    agent = Agent(model=ScriptedModel([Say(text=["a"] * 50, delay_seconds=1), "new"]))
    read: list[object] = []
    async with open_runtime(agent) as runtime, trio.open_nursery() as nursery:
        run = await runtime.start_run("c", "go")

        async def read_all() -> None:
            async for reading in runtime.subscribe("c", since=run.since):
                assert isinstance(reading, Envelope)
                read.append(reading.event)

        nursery.start_soon(read_all)
        await trio.sleep(5.5)
        await runtime.forget("c")
        last_seq = (await run.wait(), runtime._events.head("c"))[1]
        again = await runtime.start_run("c", "hello")
        await again.wait()
        assert again.since == last_seq
        assert len(await agent.history("c")) == 2
    assert isinstance(read[-1], RunCancelled)
    assert read[-1].text == "a" * 5
    assert read[-1].reason == "forgotten"
