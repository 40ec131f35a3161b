"""The budget filter: nothing is spent that was not reserved, however many spend."""

import re
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
import trio
import trio.testing
from attrs import define, field
from hypothesis import given
from hypothesis import strategies as st

from agentrt.agent.agent import Agent
from agentrt.agent.delegation import delegate_tool, fan_out_tool
from agentrt.agent.subagents import SubagentLimits, Subagents
from agentrt.core.chat import ChatRequest, ChatResponse, Usage
from agentrt.core.context import Context
from agentrt.core.errors import BudgetExceededError, ServerError
from agentrt.core.history import find_history_faults
from agentrt.core.messages import AssistantMessage, Message, ToolMessage
from agentrt.core.outcomes import Approve, TurnCompleted, TurnFailed, TurnPaused
from agentrt.filters.base import ChatCall, Filter, hook
from agentrt.filters.budget import budget_filter
from agentrt.filters.redaction import hold_filter, redaction_filter
from agentrt.models.budget import Budget, Spending
from agentrt.models.charges import Price, Prices
from agentrt.models.estimate import estimate_request
from agentrt.stores.in_memory import InMemoryChatMemory
from agentrt.testing import Say, ScriptedModel, call, cancel_sweep, trio_property
from agentrt.tools.base import ToolRetry, tool


def using(tokens: int, text: str = "ok", *calls: Any, **more: Any) -> Say:
    """An answer that took so many tokens."""
    usage = Usage(input_tokens=tokens - 1, output_tokens=1, total_tokens=tokens)
    return Say(text=text, calls=calls, usage=usage, **more)


@tool
async def look() -> str:
    """Look."""
    await trio.lowlevel.checkpoint()
    return "seen"


@tool
async def wait() -> str:
    """Wait long."""
    await trio.sleep(1_000)
    return "waited"


@tool
async def wait_for(seconds: float) -> str:
    """Wait so long."""
    await trio.sleep(seconds)
    return "waited"


def results(history: Sequence[Message]) -> Sequence[str]:
    return [message.text for message in history if isinstance(message, ToolMessage)]


def agent(*steps: Any, budget: Budget, **options: Any) -> tuple[Agent, ScriptedModel]:
    model = ScriptedModel(steps)
    filters = [budget_filter(budget, **options)]
    return Agent(model=model, tools=[look, wait], filters=filters), model


async def test_what_a_call_took_is_counted_and_not_what_it_reserved() -> None:
    budget = Budget(10_000)
    made, _ = agent(using(70, "", call("look")), using(30), budget=budget)
    outcome = await made.run("go")
    assert isinstance(outcome, TurnCompleted)
    assert budget.spent == Spending(tokens=100, calls=1)
    assert budget.reserved == Spending()


async def test_a_call_that_does_not_fit_is_not_made_and_fails_the_turn() -> None:
    budget = Budget(5_000)
    made, model = agent(using(4_000, "", call("look")), "never", budget=budget)
    outcome = await made.run("go", conversation_id="c")
    assert isinstance(outcome, TurnFailed)
    assert (outcome.code, outcome.retryable) == ("budget_exceeded", False)
    assert "the budget of 5000 tokens is used up: 4000 spent" in outcome.message
    assert isinstance(outcome.error, BudgetExceededError)
    assert (outcome.error.name, outcome.error.spent) == ("tokens", 4_000)
    assert len(model.requests) == 1
    assert results(await made.history("c")) == ["seen"]


async def test_calls_beyond_the_limit_are_refused_and_their_siblings_run() -> None:
    budget = Budget(calls=2)
    script: list[Any] = [[call("look"), call("look"), call("look")], "never"]
    made, model = agent(*script, budget=budget)
    outcome = await made.run("go", conversation_id="c")
    assert isinstance(outcome, TurnFailed)
    assert (outcome.code, len(model.requests)) == ("budget_exceeded", 1)
    told = sorted(results(await made.history("c")))
    refused = "error: this call was not run: no calls of tools are left"
    assert told == [refused, "seen", "seen"]
    assert budget.spent.calls == 2
    assert find_history_faults(await made.history("c")) == []


async def test_a_model_that_makes_no_more_calls_than_it_may_is_let_be() -> None:
    budget = Budget(calls=1)
    made, _ = agent(call("look"), "done", budget=budget)
    assert isinstance(await made.run("go"), TurnCompleted)


async def test_it_may_ask_for_a_last_answer_without_tools() -> None:
    budget = Budget(8_000)
    first = using(5_000, "", call("look"))
    made, model = agent(
        first,
        using(200, "so far"),
        budget=budget,
        when_exhausted="answer",
        answer_tokens=500,
    )
    outcome = await made.run("go")
    assert isinstance(outcome, TurnCompleted)
    assert outcome.text == "so far"
    last = model.requests[1]
    assert (last.tools, last.tool_choice, last.options) == (
        (),
        None,
        {"max_tokens": 500},
    )
    assert "The budget for this task is used up" in last.system
    assert [spec.name for spec in model.requests[0].tools] == ["look", "wait"]
    assert budget.spent.tokens == 5_200


async def test_the_last_answer_comes_after_a_refused_call_too() -> None:
    budget = Budget(calls=1)
    made, model = agent(
        [call("look"), call("look")], "done", budget=budget, when_exhausted="answer"
    )
    outcome = await made.run("go")
    assert isinstance(outcome, TurnCompleted)
    assert model.requests[1].tools == ()


@pytest.mark.parametrize(
    ("limits", "options", "sent"),
    [
        ({"tokens": 10_000}, {}, {"max_tokens": 300}),
        ({"tokens": 10_000}, {"max_tokens": 9}, {"max_tokens": 9}),
        ({"tokens": 10_000}, {"max_completion_tokens": 9},
         {"max_completion_tokens": 9}),
        ({"calls": 5}, {}, {}),
    ],
)  # fmt: skip
async def test_the_model_is_held_to_what_was_reserved(
    limits: Any, options: Any, sent: Any
) -> None:
    model = ScriptedModel(["ok"])
    guard = budget_filter(Budget(**limits), output_tokens=300)
    await Agent(model=model, filters=[guard], options=options).run("go")
    assert model.requests[0].options == sent


async def test_a_last_answer_is_bounded_under_the_name_that_is_used() -> None:
    model = ScriptedModel(["ok"])
    guard = budget_filter(Budget(8_000), when_exhausted="answer")
    options = {"max_completion_tokens": 32_000}
    outcome = await Agent(model=model, filters=[guard], options=options).run("go")
    assert isinstance(outcome, TurnCompleted)
    assert model.requests[0].options == {"max_completion_tokens": 1_000}


async def test_a_last_answer_that_does_not_fit_fails_the_turn() -> None:
    budget = Budget(5_000)
    made, model = agent(
        using(4_500, "", call("look")), budget=budget, when_exhausted="answer"
    )
    outcome = await made.run("go")
    assert isinstance(outcome, TurnFailed)
    assert (outcome.code, len(model.requests)) == ("budget_exceeded", 1)


async def test_its_time_cuts_what_is_at_work_and_says_so(
    autojump_clock: trio.testing.MockClock,
) -> None:
    budget = Budget(seconds=10)
    made, _ = agent([call("look"), call("wait")], budget=budget)
    outcome = await made.run("go", conversation_id="c")
    assert isinstance(outcome, TurnFailed)
    assert trio.current_time() == pytest.approx(10)
    assert "the budget of 10 seconds is used up: 10 spent" in outcome.message
    told = results(await made.history("c"))
    assert told[0] == "seen"
    assert told[1].startswith("This call was cut")
    again = await made.run("more", conversation_id="c")
    assert isinstance(again, TurnFailed)
    assert again.code == "budget_exceeded"


@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=5),
    st.integers(1, 6),
    st.booleans(),
)
@trio_property
async def test_a_call_counts_once_and_is_refused_only_if_it_never_ran(
    failures: list[int], calls: int, serial: bool
) -> None:
    """However often it is tried again."""
    tries: Counter[int] = Counter()

    @tool(retry=ToolRetry(max_retries=2), serial=serial)
    async def pay(place: int) -> str:
        """Pay."""
        tries[place] += 1
        await trio.lowlevel.checkpoint()
        if tries[place] <= failures[place]:
            raise ConnectionError("reset after it was sent")
        return "paid"

    budget = Budget(calls=calls)
    batch = [call("pay", id=str(at), place=at) for at in range(len(failures))]
    made = Agent(
        model=ScriptedModel([batch, "end"]),
        tools=[pay],
        filters=[budget_filter(budget)],
    )
    await made.run("go", conversation_id="c")
    for place, told in enumerate(results(await made.history("c"))):
        if "was not run" in told:
            assert tries[place] == 0
        elif failures[place] > 2:
            assert (told, tries[place]) == ("error: reset after it was sent", 3)
        else:
            assert (told, tries[place]) == ("paid", failures[place] + 1)
    assert budget.spent.calls == len(tries) == min(calls, len(failures))


async def test_a_call_that_goes_on_after_a_question_is_not_counted_again() -> None:
    """It had run: nobody says that it was not."""

    @tool(sensitive=True)
    async def delete() -> str:
        """Delete."""
        await trio.lowlevel.checkpoint()
        return "deleted"

    helper = Agent(model=ScriptedModel([call("delete", id="x"), "did it"]),
                   tools=[delete], name="helper")  # fmt: skip
    budget = Budget(calls=1)
    made = Agent(
        model=ScriptedModel([call("delegate", task="clean up"), "done"]),
        tools=[delegate_tool(helper)],
        filters=[budget_filter(budget)],
    )
    paused = await made.run("go", conversation_id="c")
    assert isinstance(paused, TurnPaused)
    answers = {each.id: Approve() for each in paused.interrupts}
    outcome = await made.resume("c", answers)
    assert isinstance(outcome, TurnCompleted)
    assert results(await made.history("c")) == ["did it"]
    assert budget.spent.calls == 1


@tool(sensitive=True)
async def ask_and_wait(seconds: float) -> str:
    """Wait long, if somebody lets it."""
    await trio.sleep(seconds)
    return "waited"


@pytest.mark.parametrize(
    ("pause", "told"),
    [
        (0, ["waited", "error: the time of the budget is up, and this call was cut."]),
        (61, ["error: this call was not run: the time of the budget is up"] * 2),
    ],
)
async def test_its_time_bounds_calls_that_go_on_after_a_pause(
    pause: float, told: Sequence[str], autojump_clock: trio.testing.MockClock
) -> None:
    batch = [
        call("ask_and_wait", id="a", seconds=50),
        call("ask_and_wait", id="b", seconds=10_000),
    ]
    model = ScriptedModel([batch, "never"])
    guard = budget_filter(Budget(seconds=60))
    made = Agent(model=model, tools=[ask_and_wait], filters=[guard])
    assert isinstance(await made.run("go", conversation_id="c"), TurnPaused)
    await trio.sleep(pause)
    outcome = await made.resume("c", {"a": Approve(), "b": Approve()})
    assert isinstance(outcome, TurnFailed)
    assert outcome.code == "budget_exceeded"
    assert trio.current_time() == pytest.approx(max(60, pause))
    history = await made.history("c")
    pairs = zip(results(history), told, strict=True)
    assert all(text.startswith(words) for text, words in pairs)
    assert find_history_faults(history) == []


@given(
    st.lists(st.integers(1, 100), min_size=1, max_size=4),
    st.integers(0, 80),
    st.booleans(),
)
@trio_property
async def test_nothing_that_waits_outlives_the_time_of_its_budget(
    seconds: list[int], pause: int, asks: bool
) -> None:
    """Whether it is a tool, a batch after a pause, or the model."""
    began = trio.current_time()
    batch = [
        call("ask_and_wait" if asks else "wait_for", id=str(at), seconds=each)
        for at, each in enumerate(seconds)
    ]
    made = Agent(
        model=ScriptedModel([batch, Say(text="done", delay_seconds=7)]),
        tools=[ask_and_wait, wait_for],
        filters=[budget_filter(Budget(seconds=60.5))],
    )
    outcome = await made.run("go", conversation_id="c")
    at_work = max(seconds) + 7
    if isinstance(outcome, TurnPaused):
        await trio.sleep(pause)
        at_work += pause
        answers = {each.id: Approve() for each in outcome.interrupts}
        outcome = await made.resume("c", answers)
    assert isinstance(outcome, TurnCompleted) == (at_work <= 60)
    passed = trio.current_time() - began
    assert passed == pytest.approx(min(at_work, max(60.5, pause if asks else 0)))
    assert find_history_faults(await made.history("c")) == []


@pytest.mark.parametrize("begins", [0.0, 1e6])
@pytest.mark.parametrize("resumed", [False, True])
def test_its_time_goes_on_in_another_run_of_trio(begins: float, resumed: bool) -> None:
    guard = budget_filter(Budget(seconds=100))
    name = "ask_and_wait" if resumed else "wait_for"
    steps: list[Any] = [call(name, seconds=60), "done"] * 2
    made = Agent(
        model=ScriptedModel(steps), tools=[ask_and_wait, wait_for], filters=[guard]
    )

    async def turn() -> Any:
        outcome = await made.run("go", conversation_id="c")
        if isinstance(outcome, TurnPaused):
            answers = {each.id: Approve() for each in outcome.interrupts}
            outcome = await made.resume("c", answers)
        return outcome

    first = trio.testing.MockClock(autojump_threshold=0)
    assert isinstance(trio.run(turn, clock=first), TurnCompleted)
    second = trio.testing.MockClock(autojump_threshold=0)
    second.jump(begins)
    outcome = trio.run(turn, clock=second)
    assert isinstance(outcome, TurnFailed)
    assert "the budget of 100 seconds is used up" in outcome.message
    assert second.current_time() == pytest.approx(begins + 40)


async def test_costs_are_limited_by_prices() -> None:
    prices = Prices({"scripted/model": Price(input=1_000, output=1_000)})
    budget = Budget(cost=5.0)
    made, _ = agent(
        using(2_000, "", call("look")),
        budget=budget,
        prices=prices,
        output_tokens=3_500,
    )
    outcome = await made.run("go")
    assert isinstance(outcome, TurnFailed)
    assert budget.spent.cost == pytest.approx(2.0)
    assert "the budget of 5 cost is used up: 2 spent" in outcome.message


async def test_an_answer_that_no_model_gave_costs_nothing() -> None:
    @hook
    async def answer(chat: ChatCall) -> AsyncIterator[None]:
        message = AssistantMessage(id="", content="known")
        chat.response = ChatResponse(message=message)
        yield

    budget = Budget(10_000)
    filters = [budget_filter(budget), Filter(name="answer", chat=answer)]
    outcome = await Agent(model=ScriptedModel([]), filters=filters).run("go")
    assert isinstance(outcome, TurnCompleted)
    assert (budget.spent, budget.reserved) == (Spending(), Spending())


@pytest.mark.parametrize(
    "after",
    [
        [],
        [hold_filter(lambda text: True)],
        [redaction_filter(re.compile("x")), hold_filter(lambda text: False)],
    ],
)
async def test_a_call_that_is_cut_counts_its_request_and_what_was_said(
    after: list[Filter],
    autojump_clock: trio.testing.MockClock,
) -> None:
    budget = Budget(10_000)
    say = Say(text=["four" * 50, "never"], delay_seconds=1)
    model = ScriptedModel([say])
    made = Agent(model=model, filters=[budget_filter(budget), *after])
    with trio.move_on_after(1.5):
        await made.run("go", emit=lambda event: None)
    asked = estimate_request(model.requests[0])
    assert budget.spent.tokens == asked + 50
    assert budget.reserved == Spending()


async def test_a_call_that_fails_counts_its_request() -> None:
    budget = Budget(10_000)
    made, model = agent(ServerError("down"), budget=budget)
    outcome = await made.run("go")
    assert isinstance(outcome, TurnFailed)
    assert budget.spent.tokens == estimate_request(model.requests[0])


async def test_a_turn_that_was_out_of_calls_goes_on_when_there_are_more() -> None:
    """As after a pause in another process, with another budget."""

    @tool(sensitive=True)
    async def ask() -> str:
        """Ask."""
        await trio.lowlevel.checkpoint()
        return "asked"

    def made(budget: Budget, memory: Any, pauses: Any, *steps: Any) -> Agent:
        return Agent(
            model=ScriptedModel(steps),
            tools=[look, ask],
            filters=[budget_filter(budget)],
            memory=memory,
            pauses=pauses,
        )

    batch = [call("look"), call("look"), call("ask", id="x")]
    first = Agent(
        model=ScriptedModel([batch]),
        tools=[look, ask],
        filters=[budget_filter(Budget(calls=1))],
    )
    assert isinstance(await first.run("go", conversation_id="c"), TurnPaused)
    second = made(Budget(calls=9), first.memory, first.pauses, "done")
    outcome = await second.resume("c", {"x": Approve()})
    assert isinstance(outcome, TurnCompleted)


@define
class Watched:
    """A model that looks at the budget while it works."""

    budget: Budget
    plan: list[int]
    ref: str = "test/watched"
    most: int = 0
    asked: int = 0
    excess: int = 0
    """That was taken and had not been reserved."""

    async def call(self, request: ChatRequest, context: Context) -> ChatResponse:
        self.look()
        assert self.taken <= self.limit, "a call was begun that does not fit"
        tokens = self.plan[self.asked % len(self.plan)]
        self.asked += 1
        await trio.sleep(self.asked % 3)
        self.look()
        reserved = estimate_request(request) + request.options["max_tokens"]
        self.excess += max(0, tokens - reserved)
        usage = Usage(input_tokens=tokens, output_tokens=0, total_tokens=tokens)
        message = AssistantMessage(id=context.message_id, content="ok")
        return ChatResponse(message=message, usage=usage)

    @property
    def limit(self) -> int:
        assert self.budget.tokens is not None
        return self.budget.tokens

    @property
    def taken(self) -> int:
        return self.budget.spent.tokens + self.budget.reserved.tokens

    def look(self) -> None:
        self.most = max(self.most, self.taken - self.excess)


@given(
    st.lists(st.integers(1, 400) | st.integers(1, 2_000), min_size=1, max_size=5),
    st.integers(1, 12),
    st.integers(600, 3_000),
    st.integers(0, 3),
)
@trio_property
async def test_agents_that_share_a_budget_never_exceed_it_together(
    plan: list[int], agents: int, limit: int, cut_after: int
) -> None:
    """U49: save for what a vendor counts above what was reserved for the call."""
    budget = Budget(limit)
    model = Watched(budget, plan)
    made = Agent(model=model, filters=[budget_filter(budget, output_tokens=400)])
    outcomes: list[Any] = []

    async def run(number: int) -> None:
        outcomes.append(await made.run("go", conversation_id=str(number)))

    with trio.move_on_after(cut_after + 0.5):
        async with trio.open_nursery() as nursery:
            for number in range(agents):
                nursery.start_soon(run, number)
    assert model.most <= limit
    assert budget.spent.tokens <= limit + model.excess
    assert budget.reserved == Spending()
    if cut_after == 3:
        failed = [each for each in outcomes if isinstance(each, TurnFailed)]
        assert all(each.code == "budget_exceeded" for each in failed)
        assert len(outcomes) == agents
        assert len(outcomes) - len(failed) == model.asked


async def test_a_fan_out_of_subagents_draws_on_the_budget_of_its_parent() -> None:
    """U49: what does not fit is not started; the others' answers come through."""
    budget = Budget(12_500)
    guard = budget_filter(budget)
    child = Agent(
        name="child", model=ScriptedModel([using(3_000)] * 9), filters=[guard]
    )
    limits = Subagents(SubagentLimits(max_agents=1))
    fan = fan_out_tool(child, name="fan", subagents=limits)
    model = ScriptedModel([call("fan", tasks=["a", "b", "c", "d", "e"]), "never"])
    parent = Agent(model=model, tools=[fan], filters=[guard])
    outcome = await parent.run("go", conversation_id="c")
    assert isinstance(outcome, TurnFailed)
    assert outcome.code == "budget_exceeded"
    (told,) = results(await parent.history("c"))
    assert told.count("ok") == 3
    assert told.count("budget_exceeded") == 2
    assert budget.spent.tokens <= 12_500


@define
class World:
    budget: Budget = field(factory=lambda: Budget(50_000, calls=9, seconds=1e6))
    memory: InMemoryChatMemory = field(factory=InMemoryChatMemory)


def test_wherever_it_is_stopped_nothing_stays_reserved() -> None:
    async def scenario(world: World) -> None:
        model = ScriptedModel(
            [using(5, "", call("look"), call("look"), delay_seconds=1), using(5)]
        )
        made = Agent(
            model=model,
            tools=[look],
            filters=[budget_filter(world.budget)],
            memory=world.memory,
        )
        await made.run("go", conversation_id="c", emit=lambda event: None)

    async def check(world: World) -> None:
        assert world.budget.reserved == Spending()
        ran = results(await world.memory.history("c")).count("seen")
        assert world.budget.spent.calls >= ran
        assert find_history_faults(await world.memory.history("c")) == []

    assert cancel_sweep(World, scenario, check).runs > 40


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"output_tokens": 0}, "output_tokens is 0, expected 1 or more"),
        ({"answer_tokens": 0}, "answer_tokens is 0, expected 1 or more"),
        ({"when_exhausted": "stop"}, "when_exhausted is 'stop', expected 'fail' or"),
    ],
)
def test_bad_options_fail_at_once(options: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        budget_filter(Budget(), **options)


def test_a_limit_of_cost_needs_prices() -> None:
    with pytest.raises(ValueError, match="there are no prices: hand in prices="):
        budget_filter(Budget(cost=1.0))
