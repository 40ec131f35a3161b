"""What travels down with a call, and how parallel tools share state.

A `Context` is read-only. What a tool wants to change it returns as `writes`; at the
barrier of the batch `fold_writes` puts them together, in call order and not in the
order of completion, so that the same calls always give the same state.
"""

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from attrs import field, frozen

from agentrt.core.chat import DeltaSink
from agentrt.core.ids import new_id

__all__ = [
    "FRAMEWORK_PREFIX",
    "Context",
    "Folded",
    "Leftover",
    "Slot",
    "fold_writes",
]

FRAMEWORK_PREFIX: Final = "agentrt/"
"""Keys of ours: no tool may write one."""


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

    on_delta: DeltaSink | None = field(default=None, repr=False)
    """Where a streaming model tells its deltas. None: nobody listens, do not stream."""

    emit: Callable[[Any], None] | None = field(default=None, repr=False)
    """Where events are told. Plain, quick, never raises."""

    begin_message: Callable[[], str] = field(default=new_id, repr=False)
    """Called once for each model call, before it: gives the id of the answer."""

    taken_ids: Container[str] = field(default=frozenset(), repr=False)
    """Ids that this conversation's stream has used, also for what no history holds: a
    call that comes with one of them gets another."""

    turn: Any = field(default=None, repr=False)
    """The loop's own account of the turn; nobody else's business."""

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
    """What `reduce` gets first where the key has no value yet."""


@frozen(kw_only=True)
class Folded:
    values: Mapping[str, Any]
    conflicts: Sequence[str]
    """One line for each write that did not go in as its author meant it."""


def fold_writes(
    values: Mapping[str, Any],
    writes: Iterable[Mapping[str, Any]],
    slots: Mapping[str, Slot],
) -> Folded:
    """The values after a batch, with the writes of its calls in call order.

    A reducer that raises leaves the value as it was; so does a write to a key of ours,
    or to one that is no text.
    All are told in `conflicts`, as is a key without a slot that two calls wrote.
    """
    writes = [of_one_call for of_one_call in writes if of_one_call]
    if not writes:
        return Folded(values=values, conflicts=())
    new = dict(values)
    conflicts: list[str] = []
    written: set[str] = set()
    for of_one_call in writes:
        for key, value in of_one_call.items():
            if not isinstance(key, str):
                conflicts.append(
                    f"{key!r} is no text, as a key must be: the write was dropped"
                )
            elif key.startswith(FRAMEWORK_PREFIX):
                conflicts.append(f"{key!r} belongs to agentrt: the write was dropped")
            elif (slot := slots.get(key)) is not None:
                try:
                    new[key] = slot.reduce(new.get(key, slot.init), value)
                except Exception as error:  # noqa: BLE001  the reducer is a user's
                    conflicts.append(f"the reducer of {key!r} raised {error!r}")
            else:
                if key in written:
                    conflicts.append(f"{key!r} was written twice: the later call won")
                new[key] = value
            written.add(key)
    return Folded(values=new, conflicts=conflicts)
