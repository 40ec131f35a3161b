"""Model calls and tool calls through filters: what readers see, what is stored."""

from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
import trio
import trio.testing
from attrs import define, evolve, field
from attrs.exceptions import FrozenInstanceError

from agentrt.agent.agent import Agent
from agentrt.agent.client import ChatClient
from agentrt.core.chat import (
    ChatRequest,
    ChatResponse,
    Delta,
    ReasoningDelta,
    TextDelta,
    Usage,
)
from agentrt.core.context import Context
from agentrt.core.deadlines import Deadlines
from agentrt.core.errors import (
    DeadlineError,
    ServerError,
    ToolDefinitionError,
    ToolError,
)
from agentrt.core.history import find_history_faults
from agentrt.core.messages import (
    AssistantMessage,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from agentrt.core.options import TurnOptions
from agentrt.core.outcomes import TurnCompleted
from agentrt.events import types as e
from agentrt.filters.base import ChatCall, Filter, ToolRequest, ToolUse, hook
from agentrt.models.function import FunctionModel
from agentrt.stores.in_memory import InMemoryChatMemory
from agentrt.testing import Say, ScriptedModel, call
from agentrt.tools.base import Tool, ToolResult, tool

REQUEST = ChatRequest(messages=[UserMessage(id="u", content="hi")])


@define
class Ear:
    """Hears everything."""

    deltas: list[Delta] = field(factory=list)
    events: list[e.Event] = field(factory=list)

    def context(self) -> Context:
        return Context(
            conversation_id="c",
            on_delta=self.deltas.append,
            emit=self.events.append,
            begin_message=lambda: "m",
        )

    @property
    def text(self) -> str:
        return "".join(d.text for d in self.deltas if isinstance(d, TextDelta))

    @property
    def shown(self) -> str:
        return "".join(x.text for x in self.events if isinstance(x, e.MessageDelta))

    @property
    def tags(self) -> Sequence[str]:
        return [event.tag for event in self.events]


@define
class Swallow:
    """Lets nothing pass."""

    def feed(self, delta: Delta) -> Sequence[Delta]:
        return []

    def finish(self) -> Sequence[Delta]:
        return []


@define
class HoldAll:
    """Gives everything at the end."""

    held: list[Delta] = field(factory=list)

    def feed(self, delta: Delta) -> Sequence[Delta]:
        self.held.append(delta)
        return []

    def finish(self) -> Sequence[Delta]:
        return self.held


@define
class Shout:
    def feed(self, delta: Delta) -> Sequence[Delta]:
        if isinstance(delta, TextDelta):
            return [TextDelta(text=delta.text.upper())]
        return [delta]

    def finish(self) -> Sequence[Delta]:
        return [TextDelta(text="!")]


def client(model: Any, *transforms: Any, **more: Any) -> ChatClient:
    filters = [Filter(name="t", tokens=each) for each in transforms]
    return ChatClient(model, filters=[*filters, *more.pop("filters", ())], **more)


async def test_a_transform_changes_what_readers_see_and_not_the_answer() -> None:
    """B30"""
    ear = Ear()
    made = client(ScriptedModel([Say(text=["a", "b"])]), Shout)
    response = await made.invoke_chat(REQUEST, ear.context())
    assert (ear.text, ear.shown, response.message.text) == ("AB!", "AB!", "ab")


@pytest.mark.parametrize("streams", [True, False])
async def test_a_transform_that_swallows_everything_leaks_nothing(
    streams: bool,
) -> None:
    """B30"""
    ear = Ear()
    answer = AssistantMessage(id="x", content="secret", reasoning="secret")
    whole = ChatResponse(message=answer)

    class Quiet:
        ref = "quiet/model"

        async def call(self, request: ChatRequest, context: Context) -> ChatResponse:
            await trio.lowlevel.checkpoint()
            return whole

    model = FunctionModel(lambda request: answer) if streams else Quiet()
    response = await client(model, Swallow).invoke_chat(REQUEST, ear.context())
    assert ear.deltas == []
    assert ear.tags == ["model/started", "model/finished"]
    assert (response.message.text, response.message.reasoning) == ("secret", "secret")


async def test_nothing_that_was_held_back_is_told_after_an_error() -> None:
    """B30"""
    ear = Ear()
    script = ScriptedModel([Say(text="half", error=ServerError("no"))])
    with pytest.raises(ServerError):
        await client(script, HoldAll).invoke_chat(REQUEST, ear.context())
    assert (ear.text, ear.shown) == ("", "")
    assert ear.tags == ["model/started", "model/finished"]


async def test_nothing_that_was_held_back_is_told_after_a_cancel() -> None:
    """X4"""
    ear = Ear()
    with trio.CancelScope() as scope:

        async def stop() -> None:
            scope.cancel()
            await trio.lowlevel.checkpoint()

        script = ScriptedModel([Say(text=["a", "b"], before=stop)])
        await client(script, HoldAll).invoke_chat(REQUEST, ear.context())
    assert scope.cancelled_caught
    assert ear.deltas == []
    (_, finished) = ear.events
    assert isinstance(finished, e.ModelFinished)
    assert finished.error == "cancelled"


async def test_what_was_held_back_is_told_at_a_normal_end() -> None:
    """B30"""
    ear = Ear()
    script = ScriptedModel([Say(text=["a", "b"], reasoning="hm")])
    await client(script, HoldAll).invoke_chat(REQUEST, ear.context())
    assert (ear.text, ear.shown) == ("ab", "ab")
    assert ear.deltas[0] == ReasoningDelta(text="hm")


async def test_each_stream_gets_transforms_of_its_own() -> None:
    ear = Ear()
    made = client(ScriptedModel(["a", "b"]), HoldAll)
    for _ in range(2):
        await made.invoke_chat(REQUEST, ear.context())
    assert ear.text == "ab"


async def test_an_answer_that_did_not_stream_is_told_whole() -> None:
    ear = Ear()

    class Quiet:
        ref = "quiet/model"

        async def call(self, request: ChatRequest, context: Context) -> ChatResponse:
            await trio.lowlevel.checkpoint()
            calls = (ToolCall(id="c", name="add"),)
            return ChatResponse(
                message=AssistantMessage(id="x", content="hi", tool_calls=calls)
            )

    response = await client(Quiet()).invoke_chat(REQUEST, ear.context())
    assert response.message.id == "m"
    assert ear.tags == [
        "model/started",
        "message/started",
        "message/delta",
        "message/ended",
        "tool/started",
        "tool/args-delta",
        "tool/ended",
        "model/finished",
    ]


async def test_the_models_deadline_names_itself(
    autojump_clock: trio.testing.MockClock,
) -> None:
    script = ScriptedModel([Say(before=trio.sleep_forever)])
    with pytest.raises(DeadlineError) as caught:
        await client(script, deadlines=Deadlines(model_seconds=2.0)).invoke_chat(
            REQUEST, Context(conversation_id="c")
        )
    assert str(caught.value) == (
        "the model deadline of 2 s fired and cut a call of scripted/model"
    )


async def test_the_model_gets_a_mended_history() -> None:
    """P5, U35"""
    asks = AssistantMessage(id="a", tool_calls=(ToolCall(id="c", name="add"),))
    model = ScriptedModel(["ok"])
    request = ChatRequest(messages=[asks, UserMessage(id="u", content="hi")])
    await client(model).invoke_chat(request, Context(conversation_id="c"))
    (asked,) = model.requests
    assert [type(m) for m in asked.messages] == [
        AssistantMessage,
        ToolMessage,
        UserMessage,
    ]


async def test_a_call_whose_id_is_in_the_history_gets_another() -> None:
    """X14"""
    asks = AssistantMessage(id="a", tool_calls=(ToolCall(id="c", name="add"),))
    result = ToolMessage(call_id="c", name="add", content="2")
    model = ScriptedModel([ToolCall(id="c", name="add")])
    request = ChatRequest(messages=[asks, result])
    ear = Ear()
    response = await client(model).invoke_chat(request, ear.context())
    assert [call.id for call in response.message.tool_calls] == ["m-call-1"]


async def test_rewritten_tools_reach_the_model() -> None:
    """B20"""

    @hook
    async def fewer(call: ChatCall) -> AsyncIterator[None]:
        call.request = evolve(call.request, tools=())
        yield

    model = ScriptedModel(["ok"])
    made = client(model, filters=[Filter(name="fewer", chat=fewer)])
    request = evolve(REQUEST, tools=[add.spec])
    await made.invoke_chat(request, Context(conversation_id="c"))
    assert model.requests[0].tools == ()


@tool
async def add(a: int) -> int:
    """Add one."""
    await trio.lowlevel.checkpoint()
    return a + 1


@tool(timeout_seconds=1.0)
async def hangs() -> None:
    """Hang."""
    await trio.sleep_forever()


def use(of: Tool, **arguments: Any) -> ToolRequest:
    call = ToolCall(id="c", name=of.name, arguments=arguments)
    return ToolRequest(call=call, tool=of)


async def test_a_tool_runs_through_its_filters() -> None:
    @hook
    async def double(call: ToolUse) -> AsyncIterator[None]:
        asked = call.request.call
        doubled = evolve(asked, arguments={"a": asked.arguments["a"] * 2})
        call.request = evolve(call.request, call=doubled)
        yield
        call.response = evolve(call.response, content=f"<{call.response.content}>")

    made = client(ScriptedModel([]), filters=[Filter(name="double", tool=double)])
    result = await made.invoke_tool(use(add, a=5), Context(conversation_id="c"))
    assert result == ToolResult(content="<11>")


async def test_a_filter_s_time_is_not_the_tool_s_and_it_sees_the_timeout(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """B29"""
    seen: list[ToolResult] = []

    @hook
    async def ponder(call: ToolUse) -> AsyncIterator[None]:
        await trio.sleep(100)
        yield
        seen.append(call.response)

    made = client(ScriptedModel([]), filters=[Filter(name="ponder", tool=ponder)])
    result = await made.invoke_tool(use(hangs), Context(conversation_id="c"))
    assert seen == [result]
    assert result.is_error
    assert "deadline of 1 s fired" in str(result.content)


@pytest.mark.parametrize(("own", "seconds"), [(1.0, 1.0), (None, 3.0), (9.0, 9.0)])
async def test_a_tools_own_limit_wins_over_the_clients(
    own: float | None, seconds: float, autojump_clock: trio.testing.MockClock
) -> None:
    """B48"""
    made = client(ScriptedModel([]), deadlines=Deadlines(tool_seconds=3.0))
    start = trio.current_time()
    slow = evolve(hangs, timeout_seconds=own)
    await made.invoke_tool(use(slow), Context(conversation_id="c"))
    assert trio.current_time() - start == seconds


def test_tools_that_cannot_work_are_refused_when_the_client_is_made() -> None:
    with pytest.raises(ToolDefinitionError, match="2 tools are named 'add'"):
        client(ScriptedModel([]), tools=[add, add])


def a_filter_with(tool_hook: Any, **more: Any) -> Filter:
    return Filter(name="f", tool=tool_hook, **more)


async def test_a_tool_cannot_write_a_key_of_the_framework(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """X16: but a filter around it can."""

    @tool
    async def write() -> ToolResult:
        """Write what it may not."""
        await trio.lowlevel.checkpoint()
        return ToolResult(writes={"agentrt/x": 1, "mine": 2})

    @hook
    async def count(call: ToolUse) -> AsyncIterator[None]:
        yield
        writes = {**call.response.writes, "agentrt/seen": 1}
        call.response = evolve(call.response, writes=writes)

    made = client(ScriptedModel([]), tools=[write], filters=[a_filter_with(count)])
    request = ToolRequest(call=ToolCall(id="c", name="write"), tool=write)
    result = await made.invoke_tool(request, Context(conversation_id="c"))
    assert result.writes == {"mine": 2, "agentrt/seen": 1}
    assert "['agentrt/x'], which belong to agentrt" in caplog.text


async def test_an_error_writes_nothing() -> None:
    @tool
    async def write() -> ToolResult:
        """Fail."""
        await trio.lowlevel.checkpoint()
        return ToolResult(is_error=True, writes={"mine": 2})

    made = client(ScriptedModel([]), tools=[write])
    request = ToolRequest(call=ToolCall(id="c", name="write"), tool=write)
    result = await made.invoke_tool(request, Context(conversation_id="c"))
    assert result.writes == {}


def test_a_filter_brings_its_tools() -> None:
    @tool
    async def search() -> str:
        """Search."""
        return ""

    made = client(ScriptedModel([]), filters=[Filter(name="f", tools=[search])])
    assert [each.name for each in made.tools] == ["search"]


async def test_a_call_by_name_is_checked_and_run() -> None:
    made = client(ScriptedModel([]), tools=[add])
    result = await made.invoke_tool(ToolCall(id="c", name="add", arguments={"a": "2"}))
    assert result.content == "3"


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (ToolCall(id="c", name="sub"), "there is no tool 'sub'; there are 'add'"),
        (ToolCall(id="c", name="add"), r"arguments of 'add': \$: 'a' is missing"),
        (
            ToolCall(id="c", name="add", invalid_arguments="{"),
            "arguments of 'add' are no JSON object: '{'",
        ),
    ],
)
async def test_a_call_that_cannot_run_says_why(call: ToolCall, words: str) -> None:
    made = client(ScriptedModel([]), tools=[add])
    with pytest.raises(ToolError, match=words):
        await made.invoke_tool(call)


async def test_a_client_asks_with_its_tools_and_without_a_conversation() -> None:
    model = ScriptedModel(["hello"])
    made = client(model, tools=[add, evolve(add, name="sub", tags=["minus"])])
    request = made.request("hi", TurnOptions(exclude_tags=["minus"], system="Help."))
    response = await made.invoke_chat(request)
    assert response.message.text == "hello"
    (asked,) = model.requests
    assert [spec.name for spec in asked.tools] == ["add"]
    assert (asked.system, asked.messages[0].text) == ("Help.", "hi")


async def test_other_filters_make_another_client() -> None:
    """B13: a list that is swapped in place would never be compiled."""
    shout = Filter(name="shout", tokens=Shout)
    ears = [Ear(), Ear()]
    made = client(ScriptedModel(["a", "b"]))
    loud = made.with_filters([shout])
    await made.invoke_chat(REQUEST, ears[0].context())
    await loud.invoke_chat(REQUEST, ears[1].context())
    assert [ear.text for ear in ears] == ["a", "B!"]
    with pytest.raises(FrozenInstanceError):
        made.filters = (shout,)  # type: ignore[misc]


def test_tools_of_filters_go_with_them() -> None:
    brings = Filter(name="f", tools=[add])
    made = client(ScriptedModel([]), filters=[brings])
    assert made.find_tool("add") is add
    assert made.with_filters([]).find_tool("add") is None


USED = Usage(provider="scripted", model="model", total_tokens=5)


@define
class Working:
    """A tool that asks a model, and another tool, with the context it was given."""

    inner: ChatClient
    seen: list[Context] = field(factory=list)

    def tool(self) -> Tool:
        @tool
        async def work(context: Context) -> str:
            """Work."""
            response = await self.inner.invoke_chat(self.inner.request("x"), context)
            part = ToolCall(id="part", name="part")
            return response.message.text + str(
                (await self.inner.invoke_tool(part, context)).content
            )

        return work

    def part(self) -> Tool:
        @tool
        async def part(context: Context) -> str:
            """Do a part."""
            await trio.lowlevel.checkpoint()
            self.seen.append(context)
            return " and part"

        return part


def working(*steps: Any) -> Working:
    world = Working(ChatClient(ScriptedModel(steps)))
    world.inner = evolve(world.inner, tools=[world.part()])
    return world


async def test_what_a_tool_asks_is_no_part_of_the_turn_but_of_its_usage() -> None:
    """It costs no iteration, and no reader hears of it."""
    world = working(Say(text="inner", usage=USED))
    ear = Ear()
    asks = Say(calls=[call("work", id="w")], usage=USED)
    agent = Agent(
        model=ScriptedModel([asks, "done"]), tools=[world.tool()], max_iterations=1
    )
    outcome = await agent.run("go", emit=ear.events.append)
    assert isinstance(outcome, TurnCompleted)
    assert outcome.calls[0].content == "inner and part"
    assert [each.total_tokens for each in outcome.usage] == [10]
    started = [event for event in ear.events if isinstance(event, e.ModelStarted)]
    assert len(started) == 2
    said = [each.text for each in ear.events if isinstance(each, e.MessageDelta)]
    assert said == ["done"]
    assert [(each.call_id, each.turn) for each in world.seen] == [("part", None)]


async def test_what_a_tool_had_asked_when_it_was_cut_is_not_taken_for_the_turns(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Neither as a message of the agent nor as the result of the call."""
    world = working(Say(text=["SECRET", "more"], delay_seconds=10))
    agent = Agent(
        model=ScriptedModel([call("work", id="w")]),
        tools=[world.tool()],
        memory=InMemoryChatMemory(),
    )
    with trio.move_on_after(15):
        await agent.run("go", conversation_id="c")
    history = await agent.history("c")
    assert [type(message).__name__ for message in history] == [
        "UserMessage",
        "AssistantMessage",
        "ToolMessage",
    ]
    assert "SECRET" not in repr(history)
    assert find_history_faults(history) == []


async def test_a_tool_that_is_cut_after_another_had_answered_it_is_cut(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """P8: what the other one returned is not its result."""
    inner = ChatClient(
        ScriptedModel([]), tools=[Working(ChatClient(ScriptedModel([]))).part()]
    )

    @tool
    async def work(context: Context) -> str:
        """Work."""
        await inner.invoke_tool(ToolCall(id="part", name="part"), context)
        await trio.sleep_forever()
        return ""

    agent = Agent(model=ScriptedModel([call("work", id="w")]), tools=[work])
    with trio.move_on_after(1):
        await agent.run("go", conversation_id="c")
    last = (await agent.history("c"))[-1]
    assert isinstance(last, ToolMessage)
    assert "may have had effects" in last.text
