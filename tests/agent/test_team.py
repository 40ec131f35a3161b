"""Subagents that work on while the agent goes on: one turn's team."""

import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import pytest
import trio
import trio.testing
from attrs import define, field

from agentrt.agent.agent import Agent
from agentrt.agent.subagents import SubagentLimits, Subagents
from agentrt.agent.team import team_filter
from agentrt.core.errors import SnapshotError
from agentrt.core.history import find_history_faults
from agentrt.core.messages import Message, ToolMessage, UserMessage
from agentrt.core.outcomes import Approve, PauseSnapshot, TurnCompleted, TurnPaused
from agentrt.filters.base import Filter, ToolUse, TurnCall, hook
from agentrt.stores.in_memory import InMemoryChatMemory, InMemoryPauseStore
from agentrt.testing import Say, ScriptedModel, call, cancel_sweep, no_leftovers
from agentrt.tools.base import tool


@pytest.fixture(autouse=True)
def _quiet() -> None:
    logging.getLogger("agentrt").setLevel(logging.CRITICAL)


def results(history: Sequence[Message]) -> Mapping[str, str]:
    return {m.call_id: m.text for m in history if isinstance(m, ToolMessage)}


def helper(*steps: Any, **options: Any) -> Agent:
    options.setdefault("name", "helper")
    return Agent(model=ScriptedModel(steps), **options)


def top(*steps: Any, team: Filter, **options: Any) -> Agent:
    return Agent(model=ScriptedModel(steps), filters=[team], **options)


def spawn(name: str = "helper", task: str = "work") -> Any:
    return call("spawn_agent", id=f"spawn {name}", agent=name, task=task)


def wait(*ids: str, id: str = "wait") -> Any:  # noqa: A002  a call's
    return call("wait_agent", id=id, agent_ids=list(ids))


async def told(agent: Agent) -> Mapping[str, str]:
    return results(await agent.history("c"))


async def test_a_subagent_works_while_the_agent_goes_on() -> None:
    gate = trio.Event()

    @tool
    async def open_gate() -> str:
        """Open the gate."""
        await trio.lowlevel.checkpoint()
        gate.set()
        return "open"

    slow = helper(Say(text="found it", before=gate.wait))
    agent = top(
        spawn(),
        call("open_gate", id="gate"),
        wait(),
        "done",
        team=team_filter([slow]),
        tools=[open_gate],
    )
    async with no_leftovers():
        await agent.run("go", conversation_id="c")
    assert await told(agent) == {
        "spawn helper": "started helper-1",
        "gate": "open",
        "wait": "helper-1: done\nfound it",
    }


async def test_a_subagent_is_told_more_and_remembers() -> None:
    """Its id stays over sends, and so does its conversation."""
    model = ScriptedModel(["first", "second"])
    agent = top(
        spawn(),
        wait(id="w1"),
        call("send_agent", id="send", agent_id="helper-1", message="and?"),
        wait("helper-1", id="w2"),
        "done",
        team=team_filter([Agent(model=model, name="helper")]),
    )
    await agent.run("go", conversation_id="c")
    assert (await told(agent))["w2"] == "helper-1: done\nsecond"
    said = [message.text for message in model.requests[1].messages]
    assert said == ["work", "first", "and?"]


async def test_what_cannot_be_told_more_says_why() -> None:
    forgetful = helper("ok", memory=None)
    busy = helper(Say(before=trio.sleep_forever), name="busy")
    agent = top(
        [spawn(), spawn("busy")],
        wait("helper-1"),
        [
            call("send_agent", id="a", agent_id="helper-1", message="x"),
            call("send_agent", id="b", agent_id="busy-2", message="x"),
            call("send_agent", id="c", agent_id="nobody", message="x"),
        ],
        "done",
        team=team_filter([forgetful, busy]),
    )
    async with no_leftovers():
        await agent.run("go", conversation_id="c")
    results = await told(agent)
    assert results["a"] == "error: 'helper-1' remembers nothing: start another one"
    assert results["b"].startswith("error: 'busy-2' cannot be told anything now")
    assert "there is no subagent 'nobody' in this turn" in results["c"]


async def test_a_subagent_is_interrupted_and_listed() -> None:
    cleaned: list[str] = []

    async def hang() -> None:
        try:
            await trio.sleep_forever()
        finally:
            cleaned.append("hang")

    agent = top(
        spawn(),
        call("list_agents", id="l1"),
        call("interrupt_agent", id="stop", agent_id="helper-1"),
        call("list_agents", id="l2"),
        "done",
        team=team_filter([helper(Say(before=hang))]),
    )
    await agent.run("go", conversation_id="c")
    results = await told(agent)
    assert (results["l1"], results["l2"]) == ("helper-1: working", "helper-1: stopped")
    assert (results["stop"], cleaned) == ("helper-1: stopped", ["hang"])


async def test_waiting_has_a_limit_and_stops_nobody(
    autojump_clock: trio.testing.MockClock,
) -> None:
    slow = helper(Say(text="late", delay_seconds=40))
    limits = Subagents(SubagentLimits(timeout_seconds=30))
    agent = top(
        spawn(),
        wait(id="w1"),
        wait(id="w2"),
        "done",
        team=team_filter([slow], subagents=limits),
    )
    await agent.run("go", conversation_id="c")
    results = await told(agent)
    assert results["w1"] == "helper-1: working"
    assert results["w2"] == "helper-1: done\nlate"


async def test_the_number_at_work_and_in_all_is_limited() -> None:
    hangs = [Say(before=trio.sleep_forever)] * 4
    limits = Subagents(SubagentLimits(max_agents=1, max_tasks=2))
    agent = top(
        call("spawn_agent", id="a", agent="helper", task="x"),
        call("spawn_agent", id="b", agent="helper", task="x"),
        call("interrupt_agent", id="c", agent_id="helper-1"),
        call("spawn_agent", id="d", agent="helper", task="x"),
        call("spawn_agent", id="e", agent="helper", task="x"),
        call("spawn_agent", id="f", agent="nobody", task="x"),
        "done",
        team=team_filter([helper(*hangs)], subagents=limits),
    )
    await agent.run("go", conversation_id="c")
    results = await told(agent)
    assert results["b"] == "error: 1 subagents are at work: wait for one of them"
    assert results["d"] == "started helper-2"
    assert results["e"] == "error: a turn has at most 2 subagents"
    assert results["f"] == "error: there is no agent 'nobody'; there are 'helper'"


async def test_the_end_of_the_turn_ends_the_team() -> None:
    """And forgets what it said."""
    memory = InMemoryChatMemory()
    hangs = helper(Say(before=trio.sleep_forever), memory=memory)
    agent = top(spawn(), "done", team=team_filter([hangs]))
    async with no_leftovers():
        assert isinstance(await agent.run("go"), TurnCompleted)
    assert dict(memory._histories) == {}


async def test_a_member_that_fails_says_so() -> None:
    @hook
    async def broken(call: TurnCall) -> AsyncIterator[None]:
        yield
        raise ValueError("sk-123")

    bug = helper("x", filters=[Filter(name="broken", turn=broken)])
    agent = top(spawn(), wait(), "done", team=team_filter([bug]))
    await agent.run("go", conversation_id="c")
    assert (await told(agent))["wait"] == (
        "helper-1: failed\nerror: subagent 'helper-1' failed: internal"
    )


@define
class Unreadable:
    """Pauses that nobody can load."""

    inner: InMemoryPauseStore

    async def save(self, snapshot: PauseSnapshot) -> None:
        await self.inner.save(snapshot)

    async def load(self, conversation_id: str) -> PauseSnapshot | None:
        await trio.lowlevel.checkpoint()
        raise SnapshotError(conversation_id, "it is of another version")

    async def take(self, conversation_id: str, pause_id: str) -> PauseSnapshot | None:
        return await self.inner.take(conversation_id, pause_id)

    async def discard(self, conversation_id: str) -> None:
        await self.inner.discard(conversation_id)


@define
class Deleter:
    deleted: list[str] = field(factory=list)

    def agent(self, *steps: Any, **options: Any) -> Agent:
        @tool(sensitive=True)
        async def delete(path: str) -> str:
            """Delete."""
            await trio.lowlevel.checkpoint()
            self.deleted.append(path)
            return f"deleted {path}"

        return helper(*steps, tools=[delete], **options)


async def test_what_a_member_asks_comes_to_the_top_when_it_is_waited_for() -> None:
    """B72: it goes on; one that was at work when the turn paused has ended."""
    deleter = Deleter()
    asks = deleter.agent(call("delete", id="x", path="/a"), "cleaned")
    idle = helper(Say(before=trio.sleep_forever), name="idle")
    agent = top(
        [spawn(), spawn("idle")],
        wait("helper-1", id="w"),
        call("list_agents", id="l"),
        "done",
        team=team_filter([asks, idle]),
    )
    paused = await agent.run("go", conversation_id="c")
    assert isinstance(paused, TurnPaused)
    assert [each.id for each in paused.interrupts] == ["w/helper-1/x"]
    async with no_leftovers():
        outcome = await agent.resume("c", {"w/helper-1/x": Approve()})
    assert isinstance(outcome, TurnCompleted)
    assert deleter.deleted == ["/a"]
    assert (await told(agent))["w"] == "helper-1: done\ncleaned"
    assert (await told(agent))["l"] == "helper-1: done"


async def test_an_id_is_not_given_again_after_a_pause() -> None:
    """Nor the conversation of that id; and what had ended keeps its answer."""
    asks = Deleter().agent(
        "found", call("delete", id="x", path="/a"), "two is done", "three is done"
    )
    agent = top(
        call("spawn_agent", id="s1", agent="helper", task="one"),
        wait(id="w0"),
        call("spawn_agent", id="s2", agent="helper", task="two: SECRET"),
        wait(id="w1"),
        call("send_agent", id="send", agent_id="helper-1", message="and?"),
        call("spawn_agent", id="s3", agent="helper", task="three"),
        wait(id="w2"),
        "done",
        team=team_filter([asks]),
    )
    await agent.run("go", conversation_id="c")
    await agent.resume("c", {"w1/helper-2/x": Approve()})
    results = await told(agent)
    assert results["w1"] == "helper-1: done\nfound\n\nhelper-2: done\ntwo is done"
    assert "there is no subagent 'helper-1' in this turn" in results["send"]
    assert results["s3"] == "started helper-3"
    assert results["w2"] == (
        "helper-2: done\ntwo is done\n\nhelper-3: done\nthree is done"
    )
    model: Any = asks.model
    assert [message.text for message in model.requests[-1].messages] == ["three"]


async def test_an_id_is_not_given_again_after_a_pause_of_another_tool() -> None:
    """And the number in all holds for the whole turn."""
    limits = Subagents(SubagentLimits(max_tasks=2))

    @tool(sensitive=True)
    async def pay() -> str:
        """Pay."""
        await trio.lowlevel.checkpoint()
        return "paid"

    agent = top(
        spawn(),
        call("pay", id="pay"),
        call("spawn_agent", id="a", agent="helper", task="x"),
        call("spawn_agent", id="b", agent="helper", task="x"),
        "done",
        team=team_filter([helper("one", "two")], subagents=limits),
        tools=[pay],
    )
    await agent.run("go", conversation_id="c")
    await agent.resume("c", {"pay": Approve()})
    results = await told(agent)
    assert results["a"] == "started helper-2"
    assert results["b"] == "error: a turn has at most 2 subagents"


async def test_a_member_sees_nothing_of_one_that_a_dead_process_left() -> None:
    memory = InMemoryChatMemory()
    await memory.append("c/helper-1", [UserMessage(id="old", content="SECRET")])
    model = ScriptedModel(["fine"])
    agent = top(
        spawn(),
        wait(),
        "done",
        team=team_filter([Agent(model=model, name="helper", memory=memory)]),
    )
    await agent.run("go", conversation_id="c")
    assert [message.text for message in model.requests[0].messages] == ["work"]


def settle() -> Any:
    return tool(name="settle", description="Wait.")(trio.testing.wait_all_tasks_blocked)


async def test_a_member_that_waits_for_people_is_interrupted() -> None:
    """Its question is gone with it."""
    deleter = Deleter()
    asks = deleter.agent(call("delete", id="x", path="/a"))
    agent = top(
        spawn(),
        call("settle"),
        call("interrupt_agent", id="stop", agent_id="helper-1"),
        wait(),
        "done",
        team=team_filter([asks]),
        tools=[settle()],
    )
    assert isinstance(await agent.run("go", conversation_id="c"), TurnCompleted)
    results = await told(agent)
    assert results["stop"] == results["wait"] == "helper-1: stopped"
    assert not await asks.is_paused("c/helper-1")


async def test_a_member_whose_question_goes_up_is_not_interrupted() -> None:
    @hook
    async def late(call: ToolUse) -> AsyncIterator[None]:
        if call.request.name == "interrupt_agent":
            await trio.testing.wait_all_tasks_blocked()
        yield

    deleter = Deleter()
    asks = deleter.agent(call("delete", id="x", path="/a"), "cleaned")
    interrupt = call("interrupt_agent", id="stop", agent_id="helper-1")
    steps = [spawn(), call("settle"), [wait(id="w"), interrupt], "done"]
    agent = Agent(
        model=ScriptedModel(steps),
        filters=[team_filter([asks]), Filter(name="late", tool=late)],
        tools=[settle()],
    )
    paused = await agent.run("go", conversation_id="c")
    assert isinstance(paused, TurnPaused)
    await agent.resume("c", {"w/helper-1/x": Approve()})
    results = await told(agent)
    assert results["w"] == "helper-1: done\ncleaned"
    assert "is put to people now" in results["stop"]
    assert deleter.deleted == ["/a"]


async def test_of_two_waits_one_asks_for_a_member() -> None:
    """The same question is put once, and answered once."""
    deleter = Deleter()
    asks = deleter.agent(call("delete", id="x", path="/a"), "one is done")
    agent = top(
        spawn(),
        [wait("helper-1", "helper-1", id="w1"), wait(id="w2")],
        "done",
        team=team_filter([asks]),
    )
    paused = await agent.run("go", conversation_id="c")
    assert isinstance(paused, TurnPaused)
    (asked,) = paused.interrupts
    outcome = await agent.resume("c", {asked.id: Approve()})
    assert isinstance(outcome, TurnCompleted)
    assert deleter.deleted == ["/a"]
    assert sorted((await told(agent)).values()) == [
        "helper-1: done\none is done",
        "helper-1: waits for people",
        "started helper-1",
    ]


async def test_all_who_asked_go_on_though_few_may_work_at_a_time() -> None:
    """They wait for a place then, and no question is lost."""
    deleter = Deleter()
    limits = Subagents(SubagentLimits(max_agents=1))
    agent = top(
        call("spawn_agent", id="a", agent="helper", task="x"),
        call("settle", id="settle"),
        call("spawn_agent", id="b", agent="other", task="x"),
        wait(),
        "done",
        team=team_filter(
            [
                deleter.agent(call("delete", id="x", path="/a"), "one"),
                deleter.agent(call("delete", id="x", path="/b"), "two", name="other"),
            ],
            subagents=limits,
        ),
        tools=[settle()],
    )
    paused = await agent.run("go", conversation_id="c")
    assert isinstance(paused, TurnPaused)
    await agent.resume("c", {each.id: Approve() for each in paused.interrupts})
    assert sorted(deleter.deleted) == ["/a", "/b"]
    assert (await told(agent))["wait"] == "helper-1: done\none\n\nother-2: done\ntwo"


async def test_a_question_that_cannot_be_read_is_given_up_too() -> None:
    below = InMemoryPauseStore()
    asks = Deleter().agent(call("delete", id="x", path="/a"), pauses=Unreadable(below))
    agent = top(spawn(), wait(), "done", team=team_filter([asks]))
    assert isinstance(await agent.run("go", conversation_id="c"), TurnPaused)
    assert await agent.discard_pause("c")
    assert below._pauses == {}


async def test_a_member_that_nobody_waits_for_is_forgotten_with_its_question() -> None:
    deleter = Deleter()
    asks = deleter.agent(call("delete", id="x", path="/a"))
    agent = top(
        spawn(),
        call("settle"),
        "done",
        team=team_filter([asks]),
        tools=[settle()],
    )
    assert isinstance(await agent.run("go", conversation_id="c"), TurnCompleted)
    assert not await asks.is_paused("c/helper-1")


@pytest.mark.parametrize("agents", [[], [helper(), helper()]])
def test_a_team_of_nobody_or_of_namesakes_is_refused(agents: list[Agent]) -> None:
    with pytest.raises(ValueError, match="expected names, each once"):
        team_filter(agents)


@define
class World:
    memory: InMemoryChatMemory = field(factory=InMemoryChatMemory)
    below: InMemoryChatMemory = field(factory=InMemoryChatMemory)
    subagents: Subagents = field(factory=lambda: Subagents(SubagentLimits()))

    async def scenario(self) -> None:
        agent = top(
            [spawn(), spawn("other")],
            wait(),
            "done",
            team=team_filter(
                [
                    helper("one", memory=self.below),
                    helper("two", memory=self.below, name="other"),
                ],
                subagents=self.subagents,
            ),
            memory=self.memory,
        )
        await agent.run("go", conversation_id="c")

    async def check(self) -> None:
        assert find_history_faults(await self.memory.history("c")) == []
        assert dict(self.below._histories) == {}


def test_a_team_survives_a_cancel_anywhere() -> None:
    """B71"""
    report = cancel_sweep(
        World,
        World.scenario,
        World.check,
        limiters=lambda world: list(world.subagents._permits.values()),
    )
    print(report)
    assert report.runs > 100
