"""Pauses at their edges: tools that changed, hooks that fail, processes that died."""

import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from attrs import define, evolve, field

from agentrt.agent.agent import Agent
from agentrt.agent.approval import Rule, Ruling, Verdict, rules_policy
from agentrt.agent.approvers import Approval, Question
from agentrt.agent.delegation import delegate_tool, fan_out_tool
from agentrt.core.context import Context
from agentrt.core.deadlines import Deadlines
from agentrt.core.errors import (
    AnswerError,
    InputError,
    SessionBusyError,
    SnapshotError,
    ToolError,
)
from agentrt.core.history import find_history_faults
from agentrt.core.messages import (
    AssistantMessage,
    Message,
    ToolCall,
    ToolMessage,
    UserMessage,
    tool_calls_of,
)
from agentrt.core.outcomes import (
    Approve,
    Decision,
    Deny,
    Reply,
    Retry,
    TurnCancelled,
    TurnCompleted,
    TurnFailed,
    TurnPaused,
)
from agentrt.filters.base import (
    ChatCall,
    Filter,
    ToolRequest,
    TurnCall,
    TurnRequest,
    hook,
)
from agentrt.runtime.run import RunOptions
from agentrt.runtime.runtime import open_runtime
from agentrt.stores.in_memory import InMemoryChatMemory, InMemoryPauseStore
from agentrt.stores.sqlite import open_sqlite_stores
from agentrt.testing import Say, ScriptedModel, call, check_stream
from agentrt.tools.base import Tool, ToolResult, tool


@pytest.fixture(autouse=True)
def _quiet() -> None:
    logging.getLogger("agentrt").setLevel(logging.CRITICAL)


def results(history: Sequence[Message]) -> Mapping[str, str]:
    return {m.call_id: m.text for m in history if isinstance(m, ToolMessage)}


def arguments(history: Sequence[Message]) -> Sequence[Any]:
    return [dict(c.arguments) for m in history for c in tool_calls_of(m)]


@define
class World:
    """What ran, and the stores that agents share."""

    ran: list[Any] = field(factory=list)
    memory: InMemoryChatMemory = field(factory=InMemoryChatMemory)
    pauses: InMemoryPauseStore = field(factory=InMemoryPauseStore)

    def tool(self, name: str = "delete", **options: Any) -> Tool:
        options.setdefault("sensitive", True)

        @tool(name=name, **options)
        async def made(path: str = "/") -> str:
            """Delete."""
            await trio.lowlevel.checkpoint()
            self.ran.append(path)
            return f"{name} {path}"

        return made

    def agent(self, *steps: Any, **options: Any) -> Agent:
        options.setdefault("tools", [self.tool()])
        options.setdefault("memory", self.memory)
        options.setdefault("pauses", self.pauses)
        return Agent(model=ScriptedModel(steps), **options)


DELETE = call("delete", id="d", path="/x")


async def test_a_call_that_ran_no_subagent_cannot_be_said_to_have() -> None:
    """P6: or a denial of its question would run it."""
    world = World()
    agent = world.agent(DELETE, "ok")
    await agent.run("go", conversation_id="c")
    snapshot = await world.pauses.load("c")
    assert snapshot is not None
    (asked,) = snapshot.interrupts
    forged = evolve(asked, id="d/x", parent_call_id="d")
    await world.pauses.save(evolve(snapshot, interrupts=(forged,)))
    with pytest.raises(SnapshotError, match="call 'd' runs no subagent"):
        await agent.resume("c", {"d/x": Deny()})
    assert world.ran == []


@pytest.mark.parametrize("change", ["the tool", "the policy"])
async def test_a_subagent_that_may_not_go_on_any_more_does_not(change: str) -> None:
    world, below = World(), World()
    helper = below.agent(call("delete", id="x"), "done")
    delegate = delegate_tool(helper, name="clean")
    before = world.agent(call("clean", id="c", task="t"), tools=[delegate])
    assert isinstance(await before.run("go", conversation_id="me"), TurnPaused)
    if change == "the tool":
        after = world.agent("ok", tools=[world.tool("clean")])
    else:
        never = Ruling(Verdict.FORBID, "no more")
        after = world.agent("ok", tools=[delegate], approval=lambda r, c: never)
    await after.resume("me", {"c/x": Approve()})
    assert (world.ran, below.ran) == ([], [])
    (told,) = results(await after.history("me")).values()
    assert "runs no subagents" in told or "no more" in told or "is missing" in told


async def test_asking_each_time_is_stricter_than_asking_once() -> None:
    world = World()

    def each_time(request: ToolRequest, context: Context) -> Ruling:
        return Ruling(Verdict.ASK, "each time", may_remember=False)

    agent = world.agent(DELETE, "ok", evolve(DELETE, id="e"), approval=each_time)
    await agent.run("go", conversation_id="c")
    await agent.resume("c", {"d": Approve(remember=True)})
    assert isinstance(await agent.run("again", conversation_id="c"), TurnPaused)


async def test_what_was_remembered_does_not_stand_in_for_a_policy_that_fails() -> None:
    world, broken = World(), [False]

    def policy(request: ToolRequest, context: Context) -> Ruling:
        if broken[0]:
            raise ConnectionError("the policy server is down")
        return Ruling(Verdict.ASK, "may I?")

    agent = world.agent(
        DELETE,
        "ok",
        evolve(DELETE, id="e"),
        tools=[world.tool(sensitive=False)],
        approval=policy,
    )
    await agent.run("go", conversation_id="c")
    await agent.resume("c", {"d": Approve(remember=True)})
    broken[0] = True
    assert isinstance(await agent.run("again", conversation_id="c"), TurnPaused)


async def test_an_approver_cannot_approve_what_is_forbidden_by_editing() -> None:
    world = World()

    async def edit(question: Question) -> Decision:
        await trio.lowlevel.checkpoint()
        return Approve(arguments={"path": "/etc/passwd"})

    rules = [
        Rule(tool="*", arguments={"path": "^/etc/"}, verdict=Verdict.FORBID),
        Rule(tool="*", verdict=Verdict.ASK),
    ]
    approval = Approval(policies=[rules_policy(rules)], approvers=[edit])
    agent = world.agent(DELETE, "ok", approval=approval)
    await agent.run("go", conversation_id="c")
    assert world.ran == []
    assert results(await agent.history("c"))["d"].startswith("This call is not allowed")


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (Reply(content=[{"type": "text", "text": "x"}]), "expected a text or parts"),  # type: ignore[list-item]
        (Reply(content=5), "expected a text or parts"),  # type: ignore[arg-type]
        (Reply(content=None), "says nothing"),  # type: ignore[arg-type]
        (Approve(arguments="all"), "expected an object"),  # type: ignore[arg-type]
        (Deny(reason=7), "expected a text"),  # type: ignore[arg-type]
    ],
)
async def test_an_answer_of_the_wrong_form_is_refused_and_the_pause_stays(
    answer: Any, words: str
) -> None:
    """P6, B59: it would have been written, and never read again."""
    world = World()
    agent = world.agent(DELETE, "ok")
    await agent.run("go", conversation_id="c")
    with pytest.raises(AnswerError, match=words):
        await agent.resume("c", {"d": answer})
    assert await agent.is_paused("c")


ODD: Sequence[Any] = [
    ToolResult(content=[{"type": "text", "text": "x"}]),  # type: ignore[list-item]
    ToolResult(content={"a": 1}),  # type: ignore[arg-type]
    ToolResult(content=5),  # type: ignore[arg-type]
    ToolResult(content="fine", writes={("a", 1): 2}),  # type: ignore[dict-item]
    ToolResult(content="fine", writes={"a": object(), "b": float("nan")}),
]


@pytest.mark.parametrize("result", ODD, ids=str)
async def test_an_odd_result_spoils_no_batch(
    result: ToolResult, tmp_path: Path
) -> None:
    """P8, P5: that of its sibling is kept, and the history can be read again."""

    @tool
    async def odd() -> ToolResult:
        """Give something odd."""
        await trio.lowlevel.checkpoint()
        return result

    @tool
    async def charge() -> str:
        """Charge."""
        await trio.lowlevel.checkpoint()
        return "charged"

    batch = [call("charge", id="c"), call("odd", id="o")]
    async with open_sqlite_stores(tmp_path / "chat.db") as stores:
        agent = Agent(
            model=ScriptedModel([batch, "ok"]),
            tools=[odd, charge],
            memory=stores.memory,
        )
        outcome = await agent.run("go", conversation_id="c")
        assert isinstance(outcome, TurnCompleted)
        history = await agent.history("c")
    told = results(history)
    assert told["c"] == "charged"
    assert told["o"] in {
        "fine",
        "error: the tool ran, but its result is no text and no parts",
    }
    assert find_history_faults(history) == []


async def test_results_that_only_the_pause_has_are_kept_on_resume() -> None:
    """P8, U33: the process died after it had saved the pause, and before these."""

    world = World()
    tools = [world.tool("charge", sensitive=False), world.tool()]
    batch = [call("charge", id="r"), DELETE]
    agent = world.agent(batch, tools=tools)
    await agent.run("go", conversation_id="c")
    left = InMemoryChatMemory()
    await left.append("c", (await world.memory.history("c"))[:2])
    after = world.agent("ok", tools=tools, memory=left)
    await after.resume("c", {"d": Approve()})
    history = await after.history("c")
    assert results(history) == {"r": "charge /", "d": "delete /x"}
    assert find_history_faults(history) == []


def failing(how: str) -> Filter:
    """A turn hook that lets the first turn pass, and the second never begin."""
    turns: list[str] = []

    @hook
    async def turn(hooked: TurnCall) -> AsyncIterator[None]:
        turns.append("turn")
        match how if len(turns) == 2 else "passes":
            case "raises":
                raise OSError("a file is not there")
            case "answers":
                hooked.response = TurnCompleted(text="I may not.")
            case "waits":
                await trio.sleep_forever()
        yield

    return Filter(name="failing", turn=turn)


@pytest.mark.parametrize("how", ["raises", "answers", "waits"])
@pytest.mark.parametrize("resumes", [True, False])
async def test_a_pause_whose_turn_never_begins_leaves_no_call_open(
    how: str, resumes: bool
) -> None:
    """P5: whoever took it, or gave it up."""
    world = World()

    @tool
    async def save() -> str:
        """Fail for want of room."""
        await trio.lowlevel.checkpoint()
        raise ToolError("the disk is full", kind="environment")

    agent = world.agent(
        [DELETE, call("save", id="s")],
        tools=[world.tool(), save],
        pause_on_environment=True,
        filters=[failing(how)],
    )
    async with open_runtime(agent) as runtime:
        run = await runtime.start_run("c", "go")
        await run.wait()
        if resumes:
            run = await runtime.resume("c", {"d": Approve(), "s": Retry()})
        else:
            options = RunOptions(discard_pause=True)
            run = await runtime.start_run("c", "something else", options)
        await trio.testing.wait_all_tasks_blocked()
        runtime.stop("c")
        outcome = await run.wait()
        check_stream(runtime._events.ring("c").after(0, limit=1000))
    ends = {"raises": TurnFailed, "answers": TurnCompleted, "waits": TurnCancelled}
    assert isinstance(outcome, ends[how])
    history = await agent.history("c")
    assert find_history_faults(history) == []
    assert results(history)["s"] == "error: the disk is full"
    assert world.ran == []
    assert not await agent.is_paused("c")


@pytest.mark.parametrize("other", ["the same", "an evolved one"])
async def test_one_conversation_has_one_turn_also_beside_a_runtime(other: str) -> None:
    """P3: the second would answer the calls of the first."""
    gate = trio.Event()
    world = World()
    agent = world.agent(Say(text="one", before=gate.wait), "two")
    second = agent if other == "the same" else evolve(agent, system="Be brief.")
    async with open_runtime(agent) as runtime:
        run = await runtime.start_run("c", "go")
        await trio.testing.wait_all_tasks_blocked()
        for action in (second.run("x", conversation_id="c"), second.reset("c")):
            with pytest.raises(SessionBusyError, match=run.id):
                await action
        gate.set()
        assert isinstance(await run.wait(), TurnCompleted)
    assert [m.text for m in await agent.history("c")] == ["go", "one"]


async def test_a_subagent_that_asks_is_forgotten_when_its_sibling_is_cut() -> None:
    below, world = World(), World()
    helper = below.agent(call("delete", id="x"))

    @tool
    async def hang() -> None:
        """Hang."""
        await trio.sleep_forever()

    batch = [call("delegate", id="s", task="t"), call("hang", id="h")]
    agent = world.agent(batch, tools=[delegate_tool(helper), hang])
    async with trio.open_nursery() as nursery:

        async def turn() -> None:
            await agent.run("go", conversation_id="c")

        nursery.start_soon(turn)
        await trio.testing.wait_all_tasks_blocked()
        assert await helper.is_paused("c/s")
        nursery.cancel_scope.cancel()
    assert not await helper.is_paused("c/s")
    assert list(await helper.history("c/s")) == []


async def test_a_reset_reaches_subagents_at_any_depth() -> None:
    world, middle_world, below = World(), World(), World()
    lowest = below.agent(call("delete", id="x"))
    middle = middle_world.agent(
        call("delegate", id="m", task="t"), tools=[delegate_tool(lowest)]
    )
    agent = world.agent(
        call("delegate", id="d", task="t"), tools=[delegate_tool(middle)]
    )
    await agent.run("go", conversation_id="c")
    assert await lowest.is_paused("c/d/m")
    await agent.reset("c")
    for each, place in [(agent, "c"), (middle, "c/d"), (lowest, "c/d/m")]:
        assert not await each.is_paused(place)
        assert list(await each.history(place)) == []


async def test_a_retry_of_an_edited_call_is_an_edited_call() -> None:
    """X22"""
    full, tried = [True], []

    @tool(sensitive=True)
    async def save(path: str) -> str:
        """Save."""
        await trio.lowlevel.checkpoint()
        tried.append(path)
        if full[0]:
            raise ToolError("the disk is full", kind="environment")
        return "saved"

    agent = Agent(
        model=ScriptedModel([call("save", id="s", path="/asked"), "ok"]),
        tools=[save],
        pause_on_environment=True,
    )
    await agent.run("go", conversation_id="c")
    await agent.resume("c", {"s": Approve(arguments={"path": "/edited"})})
    full[0] = False
    await agent.resume("c", {"s": Retry()})
    assert tried == ["/edited", "/edited"]
    assert arguments(await agent.history("c")) == [{"path": "/edited"}]


async def test_an_edited_call_whose_subagent_asked_goes_on_as_it_was_edited() -> None:
    below = World()
    helper = below.agent(call("delete", id="x"), "did it")
    fan_out = evolve(fan_out_tool(helper), sensitive=True)
    agent = World().agent(
        call("fan_out", id="f", tasks=["safe", "risky"]), "ok", tools=[fan_out]
    )
    await agent.run("go", conversation_id="c")
    edited = Approve(arguments={"tasks": ["safe"]})
    assert isinstance(await agent.resume("c", {"f": edited}), TurnPaused)
    await agent.resume("c", {"f/0/x": Approve()})
    history = await agent.history("c")
    assert results(history) == {"f": "## Task 1\ndid it"}
    assert arguments(history) == [{"tasks": ["safe"]}]


async def test_a_serial_batch_goes_on_in_call_order() -> None:
    world, order = World(), []
    below = World()
    helper = below.agent(call("delete", id="x"), "did it")

    @tool(sensitive=True, serial=True)
    async def publish() -> str:
        """Publish."""
        await trio.lowlevel.checkpoint()
        order.append(list(below.ran))
        return "published"

    batch = [call("delegate", id="d", task="t"), call("publish", id="p")]
    agent = world.agent(batch, "ok", tools=[delegate_tool(helper), publish])
    await agent.run("go", conversation_id="c")
    await agent.resume("c", {"d/x": Approve(), "p": Approve()})
    assert order == [["/"]]


async def test_without_a_memory_a_second_pause_has_each_message_once() -> None:
    seen: list[Any] = []

    @hook
    async def look(hooked: ChatCall) -> AsyncIterator[None]:
        seen.append(find_history_faults(hooked.request.messages))
        yield

    full = [True]

    @tool
    async def save() -> str:
        """Save."""
        await trio.lowlevel.checkpoint()
        if full[0]:
            raise ToolError("the disk is full", kind="environment")
        return "saved"

    world = World()
    agent = world.agent(
        [DELETE, call("save", id="s"), call("read", id="r")],
        "ok",
        tools=[world.tool(), save, world.tool("read", sensitive=False)],
        memory=None,
        pause_on_environment=True,
        filters=[Filter(name="look", chat=look)],
    )
    await agent.run("go", conversation_id="c")
    await agent.resume("c", {"d": Approve(), "s": Retry()})
    full[0] = False
    assert isinstance(await agent.resume("c", {"s": Retry()}), TurnCompleted)
    assert seen == [[], []]


async def test_a_pause_that_does_not_say_when_it_began_is_never_too_late() -> None:
    world = World()
    agent = world.agent(DELETE, "ok", deadlines=Deadlines(human_seconds=1))
    await agent.run("go", conversation_id="c")
    snapshot = await world.pauses.load("c")
    assert snapshot is not None
    await world.pauses.save(evolve(snapshot, paused_at=0.0))  # as version 1
    await agent.resume("c", {"d": Approve()})
    assert world.ran == ["/x"]


async def test_the_second_half_of_an_iteration_has_its_deadline(
    autojump_clock: trio.testing.MockClock,
) -> None:
    @tool(sensitive=True)
    async def hang() -> None:
        """Hang."""
        await trio.sleep_forever()

    agent = Agent(
        model=ScriptedModel([call("hang", id="h")]),
        tools=[hang],
        deadlines=Deadlines(iteration_seconds=5),
    )
    await agent.run("go", conversation_id="c")
    outcome = await agent.resume("c", {"h": Approve()})
    assert isinstance(outcome, TurnFailed)
    assert outcome.deadline == "iteration"


async def test_what_a_user_says_again_is_said_again() -> None:
    question = UserMessage(content="and now?")
    model = ScriptedModel(["one", "two"])
    agent = Agent(model=model)
    for _ in range(2):
        await agent.run(question, conversation_id="c")
    said = [message.text for message in model.requests[1].messages]
    assert said == ["and now?", "one", "and now?"]


async def test_input_that_leaves_a_call_open_is_refused() -> None:
    asks = AssistantMessage(id="x", tool_calls=(ToolCall(id="z", name="t"),))
    agent = Agent(model=ScriptedModel([]))
    with pytest.raises(InputError, match="call 'z' has no result"):
        await agent.run([UserMessage(content="q"), asks], conversation_id="c")
    assert list(await agent.history("c")) == []


async def test_pauses_of_two_conversations_do_not_meet() -> None:
    """Whoever brings a context need not give it a run id."""
    gate = trio.Event()
    world = World()

    @hook
    async def wait(hooked: TurnCall) -> AsyncIterator[None]:
        yield
        if isinstance(hooked.response, TurnPaused):
            await gate.wait()

    agent = world.agent(DELETE, "hi", filters=[Filter(name="wait", turn=wait)])
    said = TurnRequest(messages=[UserMessage(content="go")])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(agent.run_turn, said, Context(conversation_id="a"))
        await trio.testing.wait_all_tasks_blocked()
        await agent.run_turn(said, Context(conversation_id="b"))
        gate.set()
    assert await agent.is_paused("a")


async def test_a_person_who_names_a_parameter_that_is_not_there_is_told() -> None:
    @tool(sensitive=True)
    async def pay(amount: int, to: str = "me") -> str:
        """Pay."""
        await trio.lowlevel.checkpoint()
        return f"{amount} to {to}"

    model = ScriptedModel([call("pay", id="p", amount=1, by_the_model="x"), "paid"])
    made = Agent(model=model, tools=[pay])
    await made.run("go", conversation_id="c")
    words = "'p' do not fit: 'pay' has no parameter 'too'; there are 'amount', 'to'"
    with pytest.raises(AnswerError, match=words):
        await made.resume("c", {"p": Approve(arguments={"amount": 2, "too": "Ann"})})
    edited = Approve(arguments={"amount": 2, "to": "Ann"})
    outcome = await made.resume("c", {"p": edited})
    assert [each.content for each in outcome.calls] == ["2 to Ann"]


async def test_answers_that_are_no_mapping_are_refused() -> None:
    made = Agent(model=ScriptedModel([call("x", id="p"), "done"]), tools=[external()])
    await made.run("go", conversation_id="c")
    answers: Any = [Reply(content="1")]
    with pytest.raises(AnswerError, match="answers is a list, expected decisions by"):
        await made.resume("c", answers)
    assert await made.is_paused("c")


def external() -> Tool:
    return Tool(name="x", description="Elsewhere.")


@pytest.mark.parametrize("name", ["", 5, b"c"])
async def test_a_conversation_has_a_text_as_its_id(name: Any) -> None:
    made = Agent(model=ScriptedModel(["never"]))
    words = "the conversation id is .*, expected a text that is not empty"
    with pytest.raises(InputError, match=words):
        await made.run("go", conversation_id=name)
    async with open_runtime(made) as runtime:
        unfit: Any
        for unfit in (name, None):
            with pytest.raises(InputError, match=words):
                await runtime.start_run(unfit, "go")
            with pytest.raises(InputError, match=words):
                await runtime.status(unfit)
            with pytest.raises(InputError, match=words):
                runtime.subscribe(unfit)
