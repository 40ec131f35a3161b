"""What a history must look like, and what is true of calls that nobody answered.

Every provider refuses a history in which a call has no result, or a result no call. So
each call gets exactly one, before any later message: at the end of its batch, whatever
ended it. `mend` does the same to a view of the history, for what others stored. Pure.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from agentrt.core.messages import (
    AssistantMessage,
    Message,
    ToolCall,
    ToolMessage,
    with_edits,
)

__all__ = [
    "ABANDONED",
    "CUT",
    "GIVEN_UP",
    "NOT_STARTED",
    "UNRECORDED",
    "call_ids",
    "denied_text",
    "find_history_faults",
    "forbidden_text",
    "mend",
    "synthetic_result",
    "unanswered_calls",
]

NOT_STARTED: Final = "This call was not started: {why}."
CUT: Final = "This call was cut: {why}. It may have had effects."
ABANDONED: Final = "This call was not run: nobody answered before the user went on."
GIVEN_UP: Final = "This call was given up: nobody answered what it asked."
UNRECORDED: Final = "its result was never recorded"


def denied_text(reason: str) -> str:
    """What the model reads of a call that a person refused."""
    if reason:
        return f"This call was denied by the user: {reason}"
    return "This call was denied by the user."


def forbidden_text(reason: str) -> str:
    """What the model reads of a call that a policy or an approver refused."""
    if reason:
        return f"This call is not allowed: {reason}"
    return "This call is not allowed."


def synthetic_result(call: ToolCall, text: str) -> ToolMessage:
    """The result of a call that no tool answered."""
    return ToolMessage(
        call_id=call.id, name=call.name, content=text, is_error=True, synthetic=True
    )


def call_ids(messages: Iterable[Message]) -> set[str]:
    """The ids of all calls in these messages."""
    return {
        call.id
        for message in messages
        if isinstance(message, AssistantMessage)
        for call in message.tool_calls
    }


def unanswered_calls(messages: Sequence[Message]) -> Sequence[ToolCall]:
    """The calls of the last block of the history that have no result."""
    answered: set[str] = set()
    for message in reversed(messages):
        if isinstance(message, ToolMessage):
            answered.add(message.call_id)
        elif isinstance(message, AssistantMessage):
            return [call for call in message.tool_calls if call.id not in answered]
        else:
            return ()
    return ()


def find_history_faults(
    messages: Sequence[Message], *, open_calls: Iterable[str] = ()
) -> Sequence[str]:
    """Why a provider would refuse this history; empty if none would.

    `open_calls` are those of a pause, which may be without a result at the end.
    """
    faults: list[str] = []
    waiting: dict[str, None] = {}
    seen: set[str] = set()
    for message in messages:
        if isinstance(message, ToolMessage):
            if message.call_id not in waiting:
                faults.append(f"result {message.call_id!r} answers no open call")
            waiting.pop(message.call_id, None)
            continue
        faults.extend(f"call {id_!r} has no result" for id_ in waiting)
        waiting.clear()
        if isinstance(message, AssistantMessage):
            for call in message.tool_calls:
                if call.id in seen:
                    faults.append(f"call id {call.id!r} comes twice")
                seen.add(call.id)
                waiting[call.id] = None
    may_wait = set(open_calls)
    faults.extend(
        f"call {id_!r} has no result" for id_ in waiting if id_ not in may_wait
    )
    return faults


def mend(messages: Sequence[Message]) -> Sequence[Message]:
    """The same history, as every provider takes it; the very same if it is so already.

    Results stand right after their call's message, one for each call, in call order; a
    call without one gets a fixed text, so that mending twice changes nothing and the
    same history always gives the same bytes. A result without a call is left out. A
    call that a person edited has the arguments that it ran with.
    """
    if not find_history_faults(messages):
        return with_edits(messages)
    strays = _results_by_call(messages)
    mended: list[Message] = []
    for message in messages:
        if isinstance(message, ToolMessage):
            continue  # comes with its call
        mended.append(message)
        if isinstance(message, AssistantMessage):
            mended.extend(_result_of(call, strays) for call in message.tool_calls)
    return with_edits(mended)


def _results_by_call(
    messages: Sequence[Message],
) -> Mapping[str, list[ToolMessage]]:
    results: defaultdict[str, list[ToolMessage]] = defaultdict(list)
    for message in messages:
        if isinstance(message, ToolMessage):
            results[message.call_id].append(message)
    return results


def _result_of(call: ToolCall, strays: Mapping[str, list[ToolMessage]]) -> ToolMessage:
    """The first result that is left for this call's id: ids may have been reused."""
    known = strays.get(call.id)
    if known:
        return known.pop(0)
    return synthetic_result(call, CUT.format(why=UNRECORDED))
