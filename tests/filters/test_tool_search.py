"""Tool search: what the model sees, when, and what it saves."""

from collections.abc import AsyncIterator, Sequence
from itertools import pairwise
from typing import Any

import pytest
import trio
import trio.testing
from attrs import define, evolve, field
from hypothesis import given
from hypothesis import strategies as st

from agentrt.agent.agent import Agent
from agentrt.agent.client import ChatClient
from agentrt.core.chat import ChatRequest, ToolSpec
from agentrt.core.context import Context
from agentrt.core.errors import ToolDefinitionError
from agentrt.core.messages import Message, ToolMessage
from agentrt.core.outcomes import Approve, TurnCompleted, TurnPaused
from agentrt.filters.base import ChatCall, Filter, ToolRequest, ToolUse, hook
from agentrt.filters.tool_search import FOUND_KEY, SEARCH_TOOL, tool_search_filter
from agentrt.stores.in_memory import InMemoryChatMemory, InMemoryPauseStore
from agentrt.testing import ScriptedModel, call, trio_property
from agentrt.tools.base import Tool, ToolResult, tool
from agentrt.tools.index import KeywordIndex, RegexIndex
from tests.filters.catalogue import QUESTIONS, Question, compare

LEAST = 0.75


@tool
async def read_file(path: str) -> str:
    """Read a file."""
    await trio.lowlevel.checkpoint()
    return f"read {path}"


@tool
async def write_file(path: str) -> str:
    """Write a file."""
    await trio.lowlevel.checkpoint()
    return f"wrote {path}"


@tool
async def send_mail() -> str:
    """Send a mail."""
    await trio.lowlevel.checkpoint()
    return "sent"


@tool(sensitive=True)
async def pay() -> str:
    """Pay an invoice."""
    await trio.lowlevel.checkpoint()
    return "paid"


TOOLS = [read_file, write_file, send_mail, pay]


def search(query: str) -> Any:
    return call(SEARCH_TOOL, query=query)


def offered(model: ScriptedModel) -> Sequence[Sequence[str]]:
    """The names of the tools that each call of the model was offered."""
    return [[spec.name for spec in request.tools] for request in model.requests]


def results(history: Sequence[Message]) -> Sequence[ToolMessage]:
    return [message for message in history if isinstance(message, ToolMessage)]


async def turn(
    *steps: Any, filters: Sequence[Filter] = (), **options: Any
) -> tuple[ScriptedModel, Sequence[ToolMessage]]:
    """One turn with these tools: what the model was offered, what the calls gave."""
    model = ScriptedModel([*steps, "done"])
    agent = Agent(
        model=model, tools=TOOLS, filters=filters or [tool_search_filter(**options)]
    )
    outcome = await agent.run("go", conversation_id="c")
    assert isinstance(outcome, TurnCompleted), outcome
    return model, results(await agent.history("c"))


async def test_the_model_sees_a_search_first_and_then_what_it_found() -> None:
    model, told = await turn(search("read"), call("read_file", path="/x"))
    assert offered(model) == [
        [SEARCH_TOOL],
        [SEARCH_TOOL, "read_file"],
        [SEARCH_TOOL, "read_file"],
    ]
    assert told[0].text == "Found, and yours to call from now on: read_file."
    assert told[1].text == "read /x"


async def test_what_several_searches_found_is_in_the_order_of_the_catalogue() -> None:
    """B68: a union over rounds, and over the searches of one batch."""
    model, told = await turn([search("mail"), search("invoice")], search("read"))
    assert offered(model)[1:] == [
        [SEARCH_TOOL, "send_mail", "pay"],
        [SEARCH_TOOL, "read_file", "send_mail", "pay"],
    ]
    assert told[0].writes == {FOUND_KEY: ["send_mail"]}


async def test_a_search_that_finds_nothing_writes_nothing_and_gives_advice() -> None:
    """B68"""
    model, told = await turn(search("mail"), search("launch rockets"))
    assert "'launch rockets'. Search again in other words" in told[1].text
    assert (told[1].writes, told[1].is_error) == ({}, False)
    assert offered(model)[2] == [SEARCH_TOOL, "send_mail"]


async def test_a_hidden_tool_does_not_run() -> None:
    """X11: neither before it was found nor in the round of its search."""
    model, told = await turn(
        call("read_file", path="/x"), [search("read"), call("read_file", path="/x")]
    )
    refusal = "error: there is no tool 'read_file'; there are 'search_tools'"
    assert [message.text for message in told if message.is_error] == [refusal] * 2
    assert offered(model)[1] == [SEARCH_TOOL]


async def test_what_is_always_shown_needs_no_search() -> None:
    model, _ = await turn(
        call("send_mail"), always=["send_mail", "no_such_tool", "read_file"]
    )
    assert offered(model)[0] == [SEARCH_TOOL, "read_file", "send_mail"]


async def test_a_search_finds_no_more_than_its_limit() -> None:
    _, told = await turn(search("file mail invoice"), limit=2)
    assert len(told[0].writes[FOUND_KEY]) == 2


async def test_each_turn_begins_anew() -> None:
    model = ScriptedModel([search("mail"), "done", "done"])
    agent = Agent(model=model, tools=TOOLS, filters=[tool_search_filter()])
    await agent.run("go", conversation_id="c")
    await agent.run("go", conversation_id="c")
    assert offered(model)[2] == [SEARCH_TOOL]


async def test_what_was_found_survives_a_pause_and_a_new_process() -> None:
    """B68"""
    memory, pauses = InMemoryChatMemory(), InMemoryPauseStore()

    def agent(*steps: Any) -> tuple[Agent, ScriptedModel]:
        model = ScriptedModel(steps)
        filters = [tool_search_filter()]
        stores: Any = {"memory": memory, "pauses": pauses}
        return Agent(model=model, tools=TOOLS, filters=filters, **stores), model

    first, _ = agent(search("invoice"), [call("pay"), search("mail")])
    paused = await first.run("go", conversation_id="c")
    assert isinstance(paused, TurnPaused)
    second, model = agent(call("send_mail"), "done")
    outcome = await second.resume("c", {paused.interrupts[0].id: Approve()})
    assert isinstance(outcome, TurnCompleted)
    assert offered(model) == [[SEARCH_TOOL, "send_mail", "pay"]] * 2
    texts = [message.text for message in results(await second.history("c"))]
    found = "Found, and yours to call from now on: {}."
    assert texts == [found.format("pay"), found.format("send_mail"), "paid", "sent"]


async def test_a_search_before_any_call_of_the_model_asks_to_be_made_again() -> None:
    client = ChatClient(ScriptedModel([]), tools=TOOLS, filters=[tool_search_filter()])
    made = client.tools.find(SEARCH_TOOL)
    assert made is not None
    request = ToolRequest(call=search("read"), tool=made)
    result = await client.invoke_tool(request, Context(conversation_id="c"))
    assert result == ToolResult(content="The tools are not known yet: search again.")


@pytest.mark.parametrize("narrowed", [[], ["read_file", "pay"]])
async def test_a_request_without_the_search_is_left_alone(
    narrowed: Sequence[str],
) -> None:
    """As with no tools at all, or when an outer filter chose others."""

    @hook
    async def choose(chat: ChatCall) -> AsyncIterator[None]:
        kept = [spec for spec in chat.request.tools if spec.name in narrowed]
        chat.request = evolve(chat.request, tools=kept)
        yield

    filters = [Filter(name="choose", chat=choose), tool_search_filter()]
    model, _ = await turn(filters=filters)
    assert offered(model) == [narrowed]


async def test_the_search_alone_is_a_catalogue_of_nothing() -> None:
    model = ScriptedModel(["done"])
    agent = Agent(model=model, filters=[tool_search_filter()])
    await agent.run("go")
    assert offered(model) == [[SEARCH_TOOL]]


async def test_the_tool_that_must_be_called_is_shown() -> None:
    client = ChatClient(
        model := ScriptedModel(["done"]), tools=TOOLS, filters=[tool_search_filter()]
    )
    request = ChatRequest(tools=client.tools.specs, tool_choice="pay")
    await client.invoke_chat(request, Context(conversation_id="c"))
    assert offered(model) == [[SEARCH_TOOL, "pay"]]


@define
class Indexes:
    """Makes indexes and keeps the catalogues that it was asked for."""

    made: list[Sequence[str]] = field(factory=list)

    def __call__(self, catalogue: Sequence[ToolSpec]) -> KeywordIndex:
        self.made.append([spec.name for spec in catalogue])
        return KeywordIndex(catalogue)


async def test_an_index_is_made_once_for_each_catalogue() -> None:
    hidden: list[str] = []

    @hook
    async def hide(chat: ChatCall) -> AsyncIterator[None]:
        kept = [spec for spec in chat.request.tools if spec.name not in hidden]
        chat.request = evolve(chat.request, tools=kept)
        yield

    indexes = Indexes()
    model = ScriptedModel([search("mail"), "done"] * 3)
    filters = [Filter(name="hide", chat=hide), tool_search_filter(indexes)]
    agent = Agent(model=model, tools=TOOLS, filters=filters)
    for hides in ([], ["send_mail"], []):
        hidden[:] = hides
        await agent.run("go", conversation_id=f"c{hides}")
    names = [each.name for each in TOOLS]
    assert indexes.made == [names, ["read_file", "write_file", "pay"]]
    told = [results(await agent.history(f"c{hides}")) for hides in ([], ["send_mail"])]
    assert told[0][0].writes == told[0][1].writes == {FOUND_KEY: ["send_mail"]}
    assert told[1][0].writes == {}


async def test_conversations_with_other_tools_do_not_mix() -> None:
    """One filter serves both at once: each search looks through its own catalogue."""
    allowed = {"a": {"read_file"}, "b": {"write_file"}}

    @hook
    async def choose(chat: ChatCall) -> AsyncIterator[None]:
        names = {SEARCH_TOOL, *allowed[chat.context.conversation_id]}
        kept = [spec for spec in chat.request.tools if spec.name in names]
        chat.request = evolve(chat.request, tools=kept)
        yield
        await trio.testing.wait_all_tasks_blocked()  # both were asked by now

    model = ScriptedModel([search("file")] * 2 + ["done"] * 2)
    filters = [Filter(name="choose", chat=choose), tool_search_filter()]
    agent = Agent(model=model, tools=TOOLS, filters=filters)

    async def run(conversation_id: str) -> None:
        await agent.run("go", conversation_id=conversation_id)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run, "a")
        nursery.start_soon(run, "b")
    found = [results(await agent.history(c))[0].writes[FOUND_KEY] for c in "ab"]
    assert found == [["read_file"], ["write_file"]]


async def test_another_index_may_be_given() -> None:
    _, told = await turn(search("^(send|pay)"), index=RegexIndex)
    assert told[0].writes == {FOUND_KEY: ["send_mail", "pay"]}


async def test_an_index_is_held_to_the_catalogue_and_the_limit() -> None:
    class Careless:
        async def search(self, query: str, limit: int) -> Sequence[str]:
            await trio.lowlevel.checkpoint()
            return ["no_such_tool", "pay", "read_file", "send_mail"]

    _, told = await turn(search("x"), index=lambda catalogue: Careless(), limit=2)
    assert told[0].writes == {FOUND_KEY: ["pay", "read_file"]}


async def test_an_index_that_fails_is_a_failed_search() -> None:
    class Failing:
        async def search(self, query: str, limit: int) -> Sequence[str]:
            await trio.lowlevel.checkpoint()
            raise ConnectionError("no vectors today")

    model, told = await turn(search("x"), index=lambda catalogue: Failing())
    assert (told[0].text, told[0].is_error) == ("error: no vectors today", True)
    assert offered(model)[1] == [SEARCH_TOOL]


async def test_a_search_that_an_inner_filter_answered_finds_nothing() -> None:
    @hook
    async def refuse(use: ToolUse) -> AsyncIterator[None]:
        use.response = ToolResult(content="no", is_error=True)
        yield

    filters = [tool_search_filter(), Filter(name="refuse", tool=refuse)]
    model, told = await turn(search("read"), filters=filters)
    assert told[0].writes == {}
    assert offered(model)[1] == [SEARCH_TOOL]


def test_the_search_says_that_each_ability_wants_a_search_of_its_own() -> None:
    (made,) = tool_search_filter().tools
    assert "a search of its own for each ability" in made.description


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"limit": 0}, "limit is 0, expected 1 or more"),
        ({"always": "pay"}, r"always is 'pay', expected names: \['pay'\]"),
    ],
)
def test_bad_options_fail_at_once(options: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tool_search_filter(**options)


NAMES = st.sampled_from([each.name for each in TOOLS])


@given(
    st.lists(st.sampled_from(["read", "write", "mail", "pay", "rocket"]), max_size=4),
    st.lists(NAMES, max_size=2),
)
@trio_property
async def test_what_is_shown_only_grows_and_keeps_its_order(
    queries: Sequence[str], always: Sequence[str]
) -> None:
    model, _ = await turn(*(search(query) for query in queries), always=always)
    names = [SEARCH_TOOL, *(each.name for each in TOOLS)]
    shown = offered(model)
    for before, after in pairwise(shown):
        assert set(before) <= set(after)
    for each in shown:
        assert each == [name for name in names if name in each]
        assert {SEARCH_TOOL, *always} <= set(each)


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda each: each.text)
async def test_of_fifty_tools_the_right_ones_are_found_for_a_quarter_of_the_tokens(
    question: Question,
) -> None:
    """Prompt tokens of all model calls of the turn, the search included."""
    turns = await compare(question)
    assert turns.found == [need.tool for need in question.needs]
    assert turns.saved >= LEAST


async def test_a_tool_of_the_same_name_is_refused_when_the_agent_is_made() -> None:
    clash = Tool(name=SEARCH_TOOL, run=read_file.run)
    with pytest.raises(ToolDefinitionError, match="2 tools are named 'search_tools'"):
        Agent(model=ScriptedModel([]), tools=[clash], filters=[tool_search_filter()])
