"""The WebSocket server over real sockets: requests, errors, who may connect, limits."""

import json
from collections.abc import Mapping
from typing import Any, Final

import pytest
import trio

from agentrt.servers.base import MAX_FRAME_BYTES
from tests.servers.serving import (
    DELETE,
    PATIENCE,
    Gate,
    answer,
    open_served,
    pause,
    read_run,
    says,
    text_of,
    wait_closed,
)

pytestmark = pytest.mark.integration

IDLE: Final[Mapping[str, Any]] = {"phase": "idle", "runId": None, "interrupts": []}
BAD: Final = "bad_request"
HELLO: Final[Mapping[str, Any]] = {
    "threadId": "t",
    "messages": [{"id": "u1", "role": "user", "content": "hello"}],
}


# --- requests and their replies


async def test_ping_is_answered_with_its_id() -> None:
    async with open_served(says(["hi"])) as served, served.peer() as peer:
        await peer.send('{"id": [1, {"a": null}], "op": "ping"}')
        assert await peer.receive() == {"id": [1, {"a": None}], "ok": True}


async def test_subscribing_to_an_unknown_thread_tells_that_it_is_empty() -> None:
    async with open_served(says(["hi"])) as served, served.peer() as peer:
        reply = await peer.ask("subscribe", threadId="t")
        resync = await peer.next_push()
    assert reply == {
        "id": "request-1", "ok": True, "threadId": "t", "seq": 0, "status": IDLE
    }  # fmt: skip
    assert resync == {
        "threadId": "t",
        "resync": {
            "seq": 0,
            "messages": [],
            "state": None,
            "run": None,
            "interrupts": [],
            "open": [],
        },
    }


async def test_run_replies_with_its_id_and_the_number_before_it() -> None:
    async with open_served(says(["hi"])) as served, served.peer() as peer:
        await peer.ask("subscribe", threadId="t")
        first = await peer.run("t", "one")
        frames = await peer.read_run()
        second = await peer.run("t", "two")
    run_id = frames[-1]["runId"]
    assert first == {
        "id": "request-2", "ok": True, "threadId": "t", "runId": run_id, "since": 0
    }  # fmt: skip
    assert second["since"] == frames[-1]["seq"]


async def test_status_names_the_run_in_flight() -> None:
    gate = Gate()
    async with open_served(says([gate, "hi"])) as served, served.peer() as peer:
        run = await peer.run("t", "hello")
        await gate.wait_reached()
        status = await peer.ask("status", threadId="t")
    assert status["status"] == {
        "phase": "running", "runId": run["runId"], "interrupts": []
    }  # fmt: skip


async def test_status_tells_what_waits_for_an_answer() -> None:
    async with open_served(says([DELETE])) as served, served.peer() as peer:
        interrupt = await pause(peer)
        status = await peer.ask("status", threadId="t")
    assert status["status"] == {
        "phase": "paused", "runId": None, "interrupts": [interrupt]
    }  # fmt: skip
    assert interrupt["toolCallId"] == "call-1"
    assert interrupt["metadata"]["arguments"] == {"name": "production"}


async def test_after_unsubscribe_nothing_is_pushed() -> None:
    async with open_served(says(["hi"])) as served, served.peer() as peer:
        await peer.ask("subscribe", threadId="t")
        await peer.next_push()
        first = await peer.ask("unsubscribe", threadId="t")
        again = await peer.ask("unsubscribe", threadId="t")
        await peer.run("t", "hello")
        await read_run(served.runtime, "t")
        await peer.ask("ping")
    assert (first["unsubscribed"], again["unsubscribed"]) == (True, False)
    assert peer.pushed == []


async def test_input_takes_the_thread_of_its_request() -> None:
    async with open_served(says(["hi"])) as served, served.peer() as peer:
        given = {"messages": HELLO["messages"]}
        reply = await peer.ask("run", threadId="t", input=given)
    assert (reply["ok"], reply["threadId"]) == (True, "t")


async def test_the_label_of_a_run_is_the_run_id_in_its_events() -> None:
    async with open_served(says(["hi"])) as served, served.peer() as peer:
        await peer.ask("subscribe", threadId="t")
        run = await peer.run("t", "hello", label="mine")
        frames = await peer.read_run()
    ends = [
        event["runId"]
        for frame in frames
        for event in frame.get("events", ())
        if event["type"] in {"RUN_STARTED", "RUN_FINISHED"}
    ]
    assert ends == ["mine", "mine"]
    assert frames[-1]["runId"] == run["runId"] != "mine"


# --- errors


ERRORS: Final[Mapping[str, tuple[str | bytes, str, str]]] = {
    "text that is no JSON": ("hello", BAD, "no JSON"),
    "an empty frame": ("", BAD, "no JSON"),
    "a binary frame": (b'{"op": "ping"}', BAD, "binary"),
    "a JSON array": ("[1]", BAD, "list, expected an object"),
    "a JSON text": ('"ping"', BAD, "str, expected an object"),
    "nesting without end": ("[" * 100_000, BAD, "no JSON"),
    "a number of 5000 digits": ("1" * 5000, BAD, "no JSON"),
    "an endless thread id": (
        json.dumps({"op": "status", "threadId": "t" * 100_000}),
        BAD,
        "expected a text of 1 to 256 characters",
    ),
    "an endless op": (json.dumps({"op": "o" * 100_000}), BAD, "expected one of"),
}


@pytest.mark.parametrize("what", ERRORS)
async def test_a_frame_that_is_no_request_is_refused_and_the_next_is_served(
    what: str,
) -> None:
    raw, code, words = ERRORS[what]
    async with open_served(says(["hi"])) as served, served.peer() as peer:
        await peer.send(raw)
        reply = await peer.receive()
        ping = await peer.ask("ping")
    assert (reply["id"], reply["ok"], reply["error"]["code"]) == (None, False, code)
    assert words in reply["error"]["message"]
    assert len(reply["error"]["message"]) < 300  # a long value is not echoed whole
    assert ping["ok"] is True


RESUME: Final[Mapping[str, Any]] = {
    "threadId": "t",
    "messages": [],
    "resume": [{"interruptId": "x"}],
}

REQUESTS: Final[Mapping[str, tuple[Mapping[str, Any], str, str]]] = {
    "no op": ({}, BAD, "op is None"),
    "an unknown op": ({"op": "fly"}, BAD, "op is 'fly', expected one of sub"),
    "an op that is a list": ({"op": ["ping"]}, BAD, "op is ['ping']"),
    "no threadId": ({"op": "subscribe"}, BAD, "threadId is None"),
    "an empty threadId": ({"op": "status", "threadId": ""}, BAD, "1 to 256"),
    "a threadId of 257": (
        {"op": "subscribe", "threadId": "x" * 257}, BAD, "1 to 256"
    ),
    "a threadId of 257 in a run": (
        {"op": "run", "threadId": "x" * 257, "input": {"messages": HELLO["messages"]}},
        BAD, "$.threadId",
    ),
    "a number as threadId": ({"op": "stop", "threadId": 3}, BAD, "is 3"),
    "since below 0": (
        {"op": "subscribe", "threadId": "t", "since": -1}, BAD, "since is -1"
    ),
    "since as text": (
        {"op": "subscribe", "threadId": "t", "since": "1"}, BAD, "since is '1'"
    ),
    "since as truth": (
        {"op": "subscribe", "threadId": "t", "since": True}, BAD, "is True"
    ),
    "since with a fraction": (
        {"op": "subscribe", "threadId": "t", "since": 1.5}, BAD, "is 1.5"
    ),
    "no input": ({"op": "run", "threadId": "t"}, BAD, "$ is None"),
    "an input without messages": (
        {"op": "run", "threadId": "t", "input": {}}, BAD, "$.messages"
    ),
    "two threads": (
        {"op": "run", "threadId": "other", "input": HELLO}, BAD, "'other'"
    ),
    "answers through run": (
        {"op": "run", "threadId": "t", "input": RESUME}, BAD, "op 'resume'"
    ),
    "a resume without answers": (
        {"op": "resume", "threadId": "t", "input": HELLO}, BAD, "resume is empty"
    ),
    "a resume of what is not paused": (
        {"op": "resume", "threadId": "t", "input": RESUME}, "not_paused", "no open"
    ),
    "an unknown agent": (
        {"op": "run", "threadId": "t", "agent": "nobody", "input": HELLO},
        "not_found", "no agent 'nobody'",
    ),
    "an unknown agent to read": (
        {"op": "subscribe", "threadId": "t", "agent": "nobody"}, "not_found", "'nobody'"
    ),
    "a number as agent": (
        {"op": "status", "threadId": "t", "agent": 1}, BAD, "agent is 1"
    ),
    "a number as runId": (
        {"op": "stop", "threadId": "t", "runId": 1}, BAD, "runId is 1"
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", REQUESTS)
async def test_a_request_that_makes_no_sense_is_refused_with_the_reason(
    what: str,
) -> None:
    request, code, words = REQUESTS[what]
    async with open_served(says(["hi"])) as served, served.peer() as peer:
        await peer.send(json.dumps({"id": 7, **request}))
        reply = await peer.receive()
        ping = await peer.ask("ping")
    assert (reply["id"], reply["ok"], reply["error"]["code"]) == (7, False, code)
    assert words in reply["error"]["message"]
    assert len(reply["error"]["message"]) < 300  # a long value is not echoed whole
    assert ping["ok"] is True


async def test_a_second_run_in_a_thread_is_refused_as_busy() -> None:
    gate = Gate()
    async with open_served(says([gate, "hi"])) as served, served.peer() as peer:
        await peer.run("t", "one")
        reply = await peer.run("t", "two")
    assert reply["error"]["code"] == "busy"


async def test_a_run_in_a_paused_thread_is_refused() -> None:
    async with open_served(says([DELETE])) as served, served.peer() as peer:
        await pause(peer)
        reply = await peer.run("t", "go on")
    assert reply["error"]["code"] == "paused"


async def test_an_answer_to_another_question_is_refused_and_the_pause_stays() -> None:
    async with open_served(says([DELETE])) as served, served.peer() as peer:
        interrupt = await pause(peer)
        reply = await peer.ask(
            "resume", threadId="t", input=answer("another", approved=True)
        )
        status = await peer.ask("status", threadId="t")
    assert reply["error"]["code"] == "interrupt_mismatch"
    assert status["status"]["interrupts"] == [interrupt]


async def test_half_a_surrogate_pair_in_a_request_is_no_failure() -> None:
    async with open_served(says(["\ud83d", "!"])) as served, served.peer() as peer:
        await peer.ask("subscribe", threadId="\udc00")
        await peer.run("\udc00", "\ud83d")
        frames = await peer.read_run()
    assert text_of(frames) == "\ud83d!"


async def test_an_unknown_op_with_a_not_a_number_id_gets_valid_json() -> None:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    async with open_served(says(["hi"])) as served, served.peer() as peer:
        await peer.send('{"id": NaN, "op": "ping"}')
        with trio.fail_after(PATIENCE):
            reply = await peer.socket.get_message()
    json.loads(reply, parse_constant=refuse)


# --- who may connect


async def test_a_page_of_another_origin_is_refused_with_403() -> None:
    async with open_served(says(["hi"])) as served:
        refused = await served.handshake("https://evil.example")
    assert refused.status_code == 403
    assert "--allow-origin" in refused.text


@pytest.mark.parametrize(
    "origin",
    ["null", "http://127.0.0.1:1", "http://localhost:99999", "http://[::1", "x:y:z"],
)
async def test_an_odd_origin_is_refused_with_403(origin: str) -> None:
    async with open_served(says(["hi"])) as served:
        refused = await served.handshake(origin)
    assert refused.status_code == 403


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_the_own_page_may_connect(host: str) -> None:
    async with (
        open_served(says(["hi"])) as served,
        served.peer(f"http://{host}:{served.http_port}") as peer,
    ):
        assert (await peer.ask("ping"))["ok"] is True


async def test_an_allowed_origin_may_connect() -> None:
    async with (
        open_served(says(["hi"]), allow=["https://app.example"]) as served,
        served.peer("https://app.example") as peer,
    ):
        assert (await peer.ask("ping"))["ok"] is True


# --- limits


async def test_a_frame_above_the_limit_closes_with_1009_and_the_server_goes_on() -> (
    None
):
    async with open_served(says(["hi"])) as served:
        async with served.peer() as peer:
            await peer.send("x" * (MAX_FRAME_BYTES + 1))
            assert await wait_closed(peer) == ([], 1009)
        async with served.peer() as peer:
            assert (await peer.ask("ping"))["ok"] is True


async def test_a_connection_has_at_most_64_subscriptions() -> None:
    async with open_served(says(["hi"])) as served, served.peer() as peer:
        for number in range(64):
            assert (await peer.ask("subscribe", threadId=f"t{number}"))["ok"] is True
        refused = await peer.ask("subscribe", threadId="t64")
        again = await peer.ask("subscribe", threadId="t0")
        await peer.ask("unsubscribe", threadId="t1")
        freed = await peer.ask("subscribe", threadId="t64")
    assert refused["error"]["code"] == BAD
    assert "64 subscriptions" in refused["error"]["message"]
    assert (again["ok"], freed["ok"]) == (True, True)
