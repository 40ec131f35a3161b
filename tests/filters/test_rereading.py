"""The rereading filter: the model reads the question twice, and nobody else does."""

from collections.abc import Sequence
from typing import Any

import pytest
import trio

from agentrt.agent.agent import Agent
from agentrt.core.messages import UserMessage
from agentrt.core.outcomes import Approve, TurnPaused
from agentrt.core.parts import FilePart, TextPart
from agentrt.filters.rereading import rereading_filter
from agentrt.filters.validation import validation_filter
from agentrt.testing import ScriptedModel, call
from agentrt.tools.base import tool

TWICE = "why?\n\nRead the question again: why?"


@tool
async def look() -> str:
    """Look."""
    await trio.lowlevel.checkpoint()
    return "seen"


@tool(sensitive=True)
async def ask() -> str:
    """Ask."""
    await trio.lowlevel.checkpoint()
    return "asked"


def agent(*steps: Any, **more: Any) -> Agent:
    filters = more.pop("filters", [rereading_filter()])
    model = ScriptedModel(steps)
    return Agent(model=model, filters=filters, tools=[look, ask], **more)


def seen(made: Agent) -> Sequence[Sequence[str]]:
    """The texts of each model call."""
    assert isinstance(made.model, ScriptedModel)
    return [[each.text for each in r.messages] for r in made.model.requests]


async def test_every_call_of_the_turn_sees_the_question_twice() -> None:
    made = agent(call("look"), "done")
    await made.run("why?")
    assert seen(made) == [[TWICE], [TWICE, "", "seen"]]


async def test_the_history_keeps_the_users_own_words() -> None:
    """X7"""
    made = agent("because", "well")
    await made.run("why?", conversation_id="c")
    assert [m.text for m in await made.history("c")] == ["why?", "because"]
    await made.run("how?", conversation_id="c")
    assert seen(made)[1] == [
        "why?", "because", "how?\n\nRead the question again: how?",
    ]  # fmt: skip


async def test_it_holds_over_a_pause_without_a_second_look() -> None:
    made = agent(call("ask"), "done")
    paused = await made.run("why?", conversation_id="c")
    assert isinstance(paused, TurnPaused)
    await made.resume("c", {paused.interrupts[0].id: Approve()})
    assert seen(made)[1] == [TWICE, "", "asked"]


@pytest.mark.parametrize("memory", [True, False])
@pytest.mark.parametrize("order", [1, -1])
async def test_what_another_filter_asks_is_asked_once(order: int, memory: bool) -> None:
    faults = iter([["too short"], []])
    check = validation_filter(lambda answer: next(faults))
    more: dict[str, Any] = {} if memory else {"memory": None}
    made = agent("a", "b", filters=[rereading_filter(), check][::order], **more)
    await made.run("why?")
    question, answer, again = seen(made)[1]
    assert (question, answer) == (TWICE, "a")
    assert again.count("too short") == 1


async def test_a_message_with_files_is_let_be() -> None:
    picture = FilePart(media_type="image/png", data="aGk=")
    message = UserMessage(content=(TextPart(text="why?"), picture))
    made = agent("because")
    await made.run(message)
    assert isinstance(made.model, ScriptedModel)
    assert made.model.requests[0].messages == (message,)


async def test_the_template_is_the_users() -> None:
    made = agent("done", filters=[rereading_filter("{question} {question}!")])
    await made.run("why?")
    assert seen(made) == [["why? why?!"]]
    with pytest.raises(ValueError, match="has no place for the question"):
        rereading_filter("twice")
