"""`ScriptedModel`: says and calls what a test wrote, one step for each model call."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, TypeAlias

import trio
from attrs import define, field, frozen

from agentrt.core.chat import (
    ChatRequest,
    ChatResponse,
    FinishReason,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    Usage,
)
from agentrt.core.context import Context
from agentrt.core.errors import ModelError
from agentrt.core.ids import new_id
from agentrt.core.messages import AssistantMessage, ToolCall, text_of_value
from agentrt.models.attempt import one_attempt

__all__ = ["Say", "ScriptedModel", "call"]


def call(name: str, /, *, id: str = "", **arguments: Any) -> ToolCall:  # noqa: A002  its name
    """A tool call for a script: `call("add", a=1, b=2)`."""
    return ToolCall(id=id, name=name, arguments=arguments)


@frozen(kw_only=True)
class Say:
    """One answer of the model."""

    text: str | Sequence[str] = ""
    """Pieces stream one by one, with a checkpoint before each."""

    reasoning: str = ""
    calls: Sequence[ToolCall] = ()
    usage: Usage | None = None
    delay_seconds: float = 0.0
    """Before each piece."""

    error: ModelError | None = None
    """Raised after all pieces."""

    before: Callable[[], Any] | None = None
    """Awaited before the first piece: a gate, as `event.wait`."""


Step: TypeAlias = str | ToolCall | Sequence[ToolCall] | ModelError | Say


@define
class ScriptedModel:
    """A `ChatModel` that follows a script and keeps what it was asked.

    A step is a text, one or several tool calls, an error to raise, or a `Say`. Asking
    beyond the script is an `AssertionError`.
    """

    _steps: Iterable[Step]
    ref: str = "scripted/model"
    requests: list[ChatRequest] = field(factory=list, init=False)
    """What it was asked, in order."""

    _script: list[Say] = field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        self._script = [_as_say(step) for step in self._steps]

    async def call(self, request: ChatRequest, context: Context) -> ChatResponse:
        return await one_attempt(partial(self._answer, request), context, ref=self.ref)

    async def _answer(self, request: ChatRequest, context: Context) -> ChatResponse:
        await trio.lowlevel.checkpoint()
        place = len(self.requests)
        self.requests.append(request)
        assert place < len(self._script), (
            f"the script has {len(self._script)} steps and the model was asked once "
            f"more: {[message.text for message in request.messages][-3:]}"
        )
        say = self._script[place]
        if say.before is not None:
            await say.before()
        pieces = [say.text] if isinstance(say.text, str) else list(say.text)
        await _stream(say, [piece for piece in pieces if piece], context)
        if say.error is not None:
            raise say.error
        return ChatResponse(
            message=AssistantMessage(
                id=context.message_id or new_id(),
                content="".join(pieces),
                reasoning=say.reasoning,
                tool_calls=tuple(say.calls),
            ),
            finish_reason=FinishReason.TOOL_USE if say.calls else FinishReason.STOP,
            usage=say.usage,
            provider="scripted",
            model="model",
        )


async def _stream(say: Say, pieces: Sequence[str], context: Context) -> None:
    sink = context.on_delta
    if sink is None:
        return
    if say.reasoning:
        await trio.sleep(say.delay_seconds)
        sink(ReasoningDelta(text=say.reasoning))
    for piece in pieces:
        await trio.sleep(say.delay_seconds)
        sink(TextDelta(text=piece))
    for index, each in enumerate(say.calls):
        await trio.sleep(say.delay_seconds)
        raw = each.invalid_arguments
        arguments = text_of_value(each.arguments) if raw is None else raw
        sink(
            ToolCallDelta(index=index, id=each.id, name=each.name, arguments=arguments)
        )


def _as_say(step: Step) -> Say:
    match step:
        case Say():
            return step
        case str():
            return Say(text=step)
        case ToolCall():
            return Say(calls=(step,))
        case ModelError():
            return Say(error=step)
        case _:
            return Say(calls=tuple(step))
