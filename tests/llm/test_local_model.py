"""A conversation with a real model, from its tokens to the frames of a WebSocket."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import httpx
import pytest
import trio

from agentrt.agent.agent import Agent
from agentrt.core.messages import AssistantMessage, UserMessage
from agentrt.events.grammar import find_faults
from agentrt.models.catalog import ModelSettings, open_model
from tests.servers.serving import Served, open_served, read_run, text_of

pytestmark = pytest.mark.llm

PATIENCE: Final = 120.0
"""Seconds for a run of the model on a busy machine."""

FREE_SECONDS: Final = 5.0
"""In which a slot must be free after a stop."""


@asynccontextmanager
async def open_agent(url: str, **options: Any) -> AsyncIterator[Served]:
    settings = ModelSettings(
        base_url=f"{url}/v1",
        api_key="none",
        options={"temperature": 0, "seed": 1, **options},
    )
    async with open_model("openai-compatible/smollm2", settings) as model:
        agent = Agent(model=model, system="You are a helpful assistant. Be brief.")
        async with open_served(agent) as served:
            yield served


async def busy_slots(url: str) -> int:
    """How many slots of the model's server are at work."""
    async with httpx.AsyncClient() as client:
        slots = (await client.get(f"{url}/slots")).json()
    assert len(slots) == 2
    return sum(slot["is_processing"] for slot in slots)


def deltas(frames: list[dict[str, Any]]) -> list[Mapping[str, Any]]:
    return [frame for frame in frames if frame["type"] == "message/delta"]


async def test_three_turns_are_streamed_and_remembered(model_url: str) -> None:
    questions = [
        "What is the capital of France?",
        "And what is the capital of Italy?",
        "Write one sentence about the sea.",
    ]
    numbers: list[int] = []
    with trio.fail_after(PATIENCE):
        async with (
            open_agent(model_url, max_tokens=60) as served,
            served.peer() as peer,
        ):
            await peer.ask("subscribe", threadId="t", since=0, protocolVersion="1.0")
            envelopes = []
            for question in questions:
                reply = await peer.run("t", question)
                frames = await peer.read_run()
                envelopes += await read_run(served.runtime, "t", since=reply["since"])
                numbers += [frame["seq"] for frame in frames]
                assert frames[-1]["type"] == "run/finished", frames[-1]
                assert len(deltas(frames)) >= 3
                assert text_of(frames).strip()
            history = await served.runtime.agents.get("default").history("t")
    assert [type(message) for message in history] == [UserMessage, AssistantMessage] * 3
    assert [message.text for message in history[::2]] == questions
    assert "Paris" in history[1].text
    assert numbers == list(range(1, len(numbers) + 1))
    assert find_faults(envelopes) == []


async def test_stop_in_mid_answer_frees_the_slot(model_url: str) -> None:
    with trio.fail_after(PATIENCE):
        endless = {"extra_body": {"ignore_eos": True}, "max_tokens": 1800}
        async with open_agent(model_url, **endless) as served, served.peer() as peer:
            await peer.ask("subscribe", threadId="t", since=0, protocolVersion="1.0")
            await peer.run("t", "Tell me a very long story.")
            await peer.read_until(lambda frame: bool(deltas([frame])))
            busy = await busy_slots(model_url)
            await peer.ask("stop", threadId="t")
            frames = await peer.read_run()
            with trio.fail_after(FREE_SECONDS):
                while await busy_slots(model_url):  # noqa: ASYNC110  only it knows
                    await trio.sleep(0.05)
            envelopes = await read_run(served.runtime, "t")
    assert busy == 1
    assert frames[-1]["type"] == "run/cancelled"
    assert find_faults(envelopes) == []


async def test_two_conversations_are_served_at_once(model_url: str) -> None:
    with trio.fail_after(PATIENCE):
        async with (
            open_agent(model_url, max_tokens=40) as served,
            served.peer() as peer,
        ):
            for thread in ("one", "two"):
                await peer.ask("subscribe", threadId=thread, since=0)
                await peer.run(thread, "Say something nice.")
            frames = await peer.read_run()
            frames += await peer.read_run()
    for thread in ("one", "two"):
        mine = [frame for frame in frames if frame["threadId"] == thread]
        assert [frame["seq"] for frame in mine] == list(range(1, len(mine) + 1))
        assert mine[-1]["type"] == "run/finished"
        assert text_of(mine).strip()
