"""Filters: named sets of hooks, and what runs them.

Four hooks surround work: a turn, an iteration, a model call, a tool call. A hook is an
async context manager made from a `Call`: before its `yield` it may change the request,
or set the response and so skip the inner layers; after it, it may change the response.
The fifth hook, `tokens`, is a plain object for each stream.

Chains are compiled once, when a client is built. The first filter is the outermost.
What every hook must keep is checked in one place, where the response is set: outcomes
that were paused, cancelled or failed pass through as they are.
"""

import inspect
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from enum import Enum
from functools import partial
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar

import trio
from attrs import Attribute, define, evolve, field, frozen

from agentrt.core.chat import ChatRequest, ChatResponse, Delta
from agentrt.core.context import Context, Slot
from agentrt.core.errors import FilterProtocolError
from agentrt.core.messages import Message, ToolCall
from agentrt.core.options import TurnOptions
from agentrt.core.outcomes import (
    Decision,
    Interrupt,
    Nested,
    PauseSnapshot,
    TurnCancelled,
    TurnFailed,
    TurnOutcome,
    TurnPaused,
)
from agentrt.scopes import holds_only, only_leaf
from agentrt.stores.base import ChatMemory
from agentrt.tools.base import Tool, ToolResult

__all__ = [
    "UNSET",
    "Call",
    "ChatCall",
    "Filter",
    "Hook",
    "Inner",
    "IterationCall",
    "IterationRequest",
    "IterationResponse",
    "NextIteration",
    "Resumption",
    "TokenChain",
    "TokenTransform",
    "ToolRequest",
    "ToolUse",
    "TurnCall",
    "TurnRequest",
    "compile_hooks",
    "hook",
]

MAX_RERUNS: Final = 3


class Unset(Enum):
    UNSET = "UNSET"

    def __bool__(self) -> bool:
        return False

    def __repr__(self) -> str:
        return "UNSET"


UNSET: Final[Any] = Unset.UNSET
"""A response not known yet. `Any`, so that hooks need no cast after the `yield`."""

RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")
CallT = TypeVar("CallT")

PASS_THROUGH: Final = (TurnPaused, TurnCancelled, TurnFailed)
"""Outcomes that no filter may replace or run again."""

Inner: TypeAlias = Callable[[RequestT, Context], Awaitable[ResponseT]]
"""What a layer surrounds: the next layer, or at last the work itself."""


@define(kw_only=True)
class Resumption:
    """A paused turn with its answers; the loop takes it up once."""

    snapshot: PauseSnapshot
    answers: Mapping[str, Decision]
    """By interrupt id: one for each."""

    used: bool = field(default=False, init=False)


@frozen(kw_only=True)
class TurnRequest:
    """What the agent is asked in one turn."""

    messages: Sequence[Message] = ()
    """Only what is new: history is the memory filter's. Empty on a resume."""

    resume: Resumption | None = None
    """Set when a paused turn goes on. A filter that reruns hands in new messages."""

    discarded: Sequence[Interrupt] = ()
    """Questions that were given up for this turn: their calls stay as they are."""

    options: TurnOptions | None = None
    """How this turn differs from the agent's others; None on a resume keeps those of
    the turn that paused."""

    values: Mapping[str, Any] = field(factory=dict)
    """JSON that a turn hook keeps for this turn, under keys that begin with `agentrt/`:
    it is in `context.values` of the hooks within, also after a pause."""

    is_rerun: bool = False
    """A filter asks again: these are its words, and not the user's."""

    def keeping(self, key: str, value: Any) -> "TurnRequest":
        """The same request with one more of the `values`."""
        return evolve(self, values={**self.values, key: value})

    def again(self, *messages: Message) -> "TurnRequest":
        """The request for a rerun that adds these messages."""
        return evolve(self, messages=messages, resume=None, is_rerun=True)


@frozen(kw_only=True)
class IterationRequest:
    """One model call and the tool calls that it asks for."""

    messages: Sequence[Message]
    """Only what is new since the iteration before."""

    index: int
    """From 0."""

    remaining: int
    """Iterations left, this one included."""


@frozen(kw_only=True)
class NextIteration:
    """The turn goes on."""

    messages: Sequence[Message]
    """What the next iteration adds: the results of the calls."""


IterationResponse: TypeAlias = NextIteration | TurnOutcome


@frozen(kw_only=True)
class ToolRequest:
    """One call of one tool, about to run."""

    call: ToolCall
    tool: Tool
    edited: bool = False
    """Whether who approved it has changed the arguments."""

    nested: Nested | None = None
    """Set when a call that had asked something goes on."""

    @property
    def name(self) -> str:
        return self.call.name


@define(kw_only=True)
class Call(Generic[RequestT, ResponseT]):
    """What one layer sees of one call. Each layer has its own."""

    request: RequestT
    """What the inner layers get; the outer layers do not see it change."""

    context: Context
    reruns_left: int
    _inner: Inner[RequestT, ResponseT] = field(repr=False, alias="inner")
    _response: ResponseT = field(default=UNSET, init=False)

    @property
    def response(self) -> ResponseT:
        """`UNSET` until the inner layers have answered, or this one."""
        return self._response

    @response.setter
    def response(self, response: ResponseT) -> None:
        if isinstance(self._response, PASS_THROUGH) and response is not self._response:
            raise FilterProtocolError(
                f"{type(self._response).__name__} must pass through as it is: "
                "look at it, and leave call.response alone"
            )
        self._response = response

    async def rerun(self) -> ResponseT:
        """Run the inner layers again, with this layer's request as it is now.

        Raises:
            FilterProtocolError: no rerun is left, or the outcome passes through.
        """
        if not self.reruns_left:
            raise FilterProtocolError("this layer has used all its reruns")
        self.response = UNSET
        self.reruns_left -= 1
        self.response = await self._inner(self.request, self.context)
        return self.response


TurnCall: TypeAlias = Call[TurnRequest, TurnOutcome]
IterationCall: TypeAlias = Call[IterationRequest, IterationResponse]
ChatCall: TypeAlias = Call[ChatRequest, ChatResponse]
ToolUse: TypeAlias = Call[ToolRequest, ToolResult]

Hook: TypeAlias = Callable[[CallT], AbstractAsyncContextManager[Any]]


def hook(
    function: Callable[[CallT], AsyncIterator[None]],
) -> Callable[[CallT], AbstractAsyncContextManager[None]]:
    """Make a hook of an async generator with one `yield`.

    Raises:
        TypeError: it is none.
    """
    if not inspect.isasyncgenfunction(function):
        raise TypeError(f"{function!r} is no async generator with one `yield`")
    return asynccontextmanager(function)


class TokenTransform(Protocol):
    """Changes what readers see of a stream; the stored response stays as it is."""

    def feed(self, delta: Delta) -> Iterable[Delta]:
        """What to send on now, in place of `delta`."""
        ...

    def finish(self) -> Iterable[Delta]:
        """What was held back. Called on a normal end, not on error or cancel."""
        ...


def _is_hook(filter_: "Filter", attribute: "Attribute[Any]", value: Any) -> None:
    if value is not None and (inspect.isasyncgenfunction(value) or not callable(value)):
        raise TypeError(
            f"the {attribute.name} hook of filter {filter_.name!r} is {value!r}: "
            "expected an async generator with one `yield` under @hook"
        )


@frozen(kw_only=True)
class Filter:
    """A named set of hooks. Register filters in order: the first is the outermost.

    Raises:
        TypeError: a hook is none; most often `@hook` was forgotten.
    """

    name: str
    turn: Hook[TurnCall] | None = field(default=None, validator=_is_hook)
    iteration: Hook[IterationCall] | None = field(default=None, validator=_is_hook)
    chat: Hook[ChatCall] | None = field(default=None, validator=_is_hook)
    tool: Hook[ToolUse] | None = field(default=None, validator=_is_hook)
    tokens: Callable[[], TokenTransform] | None = None
    """Makes a new transform for each model stream."""

    tools: Sequence[Tool] = ()
    """What the model may call beside the agent's own tools."""

    memory: ChatMemory | None = field(default=None, repr=False)
    """Of the memory filter alone: the store that it reads and writes."""

    slots: Mapping[str, Slot] = field(factory=dict)
    """How what its tool hooks write becomes one value, by key. A hook writes by setting
    a response with `writes`; keys that begin with `agentrt/` are closed to tools."""


def compile_hooks(
    hooks: Sequence[Hook[Call[RequestT, ResponseT]]],
    innermost: Inner[RequestT, ResponseT],
    *,
    max_reruns: int = MAX_RERUNS,
) -> Inner[RequestT, ResponseT]:
    """Wrap `hooks` around `innermost`; the first hook is the outermost.

    Done once, when a client is built. What differs from call to call is in the
    request and the context, so all runs share what is returned. Without hooks it is
    `innermost` itself.
    """
    inner = innermost
    for layer in reversed(hooks):
        inner = partial(_run_layer, layer, inner, max_reruns)
    return inner


async def _run_layer(
    layer: Hook[Call[RequestT, ResponseT]],
    inner: Inner[RequestT, ResponseT],
    max_reruns: int,
    request: RequestT,
    context: Context,
) -> ResponseT:
    call: Call[RequestT, ResponseT] = Call(
        request=request, context=context, reruns_left=max_reruns, inner=inner
    )
    failure: BaseException | None = None
    try:
        async with layer(call):
            if call.response is UNSET:
                try:
                    call.response = await inner(call.request, context)
                except BaseException as error:
                    failure = error
                    raise
    except BaseExceptionGroup as group:
        # A nursery open across the yield wraps what was raised within it, or in a task
        # of its own. The outer layers get it plain, unless there is more than one.
        if failure is not None and holds_only(group, failure):
            raise failure from failure.__cause__
        leaf = only_leaf(group)
        if leaf is group:
            raise
        raise leaf from leaf.__cause__

    if failure is not None or call.response is UNSET:
        # The hook handled what was raised: fine, unless that was our end.
        await trio.lowlevel.checkpoint_if_cancelled()
    if call.response is UNSET:
        raise FilterProtocolError(
            f"{_name(layer)} left no response: it handled an error, or was left by a "
            "timeout, and set none"
        ) from failure
    return call.response


def _name(layer: Any) -> str:
    return getattr(layer, "__qualname__", None) or repr(layer)


@define
class TokenChain:
    """Transforms in a row; the first sees the stream as it comes from the model."""

    _transforms: Sequence[TokenTransform]

    def feed(self, delta: Delta) -> Iterable[Delta]:
        deltas: Iterable[Delta] = (delta,)
        for transform in self._transforms:
            deltas = [out for each in deltas for out in transform.feed(each)]
        return deltas

    def finish(self) -> Iterable[Delta]:
        """What all of them held back; what one gives goes through the ones after it."""
        held: list[Delta] = []
        for transform in self._transforms:
            held = [out for each in held for out in transform.feed(each)]
            held.extend(transform.finish())
        return held
