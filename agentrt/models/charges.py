"""What a model call draws on a budget: reserved by estimate, settled by its usage."""

import re
from collections.abc import Mapping
from typing import Any, Final, assert_never

from attrs import Attribute, define, evolve, field, frozen

from agentrt.core.chat import (
    ChatRequest,
    ChatResponse,
    Delta,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    Usage,
)
from agentrt.core.context import Context
from agentrt.core.errors import (
    AuthenticationError,
    ContextOverflowError,
    InvalidRequestError,
    QuotaExceededError,
    RateLimitError,
)
from agentrt.models.base import ChatModel
from agentrt.models.budget import Budget, Reservation
from agentrt.models.estimate import (
    estimate_message,
    estimate_request,
    estimate_text,
)

__all__ = [
    "BudgetedModel",
    "Charge",
    "Price",
    "Prices",
    "bounded",
    "charge",
    "check_prices",
]

MILLION: Final = 1_000_000

OUTPUT_TOKENS: Final = 4_096
"""That an answer may have, where the request does not say."""

MOST_NAMES: Final = ("max_tokens", "max_completion_tokens", "max_output_tokens")
"""Options that say how many tokens an answer may have."""

NOT_BILLED: Final = (
    AuthenticationError,
    ContextOverflowError,
    InvalidRequestError,
    QuotaExceededError,
    RateLimitError,
)
"""The vendor refused the request before it did anything."""


def _not_below_0(_: Any, attribute: "Attribute[Any]", value: Any) -> None:
    if value is not None and not value >= 0:
        raise ValueError(f"{attribute.name} is {value!r}, expected 0 or more")


@frozen(kw_only=True)
class Price:
    """Of a million tokens of one model, in any currency.

    Cached input is taken to be part of the input that the vendor tells, as OpenAI and
    Google count. A vendor that tells it beside the input, as Anthropic, is charged too
    little where it is no more than the input: the price of other input is then missing
    for as many tokens. Leave `cached_input` out there, and only the cached tokens are
    missing, from the cost as from the tokens. Writing to a cache is not priced apart.
    """

    input: float = field(validator=_not_below_0)
    output: float = field(validator=_not_below_0)
    cached_input: float | None = field(default=None, validator=_not_below_0)
    """Of input that came from the vendor's cache; None is the price of other input."""

    def cost(self, *, input_tokens: int, output_tokens: int, cached: int = 0) -> float:
        """Of one call. `cached` is taken to be part of the input, unless it is more."""
        cached_price = self.input if self.cached_input is None else self.cached_input
        fresh = input_tokens - cached if cached <= input_tokens else input_tokens
        paid = fresh * self.input + cached * cached_price + output_tokens * self.output
        return paid / MILLION


VERSION: Final = re.compile(
    r"[-@:](?:latest|00\d|\d{4}|\d{4}-?\d{2}-?\d{2})(?:-v\d+(?::\d+)?)?$"
)
"""What a vendor puts behind the name of a model."""


@frozen
class Prices:
    """Prices by model, as `vendor/model-id`.

    A vendor's own name for a model often has a date or a version behind it, as in
    `-2026-01-31`, `@20260131`, `-0613`, `-002`, `-20260131-v1:0` or `-latest`: those
    count as the model without. Any other name is another model: `o1-pro` is no `o1`.
    A model that is not here costs as the dearest one.
    """

    by_ref: Mapping[str, Price] = field(factory=dict)

    def cost(self, ref: str, **tokens: int) -> float:
        """What a call costs, as `Price.cost` has it; 0 without any prices."""
        known = ref if ref in self.by_ref else VERSION.sub("", ref)
        prices = [self.by_ref[known]] if known in self.by_ref else self.by_ref.values()
        return max((price.cost(**tokens) for price in prices), default=0.0)


@define
class Charge:
    """What one model call draws on a budget. Made by `charge`."""

    _reservation: Reservation
    _prices: Prices
    _ref: str
    input_tokens: int
    """By our estimate."""

    was_sent: bool = field(default=False, init=False)
    """Whether the model was asked: a filter may answer in its place."""

    _said: list[str] = field(factory=list, init=False, repr=False)

    def hear(self, delta: Delta) -> None:
        """Note what streams, for the case that the call is cut."""
        match delta:
            case TextDelta() | ReasoningDelta():
                self._said.append(delta.text)
            case ToolCallDelta():
                self._said.append(delta.name + delta.arguments)
            case _:
                assert_never(delta)

    def settle(self, response: ChatResponse) -> None:
        """Count what the vendor says that it was, or our estimate of it."""
        if not self.was_sent:
            self._reservation.release()
            return
        usage = response.usage or Usage()
        given, taken = usage.input_tokens, usage.output_tokens
        if given is None:
            given = self.input_tokens
        if taken is None:
            taken = estimate_message(response.message)
        total = given + taken if usage.total_tokens is None else usage.total_tokens
        cost = self._prices.cost(
            f"{response.provider}/{response.model}",
            input_tokens=given,
            output_tokens=taken,
            cached=usage.cached_input_tokens or 0,
        )
        self._reservation.settle(tokens=total, cost=cost)

    def fail(self, error: BaseException) -> None:
        """Count what is known of a call that was cut, or failed: not less than that."""
        if not self.was_sent or isinstance(error, NOT_BILLED):
            self._reservation.release()
            return
        said = estimate_text("".join(self._said))
        cost = self._prices.cost(
            self._ref, input_tokens=self.input_tokens, output_tokens=said
        )
        self._reservation.settle(tokens=self.input_tokens + said, cost=cost)


def charge(
    budget: Budget,
    request: ChatRequest,
    *,
    prices: Prices,
    output_tokens: int = OUTPUT_TOKENS,
    ref: str = "",
) -> Charge:
    """Reserve what a call may take: the request, by our estimate, and its answer.

    The answer may have what the request's options say, else `output_tokens`: `bounded`
    holds the model to it. A model without a `ref` counts as the dearest one.

    Raises:
        BudgetExceededError: there is not so much left.
    """
    most = _most(request) or output_tokens
    given = estimate_request(request)
    cost = prices.cost(ref, input_tokens=given, output_tokens=most)
    reservation = budget.reserve(tokens=given + most, cost=cost)
    return Charge(reservation, prices, ref, given)


def bounded(
    request: ChatRequest, budget: Budget, *, output_tokens: int = OUTPUT_TOKENS
) -> ChatRequest:
    """The request with `max_tokens` where it does not say how long its answer may be.

    As it is if the budget limits neither tokens nor cost.
    """
    if (budget.tokens is None and budget.cost is None) or _most(request):
        return request
    options = {**request.options, "max_tokens": output_tokens}
    return evolve(request, options=options)


def _most(request: ChatRequest) -> int:
    """How many tokens the answer may have; 0 if the request does not say."""
    return max(request.options.get(name) or 0 for name in MOST_NAMES)


@frozen
class BudgetedModel:
    """A `ChatModel` that draws on a budget: for models that no agent's filter sees.

    As one that sums up for compaction, or decides on approvals. An agent's own model
    takes `budget_filter`; with both, a call counts twice. Requests that do not say how
    long an answer may be get `max_tokens`, which is `output_tokens`.
    """

    model: ChatModel
    budget: Budget
    prices: Prices = field(factory=Prices, kw_only=True)
    output_tokens: int = field(default=OUTPUT_TOKENS, kw_only=True)

    def __attrs_post_init__(self) -> None:
        check_prices(self.budget, self.prices)

    @property
    def ref(self) -> str:
        return self.model.ref

    async def call(self, request: ChatRequest, context: Context) -> ChatResponse:
        most = self.output_tokens
        request = bounded(request, self.budget, output_tokens=most)
        charged = charge(
            self.budget,
            request,
            prices=self.prices,
            output_tokens=most,
            ref=self.ref,
        )
        charged.was_sent = True
        sink = context.on_delta

        def hear(delta: Delta) -> None:
            charged.hear(delta)
            assert sink is not None
            sink(delta)

        heard = context if sink is None else evolve(context, on_delta=hear)
        try:
            response = await self.model.call(request, heard)
        except BaseException as error:
            charged.fail(error)
            raise
        charged.settle(response)
        return response


def check_prices(budget: Budget, prices: Prices) -> None:
    """A limit of cost needs prices.

    Raises:
        ValueError: there are none.
    """
    if budget.cost is not None and not prices.by_ref:
        raise ValueError(
            f"the budget limits cost to {budget.cost:g}, and there are no prices: hand "
            "in prices=Prices({'vendor/model-id': Price(input=..., output=...)})"
        )
