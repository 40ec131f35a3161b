"""Stopping and answering over the WebSocket."""

import pytest

from tests.servers.serving import (
    DELETE,
    Gate,
    answer,
    open_served,
    pause,
    read_run,
    says,
    text_of,
)

pytestmark = pytest.mark.integration


# --- stop


@pytest.mark.parametrize("by", ["our id", "the client's label", "the thread alone"])
async def test_stop_ends_the_run_that_it_names(by: str) -> None:
    gate = Gate()
    agent = says(["one ", gate, "two"])
    async with open_served(agent) as served, served.peer() as peer:
        await peer.ask("subscribe", threadId="t", protocolVersion="1.0")
        run = await peer.run("t", "hello", label="mine")
        await gate.wait_reached()
        names = {"our id": run["runId"], "the client's label": "mine"}
        named = {"runId": names[by]} if by in names else {}
        stopped = await peer.ask("stop", threadId="t", **named)
        again = await peer.ask("stop", threadId="t", **named)
        frames = await peer.read_run()
    assert (stopped["stopped"], again["stopped"]) == (True, False)
    assert frames[-1]["type"] == "run/cancelled"
    assert frames[-1]["events"][0]["outcome"] == {"type": "cancelled"}


@pytest.mark.parametrize("named", [("t", "another"), ("other", None), ("t", "")])
async def test_a_stop_that_matches_no_run_stops_nothing(
    named: tuple[str, str | None],
) -> None:
    gate = Gate()
    agent = says(["one ", gate, "two"])
    async with open_served(agent) as served, served.peer() as peer:
        await peer.ask("subscribe", threadId="t")
        await peer.run("t", "hello", label="mine")
        await gate.wait_reached()
        thread, run_id = named
        reply = await peer.ask("stop", threadId=thread, runId=run_id)
        gate.open()
        frames = await peer.read_run()
    assert reply["stopped"] is False
    assert frames[-1]["type"] == "run/finished"


async def test_a_pre_1_0_client_is_told_of_a_stop_without_an_outcome() -> None:
    gate = Gate()
    agent = says(["one ", gate, "two"])
    async with open_served(agent) as served, served.peer() as peer:
        await peer.ask("subscribe", threadId="t")
        await peer.run("t", "hello")
        await gate.wait_reached()
        await peer.ask("stop", threadId="t")
        frames = await peer.read_run()
    assert "outcome" not in frames[-1]["events"][0]


# --- approvals


async def test_an_approved_call_runs_and_the_turn_goes_on() -> None:
    async with open_served(says([DELETE], ["Done."])) as served, served.peer() as peer:
        interrupt = await pause(peer)
        reply = await peer.ask(
            "resume", threadId="t", input=answer(interrupt["id"], approved=True)
        )
        frames = await peer.read_run()
        envelopes = await read_run(served.runtime, "t", since=reply["since"])
    results = [f["events"][0] for f in frames if f["type"] == "tool/result"]
    assert [result["toolCallId"] for result in results] == ["call-1"]
    assert "production” is gone" in results[0]["content"]
    assert (frames[0]["seq"], text_of(frames)) == (reply["since"] + 1, "Done.")
    assert envelopes[-1].event.tag == "run/finished"


async def test_a_denied_call_does_not_run_and_the_model_reads_why() -> None:
    agent = says([DELETE], ["As you wish."])
    async with open_served(agent) as served, served.peer() as peer:
        interrupt = await pause(peer)
        denial = answer(interrupt["id"], approved=False, reason="too dear")
        await peer.ask("resume", threadId="t", input=denial)
        frames = await peer.read_run()
    result = next(f["events"][0] for f in frames if f["type"] == "tool/result")
    assert result["metadata"] == {"agentrt": {"isError": True, "status": "denied"}}
    assert "too dear" in result["content"]
    assert text_of(frames) == "As you wish."


async def test_an_answer_counts_once() -> None:
    async with open_served(says([DELETE], ["Done."])) as served, served.peer() as peer:
        interrupt = await pause(peer)
        given = answer(interrupt["id"], approved=True)
        await peer.ask("resume", threadId="t", input=given)
        await peer.read_run()
        again = await peer.ask("resume", threadId="t", input=given)
    assert again["error"]["code"] == "not_paused"
