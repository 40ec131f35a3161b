"""What travels down with a call, and how parallel tools share state.

A `Context` is read-only. What a tool wants to change it returns as `writes`; at the
barrier of the batch `fold_writes` puts them together, in call order and not in the
order of completion, so that the same calls always give the same state.
"""

from collections.abc import (
    Callable,
    Container,
    Iterable,
    Mapping,
    MutableMapping,
    Sequence,
)
from typing import Any, Final, TypeAlias

from attrs import field, frozen

from agentrt.core.chat import DeltaSink, Usage
from agentrt.core.deadlines import NO_DEADLINES, Deadlines
from agentrt.core.ids import new_id
from agentrt.core.outcomes import Nested

__all__ = [
    "FRAMEWORK_PREFIX",
    "STOP_KEY",
    "Context",
    "Folded",
    "Leftover",
    "Slot",
    "fold_writes",
    "is_framework_key",
]

FRAMEWORK_PREFIX: Final = "agentrt/"
"""Keys of ours and of filters: no tool may write one."""

STOP_KEY: Final = "agentrt/stop"
"""Written by a filter's tool hook: the turn ends, completed, when the batch is over.
The value says who stopped it, as a text."""


@frozen(kw_only=True)
class Leftover:
    """Something of a run that could not be ended with it."""

    name: str
    is_running: Callable[[], bool]


@frozen(kw_only=True)
class Context:
    """What tools, filters and models see of the call that they are part of."""

    conversation_id: str
    run_id: str = ""
    call_id: str = ""
    """Of the tool call that this is; "" outside of one."""

    message_id: str = ""
    """The id that a model's answer gets; "" lets it choose one."""

    values: Mapping[str, Any] = field(factory=dict)
    """What the application put in, and the state slots. Change it by `writes`."""

    deadlines: Deadlines = NO_DEADLINES
    """For models: those of one attempt."""

    on_delta: DeltaSink | None = field(default=None, repr=False)
    """Where a streaming model tells its deltas. None: nobody listens, do not stream."""

    emit: Callable[[Any], None] | None = field(default=None, repr=False)
    """Where events are told. Plain, quick, never raises."""

    begin_message: Callable[[], str] = field(default=new_id, repr=False)
    """Called once for each model call, before it: gives the id of the answer."""

    taken_ids: Container[str] = field(default=frozenset(), repr=False)
    """Ids that this conversation's stream has used, also for what no history holds: a
    call that comes with one of them gets another."""

    add_usage: Callable[[Usage], None] | None = field(default=None, repr=False)
    """Where a filter or a policy accounts for a model that it asked for the turn."""

    nested: Nested | None = field(default=None, repr=False)
    """Of a tool call that had raised `ToolSuspended`: what people answered."""

    turn: Any = field(default=None, repr=False)
    """The loop's own account of the turn; nobody else's business."""

    tool_returned: Callable[[Any], None] | None = field(default=None, repr=False)
    """Where a tool's result is told as soon as there is one, before any hook sees it: a
    stop in a hook must not lose it."""

    running_calls: MutableMapping[str, Any] | None = field(default=None, repr=False)
    """By call: the `trio.CancelScope` of each that runs. Cancelling one stops that call
    alone, and the model is told so."""

    thread_limiter: Any = field(default=None, repr=False)
    """A `trio.CapacityLimiter` for tools that are not async; None is Trio's own."""

    leave_behind: Callable[[Leftover], None] | None = field(default=None, repr=False)
    """Where a tool that cannot be stopped is reported."""


Reducer: TypeAlias = Callable[[Any, Any], Any]


@frozen(kw_only=True)
class Slot:
    """How the writes of several calls to one key become one value.

    `reduce(old, written)` must not change `old`. A key without a slot keeps the last
    write, in call order.
    """

    reduce: Reducer
    init: Any = None
    """What `reduce` gets first where the key has no value yet. Nobody else sees it:
    before the first write the key is not in a context's `values`."""


@frozen(kw_only=True)
class Folded:
    values: Mapping[str, Any]
    conflicts: Sequence[str]
    """One line for each write that did not go in as its author meant it."""


def is_framework_key(key: Any) -> bool:
    """Whether only we and filters may write this key."""
    return isinstance(key, str) and key.startswith(FRAMEWORK_PREFIX)


def fold_writes(
    values: Mapping[str, Any],
    writes: Iterable[Mapping[str, Any]],
    slots: Mapping[str, Slot],
) -> Folded:
    """The values after a batch, with the writes of its calls in call order.

    A reducer that raises leaves the value as it was; so does a key that is no text.
    Both are told in `conflicts`, as is a key without a slot that two calls wrote.
    """
    new = dict(values)
    conflicts: list[str] = []
    written: set[str] = set()
    for of_one_call in writes:
        for key, value in of_one_call.items():
            conflict = _fold_one(new, key, value, slots)
            if conflict is None and key in written and key not in slots:
                conflict = f"{key!r} was written twice: the later call won"
            if conflict is not None:
                conflicts.append(conflict)
            written.add(key)
    return Folded(values=new if written else values, conflicts=conflicts)


def _fold_one(
    new: dict[str, Any], key: Any, value: Any, slots: Mapping[str, Slot]
) -> str | None:
    """Take one write into `new`; why it did not go in, or None."""
    if not isinstance(key, str):
        return f"{key!r} is no text, as a key must be: the write was dropped"
    slot = slots.get(key)
    if slot is None:
        new[key] = value
        return None
    try:
        new[key] = slot.reduce(new.get(key, slot.init), value)
    except Exception as error:  # noqa: BLE001  the reducer is a user's
        return f"the reducer of {key!r} raised {error!r}"
    return None
