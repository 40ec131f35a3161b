"""Compaction: requests fit the window, stay the same, and cost few summaries."""

from collections.abc import Awaitable, Callable, Sequence
from itertools import chain
from typing import Any

import pytest
import trio
import trio.testing
from attrs import define, evolve, field
from hypothesis import given
from hypothesis import strategies as st

from agentrt.agent.agent import Agent
from agentrt.core.chat import ChatRequest, ChatResponse, ToolSpec, Usage
from agentrt.core.context import Context
from agentrt.core.errors import ContextOverflowError, ServerError
from agentrt.core.history import find_history_faults
from agentrt.core.messages import (
    AssistantMessage,
    Message,
    SystemMessage,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from agentrt.core.outcomes import TurnCompleted, TurnFailed
from agentrt.filters.base import Filter, compile_hooks
from agentrt.filters.compaction import (
    CompactionSettings,
    InMemoryShortenings,
    compaction_filter,
)
from agentrt.filters.rereading import rereading_filter
from agentrt.filters.shortening import Shortening
from agentrt.models.estimate import estimate_messages, estimate_request
from agentrt.models.limits import ModelCatalog, ModelSpec
from agentrt.stores.in_memory import InMemoryChatMemory
from agentrt.testing import Say, ScriptedModel, call, cancel_sweep, trio_property
from agentrt.testing.strategies import histories
from agentrt.tools.base import tool

WINDOW = 2_000
CONTEXT = Context(conversation_id="c")
CUT = "Summary of the conversation so far:\n\n[Earlier messages were left out.]"


def user(name: str, tokens: int = 10) -> UserMessage:
    return UserMessage(id=name, content=f"{name} ".ljust(4 * tokens, "u"))


def says(name: str, *calls: str, tokens: int = 10) -> AssistantMessage:
    made = tuple(ToolCall(id=each, name="look") for each in calls)
    text = f"{name} ".ljust(4 * tokens, "a")
    return AssistantMessage(id=name, content=text, tool_calls=made)


def result(call_id: str, tokens: int = 10) -> ToolMessage:
    text = f"{call_id} ".ljust(4 * tokens, "r")
    return ToolMessage(call_id=call_id, name="look", content=text)


def talk(turns: int, tokens: int = 100) -> list[Message]:
    """So many questions and answers."""
    pairs = [
        (user(f"u{n}", tokens), says(f"m{n}", tokens=tokens)) for n in range(turns)
    ]
    return [message for pair in pairs for message in pair]


@define
class Summaries:
    """A model that sums up; keeps what it was asked."""

    ref: str = "test/summaries"
    fails: Callable[[int], Any] = field(default=lambda number: None)
    asked: list[str] = field(factory=list)

    async def call(self, request: ChatRequest, context: Context) -> ChatResponse:
        await trio.lowlevel.checkpoint()
        assert (context.on_delta, context.emit) == (None, None)
        (message,) = request.messages
        self.asked.append(message.text)
        failure = self.fails(len(self.asked))
        if isinstance(failure, Exception):
            raise failure
        if isinstance(failure, float):
            await trio.sleep(failure)
        text = f"summary {len(self.asked)}" if failure is None else " "
        answer = AssistantMessage(id="s", content=text)
        return ChatResponse(message=answer, usage=Usage(model="s", input_tokens=7))


Ask = Callable[[Sequence[Message]], Awaitable[Sequence[Message]]]


def asking(filter_: Filter, *, request: ChatRequest | None = None) -> Ask:
    """Ask through the filter; what the model was shown."""
    seen: list[ChatRequest] = []

    async def model(asked: ChatRequest, context: Context) -> ChatResponse:
        await trio.lowlevel.checkpoint()
        seen.append(asked)
        return ChatResponse(message=AssistantMessage(id="m"))

    assert filter_.chat is not None
    run = compile_hooks([filter_.chat], model)

    async def ask(messages: Sequence[Message]) -> Sequence[Message]:
        await run(evolve(request or ChatRequest(), messages=messages), CONTEXT)
        return seen[-1].messages

    return ask


def ids(messages: Sequence[Message]) -> Sequence[str]:
    return [message.id.partition("-")[0] for message in messages]


async def test_a_request_that_fits_is_left_as_it_is() -> None:
    messages = talk(6)
    assert await asking(compaction_filter(WINDOW))(messages) is messages


async def test_old_results_go_first_and_the_newest_stay() -> None:
    settings = CompactionSettings(keep_results=2, result_tokens=100)
    blocks: list[list[Message]] = [
        [says(f"m{n}", f"c{n}"), result(f"c{n}", 300)] for n in range(6)
    ]
    messages: list[Message] = [user("u"), *chain.from_iterable(blocks)]
    shown = await asking(compaction_filter(WINDOW, settings=settings))(messages)
    assert ids(shown) == ids(messages)
    told = [message.text for message in shown if isinstance(message, ToolMessage)]
    gone = "[This result was left out to save room: 1,200 characters.]"
    assert told[:4] == [gone] * 4
    assert told[4].startswith("c4 rrr")
    assert "characters left out ...]" in told[4]
    assert told[5] == messages[-1].text  # the model has not read it yet


async def test_a_summary_takes_the_place_of_the_beginning() -> None:
    summaries = Summaries()
    system = SystemMessage(id="sys", content="Be kind.")
    messages = [system, *talk(8)]
    shown = await asking(compaction_filter(WINDOW, summarizer=summaries))(messages)
    assert ids(shown)[:2] == ["sys", "summary"]
    assert shown[1].text == "Summary of the conversation so far:\n\nsummary 1"
    assert list(shown[2:]) == messages[-len(shown) + 2 :]
    assert estimate_messages(shown) <= WINDOW // 2
    covered = len(messages) - len(shown) + 2
    (asked,) = summaries.asked
    assert all((message.text in asked) for message in messages[:covered])
    assert messages[covered].text not in asked


async def test_an_unchanged_beginning_costs_no_summary_and_stays_as_it_is() -> None:
    """B70: what was sent before is the beginning of what is sent next."""
    summaries = Summaries()
    ask = asking(compaction_filter(WINDOW, summarizer=summaries))
    messages = talk(8)
    before = await ask(messages)
    for n in range(8, 11):
        messages = [*messages, user(f"u{n}", 50), says(f"m{n}", tokens=50)]
        shown = await ask(messages)
        assert list(shown[: len(before)]) == list(before)
        assert len(summaries.asked) == 1
        before = shown


async def test_a_later_summary_is_made_of_the_one_before() -> None:
    summaries = Summaries()
    ask = asking(compaction_filter(WINDOW, summarizer=summaries))
    await ask(talk(8))
    shown = await ask(talk(14))
    assert shown[0].text.endswith("summary 2")
    assert len(summaries.asked) == 2
    assert "Summary of what came before:\nsummary 1" in summaries.asked[1]
    assert "u0 uuu" not in summaries.asked[1]


async def test_a_long_turn_keeps_its_question() -> None:
    blocks: list[list[Message]] = [
        [says(f"m{n}", f"c{n}", tokens=150), result(f"c{n}")] for n in range(12)
    ]
    question = user("why")
    messages = [*talk(1), question, *chain.from_iterable(blocks)]
    ask = asking(compaction_filter(WINDOW, summarizer=Summaries()))
    shown = await ask(messages)
    assert ids(shown)[:2] == ["summary", "why"]
    assert estimate_messages(shown) <= WINDOW // 2
    more = [*messages, says("answer"), user("next")]
    assert list((await ask(more))[: len(shown)]) == list(shown)


async def test_without_a_summarizer_the_beginning_is_cut_off() -> None:
    ask = asking(compaction_filter(WINDOW))
    messages = talk(8)
    shown = await ask(messages)
    assert shown[0].text == CUT
    assert list(shown[1:]) == messages[-len(shown) + 1 :]
    assert WINDOW * 0.4 < estimate_messages(shown) <= WINDOW // 2
    more = await ask([*messages, user("next")])
    assert list(more) == [*shown, user("next")]


@pytest.mark.parametrize(
    "failure", [ServerError("down"), ValueError("bug"), 1e5, "a blank answer"]
)
async def test_a_summarizer_that_fails_or_dawdles_never_fails_the_turn(
    failure: Any, autojump_clock: trio.testing.MockClock
) -> None:
    """It is tried anew, and after some failures no more until the window is full."""
    summaries = Summaries(fails=lambda number: failure)
    store = InMemoryShortenings()
    ask = asking(compaction_filter(WINDOW, summarizer=summaries, store=store))
    messages = talk(8)
    for failures in (1, 2, 3):
        assert (await ask(messages))[0].text == CUT
        short = await store.load("c")
        assert short is not None
        assert (short.failures, short.covered > 0) == (failures, failures == 3)
    await ask(messages)
    assert len(summaries.asked) == 3
    assert trio.current_time() <= 3 * 60 + 1


async def test_a_summarizer_that_is_well_again_is_asked_with_all_there_is() -> None:
    summaries = Summaries(fails=lambda n: ServerError("down") if n == 1 else None)
    ask = asking(compaction_filter(WINDOW, summarizer=summaries))
    messages = talk(8)
    assert (await ask(messages))[0].text == CUT
    assert (await ask(messages))[0].text.endswith("summary 2")
    assert "u0 uuu" in summaries.asked[1]


async def test_a_cut_that_stays_says_so_beside_the_summary() -> None:
    summaries = Summaries(fails=lambda n: ServerError("down") if n > 1 else None)
    settings = CompactionSettings(max_failures=1)
    ask = asking(compaction_filter(WINDOW, summarizer=summaries, settings=settings))
    await ask(talk(8))
    for turns in (14, 20):
        shown = await ask(talk(turns))
        told = shown[0].text.removeprefix("Summary of the conversation so far:\n\n")
        assert told == "summary 1\n\n[Earlier messages were left out.]"


async def test_another_beginning_is_summed_up_anew() -> None:
    summaries = Summaries()
    ask = asking(compaction_filter(WINDOW, summarizer=summaries))
    await ask(talk(8))
    other = [user("other", 100), *talk(8)[1:]]
    shown = await ask(other)
    assert shown[0].text.endswith("summary 2")
    assert "other uuu" in summaries.asked[1]
    assert "summary 1" not in summaries.asked[1]


async def test_a_result_that_alone_is_too_long_is_cut_in_its_middle() -> None:
    asks = says("m", "c1", "c2")
    messages: list[Message] = [user("u"), asks, result("c1"), result("c2", 5_000)]
    shown = await asking(compaction_filter(WINDOW))(messages)
    assert estimate_messages(shown) <= WINDOW * 0.8
    assert ids(shown) == ids(messages)
    assert (shown[2], "characters left out ...]" in shown[3].text) == (
        result("c1"),
        True,
    )


async def test_system_prompt_and_tools_take_room_too() -> None:
    tools = [ToolSpec(name="look", description="x" * 2_000)]
    request = ChatRequest(system="x" * 800, tools=tools)
    messages = talk(5)
    shown = await asking(compaction_filter(WINDOW), request=request)(messages)
    assert estimate_request(evolve(request, messages=shown)) <= WINDOW // 2
    assert await asking(compaction_filter(WINDOW))(messages) is messages


@define
class Narrow:
    """A model whose window is smaller than anybody thought."""

    limit: int
    sizes: list[int] = field(factory=list)
    ref: str = "test/narrow"

    async def call(self, request: ChatRequest, context: Context) -> ChatResponse:
        await trio.lowlevel.checkpoint()
        size = estimate_messages(request.messages)
        self.sizes.append(size)
        if size > self.limit:
            raise ContextOverflowError("too long")
        message = AssistantMessage(id=context.message_id or "m", content="ok")
        return ChatResponse(message=message)


def with_history(messages: Sequence[Message], **parts: Any) -> Agent:
    memory = InMemoryChatMemory()
    memory._histories["c"] = {message.id: message for message in messages}
    return Agent(memory=memory, **parts)


async def test_an_overflow_shortens_hard_and_sends_once_more() -> None:
    messages = talk(6)
    model = Narrow(700)
    agent = with_history(messages, model=model, filters=[compaction_filter(WINDOW)])
    outcome = await agent.run("go", conversation_id="c")
    assert isinstance(outcome, TurnCompleted)
    first, second = model.sizes
    assert second <= first // 2 <= 700
    assert len(await agent.history("c")) == len(messages) + 2


async def test_a_second_overflow_is_the_turns_failure() -> None:
    model = Narrow(0)
    agent = with_history(talk(6), model=model, filters=[compaction_filter(WINDOW)])
    outcome = await agent.run("go", conversation_id="c")
    assert isinstance(outcome, TurnFailed)
    assert (outcome.code, len(model.sizes)) == ("context_overflow", 2)


async def test_what_cannot_be_shortened_is_not_sent_again() -> None:
    model = Narrow(0)
    agent = Agent(model=model, filters=[compaction_filter(WINDOW)])
    outcome = await agent.run("go", conversation_id="c")
    assert isinstance(outcome, TurnFailed)
    assert (outcome.code, len(model.sizes)) == ("context_overflow", 1)


async def test_the_store_keeps_everything_and_the_turn_pays_for_the_summary() -> None:
    messages = talk(8)
    filters = [compaction_filter(WINDOW, summarizer=Summaries())]
    model = ScriptedModel(["done"])
    agent = with_history(messages, model=model, filters=filters)
    outcome = await agent.run("go", conversation_id="c")
    assert isinstance(outcome, TurnCompleted)
    assert [(each.model, each.input_tokens) for each in outcome.usage] == [("s", 7)]
    history = await agent.history("c")
    assert list(history[: len(messages)]) == messages
    assert "summary 1" in model.requests[0].messages[0].text


@given(
    histories(),
    st.lists(st.sampled_from([5, 60, 400, 2_500]), min_size=20, max_size=20),
    st.booleans(),
    st.integers(0, 3),
)
@trio_property
async def test_a_view_is_valid_and_fits_and_stays(
    some: Sequence[Message], sizes: Sequence[int], sums_up: bool, keep: int
) -> None:
    """B70: a call is never parted from its results."""
    long = [
        evolve(m, content=f"{m.id}".ljust(4 * size, "x"))
        for m, size in zip(some, [*sizes, *sizes], strict=False)
    ]
    settings = CompactionSettings(keep_results=keep, result_tokens=100)
    summaries = Summaries()
    filter_ = compaction_filter(
        WINDOW, summarizer=summaries if sums_up else None, settings=settings
    )
    ask = asking(filter_)
    places = [n for n, m in enumerate(long) if not isinstance(m, ToolMessage)]
    for end in [*places[1:], len(long)]:
        shown = await ask(long[:end])
        asked = len(summaries.asked)
        assert find_history_faults(shown) == []
        newest = [m for m in long[:end] if not isinstance(m, ToolMessage)][-1:]
        assert [m for m in shown if m in newest] == newest
        fits = estimate_messages(shown) <= WINDOW * 0.8
        is_one_long = any(
            estimate_messages([m]) > WINDOW * 0.3
            for m in shown
            if not isinstance(m, ToolMessage)
        )
        many = sum(isinstance(m, ToolMessage) for m in shown[-4:]) > 1
        assert fits or is_one_long or many
        if fits:
            assert list(await ask(long[:end])) == list(shown)
            assert len(summaries.asked) == asked


@define
class World:
    memory: InMemoryChatMemory = field(factory=InMemoryChatMemory)
    store: InMemoryShortenings = field(factory=InMemoryShortenings)
    messages: list[Message] = field(factory=lambda: talk(8))


def test_wherever_it_is_stopped_the_history_is_whole_and_the_next_turn_works() -> None:
    @tool
    async def look() -> str:
        """Look."""
        await trio.lowlevel.checkpoint()
        return "x" * 400

    def agent(world: World) -> Agent:
        slow = ScriptedModel([Say(text="short", delay_seconds=1)] * 3)
        filter_ = compaction_filter(WINDOW, summarizer=slow, store=world.store)
        model = ScriptedModel([call("look"), "done"])
        return Agent(model=model, tools=[look], filters=[filter_], memory=world.memory)

    async def scenario(world: World) -> None:
        await world.memory.append("c", world.messages)
        await agent(world).run("go", conversation_id="c")

    async def check(world: World) -> None:
        history = await world.memory.history("c")
        kept = len(world.messages)
        assert list(history[:kept]) in (world.messages, [])
        outcome = await agent(world).run("again", conversation_id="c")
        assert isinstance(outcome, TurnCompleted)
        assert find_history_faults(await world.memory.history("c")) == []

    report = cancel_sweep(World, scenario, check)
    print(report)
    assert report.runs > 60


async def test_so_many_conversations_are_remembered() -> None:
    store = InMemoryShortenings(max_conversations=2)
    for name in ("a", "b"):
        await store.save(name, Shortening(summary=name))
    await store.load("a")
    await store.save("c", Shortening(summary="c"))
    kept = [await store.load(name) for name in ("a", "b", "c")]
    assert kept == [Shortening(summary="a"), None, Shortening(summary="c")]


def test_a_catalog_knows_the_window() -> None:
    catalog = ModelCatalog([ModelSpec(ref="a/b", context_limit=8_000)])
    compaction_filter(catalog.context_limit("a/b"))
    with pytest.raises(ValueError, match="window is None, expected the model's"):
        compaction_filter(catalog.context_limit("c/d"))
    with pytest.raises(ValueError, match="window is 10, expected"):
        compaction_filter(10)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target": 0.9}, "target is 0.9 and trigger 0.8, expected parts"),
        ({"trigger": 1.1}, "target is 0.5 and trigger 1.1"),
        ({"target": 0}, "target is 0 and trigger 0.8"),
        ({"keep_results": -1}, "keep_results is -1, expected 0 or more"),
        ({"result_tokens": 10}, "result_tokens is 10, expected 100 or more"),
        ({"summary_tokens": 10}, "summary_tokens is 10, expected 100 or more"),
        ({"summary_seconds": -1}, "summary_seconds is -1, expected 0 or more"),
        ({"max_failures": 0}, "max_failures is 0, expected 1 or more"),
    ],
)
def test_bad_settings_fail_at_once(options: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CompactionSettings(**options)


@define
class BrokenStore:
    """A cache whose server is down."""

    async def load(self, conversation_id: str) -> None:
        await trio.lowlevel.checkpoint()
        raise ConnectionError("down")

    async def save(self, conversation_id: str, short: object) -> None:
        await trio.lowlevel.checkpoint()
        raise ConnectionError("down")


async def test_a_cache_that_fails_costs_no_turn(
    caplog: pytest.LogCaptureFixture,
) -> None:
    model = ScriptedModel(["answer " * 150] * 8)
    compaction = compaction_filter(2_000, store=BrokenStore())
    agent = Agent(model=model, filters=[compaction])
    for number in range(8):
        outcome = await agent.run(f"question {number} " * 40, conversation_id="c")
        assert isinstance(outcome, TurnCompleted)
    assert "could not be read" in caplog.text
    assert "could not be kept" in caplog.text


async def test_what_is_fixed_and_too_large_is_said_and_costs_no_summaries(
    caplog: pytest.LogCaptureFixture,
) -> None:
    summarizer = ScriptedModel([])
    agent = Agent(
        model=ScriptedModel(["answer"] * 5),
        system="word " * 3_000,
        filters=[compaction_filter(4_000, summarizer=summarizer)],
    )
    for number in range(5):
        await agent.run(f"question {number}", conversation_id="c")
    assert "no message is shortened" in caplog.text


async def test_a_system_prompt_beyond_the_target_does_not_cost_a_summary_a_call() -> (
    None
):
    summarizer = ScriptedModel(["A short summary."] * 20)
    agent = Agent(
        model=ScriptedModel(["answer " * 20] * 20),
        system="word " * 1_700,  # some 2,100 of 4,000 tokens; the target is 2,000
        filters=[compaction_filter(4_000, summarizer=summarizer)],
    )
    for number in range(20):
        await agent.run(f"question {number} " * 10, conversation_id="c")
    assert 1 <= len(summarizer.requests) <= 4


@pytest.mark.parametrize("makes", [rereading_filter, None])
async def test_summaries_build_on_each_other_where_a_question_is_rephrased(
    makes: Any,
) -> None:
    """The message is known by its id, whatever a filter makes of its words."""
    summarizer = ScriptedModel(["What came before, in short."] * 20)
    around = [] if makes is None else [makes()]
    compaction = compaction_filter(2_000, summarizer=summarizer)
    agent = Agent(
        model=ScriptedModel(["answer " * 150] * 20), filters=[*around, compaction]
    )
    for number in range(20):
        await agent.run(f"question {number} " * 40, conversation_id="c")
    first, *later = summarizer.requests
    assert "What came before, in short." not in first.messages[0].text
    assert later
    assert all("What came before, in short." in r.messages[0].text for r in later)
