"""`ChatClient`: a model and tools within their filters, without a loop.

The chat and tool chains, compiled once. Each model call becomes events on its way, and
the token transforms lie between the model and whoever listens.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import trio
from attrs import define, evolve, field

from agentrt.agent.history import call_ids, mend
from agentrt.agent.message_stream import MessageStream
from agentrt.core.chat import (
    ChatRequest,
    ChatResponse,
    Delta,
    ReasoningDelta,
    TextDelta,
)
from agentrt.core.context import Context, is_framework_key
from agentrt.core.deadlines import NO_DEADLINES, Deadlines
from agentrt.core.errors import describe
from agentrt.events.types import Event, ModelFinished, ModelStarted
from agentrt.filters.base import (
    Filter,
    Inner,
    TokenChain,
    ToolRequest,
    compile_hooks,
)
from agentrt.models.base import ChatModel
from agentrt.scopes import deadline, only_cancelled
from agentrt.tools.base import Tool, ToolResult
from agentrt.tools.registry import ToolRegistry

__all__ = ["ChatClient"]


logger = logging.getLogger(__name__)


@define(init=False)
class ChatClient:
    """Calls a model, or a tool, through the filters that were registered."""

    model: ChatModel
    tools: ToolRegistry
    filters: Sequence[Filter]
    deadlines: Deadlines
    """Those of models and tools; the others are an agent's."""

    _chat: Inner[ChatRequest, ChatResponse] = field(repr=False)
    _tool: Inner[ToolRequest, ToolResult] = field(repr=False)

    def __init__(
        self,
        model: ChatModel,
        *,
        tools: ToolRegistry | Iterable[Tool | Callable[..., Any]] = (),
        filters: Sequence[Filter] = (),
        deadlines: Deadlines = NO_DEADLINES,
    ) -> None:
        """Put the parts together.

        Raises:
            ToolDefinitionError: a tool cannot work; names all that cannot.
        """
        self.model = model
        self.filters = tuple(filters)
        self.tools = _with_tools_of(self.filters, tools)
        self.deadlines = deadlines
        chat_hooks = [f.chat for f in self.filters if f.chat is not None]
        tool_hooks = [f.tool for f in self.filters if f.tool is not None]
        self._chat = compile_hooks(chat_hooks, self._call_model)
        self._tool = compile_hooks(tool_hooks, self._run_tool)

    async def invoke_chat(self, request: ChatRequest, context: Context) -> ChatResponse:
        """Ask the model, through the chat hooks. Tools that it asks for do not run.

        Raises:
            ModelError: the call failed.
            DeadlineError: it took too long.
        """
        return await self._chat(request, context)

    async def invoke_tool(self, request: ToolRequest, context: Context) -> ToolResult:
        """Run one tool, through the tool hooks, with arguments that were checked.

        What the tool raises comes out; a time-out is a result.
        """
        return await self._tool(request, context)

    async def _call_model(self, request: ChatRequest, context: Context) -> ChatResponse:
        if context.deadlines is not self.deadlines:
            context = evolve(context, deadlines=self.deadlines)
        call = _ModelCall(context, self._token_chain(), call_ids(request.messages))
        call.begin(request)
        try:
            limit = self.deadlines.model_seconds
            with deadline("model", limit, cut=f"a call of {self.model.ref}"):
                response = await self.model.call(_mended(request), call.context)
            call.release(response)
        except BaseException as error:
            call.fail(error)
            raise
        return call.finish(response)

    async def _run_tool(self, request: ToolRequest, context: Context) -> ToolResult:
        seconds = request.tool.timeout_seconds or self.deadlines.tool_seconds
        if seconds is None:
            return await _run(request, context)
        with trio.move_on_after(seconds) as limit:
            return await _run(request, context)
        assert limit.cancelled_caught
        return ToolResult(
            content=f"The tool deadline of {seconds:g} s fired and cut this call. "
            "It may have had effects.",
            is_error=True,
            failure="transient",
        )

    def _token_chain(self) -> TokenChain | None:
        made = [f.tokens() for f in self.filters if f.tokens is not None]
        return TokenChain(made) if made else None


@define(init=False)
class _ModelCall:
    """One call of the model, as it is told to whoever listens."""

    context: Context
    """For the model: with the answer's id, and a sink if anybody listens."""

    _outer: Context
    _stream: MessageStream
    _transforms: TokenChain | None
    _started: float
    _first_delta: float | None

    def __init__(
        self, context: Context, transforms: TokenChain | None, taken: set[str]
    ) -> None:
        message_id = context.begin_message()

        def is_taken(call_id: str) -> bool:
            return call_id in taken or call_id in context.taken_ids

        is_heard = context.emit is not None or context.on_delta is not None
        self._outer = context
        self._stream = MessageStream(message_id, self._emit, is_taken)
        self._transforms = transforms
        self._started = trio.current_time()
        self._first_delta = None
        sink = self._hear if is_heard else None
        self.context = evolve(context, message_id=message_id, on_delta=sink)

    def begin(self, request: ChatRequest) -> None:
        names = tuple(spec.name for spec in request.tools)
        self._emit(ModelStarted(message_id=self._stream.message_id, tools=names))

    def release(self, response: ChatResponse) -> None:
        """Tell what the transforms held back, or all of it if nothing streamed."""
        if self._first_delta is None:
            for delta in _words_of(response):
                self._hear(delta)
        if self._transforms is not None:
            for delta in self._transforms.finish():
                self._tell(delta)

    def finish(self, response: ChatResponse) -> ChatResponse:
        message = self._stream.finish(response.message)
        self._emit_finished(
            provider=response.provider,
            model=response.model,
            finish_reason=response.finish_reason,
            usage=response.usage,
        )
        if message is response.message:
            return response
        return evolve(response, message=message)

    def fail(self, error: BaseException) -> None:
        self._stream.cut()
        why = "cancelled" if only_cancelled(error) else describe(error)
        self._emit_finished(error=why)

    def _hear(self, delta: Delta) -> None:
        if self._first_delta is None:
            self._first_delta = trio.current_time() - self._started
        if self._transforms is None:
            self._tell(delta)
            return
        for changed in self._transforms.feed(delta):
            self._tell(changed)

    def _tell(self, delta: Delta) -> None:
        self._stream.feed(delta)
        if self._outer.on_delta is not None:
            self._outer.on_delta(delta)

    def _emit(self, event: Event) -> None:
        if self._outer.emit is not None:
            self._outer.emit(event)

    def _emit_finished(self, **known: Any) -> None:
        self._emit(
            ModelFinished(
                message_id=self._stream.message_id,
                elapsed=trio.current_time() - self._started,
                first_delta=self._first_delta,
                **known,
            )
        )


async def _run(request: ToolRequest, context: Context) -> ToolResult:
    returned = await request.tool.run(request.call.arguments, context)
    result = _own_result(ToolResult.of(returned), request.name)
    if context.tool_returned is not None:
        context.tool_returned(result)
    return result


def _with_tools_of(
    filters: Sequence[Filter],
    tools: ToolRegistry | Iterable[Tool | Callable[..., Any]],
) -> ToolRegistry:
    """All tools, with those that filters bring."""
    brought = [tool for each in filters for tool in each.tools]
    if isinstance(tools, ToolRegistry) and not brought:
        return tools
    return ToolRegistry([*tools, *brought])


def _own_result(result: ToolResult, name: str) -> ToolResult:
    """What a tool returned, without the writes that it may not make."""
    if not result.writes:
        return result
    if result.is_error:
        return evolve(result, writes={})
    closed = [key for key in result.writes if is_framework_key(key)]
    if not closed:
        return result
    logger.warning("tool %r wrote %r, which belong to agentrt: dropped", name, closed)
    kept = {k: v for k, v in result.writes.items() if k not in closed}
    return evolve(result, writes=kept)


def _mended(request: ChatRequest) -> ChatRequest:
    messages = mend(request.messages)
    if messages is request.messages:
        return request
    return evolve(request, messages=messages)


def _words_of(response: ChatResponse) -> Iterable[Delta]:
    message = response.message
    if message.reasoning:
        yield ReasoningDelta(text=message.reasoning)
    if message.text:
        yield TextDelta(text=message.text)
