"""The HTTP server over real sockets: the page, the AG-UI route, and what it refuses."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any, Final

import httpx
import pytest
import trio

from agentrt.agent.agent import Agent
from agentrt.events.types import Envelope, Resync, RunCancelled, TerminalEvent
from agentrt.servers.base import MAX_BODY_BYTES
from agentrt.stores.in_memory import InMemoryEventStore
from tests.servers.serving import (
    DELETE,
    PATIENCE,
    Gate,
    Served,
    open_served,
    read_run,
    says,
)

pytestmark = pytest.mark.integration

RUN: Final = "/agent/default/run"
EVIL: Final = {"origin": "https://evil.example"}


def run_input(text: str = "hello", **fields: Any) -> dict[str, Any]:
    message = {"id": f"u-{text}", "role": "user", "content": text}
    given = {"threadId": "t", "runId": "r1", "messages": [message]}
    return {**given, "tools": [], "context": [], "state": {}, **fields}


@asynccontextmanager
async def open_client(
    agent: Agent, **fields: Any
) -> AsyncIterator[tuple[Served, httpx.AsyncClient]]:
    async with (
        open_served(agent, **fields) as served,
        httpx.AsyncClient(base_url=served.url, timeout=PATIENCE) as client,
    ):
        yield served, client


@asynccontextmanager
async def open_post(
    served: Served, given: Mapping[str, Any]
) -> AsyncIterator[trio.SocketStream]:
    """The bare connection of a run; leaving the block drops it."""
    body = json.dumps(given).encode()
    head = f"POST {RUN} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n"
    with trio.fail_after(PATIENCE):
        stream = await trio.open_tcp_stream("127.0.0.1", served.http_port)
        async with stream:
            await stream.send_all(head.encode() + body)
            yield stream


def parse(body: str) -> list[dict[str, Any]]:
    """The events of a body of frames, each of which must have the one right form."""
    assert "\r" not in body
    assert body.endswith("\n\n")
    events = []
    for frame in body[:-2].split("\n\n"):
        if frame.startswith(":"):
            continue
        lines = frame.split("\n")
        assert lines[-1].startswith("data: "), frame
        assert all(line.startswith("id: ") for line in lines[:-1]), frame
        event = json.loads(lines[-1][6:])
        if len(lines) == 2:
            event["seq"] = int(lines[0][4:])
        events.append(event)
    return events


def has_null(value: Any) -> bool:
    match value:
        case dict():
            return any(has_null(item) for item in value.values())
        case list():
            return any(has_null(item) for item in value)
        case _:
            return value is None


# --- the page and what it asks for


async def test_health_tells_the_version() -> None:
    async with open_client(says(["hi"])) as (_, client):
        reply = await client.get("/healthz")
    assert reply.json() == {"status": "ok", "version": version("agentrt")}


async def test_the_config_names_port_agent_and_model() -> None:
    async with open_client(says(["hi"], name="guide")) as (served, client):
        reply = await client.get("/config.json")
    assert reply.json() == {
        "websocketPort": served.websocket_port,
        "agent": "guide",
        "model": "test/scripted",
        "version": version("agentrt"),
    }
    assert reply.headers["cache-control"] == "no-store"


@pytest.mark.parametrize(
    ("path", "media_type"),
    [("/", "text/html"), ("/style.css", "text/css"), ("/app.js", "text/javascript")],
)
async def test_a_page_file_has_its_type_and_a_strict_policy(
    path: str, media_type: str
) -> None:
    async with open_client(says(["hi"])) as (_, client):
        reply = await client.get(path)
    assert reply.status_code == 200
    assert reply.headers["content-type"].startswith(media_type)
    assert reply.headers["x-content-type-options"] == "nosniff"
    policy = reply.headers["content-security-policy"].split("; ")
    assert {"default-src 'none'", "script-src 'self'", "base-uri 'none'"} <= set(policy)
    assert "unsafe" not in reply.headers["content-security-policy"]


@pytest.mark.parametrize(
    "path", ["/nothing", "/a/b", "/..%2fbase.py", "/%2e%2e/base.py", "/agent/x"]
)
async def test_what_is_not_there_is_404_as_json(path: str) -> None:
    async with open_client(says(["hi"])) as (_, client):
        reply = await client.get(path)
    assert reply.status_code == 404
    assert reply.json()["code"] == "not_found"


async def test_a_wrong_method_is_405_as_json_with_what_is_allowed() -> None:
    async with open_client(says(["hi"])) as (_, client):
        reply = await client.get(RUN)
    assert reply.status_code == 405
    assert "POST" in reply.headers["allow"]
    assert reply.json()["code"] == "method_not_allowed"


# --- a run as a stream


async def test_a_run_streams_its_events_from_start_to_one_end() -> None:
    async with open_client(says(["Hel", "lo"])) as (served, client):
        reply = await client.post(RUN, json=run_input(protocolVersion="1.0"))
        envelopes = await read_run(served.runtime, "t")
    events = parse(reply.text)
    assert reply.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert reply.headers["cache-control"] == "no-cache, no-transform"
    assert reply.headers["x-accel-buffering"] == "no"
    assert [event["type"] for event in events] == [
        "RUN_STARTED",
        "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_END",
        "RUN_FINISHED",
    ]
    for event in (events[0], events[-1]):
        assert (event["threadId"], event["runId"]) == ("t", "r1")
    assert events[-1]["seq"] == envelopes[-1].seq


async def test_no_member_of_any_event_is_null() -> None:
    async with open_client(says(["x", DELETE])) as (_, client):
        for version_ in ({}, {"protocolVersion": "1.0"}):
            given = run_input(threadId=f"t{len(version_)}", **version_)
            reply = await client.post(RUN, json=given)
            assert not any(has_null(event) for event in parse(reply.text))


async def test_the_number_stands_on_the_last_frame_of_an_event() -> None:
    agent = says(["hi"])
    async with open_client(agent) as (served, client):
        reply = await client.post(RUN, json=run_input())
        envelopes = await read_run(served.runtime, "t")
    tags = {envelope.seq: envelope.event.tag for envelope in envelopes}
    assert [(tags[event["seq"]], event["type"]) for event in parse(reply.text)] == [
        ("run/started", "RUN_STARTED"),
        ("message/started", "TEXT_MESSAGE_START"),
        ("message/delta", "TEXT_MESSAGE_CONTENT"),
        ("message/ended", "TEXT_MESSAGE_END"),
        ("run/finished", "RUN_FINISHED"),
    ]


async def test_a_failing_model_ends_the_stream_with_one_run_error() -> None:
    async with open_client(says(["Hel", RuntimeError("boom")])) as (_, client):
        reply = await client.post(RUN, json=run_input())
    events = parse(reply.text)
    ends = [e for e in events if e["type"] in {"RUN_FINISHED", "RUN_ERROR"}]
    assert [end["type"] for end in ends] == ["RUN_ERROR"]
    assert events[-1]["code"] == "internal"


async def test_a_pause_and_its_resume_are_two_streams() -> None:
    async with open_client(says([DELETE], ["Done."])) as (_, client):
        reply = await client.post(RUN, json=run_input())
        interrupt = parse(reply.text)[-1]["outcome"]["interrupts"][0]
        resume = {
            "interruptId": interrupt["id"],
            "status": "resolved",
            "payload": {"approved": True},
        }
        reply = await client.post(RUN, json=run_input(messages=[], resume=[resume]))
    events = parse(reply.text)
    types = [event["type"] for event in events]
    assert types[:2] == ["RUN_STARTED", "TOOL_CALL_RESULT"]
    assert events[1]["toolCallId"] == DELETE.id
    assert events[-1]["type"] == "RUN_FINISHED"


async def test_silence_is_filled_with_comments() -> None:
    gate = Gate()
    agent = says([gate, "hi"])
    body = ""
    async with (
        open_client(agent, keep_alive_seconds=0.01) as (_, client),
        client.stream("POST", RUN, json=run_input()) as reply,
    ):
        async for text in reply.aiter_text():
            body += text
            if body.count(": keep-alive\n\n") >= 2:
                gate.open()
    assert [event["type"] for event in parse(body)][-1] == "RUN_FINISHED"


async def test_a_reader_that_fell_behind_gets_an_error_and_no_success() -> None:
    events = InMemoryEventStore(max_events=4)
    async with open_client(says(["x"] * 50), events=events) as (_, client):
        reply = await client.post(RUN, json=run_input())
    assert parse(reply.text)[-1]["type"] == "RUN_ERROR"
    assert parse(reply.text)[-1]["code"] == "resync"


# --- what is refused


async def test_a_second_run_in_a_thread_is_409_busy() -> None:
    gate = Gate()
    async with open_client(says([gate, "hi"])) as (served, client):
        await served.runtime.start_run("t", "first")
        reply = await client.post(RUN, json=run_input())
    assert (reply.status_code, reply.json()["error"]) == (409, "busy")


async def test_a_run_in_a_paused_thread_is_409_paused() -> None:
    async with open_client(says([DELETE])) as (_, client):
        await client.post(RUN, json=run_input())
        reply = await client.post(RUN, json=run_input("again"))
    assert (reply.status_code, reply.json()["error"]) == (409, "paused")


async def test_an_unknown_agent_is_404() -> None:
    async with open_client(says(["hi"])) as (_, client):
        run = await client.post("/agent/nobody/run", json=run_input())
        stop = await client.post("/agent/nobody/stop/t")
    for reply in (run, stop):
        assert (reply.status_code, reply.json()["code"]) == (404, "not_found")
        assert "'nobody'" in reply.json()["message"]


async def test_a_closed_runtime_is_503() -> None:
    async with open_client(says(["hi"])) as (served, client):
        await served.runtime.close()
        reply = await client.post(RUN, json=run_input())
    assert (reply.status_code, reply.json()["code"]) == (503, "closing")


MALFORMED: Final[Mapping[str, tuple[bytes, str]]] = {
    "nothing": (b"", "no JSON"),
    "no JSON": (b"{", "no JSON"),
    "no UTF-8": (b'{"threadId": "\xff"}', "no JSON"),
    "nesting without end": (b"[" * 100_000, "no JSON"),
    "a list": (b"[]", "$ is [], expected an object"),
    "no thread": (b'{"messages": []}', "$.threadId is None, expected a text"),
    "a numbered run": (b'{"threadId": "t", "runId": 1}', "$.runId is 1, expected"),
    "no message": (b'{"threadId": "t", "messages": []}', "$.messages ends with no"),
    "messages as text": (b'{"threadId": "t", "messages": "x"}', "$.messages is 'x'"),
    "a message as text": (
        b'{"threadId": "t", "messages": ["x"]}', "$.messages[0] is 'x', expected an ob"
    ),
    "a content as number": (
        b'{"threadId": "t", "messages": [{"role": "user", "content": 1}]}',
        "$.messages[0].content is 1, expected a text or parts",
    ),
    "an answer as text": (
        b'{"threadId": "t", "resume": ["x"]}', "$.resume[0] is 'x', expected an object"
    ),
    "an answer to nothing": (
        b'{"threadId": "t", "resume": [{}]}', "$.resume[0].interruptId is None"
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", MALFORMED)
async def test_a_malformed_body_is_400_with_path_and_expectation(what: str) -> None:
    body, words = MALFORMED[what]
    async with open_client(says(["hi"])) as (_, client):
        reply = await client.post(RUN, content=body)
    assert (reply.status_code, reply.json()["error"]) == (400, "bad_request")
    assert words in reply.json()["message"]


async def test_a_body_above_the_limit_is_400() -> None:
    async with open_client(says(["hi"])) as (_, client):
        for path in (RUN, "/agent/default/stop/t"):
            reply = await client.post(path, content=b" " * (MAX_BODY_BYTES + 1))
            assert (reply.status_code, reply.json()["code"]) == (400, "bad_request")
            assert str(MAX_BODY_BYTES) in reply.json()["message"]


async def test_a_page_of_another_origin_gets_403_and_starts_nothing() -> None:
    async with open_client(says(["hi"])) as (served, client):
        run = await client.post(RUN, json=run_input(), headers=EVIL)
        ask = await client.options(RUN, headers=EVIL)
        odd = await client.post(RUN, headers={"origin": "http://localhost:99999"})
        status = await served.runtime.status("t")
    for reply in (run, ask, odd):
        assert reply.status_code == 403
        assert reply.json()["code"] == "forbidden_origin"
        assert "access-control-allow-origin" not in reply.headers
    assert status.seq == 0


async def test_an_allowed_origin_gets_its_preflight_and_its_stream() -> None:
    origin = {"origin": "https://app.example"}
    agent = says(["hi"])
    async with open_client(agent, allow=["https://app.example"]) as (_, client):
        ask = await client.options(RUN, headers=origin)
        run = await client.post(RUN, json=run_input(), headers=origin)
        bad = await client.post(RUN, json=[], headers=origin)
    assert ask.status_code == 204
    assert "POST" in ask.headers["access-control-allow-methods"]
    assert "content-type" in ask.headers["access-control-allow-headers"]
    for reply in (ask, run, bad):
        assert reply.headers["access-control-allow-origin"] == "https://app.example"
        assert reply.headers["vary"] == "origin"
    assert parse(run.text)[-1]["type"] == "RUN_FINISHED"


# --- clients that leave


async def test_a_run_whose_client_left_is_cancelled_after_the_grace() -> None:
    gate = Gate()
    async with open_client(says(["one ", gate, "two"])) as (served, client):
        async with open_post(served, run_input()):
            await gate.wait_reached()
        envelopes = await read_run(served.runtime, "t")
        gate.open()
        reply = await client.post(RUN, json=run_input("again"))
    end = envelopes[-1].event
    assert isinstance(end, RunCancelled)
    assert (end.reason, end.label) == ("the client left", "r1")
    assert parse(reply.text)[-1]["type"] == "RUN_FINISHED"


async def test_a_run_that_ends_within_the_grace_is_not_cancelled() -> None:
    gate = Gate()
    agent = says(["one ", gate, "two"])
    async with open_served(agent, grace_seconds=PATIENCE) as served:
        async with open_post(served, run_input()):
            await gate.wait_reached()
        gate.open()
        envelopes = await read_run(served.runtime, "t")
    assert envelopes[-1].event.tag == "run/finished"


async def test_a_client_that_leaves_after_the_end_does_no_harm() -> None:
    agent = says(["hi"])
    async with open_client(agent, grace_seconds=0) as (served, client):
        async with open_post(served, run_input()) as stream:
            body = b""
            while b"RUN_FINISHED" not in body:
                body += await stream.receive_some()
        reply = await client.post(RUN, json=run_input("again"))
        history = await served.runtime.agents.get("default").history("t")
    assert parse(reply.text)[-1]["type"] == "RUN_FINISHED"
    assert [message.text for message in history] == ["hello", "hi", "again", "hi"]


# --- the stop route


@pytest.mark.parametrize("body", [None, {}, {"runId": "r1"}])
async def test_the_stop_route_stops_the_run_and_its_stream_ends(body: Any) -> None:
    gate = Gate()
    async with (
        open_client(says(["one ", gate, "two"])) as (_, client),
        client.stream("POST", RUN, json=run_input()) as reply,
    ):
        await gate.wait_reached()
        stop = await client.post("/agent/default/stop/t", json=body)
        text = (await reply.aread()).decode()
    assert stop.json() == {"stopped": True}
    assert parse(text)[-1]["type"] == "RUN_FINISHED"
    assert parse(text)[-1]["metadata"] == {"agentrt": {"cancelled": True}}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/agent/default/stop/t", {"runId": "another"}),
        ("/agent/default/stop/other", {}),
    ],
)
async def test_a_stop_that_matches_no_run_stops_nothing(path: str, body: Any) -> None:
    gate = Gate()
    async with (
        open_client(says([gate, "hi"])) as (_, client),
        client.stream("POST", RUN, json=run_input()) as reply,
    ):
        await gate.wait_reached()
        stop = await client.post(path, json=body)
        gate.open()
        text = (await reply.aread()).decode()
    assert stop.json() == {"stopped": False}
    assert "outcome" not in parse(text)[-1]


async def test_a_thread_id_with_a_slash_can_be_stopped() -> None:
    gate = Gate()
    async with open_client(says([gate, "hi"])) as (served, client):
        run = await served.runtime.start_run("a/b", "hello")
        await gate.wait_reached()
        stop = await client.post("/agent/default/stop/a%2Fb")
        with trio.fail_after(PATIENCE):
            await run.wait()
    assert stop.json() == {"stopped": True}


@pytest.mark.parametrize(
    "body", [b'{"runId": "r", "x": 1}', b"[]", b"{", b'{"runId": []}', b'{"runId": 1}']
)
async def test_a_stop_with_a_body_of_another_form_is_400(body: bytes) -> None:
    async with open_client(says(["hi"])) as (_, client):
        reply = await client.post("/agent/default/stop/t", content=body)
    assert (reply.status_code, reply.json()["code"]) == (400, "bad_request")


async def test_a_run_outlives_a_reader_that_fell_behind() -> None:
    gate = Gate()
    agent = says([*["x"] * 50, gate, "y"])
    events = InMemoryEventStore(max_events=4)
    async with open_client(agent, events=events, grace_seconds=0) as (served, client):
        reply = await client.post(RUN, json=run_input())
        await client.get("/healthz")
        with trio.fail_after(PATIENCE):
            async for reading in served.runtime.subscribe("t"):
                gate.open()
                if isinstance(reading, Resync) and reading.run_id is None:
                    break
                if isinstance(reading, Envelope):
                    assert reading.event.tag != "run/cancelled"
                    if isinstance(reading.event, TerminalEvent):
                        break
        history = await served.runtime.agents.get("default").history("t")
    assert parse(reply.text)[-1]["code"] == "resync"
    assert history[-1].text == "x" * 50 + "y"


async def test_a_client_that_leaves_in_its_body_is_no_error_of_ours(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with open_client(says(["hi"])) as (served, client):
        stream = await trio.open_tcp_stream("127.0.0.1", served.http_port)
        async with stream:
            head = f"POST {RUN} HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n"
            await stream.send_all(head.encode() + b"{")
            await client.get("/healthz")
        await client.get("/healthz")
    assert caplog.records == []
