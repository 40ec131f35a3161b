"""`ChatClient`: a model and tools within their filters, without a loop.

The chat and tool chains, compiled once. Each model call becomes events on its way, and
the token transforms lie between the model and whoever listens.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import trio
from attrs import Factory, define, evolve, field, frozen

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
from agentrt.core.errors import ToolError, public_words
from agentrt.core.history import call_ids, mend
from agentrt.core.ids import new_id
from agentrt.core.messages import Message, ToolCall, user_messages
from agentrt.core.options import DEFAULT_TURN_OPTIONS, TurnOptions
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

__all__ = ["ChatClient", "check_call"]

logger = logging.getLogger(__name__)


def _registry(
    tools: ToolRegistry | Iterable[Tool | Callable[..., Any]],
) -> ToolRegistry:
    return tools if isinstance(tools, ToolRegistry) else ToolRegistry(tools)


def _filters(filters: Iterable[Filter]) -> tuple[Filter, ...]:
    return tuple(filters)


def _all_tools(client: "ChatClient") -> ToolRegistry:
    brought = [tool for each in client.filters for tool in each.tools]
    return ToolRegistry([*client.own_tools, *brought]) if brought else client.own_tools


def _chat_chain(client: "ChatClient") -> Inner[ChatRequest, ChatResponse]:
    hooks = [f.chat for f in client.filters if f.chat is not None]
    return compile_hooks(hooks, client._call_model)


def _tool_chain(client: "ChatClient") -> Inner[ToolRequest, ToolResult]:
    hooks = [f.tool for f in client.filters if f.tool is not None]
    return compile_hooks(hooks, client._run_tool)


@frozen(eq=False)
class ChatClient:
    """Calls a model, or a tool, through the filters that were registered. No loop.

    Given the context of a tool call, it works for that tool: readers hear nothing of it
    and no iteration of the turn is spent; what it used counts in the turn.

    Turn and iteration hooks of its filters wait for an agent: there are no turns here.

    Frozen, since its chains are compiled once: `with_filters` gives another one.

    Raises:
        ToolDefinitionError: a tool cannot work; names all that cannot.
    """

    model: ChatModel
    own_tools: ToolRegistry = field(
        factory=ToolRegistry, converter=_registry, alias="tools", kw_only=True
    )
    """Those that it was given; `tools` are these and what filters bring."""

    filters: Sequence[Filter] = field(default=(), converter=_filters, kw_only=True)
    deadlines: Deadlines = field(default=NO_DEADLINES, kw_only=True)
    """Those of models and tools; the others are an agent's."""

    tools: ToolRegistry = field(
        init=False, repr=False, default=Factory(_all_tools, takes_self=True)
    )
    _chat: Inner[ChatRequest, ChatResponse] = field(
        init=False, repr=False, default=Factory(_chat_chain, takes_self=True)
    )
    _tool: Inner[ToolRequest, ToolResult] = field(
        init=False, repr=False, default=Factory(_tool_chain, takes_self=True)
    )

    def with_filters(self, filters: Iterable[Filter]) -> "ChatClient":
        """The same client with these filters in place of its own."""
        return evolve(self, filters=tuple(filters))

    def find_tool(self, name: str) -> Tool | None:
        """The tool of that name, of its own or of a filter's."""
        return self.tools.find(name)

    def request(
        self,
        messages: str | Message | Sequence[Message],
        options: TurnOptions = DEFAULT_TURN_OPTIONS,
    ) -> ChatRequest:
        """What `invoke_chat` takes, with the tools that the options allow."""
        return ChatRequest(
            messages=user_messages(messages),
            system=options.system_prompt(""),
            tools=self.tools.specs_with(options.tags, options.exclude_tags),
            tool_choice=options.tool_choice,
            options=options.options,
        )

    async def invoke_chat(
        self, request: ChatRequest, context: Context | None = None
    ) -> ChatResponse:
        """Ask the model, through the chat hooks. Tools that it asks for do not run.

        Without a context it is a conversation of its own.

        Raises:
            ModelError: the call failed.
            DeadlineError: it took too long.
        """
        context = context or Context(conversation_id=new_id())
        if context.call_id:
            context = _inside_a_tool(context)
        return await self._chat(request, context)

    async def invoke_tool(
        self, request: ToolRequest | ToolCall, context: Context | None = None
    ) -> ToolResult:
        """Run one tool, through the tool hooks. A time-out is a result.

        The arguments of a `ToolCall` are checked here; those of a `ToolRequest` were.

        Raises:
            ToolError: there is no such tool, or the arguments do not fit it.
            Exception: what the tool raises.
        """
        if isinstance(request, ToolCall):
            checked = check_call(self.tools, request)
            if isinstance(checked, str):
                raise ToolError(checked)
            request = checked
        context = context or Context(conversation_id=new_id())
        if context.call_id not in {"", request.call.id}:
            context = evolve(
                _inside_a_tool(context),
                call_id=request.call.id,
                nested=None,
                tool_returned=None,
            )
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
        why = "cancelled" if only_cancelled(error) else public_words(error)
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


def _inside_a_tool(context: Context) -> Context:
    """The context of a tool, for what is its own work and no part of the turn.

    The turn would take a message of it for its own, and show it, and keep it when it is
    cut.
    """
    if context.turn is None:
        return context
    add_usage = context.add_usage

    def count(event: Event) -> None:
        if isinstance(event, ModelFinished) and event.usage and add_usage:
            add_usage(event.usage)

    return evolve(
        context,
        turn=None,
        emit=count,
        begin_message=new_id,
        taken_ids=frozenset(),
    )


async def _run(request: ToolRequest, context: Context) -> ToolResult:
    returned = await request.tool.run(request.call.arguments, context)
    result = _own_result(ToolResult.of(returned), request.name)
    if context.tool_returned is not None:
        context.tool_returned(result)
    return result


def check_call(tools: ToolRegistry, call: ToolCall) -> ToolRequest | str:
    """The call as it can run, with its arguments coerced; or what is wrong with it."""
    tool = tools.find(call.name)
    if tool is None:
        there = ", ".join(repr(each.name) for each in tools) or "none"
        return f"there is no tool {call.name!r}; there are {there}"
    where = f"arguments of {call.name!r}"
    if call.invalid_arguments is not None:
        return f"{where} are no JSON object: {call.invalid_arguments[:200]!r}"
    checked = tools.check(call.name, call.arguments)
    if checked.faults:
        return f"{where}: " + "; ".join(checked.faults)
    return ToolRequest(call=evolve(call, arguments=checked.arguments), tool=tool)


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
