"""The budget filter: an agent that draws on a budget, before it spends.

Register it after all that change requests, next to the model: it then sees each request
as it is sent, and counts only the tools that run. Filters of the stream come after it,
as `hold_filter`: what they hold back of a call that is cut it would not count.

Hand the same `Budget` to several agents, and to the subagents that they start, and they
share it.
"""

from collections.abc import AsyncIterator, Iterable
from typing import Final, Literal, TypeAlias
from weakref import WeakValueDictionary

import trio
from attrs import define, evolve, field

from agentrt.core.chat import ChatRequest, Delta
from agentrt.core.context import Context, Slot
from agentrt.core.errors import BudgetExceededError
from agentrt.filters.base import (
    ChatCall,
    Filter,
    Hook,
    IterationCall,
    ToolUse,
    hook,
)
from agentrt.models.budget import Budget, Reservation
from agentrt.models.charges import (
    MOST_NAMES,
    OUTPUT_TOKENS,
    Charge,
    Prices,
    bounded,
    charge,
    check_prices,
)
from agentrt.tools.base import ToolResult

__all__ = ["REFUSED_KEY", "WhenExhausted", "budget_filter"]

WhenExhausted: TypeAlias = Literal["fail", "answer"]

REFUSED_KEY: Final = "agentrt/budget/refused"
"""The slot: a call of a tool was refused in this turn."""

REFUSED: Final = "error: this call was not run: no calls of tools are left"
TOO_LATE: Final = "error: this call was not run: the time of the budget is up"
TIME_UP: Final = (
    "error: the time of the budget is up, and this call was cut. "
    "It may have had effects."
)
LAST: Final = (
    "The budget for this task is used up, and you have no tools any more. Answer now, "
    "with what you have, and say what is missing."
)


def budget_filter(
    budget: Budget,
    *,
    prices: Prices | None = None,
    output_tokens: int = OUTPUT_TOKENS,
    when_exhausted: WhenExhausted = "fail",
    answer_tokens: int = 1_000,
) -> Filter:
    """Reserve what each model call may take, and settle it by what it took.

    A call reserves the request, by our estimate, and its answer: what the options of
    the agent or the turn say that it may have, as `max_tokens`, else `output_tokens`,
    which the model then gets as its `max_tokens` if tokens or cost are limited. The
    model's own options are not seen, and lose to it. A vendor that counts more than
    was reserved exceeds the budget by that much; then nothing more is begun.

    Each call of a tool counts one, however often it is tried. What is cut counts as far
    as it is known. The time is a deadline around each iteration, and each tool call
    that goes on after a pause.

    When a model call does not fit, or a call of a tool was refused before, the turn
    fails with `BudgetExceededError`; with `when_exhausted="answer"` the model is asked
    for a last answer of at most `answer_tokens`, without tools, if that still fits.
    Time that is up always fails the turn.

    Raises:
        ValueError: `when_exhausted` is neither, a number is below 1, or the budget
            limits cost and there are no `prices`.
    """
    prices = prices or Prices()
    check_prices(budget, prices)
    _check(output_tokens, answer_tokens, when_exhausted)
    desk = _Desk(
        budget=budget,
        prices=prices,
        output_tokens=output_tokens,
        answer_tokens=answer_tokens if when_exhausted == "answer" else None,
    )
    return Filter(
        name="budget",
        iteration=_iteration_hook(budget),
        chat=_chat_hook(desk),
        tool=_tool_hook(budget),
        tokens=desk.meter,
        slots={REFUSED_KEY: Slot(reduce=lambda old, new: new)},
    )


def _check(output_tokens: int, answer_tokens: int, when_exhausted: str) -> None:
    for name, tokens in (("output", output_tokens), ("answer", answer_tokens)):
        if tokens < 1:
            raise ValueError(f"{name}_tokens is {tokens}, expected 1 or more")
    if when_exhausted not in {"fail", "answer"}:
        raise ValueError(
            f"when_exhausted is {when_exhausted!r}, expected 'fail' or 'answer'"
        )


def _chat_hook(desk: "_Desk") -> Hook[ChatCall]:
    @hook
    async def chat(call: ChatCall) -> AsyncIterator[None]:
        charged = desk.charge(call)
        task = trio.lowlevel.current_task()
        outer = desk.open.get(task)
        desk.open[task] = charged
        try:
            yield
        except BaseException as error:
            charged.fail(error)
            raise
        finally:
            del desk.open[task]
            if outer is not None:
                desk.open[task] = outer
        charged.settle(call.response)

    return chat


def _tool_hook(budget: Budget) -> Hook[ToolUse]:
    charged: WeakValueDictionary[tuple[int, str], Context] = WeakValueDictionary()

    def begin(use: ToolUse) -> Reservation:
        """Charge a call once, however often it is tried, and when it goes on."""
        key = (id(use.context), use.request.call.id)  # all tries have one context
        if charged.get(key) is use.context or use.request.nested is not None:
            return budget.reserve()
        if budget.deadline(trio.current_time()) <= trio.current_time():
            raise budget.out_of_time(trio.current_time())
        reservation = budget.reserve(calls=1)
        charged[key] = use.context
        return reservation

    @hook
    async def tool(use: ToolUse) -> AsyncIterator[None]:
        try:
            reservation = begin(use)
        except BudgetExceededError as error:
            use.response = _refused(error)
            yield
            return
        # Around a batch that goes on after a pause there is no iteration.
        deadline = budget.deadline(trio.current_time())
        with reservation, trio.CancelScope(deadline=deadline) as scope:
            try:
                yield
            finally:
                budget.deadline(trio.current_time())
        if scope.cancelled_caught:
            use.response = ToolResult(content=TIME_UP, is_error=True)

    return tool


def _refused(error: BudgetExceededError) -> ToolResult:
    if error.name == "seconds":
        return ToolResult(content=TOO_LATE, is_error=True)
    return ToolResult(content=REFUSED, is_error=True, writes={REFUSED_KEY: True})


def _iteration_hook(budget: Budget) -> Hook[IterationCall]:
    @hook
    async def iteration(call: IterationCall) -> AsyncIterator[None]:
        deadline = budget.deadline(trio.current_time())
        if deadline <= trio.current_time():
            raise budget.out_of_time(trio.current_time())
        with trio.CancelScope(deadline=deadline) as scope:
            try:
                yield
            finally:
                budget.deadline(trio.current_time())  # should this run of Trio end
        if scope.cancelled_caught:
            raise budget.out_of_time(trio.current_time())

    return iteration


@define(kw_only=True)
class _Desk:
    """Where the calls of one filter are charged."""

    budget: Budget
    prices: Prices
    output_tokens: int
    answer_tokens: int | None
    """Of a last answer; None asks for none."""

    open: dict[trio.lowlevel.Task, Charge] = field(factory=dict, init=False)
    """The call that each task is in: its stream is made in the same task."""

    def charge(self, call: ChatCall) -> Charge:
        """Reserve what the call may take; it becomes the last one if that is all."""
        was_refused = call.context.values.get(REFUSED_KEY, False)
        try:
            if was_refused:
                self.budget.reserve(calls=1).release()
            charged = self._charge(call.request, self.output_tokens)
        except BudgetExceededError:
            if self.answer_tokens is None:
                raise
        else:
            most = self.output_tokens
            call.request = bounded(call.request, self.budget, output_tokens=most)
            return charged
        call.request = _last(call.request, self.answer_tokens)
        return self._charge(call.request, self.answer_tokens)

    def _charge(self, request: ChatRequest, output_tokens: int) -> Charge:
        return charge(
            self.budget, request, prices=self.prices, output_tokens=output_tokens
        )

    def meter(self) -> "_Meter":
        """Listens to the stream of the call that this task is in."""
        charged = self.open.get(trio.lowlevel.current_task())
        if charged is not None:
            charged.was_sent = True
        return _Meter(charged)


@define
class _Meter:
    """Passes a stream on as it is, and tells its charge."""

    _charge: Charge | None

    def feed(self, delta: Delta) -> Iterable[Delta]:
        if self._charge is not None:
            self._charge.hear(delta)
        return (delta,)

    def finish(self) -> Iterable[Delta]:
        return ()


def _last(request: ChatRequest, tokens: int) -> ChatRequest:
    """The request for an answer without tools."""
    system = f"{request.system}\n\n{LAST}" if request.system else LAST
    given = [name for name in MOST_NAMES if request.options.get(name)]
    options = {**request.options, **dict.fromkeys(given or ["max_tokens"], tokens)}
    return evolve(request, system=system, tools=(), tool_choice=None, options=options)
