"""What a model call draws on a budget: reserved by estimate, settled by usage."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing
from attrs import evolve
from hypothesis import example, given
from hypothesis import strategies as st

from agentrt.core.chat import ChatRequest, ChatResponse, ToolCallDelta, Usage
from agentrt.core.context import Context
from agentrt.core.errors import (
    BudgetExceededError,
    ContextOverflowError,
    NetworkError,
    RateLimitError,
)
from agentrt.core.messages import AssistantMessage, UserMessage
from agentrt.models.base import ChatModel
from agentrt.models.budget import Budget, Spending
from agentrt.models.charges import BudgetedModel, Price, Prices, charge
from agentrt.models.estimate import estimate_request
from agentrt.models.function import FunctionModel
from agentrt.testing import Say, ScriptedModel, check_chat_model

REQUEST = ChatRequest(messages=[UserMessage(content="x" * 400)])
INPUT = estimate_request(REQUEST)
PRICE = Price(input=2.0, output=10.0, cached_input=0.5)
PRICES = Prices({"a/big": PRICE, "a/big-mini": Price(input=1.0, output=1.0)})


def answer(**usage: Any) -> ChatResponse:
    return ChatResponse(
        message=AssistantMessage(id="m", content="x" * 40),
        usage=Usage(**usage) if usage else None,
        provider="a",
        model="big-2026-01-01",
    )


@pytest.mark.parametrize(
    ("options", "most"),
    [
        ({}, 4_096),
        ({"max_tokens": 50}, 50),
        ({"max_tokens": None}, 4_096),
        ({"max_completion_tokens": 32_000}, 32_000),
        ({"max_output_tokens": 7}, 7),
        ({"max_output_tokens": 7, "max_tokens": 50}, 50),
    ],
)
def test_a_call_reserves_its_request_and_the_most_that_may_come(
    options: Any, most: int
) -> None:
    budget = Budget()
    charge(budget, evolve(REQUEST, options=options), prices=PRICES)
    cost = (INPUT * 2.0 + most * 10.0) / 1e6
    assert budget.reserved == Spending(tokens=INPUT + most, cost=cost)


@pytest.mark.parametrize(
    ("usage", "tokens", "cost"),
    [
        ({"input_tokens": 7, "output_tokens": 3, "total_tokens": 10}, 10, 44),
        ({"input_tokens": 7, "output_tokens": 3}, 10, 44),
        ({"input_tokens": 8, "output_tokens": 0, "cached_input_tokens": 6}, 8, 7),
        ({"input_tokens": 2, "output_tokens": 0, "cached_input_tokens": 6}, 2, 7),
        ({}, INPUT + 14, INPUT * 2 + 140),
        ({"output_tokens": 5}, INPUT + 5, INPUT * 2 + 50),
    ],
)
def test_it_is_settled_by_what_the_vendor_says_or_by_our_estimate(
    usage: Any, tokens: int, cost: float
) -> None:
    budget = Budget()
    made = charge(budget, REQUEST, prices=PRICES)
    made.was_sent = True
    made.settle(answer(**usage))
    assert budget.spent.tokens == tokens
    assert budget.spent.cost == pytest.approx(cost / 1e6)
    assert budget.reserved == Spending()


def test_a_call_that_was_never_made_costs_nothing() -> None:
    budget = Budget()
    charge(budget, REQUEST, prices=PRICES).settle(answer())
    charge(budget, REQUEST, prices=PRICES).fail(NetworkError("gone"))
    assert (budget.spent, budget.reserved) == (Spending(), Spending())


@pytest.mark.parametrize(
    ("error", "tokens"),
    [
        (NetworkError("gone"), INPUT + 5),
        (KeyboardInterrupt(), INPUT + 5),
        (RateLimitError("slow down"), 0),
        (ContextOverflowError("too long"), 0),
    ],
)
def test_a_call_that_failed_costs_what_is_known_of_it(
    error: BaseException, tokens: int
) -> None:
    budget = Budget()
    made = charge(budget, REQUEST, prices=PRICES, ref="a/big")
    made.was_sent = True
    made.hear(ToolCallDelta(index=0, name="add", arguments='{"city": "here"}'))
    made.fail(error)
    assert budget.spent.tokens == tokens
    assert (budget.spent.cost > 0) == (tokens > 0)
    assert budget.reserved == Spending()


MODELS = [
    "openai/gpt-4",
    "openai/gpt-4-turbo",
    "openai/gpt-4-32k",
    "openai/gpt-4.1-nano",
    "openai/gpt-4o",
    "openai/gpt-4o-mini",
    "openai/o1",
    "openai/o1-pro",
    "openai/o3-mini",
    "anthropic/claude-sonnet-4-5",
    "anthropic/claude-sonnet-4",
    "google/gemini-2.5-flash",
    "google/gemini-2.5-flash-lite",
    "mistral/mistral-large",
]
VERSIONS = [
    "-2026-01-31",
    "-20260131",
    "@20260131",
    ":2026-01-31",
    "-0613",
    "-2411",
    "-002",
    "-20260131-v1:0",
    "-latest",
]
OTHERS = ["-pro", "-mini", "b", ".5", "-4", "-32k", "-1106-preview", "-405b", "-12345"]


@given(
    st.sets(st.sampled_from(MODELS), min_size=1),
    st.sampled_from(MODELS),
    st.sampled_from(["", *VERSIONS, *OTHERS]),
)
@example(known={"openai/o1", "openai/gpt-4"}, model="openai/o1-pro", rest="")
@example(known={"openai/o1", "openai/gpt-4"}, model="openai/gpt-4.1-nano", rest="")
def test_a_name_costs_as_itself_without_a_version_or_else_as_the_dearest(
    known: set[str], model: str, rest: str
) -> None:
    by_ref = {
        ref: Price(input=MODELS.index(ref) + 1, output=1) for ref in sorted(known)
    }
    is_known = model in known and rest in {"", *VERSIONS}
    ref = model + rest
    expected = max(by_ref.values(), key=lambda price: price.input)
    if ref in known or is_known:
        expected = by_ref[ref if ref in known else model]
    cost = Prices(by_ref).cost(ref, input_tokens=1_000_000, output_tokens=0)
    assert cost == expected.input


def test_a_name_that_is_there_with_its_version_costs_as_that() -> None:
    dated = {"a/big": PRICE, "a/big-0613": Price(input=9, output=9)}
    cost = Prices(dated).cost("a/big-0613", input_tokens=1_000_000, output_tokens=0)
    assert cost == 9


def test_a_model_without_a_name_costs_as_the_dearest() -> None:
    assert PRICES.cost("", input_tokens=1_000_000, output_tokens=0) == 2.0


def test_without_prices_nothing_costs_anything() -> None:
    assert Prices().cost("a/big", input_tokens=10**9, output_tokens=0) == 0.0


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**6))
def test_what_came_from_the_cache_is_never_dearer(
    given_: int, taken: int, cached: int
) -> None:
    whole = PRICE.cost(input_tokens=given_, output_tokens=taken)
    some = min(cached, given_)
    less = PRICE.cost(input_tokens=given_, output_tokens=taken, cached=some)
    assert 0 <= less <= whole + 1e-9


@given(st.integers(0, 10**6), st.integers(0, 10**6))
def test_of_a_vendor_that_counts_the_cache_apart_no_more_than_the_cache_is_missing(
    fresh: int, cached: int
) -> None:
    """Where the price of cached input is left out, as `Price` says."""
    true = fresh * 2.0 + cached * 0.5
    plain = Price(input=2.0, output=10.0)
    told = plain.cost(input_tokens=fresh, output_tokens=0, cached=cached) * 1e6
    assert told >= true - cached * 0.5 - 1e-6


def test_a_price_below_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="output is -1, expected 0 or more"):
        Price(input=1, output=-1)


async def test_a_model_draws_on_a_budget() -> None:
    budget = Budget(10_000)
    usage = Usage(input_tokens=7, output_tokens=3, total_tokens=10)
    model = BudgetedModel(ScriptedModel([Say(text="ok", usage=usage)]), budget)
    response = await model.call(REQUEST, Context(conversation_id="c"))
    assert (response.message.text, model.ref) == ("ok", "scripted/model")
    assert budget.spent == Spending(tokens=10)


@pytest.mark.parametrize(
    ("limits", "options", "sent"),
    [
        ({"tokens": 10_000}, {}, {"max_tokens": 300}),
        ({"cost": 1.0}, {"seed": 1}, {"seed": 1, "max_tokens": 300}),
        ({"tokens": 10_000}, {"max_tokens": None}, {"max_tokens": 300}),
        ({"tokens": 10_000}, {"max_output_tokens": 9}, {"max_output_tokens": 9}),
        ({"calls": 5}, {}, {}),
    ],
)
async def test_a_model_is_held_to_what_was_reserved(
    limits: Any, options: Any, sent: Any
) -> None:
    inner = ScriptedModel(["ok"])
    model = BudgetedModel(inner, Budget(**limits), prices=PRICES, output_tokens=300)
    await model.call(evolve(REQUEST, options=options), Context(conversation_id="c"))
    assert inner.requests[0].options == sent


async def test_a_budgeted_model_keeps_the_promises_of_a_model() -> None:
    @asynccontextmanager
    async def opened() -> AsyncIterator[ChatModel]:
        yield BudgetedModel(FunctionModel(lambda request: "hi"), Budget())

    await check_chat_model(opened)


async def test_a_model_is_not_asked_when_there_is_not_enough_left() -> None:
    inner = ScriptedModel([])
    model = BudgetedModel(inner, Budget(1_000))
    with pytest.raises(BudgetExceededError, match="of 1000 tokens is used up"):
        await model.call(REQUEST, Context(conversation_id="c"))
    assert inner.requests == []


async def test_a_stream_that_is_cut_counts_what_was_heard(
    autojump_clock: trio.testing.MockClock,
) -> None:
    budget = Budget(10_000)
    say = Say(text=["four" * 5, "never"], delay_seconds=1)
    heard: list[Any] = []
    context = Context(conversation_id="c", on_delta=heard.append)
    model = BudgetedModel(ScriptedModel([say]), budget)
    with trio.move_on_after(1.5):
        await model.call(REQUEST, context)
    assert len(heard) == 1
    assert (budget.spent, budget.reserved) == (Spending(tokens=INPUT + 5), Spending())


def test_a_limit_of_cost_needs_prices() -> None:
    budget = Budget(cost=1)
    with pytest.raises(ValueError, match="limits cost to 1, and there are no prices"):
        BudgetedModel(ScriptedModel([]), budget)
    BudgetedModel(ScriptedModel([]), budget, prices=PRICES)
