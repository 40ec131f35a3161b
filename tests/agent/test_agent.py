"""Pausing and resuming, and one turn of a conversation at a time."""

import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import pytest
import trio
import trio.testing
from attrs import define, field

from agentrt.agent.agent import Agent
from agentrt.agent.approval import Ruling, Verdict
from agentrt.core.context import Context, Slot
from agentrt.core.converter import from_json, to_json
from agentrt.core.errors import (
    AnswerError,
    InputError,
    NotPausedError,
    ServerError,
    SessionBusyError,
    SessionPausedError,
)
from agentrt.core.history import find_history_faults
from agentrt.core.messages import AssistantMessage, Message, ToolMessage, UserMessage
from agentrt.core.outcomes import (
    Approve,
    Decision,
    Deny,
    PauseSnapshot,
    Reply,
    TurnCompleted,
    TurnFailed,
    TurnPaused,
)
from agentrt.filters.base import Filter, ToolRequest, TurnCall, TurnRequest, hook
from agentrt.models.catalog import open_model
from agentrt.runtime.runtime import open_runtime
from agentrt.stores.in_memory import InMemoryChatMemory, InMemoryPauseStore
from agentrt.stores.sqlite import open_sqlite_stores
from agentrt.testing import Say, ScriptedModel, call
from agentrt.tools.base import Tool, ToolResult, tool


@pytest.fixture(autouse=True)
def _quiet() -> None:
    logging.getLogger("agentrt").setLevel(logging.CRITICAL)


@define
class World:
    """An agent with a tool that asks and one that does not, and what they did."""

    ran: list[tuple[str, Any]] = field(factory=list)

    def tools(self) -> Sequence[Tool]:
        @tool(sensitive=True)
        async def delete(name: str) -> str:
            """Delete."""
            await trio.lowlevel.checkpoint()
            self.ran.append(("delete", name))
            return f"deleted {name}"

        @tool
        async def read(name: str) -> ToolResult:
            """Read."""
            await trio.lowlevel.checkpoint()
            self.ran.append(("read", name))
            return ToolResult(content=f"read {name}", writes={"log": name})

        return [delete, read]

    def agent(self, *steps: Any, **more: Any) -> Agent:
        script = more.pop("model", None) or ScriptedModel(steps)
        slots = {"log": Slot(reduce=lambda old, new: [*old, new], init=[])}
        return Agent(model=script, tools=self.tools(), slots=slots, **more)

    async def paused(self, *steps: Any, **more: Any) -> Agent:
        """An agent whose conversation waits for an answer to `d1`."""
        asks = [call("delete", id="d1", name="x"), call("read", id="r1", name="y")]
        made = self.agent(asks, *(steps or ("done",)), **more)
        outcome = await made.run("go", conversation_id="c")
        assert isinstance(outcome, TurnPaused)
        assert [each.id for each in outcome.interrupts] == ["d1"]
        return made


def results(messages: Sequence[Message]) -> Mapping[str, str]:
    return {m.call_id: m.text for m in messages if isinstance(m, ToolMessage)}


async def test_what_needs_no_answer_ran_before_the_pause_and_does_not_again() -> None:
    """U26, U28"""
    world = World()
    made = await world.paused()
    assert world.ran == [("read", "y")]
    outcome = await made.resume("c", {"d1": Approve()})
    assert isinstance(outcome, TurnCompleted)
    assert world.ran == [("read", "y"), ("delete", "x")]
    history = await made.history("c")
    assert find_history_faults(history) == []
    assert results(history) == {"d1": "deleted x", "r1": "read y"}
    assert [(r.id, r.status) for r in outcome.calls] == [("r1", "ok"), ("d1", "ok")]


@pytest.mark.parametrize(
    ("answer", "ran", "result"),
    [
        (Approve(), ["x"], "deleted x"),
        (Approve(arguments={"name": "z"}), ["z"], "deleted z"),
        (Reply(content="mine"), [], "mine"),
        (Deny(), [], "This call was denied by the user."),
        (Deny(reason="too dear"), [], "This call was denied by the user: too dear"),
    ],
)
async def test_each_answer_does_what_it_says(
    answer: Decision, ran: Sequence[str], result: str
) -> None:
    """B59, X18, X20, X21, U29"""
    world = World()
    made = await world.paused()
    outcome = await made.resume("c", {"d1": answer})
    assert isinstance(outcome, TurnCompleted)
    assert [name for what, name in world.ran if what == "delete"] == ran
    history = await made.history("c")
    assert find_history_faults(history) == []
    assert results(history)["d1"] == result


@pytest.mark.parametrize("in_memory", [True, False])
async def test_the_model_reads_the_arguments_that_a_person_put_in(
    *, in_memory: bool
) -> None:
    """X22: in the rest of the turn, in later turns, and whoever reads the history."""
    world = World()
    asks = [call("delete", id="d1", name="x"), call("read", id="r1", name="y")]
    model = ScriptedModel([asks, "done", "again"])
    more = {} if in_memory else {"memory": None}
    made = world.agent(model=model, **more)
    await made.run("go", conversation_id="c")
    outcome = await made.resume("c", {"d1": Approve(arguments={"name": "z"})})
    assert isinstance(outcome, TurnCompleted)
    await made.run("go on", conversation_id="c")
    expected = {"d1": {"name": "z"}, "r1": {"name": "y"}}
    assert asked_for(model.requests[1].messages) == expected
    if in_memory:
        assert asked_for(model.requests[2].messages) == expected
        assert asked_for(await made.history("c")) == expected


def asked_for(messages: Sequence[Message]) -> Mapping[str, Any]:
    return {
        each.id: each.arguments
        for message in messages
        if isinstance(message, AssistantMessage)
        for each in message.tool_calls
    }


@pytest.mark.parametrize(
    "answers",
    [
        {},
        {"x1": Approve()},
        {"d1": Approve(), "x1": Approve()},
        {"d1": Reply(content="")},
        {"d1": Approve(arguments={"name": 5})},
        {"d1": Approve(arguments={})},
    ],
)
async def test_a_malformed_answer_is_refused_and_the_pause_stays(
    answers: Mapping[str, Decision],
) -> None:
    """B61, P6: it can still be answered."""
    world = World()
    made = await world.paused()
    before = await made.paused("c")
    with pytest.raises(AnswerError):
        await made.resume("c", answers)
    assert await made.paused("c") == before
    assert isinstance(await made.resume("c", {"d1": Approve()}), TurnCompleted)


async def test_an_answer_is_taken_once_however_many_give_it() -> None:
    """X24"""
    world = World()
    made = await world.paused()
    outcomes: list[Any] = []

    async def answer() -> None:
        try:
            outcomes.append(await made.resume("c", {"d1": Approve()}))
        except (SessionBusyError, NotPausedError) as error:
            outcomes.append(error)

    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(answer)
    assert [type(each) for each in outcomes].count(TurnCompleted) == 1
    assert world.ran == [("read", "y"), ("delete", "x")]


async def test_two_processes_that_answer_run_the_tool_once() -> None:
    """X24: the store decides, where no session does."""
    world, pauses = World(), InMemoryPauseStore()
    made = await world.paused(pauses=pauses)
    other = world.agent("done", pauses=pauses, memory=made.memory)
    outcomes: list[Any] = []

    async def answer(by: Agent) -> None:
        try:
            outcomes.append(await by.resume("c", {"d1": Approve()}))
        except NotPausedError as error:
            outcomes.append(error)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(answer, made)
        nursery.start_soon(answer, other)
    kinds = {type(each) for each in outcomes}
    assert kinds == {TurnCompleted, NotPausedError}
    assert world.ran.count(("delete", "x")) == 1


async def test_a_pause_is_all_that_another_process_needs() -> None:
    """B57, U27, U30: slots and results are in the text."""
    world, pauses = World(), InMemoryPauseStore()
    made = await world.paused(pauses=pauses)
    snapshot = await made.paused("c")
    again: PauseSnapshot = from_json(to_json(snapshot, PauseSnapshot), PauseSnapshot)
    assert again == snapshot
    assert again.values == {"log": ["y"]}
    elsewhere = InMemoryPauseStore()
    await elsewhere.save(again)
    model = ScriptedModel([call("read", name="w"), "done"])
    fresh = world.agent(model=model, pauses=elsewhere, memory=made.memory)
    outcome = await fresh.resume("c", {"d1": Approve()})
    assert isinstance(outcome, TurnCompleted)
    asked = model.requests[0].messages
    assert results(asked) == {"d1": "deleted x", "r1": "read y"}


async def test_without_a_memory_the_pause_keeps_the_transcript() -> None:
    """B57"""
    world = World()
    model = ScriptedModel(
        [[call("delete", id="d1", name="x"), call("read", id="r1", name="y")], "done"]
    )
    made = world.agent(model=model, memory=None)
    await made.run("go", conversation_id="c")
    await made.resume("c", {"d1": Approve()})
    last = model.requests[-1].messages
    assert find_history_faults(last) == []
    assert last[0].text == "go"
    assert results(last) == {"d1": "deleted x", "r1": "read y"}


async def test_a_resume_that_pauses_again_can_be_answered_again() -> None:
    world = World()
    made = await world.paused(call("delete", id="d2", name="z"), "done")
    second = await made.resume("c", {"d1": Deny()})
    assert isinstance(second, TurnPaused)
    assert isinstance(await made.resume("c", {"d2": Approve()}), TurnCompleted)
    assert world.ran == [("read", "y"), ("delete", "z")]


async def test_a_budget_of_nothing_left_runs_no_more_batches_after_a_pause() -> None:
    """X13"""
    world = World()
    made = await world.paused(call("read", name="more"), max_iterations=1)
    outcome = await made.resume("c", {"d1": Approve()})
    assert isinstance(outcome, TurnFailed)
    assert outcome.code == "max_iterations"
    assert ("read", "more") not in world.ran


async def test_a_new_message_over_an_open_pause_is_refused() -> None:
    world = World()
    made = await world.paused()
    with pytest.raises(SessionPausedError) as caught:
        await made.run("hello?", conversation_id="c")
    assert [each.id for each in caught.value.interrupts] == ["d1"]
    assert await made.paused("c") is not None


async def test_there_is_nothing_to_resume_where_nothing_waits() -> None:
    world = World()
    made = world.agent("done")
    with pytest.raises(NotPausedError):
        await made.resume("c", {})


async def test_a_second_turn_waits_for_nobody() -> None:
    """P3"""
    gate = trio.Event()
    made = World().agent(Say(text="one", before=gate.wait), "two")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: made.run("go", conversation_id="c"))
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(SessionBusyError):
            await made.run("me too", conversation_id="c")
        other = await made.run("me too", conversation_id="d")
        assert isinstance(other, TurnCompleted)
        gate.set()


async def test_a_forbidden_call_is_denied_without_asking() -> None:
    def forbid(request: ToolRequest, context: Context) -> Ruling:
        if request.call.arguments["name"] == "secret":
            return Ruling(Verdict.FORBID, "not that one")
        return Ruling(Verdict.ALLOW)

    world = World()
    made = world.agent(call("read", id="r", name="secret"), "done", approval=forbid)
    outcome = await made.run("go", conversation_id="c")
    assert isinstance(outcome, TurnCompleted)
    assert results(await made.history("c")) == {
        "r": "This call is not allowed: not that one"
    }
    assert world.ran == []


async def test_a_policy_that_raises_pauses() -> None:
    """X19, P6"""

    def broken(request: ToolRequest, context: Context) -> Ruling:
        raise KeyError("rules")

    made = World().agent(call("read", id="r", name="x"), approval=broken)
    outcome = await made.run("go", conversation_id="c")
    assert isinstance(outcome, TurnPaused)
    assert "failed" in outcome.interrupts[0].reason


async def test_arguments_are_checked_before_a_person_is_asked() -> None:
    world = World()
    made = world.agent(call("delete", id="d", name=5), "done")
    assert isinstance(await made.run("go"), TurnCompleted)
    assert world.ran == []


async def test_after_a_resume_a_turn_filter_may_run_the_turn_again() -> None:
    """B25, B26: a pause passes; the answer after the resume is checked."""
    seen: list[str] = []

    @hook
    async def validate(call: TurnCall) -> AsyncIterator[None]:
        seen.append("resume" if call.request.resume else "chat")
        yield
        seen.append(type(call.response).__name__)
        if isinstance(call.response, TurnCompleted) and call.response.text != "good":
            call.request = TurnRequest(messages=[UserMessage(content="do better")])
            await call.rerun()

    world = World()
    filters = [Filter(name="validate", turn=validate)]
    made = await world.paused("bad", "good", filters=filters)
    outcome = await made.resume("c", {"d1": Approve()})
    assert isinstance(outcome, TurnCompleted)
    assert outcome.text == "good"
    assert seen == ["chat", "TurnPaused", "resume", "TurnCompleted"]
    model = made.model
    assert isinstance(model, ScriptedModel)
    assert len(model.requests) == 3
    assert find_history_faults(await made.history("c")) == []


async def test_a_filter_that_fails_around_a_pause_leaves_no_pause() -> None:
    """P5"""

    @hook
    async def break_(call: TurnCall) -> AsyncIterator[None]:
        yield
        raise RuntimeError("after")

    world = World()
    made = world.agent(
        call("delete", id="d1", name="x"), filters=[Filter(name="b", turn=break_)]
    )
    with pytest.raises(RuntimeError, match="after"):
        await made.run("go", conversation_id="c")
    assert await made.paused("c") is None
    assert find_history_faults(await made.history("c")) == []


async def test_a_resume_that_is_cut_gives_every_call_a_result(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """P5, U5"""

    @tool(sensitive=True)
    async def slow() -> None:
        """Take a while."""
        await trio.sleep(10)

    made = Agent(
        model=ScriptedModel([[call("slow", id="a"), call("slow", id="b")], "done"]),
        tools=[slow],
    )
    await made.run("go", conversation_id="c")
    with trio.move_on_after(1):
        await made.resume("c", {"a": Approve(), "b": Deny()})
    history = await made.history("c")
    assert find_history_faults(history) == []
    assert results(history) == {
        "a": "This call was cut: the run ended first. It may have had effects.",
        "b": "This call was denied by the user.",
    }


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"model": "openai/x"}, "model is 'openai/x', which has no 'call' method"),
        ({"model": open_model("offline/demo")}, "`async with open_model"),
        ({"memory": "x.db"}, "memory is 'x.db', which has no 'append' method"),
        ({"memory": open_sqlite_stores("x.db")}, "`async with open_sqlite_stores"),
        ({"pauses": InMemoryChatMemory()}, "which has no 'save' method"),
        ({"approval": "always"}, "approval has 'always', expected a policy"),
        ({"approval": [True]}, "approval has True, expected a policy"),
    ],
)
def test_what_is_no_part_of_an_agent_is_refused(
    wrong: dict[str, Any], words: str
) -> None:
    with pytest.raises(TypeError, match=words):
        Agent(**{"model": ScriptedModel([]), **wrong})


@pytest.mark.parametrize("empty", ["", " \n", UserMessage(content=())])
async def test_a_user_who_says_nothing_is_refused(empty: Any) -> None:
    made = Agent(model=ScriptedModel(["never"]))
    with pytest.raises(InputError, match="expected words or parts"):
        await made.run(empty, conversation_id="c")
    async with open_runtime(made) as runtime:
        with pytest.raises(InputError, match="expected words or parts"):
            await runtime.start_run("c", empty)
    assert not await made.history("c")


@pytest.mark.parametrize("keeps", [True, False])
async def test_a_conversation_begins_with_a_message(keeps: bool) -> None:
    memory = InMemoryChatMemory() if keeps else None
    made = Agent(model=ScriptedModel(["never"]), memory=memory)
    outcome = await made.run([], conversation_id="c")
    assert isinstance(outcome, TurnFailed)
    assert outcome.code == "bad_request"
    assert "the input has no message" in outcome.message
    assert not await made.history("c")


async def test_a_turn_that_failed_goes_on_without_another_message() -> None:
    made = Agent(model=ScriptedModel([ServerError("down"), "here"]))
    assert isinstance(await made.run("Hello?", conversation_id="c"), TurnFailed)
    outcome = await made.run([], conversation_id="c")
    assert isinstance(outcome, TurnCompleted)
    assert [each.text for each in await made.history("c")] == ["Hello?", "here"]
