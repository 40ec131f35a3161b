"""The cases: each an async function that does `units` of work, and checks it."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Final

import httpx
import trio
from attrs import frozen

from agentrt.agent.agent import Agent
from agentrt.core.messages import ToolCall
from agentrt.events.types import Envelope, RunFinished
from agentrt.models.catalog import ModelSettings, open_model
from agentrt.runtime.runtime import Runtime, open_runtime
from agentrt.testing import Say, ScriptedModel
from agentrt.tools.base import tool
from benchmarks.fake_server import TOKENS, serve_fake

__all__ = ["CASES", "Case"]

TEXT: Final = ["word "] * 2000
CALL: Final = ToolCall(id="1", name="add", arguments={"a": 1, "b": 2})


@frozen(kw_only=True)
class Case:
    """One row of the table."""

    name: str
    unit: str
    units: int
    run: Callable[[int], Awaitable[None]]
    floor: str
    """The case that it is compared with."""


@tool
async def add(a: int, b: int) -> str:
    """Add two numbers."""
    return str(a + b)


async def floor_turn(units: int) -> None:
    """Ask, run the tool, ask again: nothing else."""

    async def model(messages: list[Any]) -> Mapping[str, Any]:
        await trio.lowlevel.checkpoint()
        if messages[-1]["role"] == "tool":
            return {"role": "assistant", "content": "3"}
        return {"role": "assistant", "call": {"a": 1, "b": 2}}

    for _ in range(units):
        messages: list[Any] = [{"role": "user", "content": "1 + 2?"}]
        while "call" in (answer := await model(messages)):
            messages.append(answer)
            call = answer["call"]
            messages.append({"role": "tool", "content": str(call["a"] + call["b"])})
        assert answer["content"] == "3"


async def agent_turn(units: int) -> None:
    """`Agent.run`, alone."""
    for _ in range(units):
        agent = Agent(model=ScriptedModel([CALL, "3"]), tools=[add])
        outcome = await agent.run("1 + 2?")
        assert outcome.calls[0].content == "3"


async def agent_reused(units: int) -> None:
    """`Agent.run`, the agent made once, as programs do."""
    agent = Agent(model=ScriptedModel([CALL, "3"] * units), tools=[add])
    for _ in range(units):
        outcome = await agent.run("1 + 2?")
        assert outcome.calls[0].content == "3"


async def runtime_turn(units: int) -> None:
    """A run in a runtime, read by one subscriber to its end."""
    agent = Agent(model=ScriptedModel([CALL, "3"] * units), tools=[add])
    async with open_runtime(agent) as runtime:
        for number in range(units):
            run = await runtime.start_run(f"c{number}", "1 + 2?")
            await _read_run(runtime, f"c{number}", run.since)


async def floor_tokens(units: int) -> None:
    """An async generator that yields to the loop before each token."""

    async def stream() -> AsyncIterator[str]:
        for token in TEXT:
            await trio.lowlevel.checkpoint()
            yield token

    for _ in range(units):
        count = 0
        async for _token in stream():
            count += 1
        assert count == len(TEXT)


async def runtime_tokens(units: int) -> None:
    """The same tokens from a model, as numbered events, to one subscriber."""
    agent = Agent(model=ScriptedModel([Say(text=TEXT)] * units))
    async with open_runtime(agent) as runtime:
        for number in range(units):
            run = await runtime.start_run(f"c{number}", "go")
            await _read_run(runtime, f"c{number}", run.since)


async def floor_http(units: int) -> None:
    """A loop over bare httpx, by hand: one tool round, then a streamed answer."""
    async with serve_fake() as base, httpx.AsyncClient() as client:
        for _ in range(units):
            messages: list[Any] = [{"role": "user", "content": "go"}]
            texts: list[str] = []
            for _ in range(2):
                arguments = ""
                body = {"messages": messages, "stream": True}
                url = f"{base}/chat/completions"
                async with client.stream("POST", url, json=body) as response:
                    async for line in response.aiter_lines():
                        if not line.startswith("data: {"):
                            continue
                        choices = json.loads(line[6:])["choices"]
                        delta = choices[0]["delta"] if choices else {}
                        for piece in delta.get("tool_calls", ()):
                            arguments += piece["function"]["arguments"]
                        texts.append(delta.get("content") or "")
                if arguments:
                    given = json.loads(arguments)
                    result = str(given["a"] + given["b"])
                    messages.append({"role": "tool", "content": result})
            assert len("".join(texts).split()) == TOKENS


async def runtime_http(units: int) -> None:
    """The same server behind the OpenAI provider, a runtime and a subscriber."""
    async with serve_fake() as base:
        settings = ModelSettings(base_url=base, api_key="none")
        async with open_model("openai-compatible/fake", settings) as model:
            agent = Agent(model=model, tools=[add])
            async with open_runtime(agent) as runtime:
                for number in range(units):
                    run = await runtime.start_run(f"c{number}", "go")
                    text = await _read_run(runtime, f"c{number}", run.since)
                    assert len(text.split()) == TOKENS


def fan_out(readers: int) -> Callable[[int], Awaitable[None]]:
    """One run of many tokens, read by many."""

    async def run(units: int) -> None:
        agent = Agent(model=ScriptedModel([Say(text=TEXT)] * units))
        async with open_runtime(agent) as runtime:
            for number in range(units):
                conversation = f"c{number}"
                async with trio.open_nursery() as nursery:
                    started = await runtime.start_run(conversation, "go")
                    for _ in range(readers):
                        nursery.start_soon(
                            _read_run, runtime, conversation, started.since
                        )
                    await started.wait()

    return run


async def _read_run(runtime: Runtime, conversation: str, since: int) -> str:
    subscription = runtime.subscribe(conversation, since=since)
    while True:
        for reading in await subscription.batch():
            assert isinstance(reading, Envelope), "this reader fell behind"
            if isinstance(reading.event, RunFinished):
                return reading.event.text


def _case(name: str, unit: str, units: int, run: Any, floor: str) -> Case:
    return Case(name=name, unit=unit, units=units, run=run, floor=floor)


CASES: Final = (
    _case("turn: floor, by hand", "turn", 3000, floor_turn, ""),
    _case("turn: Agent.run", "turn", 500, agent_reused, "turn: floor, by hand"),
    _case("turn: new agent each", "turn", 200, agent_turn, "turn: floor, by hand"),
    _case("turn: runtime + reader", "turn", 500, runtime_turn, "turn: floor, by hand"),
    _case("2,000 tokens: floor", "answer", 20, floor_tokens, ""),
    _case("2,000 tokens: runtime", "answer", 5, runtime_tokens, "2,000 tokens: floor"),
    _case("HTTP turn: floor, httpx", "turn", 15, floor_http, ""),
    _case("HTTP turn: runtime", "turn", 15, runtime_http, "HTTP turn: floor, httpx"),
    _case("2,000 events: 1 reader", "answer", 5, fan_out(1), ""),
    _case("... 20 readers", "answer", 3, fan_out(20), "2,000 events: 1 reader"),
    _case("... 200 readers", "answer", 1, fan_out(200), "2,000 events: 1 reader"),
)
