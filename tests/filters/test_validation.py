"""The validation filter: asks again with the faults, up to its limit, and lets go."""

import logging
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
import trio
from attrs import define, evolve, field
from hypothesis import given
from hypothesis import strategies as st

from agentrt.agent.agent import Agent
from agentrt.core.context import STOP_KEY, Context
from agentrt.core.errors import ServerError
from agentrt.core.history import find_history_faults
from agentrt.core.messages import UserMessage
from agentrt.core.outcomes import (
    Approve,
    Deny,
    TurnCompleted,
    TurnFailed,
    TurnOutcome,
    TurnPaused,
)
from agentrt.filters.base import Filter, ToolUse, TurnRequest, compile_hooks, hook
from agentrt.filters.validation import validation_filter
from agentrt.runtime.runtime import open_runtime
from agentrt.stores.in_memory import InMemoryChatMemory
from agentrt.testing import (
    ScriptedModel,
    call,
    cancel_sweep,
    check_stream,
    trio_property,
)
from agentrt.tools.base import tool
from tests.flow.worlds import RecordingStore

ASKED = """\
This message is from the system, not from the user. Your last answer has faults:
- it is rude
- it is late
Give the whole answer again, without them."""


@tool(sensitive=True)
async def delete() -> str:
    """Delete."""
    await trio.lowlevel.checkpoint()
    return "deleted"


@pytest.fixture(autouse=True)
def _quiet() -> None:
    logging.getLogger("agentrt").setLevel(logging.CRITICAL)


def polite(answer: TurnCompleted) -> Sequence[str]:
    return ["it is rude", "it is late"] if "bad" in answer.text else []


def agent(*steps: Any, made: Filter | None = None, **more: Any) -> Agent:
    filters = [made or validation_filter(polite), *more.pop("filters", ())]
    return Agent(model=ScriptedModel(steps), tools=[delete], filters=filters, **more)


def asked(made: Agent) -> int:
    assert isinstance(made.model, ScriptedModel)
    return len(made.model.requests)


async def test_an_answer_without_faults_is_the_outcome_as_it_is() -> None:
    made = agent("good")
    outcome = await made.run("go")
    assert isinstance(outcome, TurnCompleted)
    assert (outcome.text, asked(made)) == ("good", 1)


async def test_the_faults_go_to_the_model_as_one_message_of_the_system() -> None:
    made = agent("bad", "good")
    outcome = await made.run("go", conversation_id="c")
    assert isinstance(outcome, TurnCompleted)
    assert outcome.text == "good"
    history = await made.history("c")
    assert [each.text for each in history] == ["go", "bad", ASKED, "good"]
    assert isinstance(history[2], UserMessage)


@pytest.mark.parametrize("max_retries", [0, 1, 2, 3])
async def test_when_retries_are_used_up_the_last_answer_is_the_outcome(
    max_retries: int,
) -> None:
    """B69"""
    made = agent(
        *[f"bad {number}" for number in range(5)],
        made=validation_filter(polite, max_retries=max_retries),
    )
    outcome = await made.run("go")
    assert isinstance(outcome, TurnCompleted)
    assert (outcome.text, asked(made)) == (f"bad {max_retries}", max_retries + 1)


async def test_an_answer_that_must_pass_fails_the_turn_instead() -> None:
    made = agent("bad", "bad", made=validation_filter(polite, max_retries=1,
                                                      must_pass=True))  # fmt: skip
    outcome = await made.run("go")
    assert outcome == TurnFailed(
        message="the answer has faults: it is rude; it is late", code="invalid_answer"
    )


async def test_a_pause_is_not_asked_about() -> None:
    """B25: nothing runs again, and the pause stays open."""
    made = agent(call("delete"), made=validation_filter(lambda answer: ["never fine"]))
    outcome = await made.run("go", conversation_id="c")
    assert isinstance(outcome, TurnPaused)
    assert (asked(made), await made.paused("c") is None) == (1, False)


async def test_the_answer_after_a_resume_is_checked() -> None:
    """B26: pause, bad, good: three model calls."""
    made = agent(call("delete"), "bad", "good")
    paused = await made.run("go", conversation_id="c")
    assert isinstance(paused, TurnPaused)
    outcome = await made.resume("c", {paused.interrupts[0].id: Approve()})
    assert isinstance(outcome, TurnCompleted)
    assert (outcome.text, asked(made)) == ("good", 3)
    assert find_history_faults(await made.history("c")) == []


async def test_a_rerun_may_pause_and_its_resume_is_checked_again() -> None:
    """B25"""
    made = agent("bad", call("delete"), "bad", "good")
    paused = await made.run("go", conversation_id="c")
    assert isinstance(paused, TurnPaused)
    outcome = await made.resume("c", {paused.interrupts[0].id: Deny()})
    assert isinstance(outcome, TurnCompleted)
    assert (outcome.text, asked(made)) == ("good", 4)


async def test_a_turn_that_failed_or_was_stopped_is_not_asked_about() -> None:
    @hook
    async def stop(use: ToolUse) -> AsyncIterator[None]:
        yield
        use.response = evolve(use.response, writes={STOP_KEY: "stop"})

    @tool
    async def work() -> str:
        """Work."""
        await trio.lowlevel.checkpoint()
        return "done"

    checked: list[TurnCompleted] = []
    made = Agent(
        model=ScriptedModel([call("work"), ServerError("down")]),
        tools=[work],
        filters=[validation_filter(checked.append), Filter(name="stop", tool=stop)],
    )
    stopped = await made.run("go")
    assert isinstance(stopped, TurnCompleted)
    assert stopped.stopped_by == "stop"
    assert isinstance(await made.run("go"), TurnFailed)
    assert checked == []


async def test_the_outcome_pays_for_all_answers() -> None:
    """X6: what ran in an earlier pass is in it too."""
    free = evolve(delete, sensitive=False)
    model = ScriptedModel([call("delete"), "bad", "good"])
    made = Agent(model=model, tools=[free], filters=[validation_filter(polite)])
    outcome = await made.run("go")
    assert isinstance(outcome, TurnCompleted)
    assert [record.name for record in outcome.calls] == ["delete"]


async def test_readers_get_a_stream_that_keeps_the_rules() -> None:
    store = RecordingStore()
    free = evolve(delete, sensitive=False)
    steps: list[Any] = [call("delete"), "bad", call("delete"), "bad", "good"]
    made = Agent(
        model=ScriptedModel(steps),
        tools=[free],
        filters=[validation_filter(polite)],
    )
    async with open_runtime(made, events=store) as runtime:
        run = await runtime.start_run("c", "go")
        outcome = await run.wait()
    check_stream(store.everything)
    assert isinstance(outcome, TurnCompleted)
    assert outcome.text == "good"


async def test_a_layer_with_fewer_reruns_gives_up_sooner() -> None:
    asked_for: list[str] = []

    async def answer(request: TurnRequest, context: Context) -> TurnOutcome:
        await trio.lowlevel.checkpoint()
        asked_for.append(request.messages[-1].text)
        return TurnCompleted(text="bad")

    made = validation_filter(polite, max_retries=3).turn
    assert made is not None
    run = compile_hooks([made], answer, max_reruns=1)
    request = TurnRequest(messages=[UserMessage(content="go")])
    outcome = await run(request, Context(conversation_id="c"))
    assert outcome == TurnCompleted(text="bad")
    assert asked_for == ["go", ASKED]


@define
class World:
    memory: InMemoryChatMemory = field(factory=InMemoryChatMemory)


def test_a_turn_cut_while_it_is_checked_leaves_a_valid_history() -> None:
    async def check(answer: TurnCompleted) -> Sequence[str]:
        await trio.sleep(1)
        return polite(answer)

    async def scenario(world: World) -> None:
        made = agent("bad", "good", made=validation_filter(check), memory=world.memory)
        await made.run("go", conversation_id="c")

    async def valid(world: World) -> None:
        history = await world.memory.history("c")
        assert find_history_faults(history) == []
        assert [m.text for m in history] == ["go", "bad", ASKED, "good"][: len(history)]

    print(cancel_sweep(World, scenario, valid))


@pytest.mark.parametrize(
    ("found", "lines"),
    [
        (None, None),
        ("", None),
        ([" "], None),
        ("too short", ["too short"]),
        (["a", "", "b"], ["a", "b"]),
        (iter(["a"]), ["a"]),
    ],
)
async def test_a_check_may_give_nothing_one_line_or_several(
    found: Any, lines: Sequence[str] | None
) -> None:
    answers = [found, None]
    made = agent("first", "second", made=validation_filter(lambda _: answers.pop(0)))
    await made.run("go", conversation_id="c")
    expected = 2 if lines else 1
    assert asked(made) == expected
    if lines:
        text = (await made.history("c"))[2].text
        assert text.splitlines()[1:-1] == [f"- {line}" for line in lines]


@pytest.mark.parametrize("found", [True, 3, [1]])
async def test_a_check_that_gives_no_lines_is_a_mistake(found: Any) -> None:
    made = agent("first", made=validation_filter(lambda _: found))
    with pytest.raises(TypeError, match="expected lines of text"):
        await made.run("go")


async def test_what_a_check_raises_comes_out() -> None:
    def check(answer: TurnCompleted) -> None:
        raise KeyError("no such field")

    with pytest.raises(KeyError, match="no such field"):
        await agent("first", made=validation_filter(check)).run("go")


async def test_faults_without_number_or_measure_are_told_in_part() -> None:
    found = [["x" * 1000] * 50, []]
    made = agent("a", "b", made=validation_filter(lambda _: found.pop(0)))
    await made.run("go", conversation_id="c")
    text = (await made.history("c"))[2].text
    assert "- and 30 more\n" in text
    assert len(text) < 21 * 520


@given(st.lists(st.booleans(), max_size=6), st.integers(0, 3), st.booleans())
@trio_property
async def test_it_asks_no_more_often_than_it_may(
    verdicts: list[bool], max_retries: int, must_pass: bool
) -> None:
    """And no more often than it must."""
    left = iter([*verdicts, *[False] * 4])
    made = agent(
        *["answer"] * 10,
        made=validation_filter(
            lambda _: [] if next(left) else ["wrong"],
            max_retries=max_retries,
            must_pass=must_pass,
        ),
    )
    outcome = await made.run("go")
    first_good = next((n for n, fine in enumerate(verdicts) if fine), 9)
    assert asked(made) == min(first_good, max_retries) + 1
    fails = first_good > max_retries and must_pass
    assert isinstance(outcome, TurnFailed if fails else TurnCompleted)


@pytest.mark.parametrize("max_retries", [-1, 4])
def test_a_limit_out_of_range_is_refused(max_retries: int) -> None:
    with pytest.raises(ValueError, match=rf"max_retries is {max_retries}, expected 0"):
        validation_filter(polite, max_retries=max_retries)
