"""A turn as a stream: its events one by one, while it runs, and then its outcome."""

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import trio
from attrs import define, field

from agentrt.core.outcomes import CallRecord, TurnCancelled, TurnOutcome
from agentrt.events import types as e
from agentrt.scopes import holds_only

__all__ = ["TurnStream", "open_stream"]


@define(eq=False)
class TurnStream:
    """Iterate it for the events of a turn. Made by `Agent.stream`.

    Events that nobody reads wait in memory: the turn never waits for its reader.
    """

    _events: deque[e.Event] = field(factory=deque, init=False, repr=False)
    _news: trio.Event = field(factory=trio.Event, init=False, repr=False)
    _scope: trio.CancelScope = field(factory=trio.CancelScope, init=False, repr=False)
    _reason: str | None = field(default=None, init=False)
    _outcome: TurnOutcome | None = field(default=None, init=False)
    _raised: Exception | None = field(default=None, init=False)
    _is_told: bool = field(default=False, init=False)
    """Whether what it raised came out."""

    _is_over: bool = field(default=False, init=False)
    _heard: "_Heard" = field(factory=lambda: _Heard(), init=False, repr=False)

    def __aiter__(self) -> "TurnStream":
        return self

    async def __anext__(self) -> e.Event:
        await trio.lowlevel.checkpoint_if_cancelled()
        while not self._events:
            if self._is_over:
                self._raise()
                await trio.lowlevel.cancel_shielded_checkpoint()
                raise StopAsyncIteration
            await self._news.wait()
            self._news = trio.Event()
        event = self._events.popleft()
        await trio.lowlevel.cancel_shielded_checkpoint()
        return event

    @property
    def outcome(self) -> TurnOutcome:
        """How the turn ended.

        Raises:
            RuntimeError: it has not ended yet, or has raised.
        """
        if self._raised is not None:
            raise RuntimeError(
                f"the turn has no outcome: it raised {type(self._raised).__name__}"
            ) from self._raised
        if self._outcome is None:
            raise RuntimeError("the turn has not ended: read its stream to the end")
        return self._outcome

    def stop(self, reason: str = "stopped by request") -> None:
        """Ask the turn to stop; the stream ends when it has. Twice is harmless."""
        if self._reason is None and not self._is_over:
            self._reason = reason
            self._scope.cancel(reason=reason)

    async def _run(self, start: Callable[..., Awaitable[TurnOutcome]]) -> None:
        try:
            with self._scope:
                self._outcome = await start(emit=self._tell)
        except Exception as error:  # noqa: BLE001  raised again where the stream is read
            self._raised = error
        finally:
            if self._outcome is None and self._raised is None:
                self._outcome = self._heard.cancelled(self._reason)
            self._is_over = True
            self._news.set()

    def _tell(self, event: e.Event) -> None:
        self._heard.note(event)
        self._events.append(event)
        self._news.set()

    def _raise(self) -> None:
        """Raise what the turn raised, once."""
        if self._raised is not None and not self._is_told:
            self._is_told = True
            raise self._raised


@define
class _Heard:
    """What is known of a turn that was stopped."""

    text: list[str] = field(factory=list)
    usage: e.RunUsage = field(factory=lambda: e.RunUsage(usage=()))
    said: dict[str, e.ToolEnded] = field(factory=dict)
    calls: list[CallRecord] = field(factory=list)

    def note(self, event: e.Event) -> None:
        match event:
            case e.ModelStarted():
                self.text.clear()
            case e.MessageDelta():
                self.text.append(event.text)
            case e.RunUsage():
                self.usage = event
            case e.ToolEnded():
                self.said[event.call_id] = event
            case e.ToolReturned():
                self.calls.append(self._record(event))

    def cancelled(self, reason: str | None) -> TurnCancelled:
        return TurnCancelled(
            reason=reason or "the stream was left",
            text="".join(self.text),
            usage=self.usage.usage,
            calls=tuple(self.calls),
        )

    def _record(self, event: e.ToolReturned) -> CallRecord:
        said = self.said.get(event.call_id)
        arguments = event.edited_arguments
        if arguments is None:
            arguments = (said.arguments if said else None) or {}
        return CallRecord(
            id=event.call_id,
            name=event.name,
            arguments=arguments,
            status=event.status,
            content=event.content,
        )


@asynccontextmanager
async def open_stream(
    start: Callable[..., Awaitable[TurnOutcome]],
) -> AsyncIterator[TurnStream]:
    """Run `start(emit=...)` beside the block, which reads its events.

    Leaving the block before the end stops the turn, and waits until it has stopped.
    What the turn raises is raised where the stream is read, or at the end of the block.
    """
    stream = TurnStream()
    failure: BaseException | None = None
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stream._run, start, name="turn")
            try:
                yield stream
            except BaseException as error:
                failure = error
                raise
            finally:
                stream._scope.cancel(reason="the stream was left")
    except BaseExceptionGroup as group:
        if failure is None or not holds_only(group, failure):
            raise
        raise failure from failure.__cause__
    stream._raise()
