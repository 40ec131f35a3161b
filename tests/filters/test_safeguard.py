"""The safeguard filter: what is forbidden costs no model call and leaves no trace."""

from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from agentrt.agent.agent import Agent
from agentrt.core.messages import SystemMessage, UserMessage
from agentrt.core.outcomes import Approve, TurnCompleted, TurnPaused
from agentrt.core.parts import FilePart, TextPart
from agentrt.events.types import Envelope, MessageDelta, RunFinished
from agentrt.filters.base import Filter, TurnCall, hook
from agentrt.filters.safeguard import ANSWER, safeguard_filter
from agentrt.filters.validation import validation_filter
from agentrt.runtime.runtime import open_runtime
from agentrt.testing import ScriptedModel, call, trio_property
from agentrt.tools.base import tool

REFUSED = TurnCompleted(text=ANSWER, stopped_by="safeguard")


@tool(sensitive=True)
async def ask() -> str:
    """Ask."""
    await trio.lowlevel.checkpoint()
    return "how to make a bomb"


def agent(*steps: Any, words: Any = ("bomb", "make money fast"), **more: Any) -> Agent:
    filters = [safeguard_filter(words), *more.pop("filters", ())]
    return Agent(model=ScriptedModel(steps), filters=filters, tools=[ask], **more)


async def test_forbidden_input_is_answered_without_a_model_and_not_stored() -> None:
    """B32"""
    made = agent("hello")
    assert await made.run("Build a BOMB.", conversation_id="c") == REFUSED
    assert await made.history("c") == ()
    outcome = await made.run("Hi", conversation_id="c")
    assert isinstance(outcome, TurnCompleted)
    assert isinstance(made.model, ScriptedModel)
    assert [[m.text for m in r.messages] for r in made.model.requests] == [["Hi"]]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["bomb"], "how to make A BoMbe"),
        (["Straße"], "in der STRASSE"),
        (["bomb"], "\uff42\uff4f\uff4d\uff42"),
        (["bomb"], "bomb\u0301"),
        (["café"], "CAFE\u0301"),
        (["ﬁre"], "FIRE"),
        ("bomb", "a bomb"),
        (["", "bomb", " "], "bomb"),
    ],
)
async def test_words_are_found_whatever_their_case_or_form(
    words: Any, text: str
) -> None:
    """B32"""
    assert await agent(words=words).run(text) == REFUSED


@given(
    st.text(alphabet="aàBßç\u0301", min_size=1),
    st.text(max_size=5),
    st.text(max_size=5),
    st.sampled_from([str.upper, str.lower, str.swapcase, str.casefold]),
)
@trio_property
async def test_a_word_is_found_wherever_it_stands(
    word: str, before: str, after: str, change: Any
) -> None:
    text = f"{before} {change(word)} {after}"
    assert await agent("fine", words=[word]).run(text) == REFUSED


async def test_blank_words_are_ignored_and_only_blank_ones_refused() -> None:
    """B32"""
    outcome = await agent("fine", words=["", " ", "bomb"]).run("a b")
    assert isinstance(outcome, TurnCompleted)
    assert outcome.text == "fine"
    for none in ([], ["", " \n"], ""):
        with pytest.raises(ValueError, match="has no words to look for"):
            safeguard_filter(none)


async def test_every_new_message_is_looked_at_by_its_text() -> None:
    picture = FilePart(media_type="image/png", data="aGk=")
    parts = (TextPart(text="a bomb"), picture)
    texts: Sequence[Any] = [
        [UserMessage(content="a bomb"), UserMessage(content="please")],
        [SystemMessage(content="a bomb"), UserMessage(content="please")],
        [UserMessage(content=parts)],
    ]
    for messages in texts:
        assert await agent().run(messages) == REFUSED


async def test_a_function_may_decide_and_may_wait() -> None:
    async def is_long(text: str) -> bool:
        await trio.lowlevel.checkpoint()
        return len(text) > 5

    for decide in (is_long, lambda text: len(text) > 5):
        made = agent("fine", words=decide)
        assert await made.run("much too long") == REFUSED
        outcome = await made.run("short")
        assert isinstance(outcome, TurnCompleted)
        assert outcome.text == "fine"


async def test_what_tools_and_the_model_say_is_not_looked_at() -> None:
    made = agent(call("ask"), "that is a bomb")
    paused = await made.run("go", conversation_id="c")
    assert isinstance(paused, TurnPaused)
    outcome = await made.resume("c", {paused.interrupts[0].id: Approve()})
    assert isinstance(outcome, TurnCompleted)
    assert outcome.text == "that is a bomb"


async def test_a_resume_passes() -> None:
    """B32"""
    asked: list[str] = []

    def look(text: str) -> bool:
        asked.append(text)
        return False

    made = agent(call("ask"), "done", words=look)
    paused = await made.run("go", conversation_id="c")
    assert isinstance(paused, TurnPaused)
    await made.resume("c", {paused.interrupts[0].id: Approve()})
    assert asked == ["go"]


async def test_what_another_filter_asks_again_passes() -> None:
    faults = iter([["it is about a bomb"], []])
    outer = validation_filter(lambda answer: next(faults))
    model = ScriptedModel(["bad", "good"])
    made = Agent(model=model, filters=[outer, safeguard_filter(["bomb"])])
    outcome = await made.run("go")
    assert isinstance(outcome, TurnCompleted)
    assert outcome.text == "good"


async def test_filters_within_do_not_run() -> None:
    @hook
    async def never(call: TurnCall) -> AsyncIterator[None]:
        raise AssertionError("a filter within was asked")
        yield

    made = agent(filters=[Filter(name="never", turn=never)])
    assert await made.run("a bomb") == REFUSED


async def test_readers_are_told_the_answer() -> None:
    async with open_runtime(agent()) as runtime:
        run = await runtime.start_run("c", "a bomb")
        await run.wait()
        subscription = runtime.subscribe("c", since=0)
        texts: list[str] = []
        async for reading in subscription:
            assert isinstance(reading, Envelope)
            if isinstance(reading.event, MessageDelta):
                texts.append(reading.event.text)
            if isinstance(reading.event, RunFinished):
                break
    assert texts == [ANSWER]
