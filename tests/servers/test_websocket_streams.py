"""What the WebSocket server pushes: each event once, whatever befalls a connection."""

import json
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest
import trio
import trio.testing
from attrs import define, field

from agentrt.core.messages import Message, ToolCall
from agentrt.events.grammar import find_faults
from agentrt.runtime.runtime import Runtime, open_runtime
from agentrt.servers.frames import FrameCache
from agentrt.servers.websocket import Connection, serve_websocket
from agentrt.stores.in_memory import InMemoryChatMemory, InMemoryEventStore
from tests.servers.serving import (
    PATIENCE,
    Gate,
    Served,
    open_served,
    read_run,
    says,
    text_of,
    wait_closed,
)

pytestmark = pytest.mark.integration


# --- frames


async def test_there_is_one_frame_for_each_envelope_with_gapless_numbers() -> None:
    script = [ToolCall(id="c1", name="calculate", arguments={"expression": "1 + 1"})]
    agent = says(["Let me ", "see.", *script], ["It ", "is ", "2."])
    async with open_served(agent) as served, served.peer() as peer:
        await peer.ask("subscribe", threadId="t", since=0, protocolVersion="1.0")
        await peer.run("t", "one and one?")
        frames = await peer.read_run()
        envelopes = await read_run(served.runtime, "t")
    cache = FrameCache()
    assert frames == [json.loads(cache.frame(each, "1.0")) for each in envelopes]
    assert [frame["seq"] for frame in frames] == list(range(1, len(frames) + 1))
    assert find_faults(envelopes) == []
    assert text_of(frames) == "Let me see.It is 2."


async def test_since_goes_on_exactly_from_every_number() -> None:
    async with open_served(says(["a", "b", "c"])) as served, served.peer() as peer:
        await peer.ask("subscribe", threadId="t", since=0)
        await peer.run("t", "hello")
        frames = await peer.read_run()
        for place in range(len(frames)):
            async with served.peer() as late:
                reply = await late.ask("subscribe", threadId="t", since=place)
                assert reply["seq"] == len(frames)
                assert await late.read_run() == frames[place:]


async def test_subscribing_once_more_moves_the_place() -> None:
    async with open_served(says(["a", "b", "c"])) as served, served.peer() as peer:
        await peer.ask("subscribe", threadId="t", since=0)
        await peer.run("t", "hello")
        frames = await peer.read_run()
        await peer.ask("subscribe", threadId="t", since=2)
        assert await peer.read_run() == frames[2:]


@pytest.mark.parametrize("since", [1000, 10**30])
async def test_since_beyond_the_head_gives_a_resync(since: int) -> None:
    async with open_served(says(["hi"])) as served, served.peer() as peer:
        await peer.ask("subscribe", threadId="t", since=0)
        await peer.run("t", "hello")
        seq = (await peer.read_run())[-1]["seq"]
        await peer.ask("subscribe", threadId="t", since=since)
        frame = await peer.next_push()
    assert frame["resync"]["seq"] == seq
    assert [message["role"] for message in frame["resync"]["messages"]] == [
        "user",
        "assistant",
    ]


async def test_since_before_what_is_kept_gives_a_resync() -> None:
    events = InMemoryEventStore(max_events=4)
    async with open_served(says(["a", "b"]), events=events) as served:
        run = await served.runtime.start_run("t", "hello")
        await run.wait()
        async with served.peer() as peer:
            await peer.ask("subscribe", threadId="t", since=1)
            frame = await peer.next_push()
    assert frame["resync"]["seq"] > 4


async def test_a_reader_who_comes_in_mid_answer_gets_the_whole_text_once() -> None:
    gate = Gate()
    agent = says(["one ", "two ", gate, "three ", "four"])
    async with open_served(agent) as served, served.peer() as peer:
        run = await peer.run("t", "count")
        await gate.wait_reached()
        await peer.ask("subscribe", threadId="t")
        resync = (await peer.next_push())["resync"]
        gate.open()
        frames = await peer.read_run()
    said = resync["messages"][-1]
    assert said["content"] + text_of(frames) == "one two three four"
    assert resync["open"] == [said["id"]]
    assert resync["run"] == {"runId": run["runId"], "startedSeq": 1}
    assert frames[0]["seq"] == resync["seq"] + 1


async def test_two_connections_on_one_thread_see_identical_frames() -> None:
    gate = Gate()
    agent = says(["a", gate, "b"])
    async with (
        open_served(agent) as served,
        served.peer() as one,
        served.peer() as two,
    ):
        for peer in (one, two):
            await peer.ask("subscribe", threadId="t", since=0)
        await one.run("t", "hello")
        await gate.wait_reached()
        gate.open()
        assert await one.read_run() == await two.read_run()


async def test_one_connection_follows_two_threads_at_once() -> None:
    gate = Gate()
    async with open_served(says(["a", gate, "b"])) as served, served.peer() as peer:
        for thread in ("t1", "t2"):
            await peer.ask("subscribe", threadId=thread, since=0)
            await peer.run(thread, "hello")
        await gate.wait_reached()
        gate.open()
        frames = await peer.read_run()
        frames += await peer.read_run()
    for thread in ("t1", "t2"):
        mine = [frame for frame in frames if frame["threadId"] == thread]
        assert [frame["seq"] for frame in mine] == list(range(1, len(mine) + 1))
        assert text_of(mine) == "ab"


# --- lost connections


async def test_a_lost_connection_stops_no_run() -> None:
    gate = Gate()
    async with open_served(says(["one ", gate, "two"])) as served:
        async with served.peer() as peer:
            await peer.ask("subscribe", threadId="t")
            await peer.run("t", "hello")
            await gate.wait_reached()
            await peer.vanish()
        gate.open()
        envelopes = await read_run(served.runtime, "t")
        history = await served.runtime.agents.get("default").history("t")
    assert envelopes[-1].event.tag == "run/finished"
    assert find_faults(envelopes) == []
    assert [message.text for message in history] == ["hello", "one two"]


async def test_a_reader_who_comes_back_misses_nothing() -> None:
    gate = Gate()
    async with open_served(says(["one ", gate, "two"])) as served:
        async with served.peer() as peer:
            await peer.ask("subscribe", threadId="t", since=0)
            await peer.run("t", "hello")
            await gate.wait_reached()
            before = await peer.read_until(lambda frame: text_of([frame]) == "one ")
        gate.open()
        async with served.peer() as peer:
            await peer.ask("subscribe", threadId="t", since=before[-1]["seq"])
            after = await peer.read_run()
    frames = before + after
    assert [frame["seq"] for frame in frames] == list(range(1, len(frames) + 1))
    assert text_of(frames) == "one two"


async def test_a_peer_that_never_reads_holds_up_no_run() -> None:
    words = ["x" * 4096] * 3000  # more than any socket buffer takes
    async with open_served(says(words)) as served, served.peer() as peer:
        await peer.ask("subscribe", threadId="t", since=0)
        run = await served.runtime.start_run("t", "go")
        with trio.fail_after(PATIENCE):
            await run.wait()
        await peer.vanish()
        async with served.peer() as other:
            assert (await other.ask("ping"))["ok"] is True


# --- failures and the end


@define
class _BrokenMemory(InMemoryChatMemory):
    """Cannot read one conversation."""

    async def history(self, conversation_id: str) -> Sequence[Message]:
        await trio.lowlevel.checkpoint()
        if conversation_id == "broken":
            raise RuntimeError("the disk is gone")
        return ()


async def test_an_exception_in_a_handler_does_not_stop_the_server(
    caplog: pytest.LogCaptureFixture,
) -> None:
    agent = says(["hi"], memory=_BrokenMemory())
    async with open_served(agent) as served:
        async with served.peer() as peer:
            await peer.send('{"id": 1, "op": "subscribe", "threadId": "broken"}')
            await wait_closed(peer)
        async with served.peer() as peer:
            assert (await peer.ask("subscribe", threadId="t"))["ok"] is True
    assert "the disk is gone" in caplog.text


async def test_closing_the_runtime_sends_the_last_events_and_code_1001() -> None:
    gate = Gate()
    agent = says(["one ", gate, "two"])
    async with open_served(agent) as served, served.peer() as peer:
        await peer.ask("subscribe", threadId="t", since=0)
        await peer.run("t", "hello")
        await gate.wait_reached()
        with trio.fail_after(PATIENCE):
            await served.runtime.close()
        frames, code = await wait_closed(peer)
    assert [frame["type"] for frame in frames][-1] == "run/cancelled"
    assert code == 1001


async def test_closing_the_runtime_sends_the_last_events_of_every_thread() -> None:
    gates = [Gate() for _ in range(3)]
    scripts: list[list[str | Gate]] = [["x", gate, *["y"] * 300] for gate in gates]
    async with open_served(says(*scripts)) as served, served.peer() as peer:
        for number, gate in enumerate(gates):
            await peer.ask("subscribe", threadId=f"t{number}", since=0)
            await peer.run(f"t{number}", "hello")
            await gate.wait_reached()
        for number in (1, 2):
            gates[number].open()
            await read_run(served.runtime, f"t{number}")
        await served.runtime.close()
        frames, code = await wait_closed(peer)
    ends = {f["threadId"]: f["type"] for f in frames if f["type"].startswith("run/")}
    assert ends == {"t0": "run/cancelled", "t1": "run/finished", "t2": "run/finished"}
    assert code == 1001


async def test_a_closed_runtime_takes_no_request_any_more() -> None:
    async with open_served(says(["hi"])) as served, served.peer() as peer:
        await served.runtime.close()
        reply = await peer.run("t", "hello")
    assert reply["error"]["code"] == "closing"


async def test_forgetting_one_conversation_leaves_the_others_connected() -> None:
    async with open_served(says(["hi"])) as served, served.peer() as peer:
        await peer.ask("subscribe", threadId="gone")
        await peer.ask("subscribe", threadId="t")
        await peer.next_push()
        await peer.next_push()
        with trio.fail_after(PATIENCE):
            await served.runtime.forget("gone")
        await peer.run("t", "hello")
        frames = await peer.read_run()
    assert text_of(frames) == "hi"


async def test_a_server_that_ends_closes_idle_connections_with_1001() -> None:
    server, listening = trio.CancelScope(), trio.Event()
    ports: list[int] = []

    async def serve(runtime: Runtime) -> None:
        with server:
            async with trio.open_nursery() as nursery:
                start = partial(serve_websocket, runtime, port=0)
                ports.append(await nursery.start(start))
                listening.set()

    async with open_runtime(says(["hi"])) as runtime, trio.open_nursery() as nursery:
        nursery.start_soon(serve, runtime)
        await listening.wait()
        served = Served(runtime=runtime, websocket_port=ports[0], http_port=0)
        async with served.peer() as peer:
            await peer.ask("ping")
            server.cancel()
            assert await wait_closed(peer) == ([], 1001)


@define(eq=False)
class NarrowSocket:
    """A socket that takes a frame only when it is let; notes what became of each."""

    gate: trio.Event = field(factory=trio.Event)
    log: list[str] = field(factory=list)

    async def send_message(self, text: str) -> None:
        self.log.append("begun")
        try:
            await self.gate.wait()
            self.log.append("whole")
        except trio.Cancelled:
            self.log.append("cut")
            raise


async def test_a_reader_that_is_stopped_while_it_sends_leaves_whole_frames() -> None:
    """What is left of a frame would be taken for the beginning of the next."""
    async with open_served(says(["one"])) as served, trio.open_nursery() as nursery:
        socket: Any = NarrowSocket()
        connection = Connection(served.runtime, socket, nursery, FrameCache())
        await connection.subscribe({"threadId": "t"})
        await trio.testing.wait_all_tasks_blocked()
        await connection.subscribe({"threadId": "t"})
        await connection.unsubscribe({"threadId": "t"})
        await trio.testing.wait_all_tasks_blocked()
        assert socket.log == ["begun"]
        socket.gate.set()
        await trio.testing.wait_all_tasks_blocked()
        assert socket.log == ["begun", "whole"]
