"""Tool guard: a model that repeats a failing call is told so, then stopped.

A call is the same when name and arguments are. Its failures are counted until it
succeeds: at `repeat_limit` the model is advised to do something else, at `stop_limit`
the turn ends. A tool that fails `disable_limit` times in a row, whatever its arguments,
is refused for the rest of the turn; its schema stays in the list, so that a provider's
prompt cache holds.

Counts are kept in a slot: for the turn, over pauses. What calls of one batch write are
steps and no totals, so that parallel calls do not overwrite each other.
"""

import hashlib
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

from attrs import evolve, frozen

from agentrt.core.context import STOP_KEY, Slot
from agentrt.core.messages import ToolCall
from agentrt.core.parts import Content, TextPart
from agentrt.filters.base import Filter, ToolUse, hook
from agentrt.tools.base import ToolResult
from agentrt.tools.failures import result_of_failure

__all__ = ["FAILURES_KEY", "fingerprint", "tool_guard_filter"]

NAME: Final = "tool_guard"

FAILURES_KEY: Final = "agentrt/tool_guard/failures"
"""The slot: `{"calls": {fingerprint: count}, "tools": {name: count}}`."""

ADVICE: Final = (
    "\n\nThis call has failed {count} times with the same arguments. Do not make it "
    "again as it is: change the arguments, use another tool, or tell the user what is "
    "in the way."
)
SHUT: Final = (
    "error: {name!r} has failed {count} times in a row and is shut for the rest of "
    "this turn. Use another tool, or tell the user what is in the way."
)


def tool_guard_filter(
    *,
    repeat_limit: int | None = 3,
    stop_limit: int | None = 6,
    disable_limit: int | None = 4,
) -> Filter:
    """Advise against, and at last stop, what fails again and again.

    Limits are failures without a success between; None switches one off. A call of a
    tool that is shut counts as a failure of that call. The turn ends completed, with
    `stopped_by="tool_guard"`. What people deny and what was cut does not count; a call
    that is retried counts once. Register it before filters that change results, and
    after `tool_output_filter`.

    Raises:
        ValueError: a limit is below 1, or the turn would stop before the advice.
    """
    limits = _Limits(repeat_limit, stop_limit, disable_limit)

    @hook
    async def tool(use: ToolUse) -> AsyncIterator[None]:
        call = use.request.call
        counts: Counts = use.context.values.get(FAILURES_KEY, NO_COUNTS)
        in_a_row = counts["tools"].get(call.name, 0)
        if limits.disable is not None and in_a_row >= limits.disable:
            text = SHUT.format(name=call.name, count=in_a_row)
            use.response = ToolResult(content=text, is_error=True, failure="semantic")
        try:
            yield
        except Exception as error:  # noqa: BLE001  what a tool raises is its result
            use.response = result_of_failure(error, use.request.tool)
        use.response = _counted(use.response, call, counts, limits)

    slots = {
        FAILURES_KEY: Slot(reduce=_count, init=NO_COUNTS),
        STOP_KEY: Slot(reduce=lambda old, new: old or new),
    }
    return Filter(name=NAME, tool=tool, slots=slots)


Counts = Mapping[str, Mapping[str, int]]

NO_COUNTS: Final[Counts] = {"calls": {}, "tools": {}}


@frozen
class _Limits:
    repeat: int | None
    stop: int | None
    disable: int | None

    def __attrs_post_init__(self) -> None:
        for name in ("repeat", "stop", "disable"):
            limit = getattr(self, name)
            if limit is not None and limit < 1:
                raise ValueError(
                    f"{name}_limit is {limit}, expected 1 or more, or None"
                )
        if (
            self.repeat is not None
            and self.stop is not None
            and self.stop < self.repeat
        ):
            raise ValueError(
                f"stop_limit is {self.stop}, below repeat_limit ({self.repeat}): the "
                "model would never read the advice"
            )


def fingerprint(call: ToolCall) -> str:
    """The same for calls with the same name and arguments, in whatever order."""
    canonical = json.dumps(
        call.arguments, sort_keys=True, separators=(",", ":"), default=str
    )
    return f"{call.name}:{hashlib.sha256(canonical.encode()).hexdigest()[:16]}"


def _counted(
    result: ToolResult, call: ToolCall, counts: Counts, limits: _Limits
) -> ToolResult:
    """The result with what it adds to the counts, and with advice if it is due."""
    same = fingerprint(call)
    step = {"call": same, "tool": call.name, "failed": result.is_error}
    writes: dict[str, Any] = {**result.writes, FAILURES_KEY: step}
    if not result.is_error:
        return evolve(result, writes=writes)
    count = counts["calls"].get(same, 0) + 1
    if limits.stop is not None and count >= limits.stop:
        writes[STOP_KEY] = NAME
    content = result.content
    if limits.repeat is not None and count >= limits.repeat:
        content = _with(content, ADVICE.format(count=count))
    return evolve(result, writes=writes, content=content)


def _with(content: Content, text: str) -> Content:
    if isinstance(content, str):
        return content + text
    return (*content, TextPart(text=text))


def _count(counts: Counts, step: Mapping[str, Any]) -> Counts:
    """The counts after one call: one more failure, or none any more."""
    return {
        "calls": _step(counts["calls"], step["call"], step["failed"]),
        "tools": _step(counts["tools"], step["tool"], step["failed"]),
    }


def _step(counts: Mapping[str, int], key: str, failed: bool) -> Mapping[str, int]:
    if failed:
        return {**counts, key: counts.get(key, 0) + 1}
    return {other: count for other, count in counts.items() if other != key}
