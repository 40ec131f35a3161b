"""The calls of one message: at once or in order; a truthful result for each.

Every call gets the same context, that of the start of the batch. A call's result is
told when that call ends; at the barrier results stand in call order. Whatever ends the
batch, each call then has exactly one result: what it returned, "was not started", or
"was cut".
"""

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import count
from typing import Any

import trio
from attrs import define, evolve, field, frozen

from agentrt.agent.client import ChatClient
from agentrt.agent.gate import Refused
from agentrt.core.context import Context, is_framework_key
from agentrt.core.history import CUT, NOT_STARTED, denied_text, synthetic_result
from agentrt.core.messages import ToolCall, ToolMessage
from agentrt.core.outcomes import CallRecord, CallStatus, Suspended
from agentrt.core.parts import Content, is_content
from agentrt.events.types import Event, ToolReturned
from agentrt.filters.base import ToolRequest
from agentrt.scopes import only_leaf
from agentrt.tools.base import ToolResult, ToolSuspended
from agentrt.tools.failures import result_of_failure

__all__ = ["Ended", "ToolBatch", "is_json", "storable"]

logger = logging.getLogger(__name__)

NO_CONTENT = "error: the tool ran, but its result is no text and no parts"


@frozen(kw_only=True)
class Ended:
    """A call that is over."""

    message: ToolMessage
    record: CallRecord


@define
class ToolBatch:
    """Runs the calls of one message. Made for one batch and used once."""

    _client: ChatClient
    _context: Context
    _emit: Callable[[Event], None]
    _holds_failures: bool = False
    """Whether a failure of the environment waits for a person, and is not told."""

    held: dict[str, Ended] = field(factory=dict, init=False)
    """By call: failures that wait."""

    suspended: dict[str, ToolSuspended] = field(factory=dict, init=False)
    """By call: what subagents ask."""

    _requests: dict[str, ToolRequest] = field(factory=dict, init=False)
    """By call: what was to run, with the arguments that it was given."""

    _started: set[str] = field(factory=set, init=False)
    _returned: dict[str, ToolResult] = field(factory=dict, init=False)
    """What tools came to, before the hooks around them saw it."""

    _ended: dict[str, Ended] = field(factory=dict, init=False)

    async def run(self, requests: Sequence[ToolRequest]) -> None:
        """Run the calls, all at once, or one by one if any of their tools is serial.

        A tool's failure is its result. Raises what a tool declared `fatal` raises, and
        cancels its siblings then.
        """
        if not requests:
            return
        serial = any(request.tool.serial for request in requests)
        self._requests.update({request.call.id: request for request in requests})
        try:
            async with trio.open_nursery() as nursery:
                for request in requests:
                    ended = trio.Event()
                    nursery.start_soon(
                        self._run_one,
                        request,
                        ended,
                        name=f"tool {request.name} {request.call.id}",
                    )
                    if serial:
                        await ended.wait()
        except BaseExceptionGroup as group:
            raise only_leaf(group) from None

    def nested(self) -> Mapping[str, Suspended]:
        """By call: those that wait for people, as they ran."""
        return {
            call_id: Suspended(
                call=self._requests[call_id].call,
                edited=self._requests[call_id].edited,
                state=each.state,
            )
            for call_id, each in self.suspended.items()
        }

    def had_begun(self, call_ids: Iterable[str]) -> None:
        """These calls were begun before a pause, and go on."""
        self._started.update(call_ids)

    def answer(self, call: ToolCall, status: CallStatus, content: Content) -> None:
        """Give a call a result that no tool said."""
        message = synthetic_result(call, "")
        is_error = status != "replied"
        message = evolve(message, content=content, is_error=is_error)
        self._end(self._ended_with(message, call.arguments, status))

    def refuse(self, refused: Refused) -> None:
        self.answer(refused.call, refused.status, refused.text)

    def deny(self, call: ToolCall, reason: str) -> None:
        self.answer(call, "denied", denied_text(reason))

    def answer_rest(self, calls: Sequence[ToolCall], why: str) -> None:
        """Give every call that has no result a truthful one: the batch was ended."""
        for each in calls:
            if each.id in self._ended:
                continue
            request = self._requests.get(each.id)
            call = each if request is None else request.call
            if call.id in self.held:
                self._end(self.held.pop(call.id))
                continue
            returned = self._returned.get(call.id)
            if returned is not None:
                # A hook around it was cut; what the tool did is not forgotten.
                self._end(self._from_result(call, returned))
            elif call.id in self._started:
                self.answer(call, "cut", CUT.format(why=why))
            else:
                self.answer(call, "not_started", NOT_STARTED.format(why=why))

    def ended(self, calls: Sequence[ToolCall]) -> Sequence[Ended]:
        """What is over, in call order."""
        return [self._ended[call.id] for call in calls if call.id in self._ended]

    def keep_failure(self, call: ToolCall, result: ToolMessage) -> None:
        """A call that failed before the turn paused, and is not made again."""
        self._end(self._ended_with(result, call.arguments, "error"))

    async def _run_one(self, request: ToolRequest, ended: trio.Event) -> None:
        call = request.call
        self._started.add(call.id)
        context = evolve(
            self._context,
            call_id=call.id,
            tool_returned=partial(self._returned.__setitem__, call.id),
            nested=request.nested,
        )
        with self._stoppable(call.id) as scope:
            await self._finish_one(request, context)
        if scope.cancelled_caught and call.id not in self.suspended:
            self._answer_stopped(call)
        ended.set()

    async def _finish_one(self, request: ToolRequest, context: Context) -> None:
        call = request.call
        try:
            result = await self._invoke_with_retry(request, context)
        except ToolSuspended as suspended:
            self.suspended[call.id] = suspended
            return
        if self._holds_failures and result.failure == "environment":
            self.held[call.id] = self._from_result(call, result)
        else:
            self._end(self._from_result(call, result))

    @contextmanager
    def _stoppable(self, call_id: str) -> Iterator[trio.CancelScope]:
        """A scope by which somebody may stop this call and no other."""
        running = self._context.running_calls
        with trio.CancelScope() as scope:
            if running is None:
                yield scope
                return
            running[call_id] = scope
            try:
                yield scope
            finally:
                running.pop(call_id, None)

    def _answer_stopped(self, call: ToolCall) -> None:
        if call.id in self._ended:
            return
        returned = self._returned.get(call.id)
        if returned is not None:
            self._end(self._from_result(call, returned))
        else:
            self.answer(call, "cut", CUT.format(why="somebody stopped it"))

    async def _invoke_with_retry(
        self, request: ToolRequest, context: Context
    ) -> ToolResult:
        """The whole tool chain again, while it fails for a time and may be retried."""
        retry = request.tool.retry
        for attempt in count():
            self._returned.pop(request.call.id, None)
            result = await self._invoke(request, context)
            if (
                retry is None
                or result.failure != "transient"
                or attempt >= retry.max_retries
            ):
                return result
            await trio.sleep(retry.initial_seconds * 2.0**attempt)
        raise AssertionError("the count has no end")

    def _from_result(self, call: ToolCall, result: ToolResult) -> Ended:
        if not is_content(result.content):
            logger.error("tool %r gave no text and no parts", call.name)
            result = ToolResult(content=NO_CONTENT, is_error=True)
        status: CallStatus = "error" if result.is_error else "ok"
        # An error writes nothing, save what a filter counts of it.
        writes = {
            key: value
            for key, value in result.writes.items()
            if isinstance(key, str) and (not result.is_error or is_framework_key(key))
        }
        message = ToolMessage(
            call_id=call.id,
            name=call.name,
            content=result.content,
            is_error=result.is_error,
            writes=writes,
        )
        return self._ended_with(message, call.arguments, status)

    async def _invoke(self, request: ToolRequest, context: Context) -> ToolResult:
        try:
            return await self._client.invoke_tool(request, context)
        except Exception as error:  # noqa: BLE001
            # The tool boundary: what a tool, or a filter around it, raises becomes a
            # result for the model, and its siblings go on.
            return result_of_failure(error, request.tool)

    def _ended_with(
        self, message: ToolMessage, arguments: Mapping[str, Any], status: CallStatus
    ) -> Ended:
        request = self._requests.get(message.call_id)
        if request is not None and request.edited:
            message = evolve(message, edited_arguments=arguments)
        record = CallRecord(
            id=message.call_id,
            name=message.name,
            arguments=arguments,
            status=status,
            content=message.content,
        )
        return Ended(message=message, record=record)

    def _end(self, ended: Ended) -> None:
        stored = storable(ended.message)
        self._ended[stored.call_id] = ended
        self._emit(
            ToolReturned(
                call_id=stored.call_id,
                name=stored.name,
                content=stored.content,
                is_error=stored.is_error,
                synthetic=stored.synthetic,
                status=ended.record.status,
                writes=stored.writes,
                edited_arguments=stored.edited_arguments,
            )
        )


def storable(message: ToolMessage) -> ToolMessage:
    """The message as it can be written down: of live objects, their names."""
    edited = message.edited_arguments
    if not message.writes and edited is None:
        return message
    return evolve(
        message,
        writes=_storable(message.writes),
        edited_arguments=None if edited is None else _storable(edited),
    )


def _storable(values: Mapping[str, Any]) -> Mapping[str, Any]:
    return {k: v if is_json(v) else repr(v) for k, v in values.items()}


def is_json(value: Any) -> bool:
    """Whether a value can be written down as it is."""
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return False
    return True
