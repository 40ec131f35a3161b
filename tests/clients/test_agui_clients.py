"""The published AG-UI clients, of both generations, against the AG-UI route.

Needs Node, and the packages of `package-lock.json` in `node_modules`
(`npm ci --ignore-scripts`); skips without them.
"""

import json
import shutil
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest
import trio
from attrs import frozen

from agentrt.agent.agent import Agent
from agentrt.events.grammar import find_faults
from agentrt.models.offline import HELLO, SKY, OfflineModel
from agentrt.tools.demo import demo_tools
from tests.servers.serving import Served, open_served, read_run

HERE: Final = Path(__file__).parent
NODE: Final = shutil.which("node")
PATIENCE: Final = 30.0
"""Seconds for a step, with the start of Node."""

pytestmark = [
    pytest.mark.clients,
    pytest.mark.skipif(NODE is None, reason="node is not installed"),
    pytest.mark.skipif(
        not (HERE / "node_modules").is_dir(),
        reason="the clients are not installed: npm ci --ignore-scripts",
    ),
]


@pytest.fixture(params=["1.0", "legacy"])
def generation(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@frozen
class Client:
    """A published client in Node, that plays one step at a time."""

    served: Served
    _process: trio.Process

    async def play(self, **step: Any) -> dict[str, Any]:
        """Play a step; what the client made of it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        await self._process.stdin.send_all(json.dumps(step).encode() + b"\n")
        line = b""
        with trio.fail_after(PATIENCE):
            while not line.endswith(b"\n"):
                piece = await self._process.stdout.receive_some()
                assert piece, "the client ended"
                line += piece
        report: dict[str, Any] = json.loads(line)
        return report

    async def ask(self, text: str) -> dict[str, Any]:
        """Say something; nothing may be wrong with the run, nor with its events."""
        report = await self.play(user=text)
        assert clean(report) == CLEAN
        return report


CLEAN: Final[dict[str, Any]] = {
    "status": 200,
    "error": None,
    "faults": [],
    "complaints": [],
}


def clean(report: dict[str, Any]) -> dict[str, Any]:
    """What must be as in `CLEAN`, after the events were checked by the Python SDK."""
    check_by_sdk(report["events"])
    return {key: report[key] for key in CLEAN}


def check_by_sdk(events: Sequence[Any]) -> None:
    """Validate by the models of `ag-ui-protocol`, and that they lose nothing."""
    core = pytest.importorskip("ag_ui.core")
    pydantic = pytest.importorskip("pydantic")
    adapter = pydantic.TypeAdapter(core.Event)
    for event in events:
        model = adapter.validate_python(event)
        again = model.model_dump(by_alias=True, exclude_none=True, mode="json")
        assert {key: again[key] for key in event} == event


@asynccontextmanager
async def open_client(generation: str) -> AsyncIterator[Client]:
    """A client of that generation, and a server with the offline model."""
    model = OfflineModel(token_seconds=0.002)
    assert NODE is not None
    async with open_served(Agent(model=model, tools=demo_tools())) as served:
        process = await trio.lowlevel.open_process(
            [NODE, "drive.mjs"],
            cwd=HERE,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        url = f"{served.url}/agent/default/run"
        given = {"url": url, "generation": generation, "threadId": "t"}
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            async with process.stdin, process.stdout:
                await process.stdin.send_all(json.dumps(given).encode() + b"\n")
                yield Client(served, process)
        finally:
            process.kill()
            with trio.CancelScope(shield=True):
                await process.wait()


def said(report: dict[str, Any]) -> list[tuple[str, str]]:
    """Role and text of the messages that the client holds."""
    return [(each["role"], each.get("content", "")) for each in report["messages"]]


async def test_a_greeting_is_answered(generation: str) -> None:
    async with open_client(generation) as client:
        report = await client.ask("hello")
    assert said(report) == [("user", "hello"), ("assistant", HELLO)]
    assert report["accepted"][0] == "RUN_STARTED"
    assert report["accepted"][-1] == "RUN_FINISHED"


async def test_a_second_turn_goes_on_from_the_first(generation: str) -> None:
    async with open_client(generation) as client:
        await client.ask("hello")
        report = await client.ask("why is the sky blue?")
        history = await client.served.runtime.agents.get("default").history("t")
    texts = [text for role, text in said(report) if role != "reasoning"]
    assert texts == ["hello", HELLO, "why is the sky blue?", SKY]
    assert [message.text for message in history] == texts


async def test_the_client_holds_messages_under_the_ids_of_the_history(
    generation: str,
) -> None:
    async with open_client(generation) as client:
        await client.ask("What is the weather in Paris?")
        report = await client.ask("hello")
        history = await client.served.runtime.agents.get("default").history("t")
    assert [each["id"] for each in report["messages"]] == [m.id for m in history]


async def test_a_tool_call_and_its_result_are_messages(generation: str) -> None:
    async with open_client(generation) as client:
        report = await client.ask("What is the weather in Paris?")
    roles = [role for role, _ in said(report)]
    call = report["messages"][1]["toolCalls"][0]
    result = report["messages"][2]
    assert roles == ["user", "assistant", "tool", "assistant"]
    assert call["function"]["name"] == "get_weather"
    assert json.loads(call["function"]["arguments"]) == {"city": "Paris"}
    assert result["toolCallId"] == call["id"]
    assert result["content"].startswith("In Paris it is ")


async def test_parallel_tool_calls_have_a_result_each(generation: str) -> None:
    async with open_client(generation) as client:
        report = await client.ask("Weather in Paris, Rome and Oslo")
    calls = report["messages"][1]["toolCalls"]
    results = [each for each in report["messages"] if each["role"] == "tool"]
    assert len(calls) == 3
    assert {each["toolCallId"] for each in results} == {call["id"] for call in calls}
    assert len({each["id"] for each in report["messages"]}) == len(report["messages"])


async def test_leaving_in_mid_answer_stops_the_run_and_the_next_turn_succeeds(
    generation: str,
) -> None:
    async with open_client(generation) as client:
        step = {"user": "Tell me a long story", "leaveAfter": "TEXT_MESSAGE_CONTENT"}
        report = await client.play(**step)
        envelopes = await read_run(client.served.runtime, "t")
        after = await client.ask("hello")
    assert report["left"] is True
    assert envelopes[-1].event.tag == "run/cancelled"
    assert find_faults(envelopes) == []
    assert said(after)[-1] == ("assistant", HELLO)


async def test_leaving_in_a_tool_stops_it_and_the_next_turn_succeeds(
    generation: str,
) -> None:
    async with open_client(generation) as client:
        step = {"user": "use the slow tool", "leaveAfter": "TOOL_CALL_END"}
        await client.play(**step)
        envelopes = await read_run(client.served.runtime, "t")
        after = await client.ask("hello")
    assert envelopes[-1].event.tag == "run/cancelled"
    assert find_faults(envelopes) == []
    assert said(after)[-1] == ("assistant", HELLO)


async def test_an_approved_interrupt_goes_on_with_the_result(generation: str) -> None:
    async with open_client(generation) as client:
        paused = await client.ask("Delete the production database")
        report = await client.play(resume={"approved": True})
    assert len(paused["interrupts"]) == 1
    assert clean(report) == CLEAN
    assert report["interrupts"] == []
    results = [each for each in report["messages"] if each["role"] == "tool"]
    assert [each["toolCallId"] for each in results] == paused["interrupts"]
    assert "“production” is gone" in results[0]["content"]
    assert "TOOL_CALL_START" not in report["accepted"]


async def test_a_denied_interrupt_goes_on_with_the_reason(generation: str) -> None:
    async with open_client(generation) as client:
        await client.ask("Delete the production database")
        report = await client.play(resume={"approved": False, "reason": "too dear"})
    assert clean(report) == CLEAN
    result = next(each for each in report["messages"] if each["role"] == "tool")
    assert "too dear" in result["content"]
    assert said(report)[-1][0] == "assistant"


async def test_an_error_in_mid_text_is_told_and_the_next_turn_succeeds(
    generation: str,
) -> None:
    async with open_client(generation) as client:
        report = await client.play(user="fail please")
        after = await client.ask("hello")
    check_by_sdk(report["events"])
    assert report["faults"] == []
    assert report["accepted"][-1] == "RUN_ERROR"
    assert "TEXT_MESSAGE_END" in report["accepted"]
    assert "asked to fail" in report["events"][-1]["message"]
    assert said(after)[-1] == ("assistant", HELLO)


async def test_a_refused_run_is_an_error_of_the_client(generation: str) -> None:
    async with open_client(generation) as client:
        await client.served.runtime.start_run("t", "use the slow tool")
        report = await client.play(user="hello")
        client.served.runtime.stop("t")
    assert report["status"] == 409
    assert "busy" in report["error"]
