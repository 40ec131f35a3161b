"""Every deadline: what it cuts, and that the error names it."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
import trio
import trio.testing
from attrs import define, field, fields

from agentrt.agent.agent import Agent
from agentrt.agent.approvers import Approval, Question
from agentrt.agent.model_approver import model_approver
from agentrt.core.chat import ChatRequest, ChatResponse, DeltaSink, TextDelta
from agentrt.core.context import Context
from agentrt.core.deadlines import Deadlines
from agentrt.core.errors import ModelTimeoutError, ServerError
from agentrt.core.messages import AssistantMessage, ToolMessage
from agentrt.core.outcomes import TurnCompleted, TurnFailed, TurnOutcome
from agentrt.events import types as e
from agentrt.models.attempt import one_attempt
from agentrt.models.base import ChatModel
from agentrt.models.chat_model import ProviderModel
from agentrt.models.fallback import FallbackModel
from agentrt.models.function import FunctionModel
from agentrt.models.retry import RetryPolicy
from agentrt.runtime.run import RunOptions
from agentrt.runtime.runtime import open_runtime
from agentrt.testing import Say, ScriptedModel, call
from agentrt.tools.base import tool


@define
class SlowProvider:
    """Streams pieces, each after its own seconds; then answers."""

    scripts: list[Sequence[tuple[float, str]]]
    name: str = "slow"
    attempts: int = field(default=0, init=False)

    async def call(
        self, request: ChatRequest, *, message_id: str, sink: DeltaSink | None = None
    ) -> ChatResponse:
        self.attempts += 1
        script = self.scripts.pop(0) if len(self.scripts) > 1 else self.scripts[0]
        for seconds, text in script:
            await trio.sleep(seconds)
            if sink is not None and text:
                sink(TextDelta(text=text))
        content = "".join(text for _, text in script)
        return ChatResponse(message=AssistantMessage(id=message_id, content=content))


def slow(*scripts: Sequence[tuple[float, str]]) -> ProviderModel:
    return ProviderModel(
        provider=SlowProvider(list(scripts)), model_id="m", random=lambda: 0.5
    )


NEVER = [(1000.0, "late")]
HALF = [(1.0, "half"), (1000.0, "late")]


async def turn(model: Any, deadlines: Deadlines, **options: Any) -> TurnOutcome:
    agent = Agent(model=model, deadlines=deadlines, **options)
    return await agent.run("go", conversation_id="c", emit=lambda event: None)


@pytest.mark.parametrize(
    ("deadlines", "name", "words"),
    [
        (Deadlines(turn_seconds=5), "turn", "the turn deadline of 5 s fired and cut"),
        (Deadlines(iteration_seconds=5), "iteration", "cut iteration 0"),
        (Deadlines(model_seconds=5), "model", "cut a call of slow/m"),
        (Deadlines(attempt_seconds=5), "attempt", "cut an attempt of slow/m"),
        (Deadlines(first_token_seconds=5), "first token", "cut an attempt of slow/m"),
    ],
)
async def test_a_deadline_names_itself_and_what_it_cut(
    deadlines: Deadlines,
    name: str,
    words: str,
    autojump_clock: trio.testing.MockClock,
) -> None:
    outcome = await turn(slow(NEVER), deadlines)
    assert isinstance(outcome, TurnFailed)
    assert outcome.deadline == name
    assert f"the {name} deadline of 5 s fired" in outcome.message
    assert words in outcome.message


async def test_the_deadline_of_a_run_is_in_its_terminal_event(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with open_runtime(Agent(model=slow(NEVER))) as runtime:
        run = await runtime.start_run("c", "go", RunOptions(deadline_seconds=5))
        outcome = await run.wait()
        assert isinstance(outcome, TurnFailed)
        assert outcome.deadline == "run"
        *_, last = runtime._events.ring("c").after(0, limit=100)
    assert isinstance(last.event, e.RunFailed)
    assert (last.event.deadline, last.event.error_code) == ("run", "deadline")


async def test_a_gap_between_tokens_is_not_retried(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """B36: a reader has seen the half."""
    model = slow(HALF)
    outcome = await turn(model, Deadlines(token_gap_seconds=5, first_token_seconds=2))
    assert isinstance(outcome, TurnFailed)
    assert outcome.deadline == "token gap"
    assert outcome.message == (
        "the token gap deadline of 5 s fired and cut an attempt of slow/m"
    )
    assert model.provider.attempts == 1  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["attempt_seconds", "first_token_seconds"])
async def test_an_attempt_that_said_nothing_is_retried(
    name: str, autojump_clock: trio.testing.MockClock
) -> None:
    """U47: and each attempt has the whole limit."""
    model = slow(NEVER, NEVER, [(4.0, "there")])
    outcome = await turn(model, Deadlines(**{name: 5.0}))
    assert isinstance(outcome, TurnCompleted)
    assert outcome.text == "there"
    assert model.provider.attempts == 3  # type: ignore[attr-defined]


async def test_steady_tokens_may_take_long_in_all(
    autojump_clock: trio.testing.MockClock,
) -> None:
    steady = [(4.0, "a"), (4.0, "b"), (4.0, "c")]
    limits = Deadlines(first_token_seconds=5, token_gap_seconds=5)
    outcome = await turn(slow(steady), limits)
    assert isinstance(outcome, TurnCompleted)


async def test_who_does_not_stream_waits_for_no_first_token(
    autojump_clock: trio.testing.MockClock,
) -> None:
    limits = Deadlines(first_token_seconds=5)
    context = Context(conversation_id="c", deadlines=limits)
    response = await slow([(10.0, "x")]).call(ChatRequest(), context)
    assert response.message.text == "x"


async def test_waiting_for_a_permit_is_not_part_of_an_attempt(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """What is limited is the attempt, and not the queue before it."""
    model = slow([(4.0, "x")])
    outcomes: list[TurnOutcome] = []

    async def one() -> None:
        outcomes.append(await turn(model, Deadlines(attempt_seconds=5)))

    async with trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(one)
    assert {type(outcome) for outcome in outcomes} == {TurnCompleted}


async def test_the_deadline_of_a_tool_fails_the_call_and_not_the_turn(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """U47: named where the model reads it."""

    @tool
    async def hang() -> None:
        """Hang."""
        await trio.sleep_forever()

    model = ScriptedModel([call("hang"), "sorry"])
    agent = Agent(model=model, tools=[hang], deadlines=Deadlines(tool_seconds=5))
    assert isinstance(await agent.run("go", conversation_id="c"), TurnCompleted)
    (result,) = [m for m in await agent.history("c") if isinstance(m, ToolMessage)]
    assert result.text == (
        "The tool deadline of 5 s fired and cut this call. It may have had effects."
    )


async def test_the_deadline_of_people_denies(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async def sleeper(question: Question) -> None:
        await trio.sleep_forever()

    @tool(sensitive=True)
    async def delete() -> None:
        """Delete."""
        raise AssertionError("it must not run")

    agent = Agent(
        model=ScriptedModel([call("delete"), "ok"]),
        tools=[delete],
        approval=Approval(approvers=[sleeper]),
        deadlines=Deadlines(human_seconds=5),
    )
    await agent.run("go", conversation_id="c")
    (result,) = [m for m in await agent.history("c") if isinstance(m, ToolMessage)]
    assert "the human deadline of 5 s fired" in result.text


async def test_the_innermost_deadline_fires_first(
    autojump_clock: trio.testing.MockClock,
) -> None:
    limits = Deadlines(
        turn_seconds=100, iteration_seconds=90, model_seconds=80, attempt_seconds=5
    )
    model = ProviderModel(
        provider=SlowProvider([NEVER]), model_id="m", retry=RetryPolicy(max_retries=0)
    )
    outcome = await turn(model, limits)
    assert isinstance(outcome, TurnFailed)
    assert outcome.deadline == "attempt"


def _deadlines(name: str, seconds: Any) -> Deadlines:
    return Deadlines(**{name: seconds})


LIMITS: dict[str, Callable[[Any], object]] = {
    "deadline_seconds": lambda seconds: RunOptions(deadline_seconds=seconds),
    "timeout_seconds": lambda seconds: model_approver(
        ScriptedModel([]), timeout_seconds=seconds
    ),
    **{each.name: partial(_deadlines, each.name) for each in fields(Deadlines)},
}


@pytest.mark.parametrize("name", LIMITS)
@pytest.mark.parametrize("seconds", [0, -1.0, float("nan"), "5", True])
def test_a_limit_of_nothing_is_refused(name: str, seconds: Any) -> None:
    with pytest.raises(ValueError, match=f"{name} is .*, expected seconds above 0"):
        LIMITS[name](seconds)


async def test_each_attempt_and_its_wait_is_an_event(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Observed by events: the spec's `on-retry`."""
    model = slow(NEVER, [(1.0, "there")])
    events: list[e.Event] = []
    agent = Agent(model=model, deadlines=Deadlines(attempt_seconds=5))
    await agent.run("go", emit=events.append)
    (retried,) = [event for event in events if isinstance(event, e.ModelRetried)]
    assert (retried.ref, retried.attempt, retried.wait_seconds) == ("slow/m", 1, 0.5)
    assert retried.error_code == "timeout"
    started = [event for event in events if isinstance(event, e.ModelStarted)]
    assert [event.message_id for event in started] == [retried.message_id]


@pytest.mark.parametrize("option", [False, RetryPolicy(max_retries=0)])
async def test_a_call_may_forbid_its_retries(
    option: Any, autojump_clock: trio.testing.MockClock
) -> None:
    """B14: and no vendor hears of it."""
    seen: list[ChatRequest] = []

    @define
    class Failing:
        name: str = "failing"

        async def call(self, request: ChatRequest, **_: Any) -> ChatResponse:
            await trio.lowlevel.checkpoint()
            seen.append(request)
            raise ServerError("no")

    model = ProviderModel(provider=Failing(), model_id="m")
    agent = Agent(model=model, options={"retry": option})
    assert isinstance(await agent.run("go"), TurnFailed)
    (request,) = seen
    assert request.options == {"model": "m"}


LATE = Deadlines(first_token_seconds=1, token_gap_seconds=2, attempt_seconds=9)


@pytest.mark.parametrize(
    ("delays", "fired"),
    [([5], "first token"), ([0.5, 5], "token gap"), ([0.5] + [1.5] * 9, "attempt")],
)
async def test_a_model_that_is_no_providers_has_these_deadlines_too(
    autojump_clock: trio.testing.MockClock, delays: Sequence[float], fired: str
) -> None:
    async def ask(request: ChatRequest, context: Context) -> ChatResponse:
        assert context.on_delta is not None
        for seconds in delays:
            await trio.sleep(seconds)
            context.on_delta(TextDelta(text="x"))
        raise AssertionError("it was to be cut")

    context = Context(conversation_id="c", on_delta=lambda delta: None, deadlines=LATE)
    with pytest.raises(ModelTimeoutError) as caught:
        await one_attempt(partial(ask, ChatRequest(messages=())), context, ref="my/own")
    assert caught.value.deadline == fired


async def hang(request: ChatRequest) -> str:
    await trio.sleep_forever()
    raise AssertionError


@pytest.mark.parametrize(
    "model",
    [ScriptedModel([Say(before=trio.sleep_forever)]), FunctionModel(hang)],
    ids=["scripted", "function"],
)
async def test_another_model_answers_for_one_that_hangs(
    autojump_clock: trio.testing.MockClock, model: ChatModel
) -> None:
    chain = FallbackModel([model, ScriptedModel(["here"])])
    outcome = await Agent(model=chain, deadlines=LATE).run("go")
    assert isinstance(outcome, TurnCompleted)
    assert outcome.text == "here"
