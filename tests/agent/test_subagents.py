"""Agents as tools: what goes down, what comes up, and that nothing is left."""

import logging
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from attrs import define, evolve, field

from agentrt.agent.agent import Agent
from agentrt.agent.delegation import delegate_tool, fan_out_tool
from agentrt.agent.subagents import Subagent, SubagentLimits, Subagents
from agentrt.agent.team import team_filter
from agentrt.core.chat import ChatRequest, Usage
from agentrt.core.context import Context
from agentrt.core.errors import AnswerError, AuthenticationError, ServerError
from agentrt.core.history import find_history_faults
from agentrt.core.messages import AssistantMessage, Message, ToolCall, ToolMessage
from agentrt.core.outcomes import Approve, Decision, Deny, TurnCompleted, TurnPaused
from agentrt.events import types as e
from agentrt.models.function import FunctionModel
from agentrt.runtime.run import RunOptions
from agentrt.runtime.runtime import open_runtime
from agentrt.stores.in_memory import InMemoryChatMemory, InMemoryPauseStore
from agentrt.stores.sqlite import open_sqlite_stores
from agentrt.testing import (
    Say,
    ScriptedModel,
    call,
    cancel_sweep,
    check_stream,
    no_leftovers,
)
from agentrt.tools.base import Tool, tool


@pytest.fixture(autouse=True)
def _quiet() -> None:
    logging.getLogger("agentrt").setLevel(logging.CRITICAL)


def results(history: Sequence[Message]) -> Mapping[str, str]:
    return {m.call_id: m.text for m in history if isinstance(m, ToolMessage)}


def parent(*steps: Any, tools: Sequence[Any], **options: Any) -> Agent:
    return Agent(model=ScriptedModel(steps), tools=tools, **options)


def child(*steps: Any, **options: Any) -> Agent:
    return Agent(model=ScriptedModel(steps), name="helper", **options)


async def test_a_task_goes_down_and_the_answer_comes_up() -> None:
    helper = child("it is 42")
    made = parent(
        call("delegate", id="d", task="find it", background="We look for a number."),
        "done",
        tools=[delegate_tool(helper)],
    )
    outcome = await made.run("go", conversation_id="c")
    assert isinstance(outcome, TurnCompleted)
    assert results(await made.history("c")) == {"d": "it is 42"}
    model: Any = helper.model
    (asked,) = model.requests
    assert [m.text for m in asked.messages] == ["We look for a number.\n\nfind it"]


async def test_nothing_of_a_subagent_is_left() -> None:
    """B53: neither its history nor its pause."""
    memory, pauses = InMemoryChatMemory(), InMemoryPauseStore()
    helper = child("ok", memory=memory, pauses=pauses)
    made = parent(call("delegate", task="x"), "done", tools=[delegate_tool(helper)])
    await made.run("go", conversation_id="c")
    assert (dict(memory._histories), pauses._pauses) == ({}, {})


async def test_only_what_is_handed_on_goes_down() -> None:
    seen: list[Mapping[str, Any]] = []

    @tool
    async def look(context: Context) -> str:
        """Look."""
        await trio.lowlevel.checkpoint()
        seen.append(context.values)
        return "seen"

    helper = child(call("look"), "ok", tools=[look])
    handed = Subagents(SubagentLimits(), values={"user": "ann"})
    made = parent(
        call("delegate", task="x"),
        "done",
        tools=[delegate_tool(helper, subagents=handed)],
        values={"secret": 1},
    )
    await made.run("go")
    assert seen == [
        {
            "user": "ann",
            "agentrt/subagents/depth": 1,
            "agentrt/subagents/max_depth": 2,
        }
    ]


async def test_a_turn_accounts_for_what_its_subagents_used() -> None:
    used = Usage(provider="scripted", model="model", total_tokens=5)
    helper = child(Say(text="ok", usage=used))
    steps = [Say(calls=[call("delegate", task="x")], usage=used), "done"]
    outcome = await parent(*steps, tools=[delegate_tool(helper)]).run("go")
    assert outcome.usage[0].total_tokens == 10


USED = Usage(provider="scripted", model="model", total_tokens=5)


async def hang() -> None:
    await trio.sleep_forever()


async def crash() -> None:
    await trio.lowlevel.checkpoint()
    raise ValueError("a bug")


@pytest.mark.parametrize("end", [hang, crash, ServerError("down")])
@pytest.mark.parametrize("kind", ["delegate", "fan_out", "team"])
async def test_what_a_subagent_used_counts_however_it_ended(
    end: Any, kind: str, autojump_clock: trio.testing.MockClock
) -> None:
    """Cut by its limit or by the end of the turn, broken, or failed."""

    @tool
    async def step() -> str:
        """Do something."""
        await trio.lowlevel.checkpoint()
        return "ok"

    last = end if isinstance(end, Exception) else Say(before=end)
    helper = child(Say(calls=[call("step")], usage=USED), last, tools=[step])
    limits = Subagents(SubagentLimits(timeout_seconds=5))
    steps: list[Any] = [call("delegate", task="x"), "done"]
    options: dict[str, Any] = {"tools": [delegate_tool(helper, subagents=limits)]}
    if kind == "fan_out":
        steps[0] = call("fan_out", tasks=["x"])
        options = {"tools": [fan_out_tool(helper, subagents=limits)]}
    if kind == "team":
        wait = call("wait_agent", agent_ids=[])
        steps[:1] = [call("spawn_agent", agent="helper", task="x"), wait]
        team = team_filter([helper], subagents=limits)
        options = {"tools": [], "filters": [team]}
    events: list[e.Event] = []
    outcome = await parent(*steps, **options).run("go", emit=events.append)
    assert [each.total_tokens for each in outcome.usage] == [5]
    told = [event.usage for event in events if isinstance(event, e.RunUsage)]
    assert [each.total_tokens for each in told[-1]] == [5]


async def test_what_a_subagent_used_counts_when_the_whole_turn_is_stopped() -> None:
    helper = child(
        Say(calls=[call("hang")], usage=USED),
        tools=[tool(name="hang", description="Hang.")(hang)],
    )
    made = parent(call("delegate", task="x"), tools=[delegate_tool(helper)])
    async with open_runtime(made) as runtime:
        run = await runtime.start_run("c", "go")
        await trio.testing.wait_all_tasks_blocked()
        runtime.stop("c")
        outcome = await run.wait()
    assert [each.total_tokens for each in outcome.usage] == [5]


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (
            AuthenticationError("key sk-123 at https://internal"),
            "error: subagent 'helper' failed: authentication",
        ),
        (
            ServerError("db01 is down"),
            "error: subagent 'helper' failed: provider_error",
        ),
    ],
)
async def test_a_failure_leaks_no_internals(error: Exception, text: str) -> None:
    """X28"""
    helper = child(error)
    made = parent(
        call("delegate", id="d", task="x"), "done", tools=[delegate_tool(helper)]
    )
    await made.run("go", conversation_id="c")
    assert results(await made.history("c")) == {"d": text}


async def test_a_subagent_has_a_limit_of_time_and_is_cut_by_it(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """B71: and the default limit of tools does not cut it before."""
    cleaned: list[str] = []

    @tool(timeout_seconds=1000)
    async def hang() -> None:
        """Hang."""
        try:
            await trio.sleep_forever()
        finally:
            cleaned.append("hang")

    helper = child(call("hang"), tools=[hang])
    limits = SubagentLimits(timeout_seconds=30)
    made = parent(
        call("delegate", id="d", task="x"),
        "done",
        tools=[delegate_tool(helper, subagents=Subagents(limits))],
    )
    async with no_leftovers():
        await made.run("go", conversation_id="c")
    assert cleaned == ["hang"]
    assert "deadline of 30 s fired" in results(await made.history("c"))["d"]


async def test_depth_is_limited() -> None:
    deepest = child("never asked")
    middle = child(
        call("delegate", task="deeper"), "I did it", tools=[delegate_tool(deepest)]
    )
    limits = Subagents(SubagentLimits(max_depth=1))
    deep = delegate_tool(deepest, subagents=limits)
    middle = child(call("delegate", task="deeper"), "I did it", tools=[deep])
    made = parent(
        call("delegate", id="d", task="x"), "done", tools=[delegate_tool(middle)]
    )
    await made.run("go", conversation_id="c")
    assert results(await made.history("c")) == {"d": "I did it"}
    model: Any = middle.model
    told = model.requests[1].messages[-1].text
    assert told.startswith("error: subagents may nest 1 deep")


@pytest.mark.parametrize("above", [1, 2, 3])
@pytest.mark.parametrize("below", [1, 2, 3])
async def test_the_smallest_limit_of_depth_holds(above: int, below: int) -> None:
    """Who sets one at the top knows how deep it goes."""

    def limited(agent: Agent, max_depth: int) -> Tool:
        limits = SubagentLimits(max_depth=max_depth)
        return delegate_tool(agent, subagents=Subagents(limits))

    deepest: list[str] = []

    def agent(level: int) -> Agent:
        def answer(request: ChatRequest) -> Any:
            if len(request.messages) > 1:
                return "ok"
            deepest.append(str(level))
            asks = ToolCall(id="d", name="delegate", arguments={"task": "x"})
            return AssistantMessage(id="", tool_calls=(asks,) if level < 4 else ())

        limit = below if level else above
        tools = [limited(agent(level + 1), limit)] if level < 4 else []
        return Agent(model=FunctionModel(answer), name="helper", tools=tools)

    await agent(0).run("go")
    assert len(deepest) == 1 + min(above, below)


@pytest.mark.parametrize("value", [0, -1, 1.5, True, "2", None])
@pytest.mark.parametrize("name", ["max_depth", "max_agents", "max_tasks"])
def test_limits_that_are_no_number_of_things_are_refused(name: str, value: Any) -> None:
    why = f"{name} is {value!r}, expected a whole number from 1"
    with pytest.raises(ValueError, match=re.escape(why)):
        SubagentLimits(**{name: value})


@pytest.mark.parametrize("value", [0, -1.0, float("nan"), True, "2", None])
def test_a_limit_of_no_time_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="expected seconds above 0"):
        SubagentLimits(timeout_seconds=value)


@define
class Crowd:
    """Counts who is at work; answers with the task."""

    now: int = 0
    most: int = 0
    seconds: float = 1.0

    async def __call__(self, request: ChatRequest) -> str:
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            await trio.sleep(self.seconds)
        finally:
            self.now -= 1
        return f"did {request.messages[-1].text}"

    def agent(self, **options: Any) -> Agent:
        return Agent(model=FunctionModel(self), name="helper", **options)


async def test_many_tasks_are_done_at_once_up_to_a_number(
    autojump_clock: trio.testing.MockClock,
) -> None:
    crowd = Crowd()
    limits = Subagents(SubagentLimits(max_agents=2))
    made = parent(
        call("fan_out", id="f", tasks=["a", "b", "c", "d", "e"]),
        "done",
        tools=[fan_out_tool(crowd.agent(), subagents=limits)],
    )
    start = trio.current_time()
    await made.run("go", conversation_id="c")
    assert (crowd.most, trio.current_time() - start) == (2, 3.0)
    (text,) = results(await made.history("c")).values()
    assert text.startswith("## Task 1\ndid a\n\n## Task 2\ndid b\n")


async def test_nested_delegation_does_not_wait_for_itself(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """One permit a level: who holds one and waits below holds up nobody there."""
    shared = Subagents(SubagentLimits(max_agents=1))
    inner = delegate_tool(child("deep"), subagents=shared)
    middle = child(call("delegate", task="deeper"), "ok", tools=[inner])
    made = parent(
        call("delegate", id="d", task="x"),
        "done",
        tools=[delegate_tool(middle, subagents=shared)],
    )
    with trio.fail_after(30):
        await made.run("go", conversation_id="c")
    assert results(await made.history("c")) == {"d": "ok"}


async def test_no_task_and_too_many_tasks_are_refused() -> None:
    tasks = [str(number) for number in range(17)]
    made = parent(
        [call("fan_out", id="a", tasks=[]), call("fan_out", id="b", tasks=tasks)],
        "done",
        tools=[fan_out_tool(child())],
    )
    await made.run("go", conversation_id="c")
    told = results(await made.history("c"))
    assert "$.tasks" in told["a"]
    assert "at most 16" in told["b"]


async def test_one_task_that_fails_leaves_the_others_alone() -> None:
    def answer(request: ChatRequest) -> str:
        text = request.messages[-1].text
        if text == "bad":
            raise ServerError("down")
        return f"did {text}"

    helper = Agent(model=FunctionModel(answer), name="helper")
    made = parent(
        call("fan_out", id="f", tasks=["a", "bad", "c"]),
        "done",
        tools=[fan_out_tool(helper)],
    )
    await made.run("go", conversation_id="c")
    assert results(await made.history("c"))["f"] == (
        "## Task 1\ndid a\n\n"
        "## Task 2\nerror: subagent 'helper#2' failed: provider_error\n\n"
        "## Task 3\ndid c"
    )


@define
class Deleter:
    """A subagent that deletes after it asked; what it did."""

    deleted: list[str] = field(factory=list)

    def agent(self, *paths: str, **options: Any) -> Agent:
        @tool(sensitive=True)
        async def delete(path: str) -> str:
            """Delete."""
            await trio.lowlevel.checkpoint()
            self.deleted.append(path)
            return f"deleted {path}"

        calls = [call("delete", id=f"x{n}", path=path) for n, path in enumerate(paths)]
        options.setdefault("model", ScriptedModel([calls, "I am done"]))
        return Agent(tools=[delete], name="helper", **options)


async def test_what_a_subagent_asks_pauses_the_turn_at_the_top() -> None:
    """B72: and the same subagent goes on."""
    deleter = Deleter()
    made = parent(
        call("delegate", id="d", task="clean up"),
        "done",
        tools=[delegate_tool(deleter.agent("/a", "/b"))],
    )
    paused = await made.run("go", conversation_id="c")
    assert isinstance(paused, TurnPaused)
    asked = [(each.id, each.call.arguments) for each in paused.interrupts]
    assert asked == [("d/x0", {"path": "/a"}), ("d/x1", {"path": "/b"})]
    assert {each.call_id for each in paused.interrupts} == {"d"}
    answers: dict[str, Decision] = {
        "d/x0": Approve(),
        "d/x1": Deny(reason="keep it"),
    }
    outcome = await made.resume("c", answers)
    assert isinstance(outcome, TurnCompleted)
    assert deleter.deleted == ["/a"]
    assert results(await made.history("c")) == {"d": "I am done"}


async def test_edited_arguments_are_checked_by_the_subagents_tools() -> None:
    deleter = Deleter()
    made = parent(
        call("delegate", id="d", task="x"),
        "done",
        tools=[delegate_tool(deleter.agent("/a"))],
    )
    await made.run("go", conversation_id="c")
    with pytest.raises(AnswerError, match=r"\$.path is 7"):
        await made.resume("c", {"d/x0": Approve(arguments={"path": 7})})
    await made.resume("c", {"d/x0": Approve(arguments={"path": "/z"})})
    assert deleter.deleted == ["/z"]


async def test_questions_of_subagents_of_subagents_come_to_the_top() -> None:
    deleter = Deleter()
    middle = child(
        call("delegate", id="m", task="deeper"),
        "middle done",
        tools=[delegate_tool(deleter.agent("/a"))],
    )
    made = parent(
        call("delegate", id="d", task="x"), "done", tools=[delegate_tool(middle)]
    )
    paused = await made.run("go", conversation_id="c")
    assert isinstance(paused, TurnPaused)
    assert [each.id for each in paused.interrupts] == ["d/m/x0"]
    with pytest.raises(AnswerError, match=r"\$.path is 7"):
        await made.resume("c", {"d/m/x0": Approve(arguments={"path": 7})})
    await made.resume("c", {"d/m/x0": Approve()})
    assert deleter.deleted == ["/a"]
    assert results(await made.history("c")) == {"d": "middle done"}


@define
class Judging:
    """Answers tasks; deletes for those that begin with `/`."""

    asked: list[str] = field(factory=list)

    def __call__(self, request: ChatRequest) -> Any:
        first, *more = request.messages
        if more:
            return f"did {first.text}"
        self.asked.append(first.text)
        if not first.text.startswith("/"):
            return f"did {first.text}"
        asks = ToolCall(id="x", name="delete", arguments={"path": first.text})
        return AssistantMessage(id="", tool_calls=(asks,))


async def test_subagents_of_a_fan_out_pause_together_and_what_is_done_stays() -> None:
    """Spec 8.4 drops them; here each goes on, and none runs twice."""
    deleter, model = Deleter(), Judging()
    helper = deleter.agent(model=FunctionModel(model))
    made = parent(
        call("fan_out", id="f", tasks=["/a", "plain", "/b"]),
        "done",
        tools=[fan_out_tool(helper)],
    )
    paused = await made.run("go", conversation_id="c")
    assert isinstance(paused, TurnPaused)
    assert [each.id for each in paused.interrupts] == ["f/0/x", "f/2/x"]
    outcome = await made.resume("c", {"f/0/x": Approve(), "f/2/x": Deny()})
    assert isinstance(outcome, TurnCompleted)
    assert (deleter.deleted, sorted(model.asked)) == (["/a"], ["/a", "/b", "plain"])
    assert results(await made.history("c"))["f"] == (
        "## Task 1\ndid /a\n\n## Task 2\ndid plain\n\n## Task 3\ndid /b"
    )


async def test_a_subagents_question_outlives_its_process(tmp_path: Path) -> None:
    """With durable stores above and below; new objects are as a new process."""
    deleter = Deleter()

    @asynccontextmanager
    async def opened(*steps: Any, below: Sequence[Any]) -> AsyncIterator[Agent]:
        async with (
            open_sqlite_stores(tmp_path / "top.db") as top,
            open_sqlite_stores(tmp_path / "below.db") as bottom,
        ):
            helper = deleter.agent(
                model=ScriptedModel(below), memory=bottom.memory, pauses=bottom.pauses
            )
            yield parent(
                *steps,
                tools=[delegate_tool(helper)],
                memory=top.memory,
                pauses=top.pauses,
            )

    asks = [call("delete", id="x", path="/a")]
    async with opened(call("delegate", id="d", task="x"), below=[asks]) as made:
        assert isinstance(await made.run("go", conversation_id="c"), TurnPaused)
    async with opened("done", below=["cleaned"]) as made:
        outcome = await made.resume("c", {"d/x": Approve()})
        assert isinstance(outcome, TurnCompleted)
        assert results(await made.history("c")) == {"d": "cleaned"}
    assert deleter.deleted == ["/a"]


async def test_a_subagent_that_was_lost_is_a_failed_call() -> None:
    deleter = Deleter()
    helper = deleter.agent("/a")
    made = parent(
        call("delegate", id="d", task="x"), "done", tools=[delegate_tool(helper)]
    )
    await made.run("go", conversation_id="c")
    await helper.pauses.discard("c/d")
    outcome = await made.resume("c", {"d/x0": Approve()})
    assert isinstance(outcome, TurnCompleted)
    assert results(await made.history("c")) == {
        "d": "error: the subagent was lost while it waited"
    }


@pytest.mark.parametrize("how", ["discarded", "answered"])
async def test_a_subagents_pause_that_nobody_can_read_blocks_nothing(how: str) -> None:
    deleter = Deleter()
    helper = deleter.agent("/a", memory=InMemoryChatMemory())
    made = parent(
        call("delegate", id="d", task="x"), "done", tools=[delegate_tool(helper)]
    )
    await made.run("go", conversation_id="c")
    kept = await helper.pauses.load("c/d")
    assert kept is not None
    await helper.pauses.save(evolve(kept, remaining=-1))
    if how == "discarded":
        assert await made.discard_pause("c")
        assert await helper.pauses.load("c/d") is None
        assert list(await helper.history("c/d")) == []
    else:
        outcome = await made.resume("c", {"d/x0": Approve()})
        assert isinstance(outcome, TurnCompleted)
        assert results(await made.history("c"))["d"].startswith("error: ")
    assert deleter.deleted == []
    assert find_history_faults(await made.history("c")) == []


@pytest.mark.parametrize("how", ["agent", "runtime"])
async def test_a_subagent_is_forgotten_when_nobody_answers(how: str) -> None:
    deleter = Deleter()
    helper = deleter.agent("/a", memory=InMemoryChatMemory())
    made = parent(
        call("delegate", id="d", task="x"), "other", tools=[delegate_tool(helper)]
    )
    if how == "agent":
        await made.run("go", conversation_id="c")
        await made.discard_pause("c")
        await made.run("something else", conversation_id="c")
    else:
        async with open_runtime(made) as runtime:
            run = await runtime.start_run("c", "go")
            await run.wait()
            options = RunOptions(discard_pause=True)
            run = await runtime.start_run("c", "something else", options)
            await run.wait()
            check_stream(runtime._events.ring("c").after(0, limit=1000))
    assert results(await made.history("c")) == {
        "d": "This call was given up: nobody answered what it asked."
    }
    assert not await helper.is_paused("c/d")
    assert list(await helper.history("c/d")) == []


async def test_a_stream_with_a_subagents_question_is_valid() -> None:
    deleter = Deleter()
    made = parent(
        call("delegate", id="d", task="x"),
        "done",
        tools=[delegate_tool(deleter.agent("/a", "/b"))],
    )
    async with open_runtime(made) as runtime:
        run = await runtime.start_run("c", "go")
        assert isinstance(await run.wait(), TurnPaused)
        status = await runtime.status("c")
        run = await runtime.resume("c", {i.id: Approve() for i in status.interrupts})
        outcome = await run.wait()
        assert isinstance(outcome, TurnCompleted)
        check_stream(runtime._events.ring("c").after(0, limit=1000))
    assert [each.name for each in outcome.calls] == ["delegate"]


@define
class Watching:
    """Takes down what an observer is told."""

    log: list[str] = field(factory=list)
    tags: list[str] = field(factory=list)
    fails: str = ""

    @asynccontextmanager
    async def __call__(self, subagent: Subagent) -> AsyncIterator[Any]:
        await trio.lowlevel.checkpoint()
        self.log.append(f"start {subagent.name} {subagent.depth} {subagent.task}")
        if self.fails == "start":
            raise ValueError("broken observer")
        try:
            yield self._tell
        finally:
            end = type(subagent.outcome).__name__
            self.log.append(f"settle {subagent.name} {end}")
            if self.fails == "settle":
                raise ValueError("broken observer")

    def _tell(self, event: e.Event) -> None:
        self.tags.append(event.tag)


async def test_an_observer_sees_each_subagent_from_start_to_end() -> None:
    """And those beneath it, unless they have an observer of their own."""
    watching = Watching()
    middle = child(
        call("delegate", task="deeper"), "ok", tools=[delegate_tool(child("deep"))]
    )
    observed = Subagents(SubagentLimits(), observer=watching)
    made = parent(
        call("delegate", task="x"),
        "done",
        tools=[delegate_tool(middle, subagents=observed)],
    )
    await made.run("go")
    assert watching.log == [
        "start helper 1 x",
        "start helper 2 deeper",
        "settle helper TurnCompleted",
        "settle helper TurnCompleted",
    ]
    assert "message/delta" in watching.tags


@pytest.mark.parametrize("fails", ["start", "settle"])
async def test_an_observer_that_fails_costs_no_subagent(fails: str) -> None:
    watching = Watching(fails=fails)
    observed = Subagents(SubagentLimits(), observer=watching)
    made = parent(
        call("delegate", id="d", task="x"),
        "done",
        tools=[delegate_tool(child("fine"), subagents=observed)],
    )
    await made.run("go", conversation_id="c")
    assert results(await made.history("c")) == {"d": "fine"}


async def test_an_observer_is_told_when_a_subagent_is_cut(
    autojump_clock: trio.testing.MockClock,
) -> None:
    watching = Watching()
    observed = Subagents(SubagentLimits(timeout_seconds=1), observer=watching)
    helper = child(Say(before=trio.sleep_forever))
    made = parent(
        call("delegate", task="x"),
        "done",
        tools=[delegate_tool(helper, subagents=observed)],
    )
    await made.run("go")
    assert watching.log[-1] == "settle helper NoneType"


@define
class World:
    """A turn that fans out to three, one of which asks."""

    memory: InMemoryChatMemory = field(factory=InMemoryChatMemory)
    pauses: InMemoryPauseStore = field(factory=InMemoryPauseStore)
    asked_below: InMemoryPauseStore = field(factory=InMemoryPauseStore)
    below: InMemoryChatMemory = field(factory=InMemoryChatMemory)
    deleter: Deleter = field(factory=Deleter)
    log: list[str] = field(factory=list)
    subagents: Subagents = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.subagents = Subagents(SubagentLimits(max_agents=2), observer=self.observe)

    @asynccontextmanager
    async def observe(self, subagent: Subagent) -> AsyncIterator[None]:
        self.log.append("start")
        try:
            yield
        finally:
            self.log.append("settle")

    async def scenario(self) -> None:
        helper = self.deleter.agent(model=FunctionModel(Judging()), memory=self.below)
        made = parent(
            call("fan_out", id="f", tasks=["one", "/two", "three"]),
            "done",
            tools=[fan_out_tool(helper, subagents=self.subagents)],
            memory=self.memory,
            pauses=self.pauses,
        )
        paused = await made.run("go", conversation_id="c")
        assert isinstance(paused, TurnPaused)
        await made.resume("c", {"f/1/x": Approve()})

    async def check(self) -> None:
        assert self.log.count("start") == self.log.count("settle")
        history = await self.memory.history("c")
        waits = await self.pauses.load("c") is not None
        open_calls = ["f"] if waits else []
        assert find_history_faults(history, open_calls=open_calls) == []
        assert len(self.deleter.deleted) <= 1
        left = set(self.below._histories) | set(self.asked_below._pauses)
        assert left == ({"c/f/1"} if waits else set()), f"left below: {left}"


def test_a_fan_out_of_three_survives_a_cancel_anywhere() -> None:
    """X26, B71"""
    report = cancel_sweep(
        World,
        World.scenario,
        World.check,
        limiters=lambda world: list(world.subagents._permits.values()),
    )
    print(report)
    assert report.runs > 200
