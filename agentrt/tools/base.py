"""What the model may call: the contract `Tool`, its result, and `@tool`.

A tool takes arguments that were checked and returns what the model should read; on
failure it raises. Turning an exception into an error result is done in one place, the
tool boundary of `agent/tool_batch.py`, and in no tool.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NoReturn, Protocol, overload

import trio
from attrs import field, frozen

from agentrt.core.chat import ToolSpec
from agentrt.core.context import Context
from agentrt.core.errors import ToolDefinitionError, ToolError
from agentrt.core.messages import ToolCall, text_of_value
from agentrt.core.options import fault_of_texts
from agentrt.core.outcomes import FailureKind, Interrupt
from agentrt.core.parts import Content, FilePart, NativePart, TextPart
from agentrt.tools.signature import read_signature
from agentrt.tools.workers import Isolation, runner

__all__ = [
    "NestedAgents",
    "Tool",
    "ToolHints",
    "ToolResult",
    "ToolRetry",
    "ToolSuspended",
    "tool",
]


@frozen(kw_only=True)
class ToolResult:
    """What a tool call came to."""

    content: Content = ""
    """For the model to read."""

    is_error: bool = False
    failure: FailureKind | None = None
    """Of an error: why. None is `semantic`."""

    writes: Mapping[str, Any] = field(factory=dict)
    """State slots that this call changes: see `fold_writes`. Errors write nothing."""

    @classmethod
    def of(cls, value: Any) -> "ToolResult":
        """What a tool returned: a text or parts as they are, other values as JSON."""
        if isinstance(value, cls):
            return value
        if value is None:
            return cls()
        if _is_content(value):
            is_several = isinstance(value, list | tuple)
            return cls(content=tuple(value) if is_several else (value,))
        return cls(content=text_of_value(value))


def _is_content(value: Any) -> bool:
    parts = (TextPart, FilePart, NativePart)
    if isinstance(value, list | tuple):
        return bool(value) and all(isinstance(part, parts) for part in value)
    return isinstance(value, parts)


@frozen(kw_only=True)
class ToolRetry:
    """How a failed call is made again, where its failure is transient.

    Its author promises that calling twice does no more than calling once.
    """

    max_retries: int = 2
    """Beyond the first try."""

    initial_seconds: float = 0.2
    """Before the first retry; doubled before each one after it."""

    def __attrs_post_init__(self) -> None:
        for name in ("max_retries", "initial_seconds"):
            value = getattr(self, name)
            if not value >= 0:  # NaN is not
                raise ValueError(f"{name} is {value}, expected 0 or more")


@frozen(kw_only=True)
class ToolHints:
    """What a tool does to the world, as its author says: MCP's tool annotations.

    None is not said. A hint is no promise of somebody who is not trusted.
    """

    read_only: bool | None = None
    destructive: bool | None = None
    """It may delete or overwrite, and not only add."""

    idempotent: bool | None = None
    open_world: bool | None = None
    """It reaches beyond this system: the web, mail, a shell."""


NO_HINTS: Final = ToolHints()


class ToolSuspended(Exception):  # noqa: N818  it is no error
    """Raise it in a tool that runs a subagent: the call waits for people.

    The turn pauses with these questions. When they are answered the tool is called
    again, with the answers and the state in `context.nested`.
    """

    def __init__(self, interrupts: Sequence[Interrupt], state: Any = None) -> None:
        super().__init__("the call waits for people")
        self.interrupts = interrupts
        self.state = state
        """JSON."""


class NestedAgents(Protocol):
    """What a tool that runs subagents knows of the questions that they ask."""

    def fault(self, call: ToolCall) -> str | None:
        """What is wrong with a subagent's call that a person edited; None: nothing."""
        ...

    async def discard(self, conversation_id: str, call_id: str) -> None:
        """Forget what waits beneath this call: nobody will answer."""
        ...


async def _elsewhere(arguments: Mapping[str, Any], context: Context) -> NoReturn:
    await trio.lowlevel.checkpoint()
    raise ToolError("this tool does not run here: its result comes as a reply")


def _tags(tags: Iterable[str]) -> frozenset[str]:
    fault = fault_of_texts(tags)
    if fault is not None:
        raise ToolDefinitionError(f"tags of a tool are {fault}")
    return frozenset(tags)


def _retry(value: "ToolRetry | bool | None") -> "ToolRetry | None":
    if value is True:
        return ToolRetry()
    return None if value is False else value


@frozen(kw_only=True)
class Tool:
    """Something that a model may call.

    Made by `@tool` from a function, or by hand from a schema. It stays callable as the
    function was.
    """

    name: str
    description: str = ""
    parameters: Mapping[str, Any] = field(factory=lambda: dict(NO_PARAMETERS))
    """A JSON Schema of type object."""

    run: Callable[[Mapping[str, Any], Context], Awaitable[Any]] = field(
        default=_elsewhere, repr=False
    )
    """Called with checked arguments. Returns a `ToolResult`, or what `ToolResult.of`
    makes one of. A tool without it runs elsewhere, as in a browser: each call pauses
    the turn until its result comes as a `Reply`."""

    sensitive: bool = False
    """Each call waits for a person to approve it."""

    serial: bool = False
    """One such call in a batch makes the whole batch run in order, one at a time."""

    timeout_seconds: float | None = None
    """After which a call is cut, and the model told so. Filters do not count."""

    fatal: bool = False
    """An unexpected exception ends the run, and not only this call."""

    retry: ToolRetry | None = field(default=None, converter=_retry)
    """A transient failure is not told to the model but tried again; True is twice."""

    return_direct: bool = False
    """Its result is the answer: the model is not asked again, if all calls of the
    batch are such and none failed."""

    nested: NestedAgents | None = field(default=None, repr=False, eq=False)
    """Of a tool that runs subagents."""

    hints: ToolHints = NO_HINTS
    tags: frozenset[str] = field(default=frozenset(), converter=_tags)
    function: Callable[..., Any] | None = field(default=None, repr=False, eq=False)
    """What `@tool` was put on."""

    @property
    def runs_elsewhere(self) -> bool:
        """Whether there is only a schema: its results come from outside."""
        return self.run is _elsewhere

    @property
    def spec(self) -> ToolSpec:
        """What the model is told."""
        return ToolSpec(
            name=self.name, description=self.description, parameters=self.parameters
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function as if `@tool` were not there: nothing is checked."""
        if self.function is None:
            raise TypeError(f"tool {self.name!r} was not made from a function")
        return self.function(*args, **kwargs)


NO_PARAMETERS: Final[Mapping[str, Any]] = {"type": "object", "properties": {}}


@overload
def tool(function: Callable[..., Any], /) -> Tool: ...


@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    sensitive: bool = False,
    serial: bool = False,
    timeout_seconds: float | None = None,
    fatal: bool = False,
    retry: ToolRetry | bool = False,
    return_direct: bool = False,
    hints: ToolHints = NO_HINTS,
    isolation: Isolation = "thread",
    tags: Sequence[str] = (),
) -> Callable[[Callable[..., Any]], Tool]: ...


def tool(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Make a `Tool` of a function: its docstring and signature describe it.

    Parameters are described in the docstring, in Google's, NumPy's or Sphinx's style,
    or by `Annotated[str, "what it is"]`; constraints go with them, as in
    `Annotated[int, Param("how many", minimum=1, maximum=50)]`. A parameter without a
    default is required. One annotated as `Context` gets the call's context and is not
    shown to the model. A function that is not async runs in a worker thread; with
    `isolation="process"`, in a process of its own that is killed when the call is cut.

    Raises:
        ToolDefinitionError: an option or the signature cannot work; says which.
    """
    if function is None:
        return lambda function: _make(function, **options)
    return _make(function, **options)


def _make(function: Callable[..., Any], **options: Any) -> Tool:
    signature = read_signature(function)
    name = options.pop("name", None) or signature.name
    description = options.pop("description", None)
    isolation = options.pop("isolation", "thread")
    return Tool(
        name=name,
        description=signature.description if description is None else description,
        parameters=signature.parameters,
        run=runner(function, signature, isolation),
        function=function,
        **options,
    )
