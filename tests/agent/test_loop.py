"""The loop: budgets, batches, results, and what is kept whatever ends a turn."""

import logging
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
import trio
import trio.testing
from attrs import evolve

from agentrt.agent.agent import Agent
from agentrt.core.chat import ChatRequest, ChatResponse, Usage
from agentrt.core.context import Context, Slot
from agentrt.core.errors import MaxIterationsError, ServerError, ToolError
from agentrt.core.history import find_history_faults
from agentrt.core.messages import (
    AssistantMessage,
    Message,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from agentrt.core.outcomes import TurnCompleted, TurnFailed
from agentrt.events import types as e
from agentrt.filters.base import (
    ChatCall,
    Filter,
    IterationCall,
    NextIteration,
    TurnCall,
    TurnRequest,
    hook,
)
from agentrt.models.function import FunctionModel
from agentrt.stores.in_memory import InMemoryChatMemory
from agentrt.testing import Say, ScriptedModel, call
from agentrt.tools.base import ToolResult, tool


@pytest.fixture(autouse=True)
def _quiet() -> None:
    logging.getLogger("agentrt").setLevel(logging.CRITICAL)


@tool
async def add(a: int, b: int = 1) -> int:
    """Add."""
    await trio.lowlevel.checkpoint()
    return a + b


@tool
async def fail() -> None:
    """Fail."""
    await trio.lowlevel.checkpoint()
    raise ValueError("went wrong")


@tool
async def refuse() -> None:
    """Refuse."""
    await trio.lowlevel.checkpoint()
    raise ToolError("not today")


@tool(fatal=True)
async def explode() -> None:
    """Explode."""
    await trio.sleep(0.5)
    raise OSError("disk gone")


@tool(timeout_seconds=1.0)
async def hang() -> None:
    """Hang."""
    await trio.sleep_forever()


TOOLS = (add, fail, refuse, explode, hang)


def agent(*steps: Any, **more: Any) -> Agent:
    model = more.pop("model", None) or ScriptedModel(steps)
    return Agent(model=model, tools=more.pop("tools", TOOLS), **more)


def results(messages: Sequence[Message]) -> Sequence[str]:
    return [m.text for m in messages if isinstance(m, ToolMessage)]


async def test_a_turn_goes_on_until_there_are_only_words() -> None:
    made = agent(call("add", id="1", a=1), call("add", id="2", a=2), "done")
    outcome = await made.run("go", conversation_id="c")
    assert isinstance(outcome, TurnCompleted)
    assert (outcome.text, [r.content for r in outcome.calls]) == ("done", ["2", "3"])
    history = await made.history("c")
    assert find_history_faults(history) == []
    assert [type(m).__name__ for m in history] == [
        "UserMessage",
        "AssistantMessage",
        "ToolMessage",
        "AssistantMessage",
        "ToolMessage",
        "AssistantMessage",
    ]


async def test_the_limit_ends_a_turn_with_a_valid_history() -> None:
    """B44: three batches run, the fourth is answered and not run."""
    made = agent(*[call("add", a=n) for n in range(4)], max_iterations=3)
    outcome = await made.run("go", conversation_id="c")
    assert isinstance(outcome, TurnFailed)
    assert isinstance(outcome.error, MaxIterationsError)
    assert (outcome.code, outcome.retryable) == ("max_iterations", False)
    history = await made.history("c")
    assert find_history_faults(history) == []
    *ran, last = results(history)
    assert ran == ["1", "2", "3"]
    assert last == "This call was not started: the turn had no iterations left."
    assert [record.status for record in outcome.calls] == [
        "ok", "ok", "ok", "not_started",
    ]  # fmt: skip


async def test_a_turn_that_is_cut_at_its_limit_leaves_a_valid_history() -> None:
    """P5"""
    made = agent(model=FunctionModel(lambda request: ASKS), max_iterations=0)
    with trio.CancelScope() as scope:

        def listen(event: e.Event) -> None:
            if isinstance(event, e.ToolReturned):
                scope.cancel()

        await made.run("go", conversation_id="c", emit=listen)
    assert find_history_faults(await made.history("c")) == []


ASKS = AssistantMessage(id="m", tool_calls=(ToolCall(id="1", name="add"),))


async def test_no_budget_still_allows_an_answer() -> None:
    outcome = await agent("hi", max_iterations=0).run("go")
    assert isinstance(outcome, TurnCompleted)


def test_a_budget_below_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="max_iterations is -1"):
        agent(max_iterations=-1)


async def test_filters_are_called_as_often_as_they_should() -> None:
    """B21: and they are told what is left."""
    seen: list[Any] = []

    @hook
    async def turn(call: TurnCall) -> AsyncIterator[None]:
        seen.append("turn")
        yield

    @hook
    async def iteration(call: IterationCall) -> AsyncIterator[None]:
        seen.append((call.request.index, call.request.remaining))
        yield

    @hook
    async def chat(call: ChatCall) -> AsyncIterator[None]:
        seen.append("chat")
        yield

    made = agent(
        *[call("add", a=n) for n in range(3)],
        "done",
        filters=[Filter(name="all", turn=turn, iteration=iteration, chat=chat)],
    )
    await made.run("go")
    pairs = [(0, 10), (1, 9), (2, 8), (3, 7)]
    assert seen == ["turn", *(each for pair in pairs for each in (pair, "chat"))]


async def test_a_chat_rerun_spends_the_budget() -> None:
    """B24"""
    left: list[int] = []

    @hook
    async def again(call: ChatCall) -> AsyncIterator[None]:
        yield
        await call.rerun()

    @hook
    async def look(call: IterationCall) -> AsyncIterator[None]:
        left.append(call.request.remaining)
        yield

    filters = [Filter(name="f", chat=again, iteration=look)]
    steps = [call("add", a=1), call("add", a=1), "done", "done"]
    made = agent(*steps, filters=filters, max_iterations=5)
    assert isinstance(await made.run("go"), TurnCompleted)
    assert left == [5, 3]


async def test_endless_reruns_of_the_chat_hit_the_limit() -> None:
    """B24"""

    @hook
    async def forever(call: ChatCall) -> AsyncIterator[None]:
        yield
        while True:
            await call.rerun()

    made = agent(
        *["hi"] * 9, filters=[Filter(name="f", chat=forever)], max_iterations=2
    )
    outcome = await made.run("go")
    assert isinstance(outcome, TurnFailed)
    assert outcome.code == "max_iterations"


async def test_a_turn_rerun_starts_a_new_budget() -> None:
    """B27"""
    seen: list[tuple[int, int]] = []

    @hook
    async def again(call: TurnCall) -> AsyncIterator[None]:
        yield
        if call.reruns_left == 3:
            call.request = TurnRequest(messages=[UserMessage(content="more")])
            await call.rerun()

    @hook
    async def look(call: IterationCall) -> AsyncIterator[None]:
        seen.append((call.request.index, call.request.remaining))
        yield

    steps = [call("add", a=1), "bad", call("add", a=2), "good"]
    filters = [Filter(name="f", turn=again, iteration=look)]
    made = agent(*steps, filters=filters, max_iterations=1)
    outcome = await made.run("go", conversation_id="c")
    assert isinstance(outcome, TurnCompleted)
    assert outcome.text == "good"
    assert seen == [(0, 1), (1, 0), (0, 1), (1, 0)]
    assert find_history_faults(await made.history("c")) == []


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        (
            ToolCall(id="1", name="ad"),
            "error: there is no tool 'ad'; there are 'add', 'fail', 'refuse', "
            "'explode', 'hang'",
        ),
        (
            ToolCall(id="1", name="add", arguments={"a": "x", "b": None}),
            "error: arguments of 'add': $.a is \"x\", expected an integer",
        ),
        (
            ToolCall(id="1", name="add", invalid_arguments="{"),
            "error: arguments of 'add' are no JSON object: '{'",
        ),
        (ToolCall(id="1", name="fail"), "error: went wrong"),
        (ToolCall(id="1", name="refuse"), "error: not today"),
        (
            ToolCall(id="1", name="hang"),
            "The tool deadline of 1 s fired and cut this call. "
            "It may have had effects.",
        ),
    ],
    ids=["unknown", "misfit", "no json", "raises", "refuses", "timeout"],
)
async def test_a_call_that_goes_wrong_is_told_to_the_model(
    asked: ToolCall, text: str, autojump_clock: trio.testing.MockClock
) -> None:
    """B51, U40, B47: its sibling and the turn go on."""
    made = agent([asked, call("add", id="2", a=1)], "done")
    outcome = await made.run("go", conversation_id="c")
    assert isinstance(outcome, TurnCompleted)
    assert results(await made.history("c")) == [text, "2"]
    assert [record.status for record in outcome.calls] == ["error", "ok"]


@pytest.mark.parametrize(
    "error", [RecursionError("deep"), AssertionError("no"), ImportError("gone")]
)
async def test_every_kind_of_failure_is_contained(error: Exception) -> None:
    """B5"""

    @tool
    async def broken() -> None:
        """Break."""
        await trio.lowlevel.checkpoint()
        raise error

    made = agent(
        [call("broken", id="1"), call("add", id="2", a=1)], "done", tools=[broken, add]
    )
    outcome = await made.run("go", conversation_id="c")
    assert isinstance(outcome, TurnCompleted)
    assert results(await made.history("c")) == [f"error: {error}", "2"]


async def test_an_exhausted_memory_comes_out_as_it_is() -> None:
    """B5"""

    @tool
    async def hungry() -> None:
        """Take all."""
        await trio.lowlevel.checkpoint()
        raise MemoryError

    made = agent(call("hungry"), tools=[hungry])
    with pytest.raises(MemoryError):
        await made.run("go", conversation_id="c")
    assert find_history_faults(await made.history("c")) == []


async def test_a_fatal_tool_ends_the_turn_and_every_call_has_a_result(
    autojump_clock: trio.testing.MockClock,
) -> None:
    made = agent(
        [call("add", id="1", a=1), call("explode", id="2"), call("hang", id="3")]
    )
    with pytest.raises(OSError, match="disk gone"):
        await made.run("go", conversation_id="c")
    history = await made.history("c")
    assert find_history_faults(history) == []
    assert results(history) == [
        "2",
        "This call was cut: the run ended first. It may have had effects.",
        "This call was cut: the run ended first. It may have had effects.",
    ]


async def test_a_batch_runs_at_once() -> None:
    """B41: each waits for the other."""
    first, second = trio.Event(), trio.Event()

    @tool
    async def one() -> None:
        """Wait for the other."""
        first.set()
        await second.wait()

    @tool
    async def two() -> None:
        """Wait for the other."""
        second.set()
        await first.wait()

    made = agent([call("one"), call("two")], "done", tools=[one, two])
    with trio.fail_after(5):
        assert isinstance(await made.run("go"), TurnCompleted)


@pytest.mark.parametrize("is_serial", [True, False])
async def test_one_serial_call_makes_its_batch_run_in_order(
    is_serial: bool, autojump_clock: trio.testing.MockClock
) -> None:
    """B41, with the control without `serial`."""
    log: list[str] = []

    @tool
    async def slow() -> None:
        """Be slow."""
        log.append("slow in")
        await trio.sleep(2)
        log.append("slow out")

    @tool(serial=is_serial)
    async def quick() -> None:
        """Be quick."""
        log.append("quick in")
        await trio.sleep(1)
        log.append("quick out")

    made = agent([call("slow"), call("quick")], "done", tools=[slow, quick])
    await made.run("go")
    if is_serial:
        assert log == ["slow in", "slow out", "quick in", "quick out"]
    else:
        assert sorted(log[:2]) == ["quick in", "slow in"]
        assert log[2:] == ["quick out", "slow out"]


async def test_results_are_told_as_they_come_and_kept_in_call_order(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """B42"""

    @tool
    async def wait(seconds: float) -> ToolResult:
        """Wait."""
        await trio.sleep(seconds)
        return ToolResult(content=str(seconds), writes={"log": seconds})

    events: list[e.Event] = []
    seen: list[Any] = []
    slots = {"log": Slot(reduce=lambda old, new: [*old, new], init=[])}

    @hook
    async def look(call: IterationCall) -> AsyncIterator[None]:
        seen.append(call.context.values.get("log"))
        yield

    asked = [call("wait", id=str(n), seconds=n) for n in (3.0, 1.0, 2.0)]
    filters = [Filter(name="look", iteration=look)]
    made = agent(asked, "done", tools=[wait], slots=slots, filters=filters)
    await made.run("go", conversation_id="c", emit=events.append)
    told = [event.content for event in events if isinstance(event, e.ToolReturned)]
    assert told == ["1.0", "2.0", "3.0"]
    assert results(await made.history("c")) == ["3.0", "1.0", "2.0"]
    assert seen == [None, [3.0, 1.0, 2.0]]


async def test_siblings_do_not_see_each_others_writes() -> None:
    """B42"""

    @tool
    async def write(context: Context) -> ToolResult:
        """Write what is there, and one more."""
        await trio.lowlevel.checkpoint()
        count = context.values.get("n", 0) + 1
        return ToolResult(content=str(count), writes={"n": count})

    made = agent([call("write"), call("write")], call("write"), "done", tools=[write])
    await made.run("go", conversation_id="c")
    assert results(await made.history("c")) == ["1", "1", "2"]


async def test_writes_that_are_no_json_do_not_break_the_store() -> None:
    @tool
    async def write() -> ToolResult:
        """Write a live object."""
        await trio.lowlevel.checkpoint()
        return ToolResult(writes={"live": object(), "agentrt/x": 1})

    seen: list[Any] = []

    @hook
    async def look(call: IterationCall) -> AsyncIterator[None]:
        seen.append(dict(call.context.values))
        yield

    filters = [Filter(name="look", iteration=look)]
    made = agent(call("write"), "done", tools=[write], filters=filters)
    await made.run("go", conversation_id="c")
    (kept,) = [m for m in await made.history("c") if isinstance(m, ToolMessage)]
    assert str(kept.writes["live"]).startswith("<object")
    assert list(seen[1]) == ["live"]


async def test_partial_text_is_kept_and_marked_when_the_model_fails() -> None:
    """U19"""
    made = agent(Say(text=["half ", "a word"], error=ServerError("broke")))
    outcome = await made.run("go", conversation_id="c", emit=lambda event: None)
    assert isinstance(outcome, TurnFailed)
    assert (outcome.code, outcome.retryable) == ("provider_error", True)
    last = (await made.history("c"))[-1]
    assert isinstance(last, AssistantMessage)
    assert (last.text, last.partial) == ("half a word", True)


async def test_partial_text_is_kept_and_marked_when_the_turn_is_cut(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """U19, U5"""
    script = Say(text=["half", "never"], delay_seconds=2.0)
    made = agent(script)
    with trio.move_on_after(3) as scope:
        await made.run("go", conversation_id="c", emit=lambda event: None)
    assert scope.cancelled_caught
    last = (await made.history("c"))[-1]
    assert isinstance(last, AssistantMessage)
    assert (last.text, last.partial) == ("half", True)


async def test_results_of_a_batch_survive_a_cut(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """P8, X10"""

    @tool
    async def forever() -> None:
        """Never end."""
        await trio.sleep_forever()

    made = agent(
        [call("add", id="1", a=1), call("forever", id="2")], tools=[add, forever]
    )
    with trio.move_on_after(1):
        await made.run("go", conversation_id="c")
    history = await made.history("c")
    assert find_history_faults(history) == []
    assert results(history) == [
        "2",
        "This call was cut: the run ended first. It may have had effects.",
    ]


async def test_without_a_memory_a_turn_knows_itself_alone() -> None:
    model = ScriptedModel([call("add", id="1", a=1), "done", "again"])
    made = agent(model=model, memory=None)
    first = await made.run("go", conversation_id="c")
    assert isinstance(first, TurnCompleted)
    await made.run("once more", conversation_id="c")
    assert [[m.text for m in r.messages] for r in model.requests] == [
        ["go"],
        ["go", "", "2"],
        ["once more"],
    ]
    assert await made.history("c") == ()


async def test_what_a_filter_makes_of_the_next_messages_reaches_the_model() -> None:
    """B22"""

    @hook
    async def add_note(call: IterationCall) -> AsyncIterator[None]:
        yield
        if isinstance(call.response, NextIteration):
            note = UserMessage(id="note", content="be brief")
            more = [*call.response.messages, note]
            call.response = NextIteration(messages=more)

    for memory in (InMemoryChatMemory(), None):
        model = ScriptedModel([call("add", id="1", a=1), "done"])
        filters = [Filter(name="note", iteration=add_note)]
        made = agent(model=model, filters=filters, memory=memory)
        await made.run("go", conversation_id="c")
        assert [m.text for m in model.requests[1].messages] == [
            "go", "", "2", "be brief",
        ]  # fmt: skip


async def test_calls_that_a_crash_left_open_are_answered_by_the_next_turn() -> None:
    """B58, X12"""
    memory = InMemoryChatMemory()
    asks = AssistantMessage(
        id="m",
        tool_calls=(ToolCall(id="a", name="add"), ToolCall(id="b", name="add")),
    )
    done = ToolMessage(call_id="a", name="add", content="2")
    await memory.append("c", [UserMessage(id="u", content="go"), asks, done])
    made = agent("fine", memory=memory)
    await made.run("on", conversation_id="c")
    history = await memory.history("c")
    assert find_history_faults(history) == []
    assert results(history) == [
        "2",
        "This call was cut: its result was never recorded. It may have had effects.",
    ]


async def test_usage_of_all_calls_adds_up() -> None:
    usage = Usage(provider="p", model="m", input_tokens=2, output_tokens=1)
    asks = Say(calls=[call("add", a=1)], usage=usage)
    outcome = await agent(asks, Say(text="done", usage=usage)).run("go")
    assert outcome.usage == (evolve(usage, input_tokens=4, output_tokens=2),)


def canned(message: AssistantMessage) -> Filter:
    """Answers in the model's place, the first time in each turn."""

    @hook
    async def chat(call: ChatCall) -> AsyncIterator[None]:
        if isinstance(call.request.messages[-1], UserMessage):
            call.response = ChatResponse(message=message)
        yield

    return Filter(name="canned", chat=chat)


async def test_a_filters_answer_is_told_and_stored_like_a_models() -> None:
    """B23, B32: no model call."""
    events: list[e.Event] = []
    model = ScriptedModel([])
    answer = AssistantMessage(id="own", content="canned")
    made = agent(model=model, filters=[canned(answer)])
    outcome = await made.run("go", conversation_id="c", emit=events.append)
    assert isinstance(outcome, TurnCompleted)
    assert outcome.text == "canned"
    assert model.requests == []
    said = [event.text for event in events if isinstance(event, e.MessageDelta)]
    assert said == ["canned"]
    assert [m.text for m in await made.history("c")] == ["go", "canned"]


@pytest.mark.parametrize("id_", ["", "1"])
async def test_a_filters_answer_may_come_again_with_the_same_calls(id_: str) -> None:
    """P5: ids are made fit before the answer is stored."""
    answer = AssistantMessage(
        id="own", tool_calls=(ToolCall(id=id_, name="add", arguments={"a": 1}),) * 2
    )
    model = FunctionModel(lambda request: "done")
    made = agent(model=model, filters=[canned(answer)])
    for _ in range(2):
        outcome = await made.run("go", conversation_id="c")
        assert isinstance(outcome, TurnCompleted)
    history = await made.history("c")
    assert find_history_faults(history) == []
    assert results(history) == ["2"] * 4


async def test_a_model_request_has_what_the_agent_was_made_with() -> None:
    """B14"""
    model = ScriptedModel(["hi"])
    made = agent(model=model, system="be kind", options={"temperature": 0})
    await made.run(UserMessage(id="u", content="go"))
    assert model.requests == [
        ChatRequest(
            messages=(UserMessage(id="u", content="go"),),
            system="be kind",
            tools=made.tools.specs,
            options={"temperature": 0},
        )
    ]
