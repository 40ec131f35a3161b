"""Random runs: an agent that may do anything, people who may come and go, and the
promises that must hold whatever happened."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any

import trio
from attrs import define, evolve, field, frozen
from hypothesis import strategies as st

from agentrt.agent.agent import Agent
from agentrt.core.chat import ChatRequest, ChatResponse, Delta, TextDelta
from agentrt.core.context import Context
from agentrt.core.errors import SessionStateError
from agentrt.core.history import find_history_faults
from agentrt.core.messages import (
    AssistantMessage,
    Message,
    ToolCall,
    ToolMessage,
)
from agentrt.core.outcomes import Approve, Decision, Deny, Reply, TurnCompleted
from agentrt.events.types import Envelope, Resync, RunPaused
from agentrt.filters.base import (
    Call,
    ChatCall,
    Filter,
    TurnCall,
    hook,
)
from agentrt.runtime.run import Run, RunOptions
from agentrt.runtime.runtime import Runtime, open_runtime
from agentrt.stores.in_memory import InMemoryChatMemory, InMemoryEventStore
from agentrt.testing import Say, ScriptedModel, check_stream
from agentrt.testing.strategies import scripts
from agentrt.tools.base import Tool, tool

CONVERSATION = "c"
IDLE_SECONDS = 5.0
TOOLS = ("quick", "slow", "broken", "asks", "ordered")


@define
class RecordingStore(InMemoryEventStore):
    """Keeps every event, and may refuse some."""

    refuses: frozenset[int] = frozenset()
    """Appends that raise, counted from 1."""

    everything: list[Envelope] = field(factory=list, init=False)
    appends: int = field(default=0, init=False)

    def append(self, envelope: Envelope) -> None:
        self.appends += 1
        if self.appends in self.refuses:
            raise OSError("the disk is full")
        InMemoryEventStore.append(self, envelope)
        self.everything.append(envelope)


@define
class SlowMemory(InMemoryChatMemory):
    """A memory that takes its time now and then."""

    appends: int = field(default=0, init=False)

    async def append(self, conversation_id: str, messages: Sequence[Message]) -> None:
        self.appends += 1
        if self.appends % 5 == 0:
            await trio.sleep(0.1)
        await InMemoryChatMemory.append(self, conversation_id, messages)


@define
class Model:
    """Says one script after the other, whatever it is asked."""

    scripts: Sequence[Sequence[Say]]
    ref: str = "random/model"
    requests: list[ChatRequest] = field(factory=list, init=False)
    _steps: list[Say] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._steps = [say for script in self.scripts for say in script]

    async def call(self, request: ChatRequest, context: Context) -> ChatResponse:
        place = len(self.requests)
        self.requests.append(request)
        say = self._steps[place] if place < len(self._steps) else Say(text="done")
        return await ScriptedModel([say]).call(request, context)


@define
class Tools:
    """Tools of every temper; they note what they finished."""

    returned: list[str] = field(factory=list, init=False)
    """Ids of the calls whose tool got to its end."""

    entered: int = field(default=0, init=False)
    left: int = field(default=0, init=False)

    def make(self) -> Sequence[Tool]:
        @tool
        async def quick(context: Context) -> str:
            """Return at once."""
            await trio.lowlevel.checkpoint()
            self.returned.append(context.call_id)
            return "quick"

        @tool
        async def slow(context: Context) -> str:
            """Take a while."""
            self.entered += 1
            try:
                await trio.sleep(0.7)
                self.returned.append(context.call_id)
                return "slow"
            finally:
                self.left += 1

        @tool(timeout_seconds=0.5)
        async def broken(context: Context) -> str:
            """Raise, from within a nursery."""
            async with trio.open_nursery() as nursery:
                nursery.start_soon(trio.sleep, 0.1)
                raise RuntimeError("broken")

        @tool(sensitive=True)
        async def asks(context: Context) -> str:
            """Wait for a person."""
            await trio.sleep(0.1)
            self.returned.append(context.call_id)
            return "asked"

        @tool(serial=True)
        async def ordered(context: Context) -> str:
            """One at a time."""
            await trio.sleep(0.2)
            self.returned.append(context.call_id)
            return "ordered"

        return [quick, slow, broken, asks, ordered]


@frozen
class Shout:
    """A token transform that holds one delta back."""

    held: list[Delta] = field(factory=list)

    def feed(self, delta: Delta) -> Sequence[Delta]:
        if isinstance(delta, TextDelta):
            delta = TextDelta(text=delta.text.upper() or delta.text)
        self.held.append(delta)
        return [self.held.pop(0)] if len(self.held) > 1 else []

    def finish(self) -> Sequence[Delta]:
        return self.held


def layer(kind: str, temper: str) -> Filter:
    """A filter on one hook that passes, waits, raises, or runs things again."""

    @hook
    async def behave(call: Call[Any, Any]) -> AsyncIterator[None]:
        if temper == "raises before":
            raise RuntimeError("raised before")
        if temper == "waits":
            await trio.sleep(0.05)
        if temper == "nursery":
            async with trio.open_nursery() as nursery:
                nursery.start_soon(trio.sleep, 0.01)
                yield
        else:
            yield
        if temper == "raises after":
            raise RuntimeError("raised after")

    @hook
    async def again(call: Call[Any, Any]) -> AsyncIterator[None]:
        yield
        if isinstance(call.response, ChatResponse) and call.reruns_left == 3:
            await call.rerun()

    return _on(kind, again if temper == "again" else behave)


def forgetful() -> Filter:
    """The model sees only the end of the history, as with any compaction."""

    @hook
    async def chat(call: ChatCall) -> AsyncIterator[None]:
        call.request = evolve(call.request, messages=call.request.messages[-1:])
        yield

    return Filter(name="forgetful", chat=chat)


def cached() -> Filter:
    """Answers in the model's place, always the same, with ids that are no use."""
    calls = (
        ToolCall(id="", name="quick"),
        ToolCall(id="1", name="asks"),
        ToolCall(id="1", name="quick"),
    )
    message = AssistantMessage(id="always", content="cached", tool_calls=calls)
    response = ChatResponse(message=message)
    asked = 0

    @hook
    async def chat(call: ChatCall) -> AsyncIterator[None]:
        nonlocal asked
        asked += 1
        if asked % 2:
            call.response = response
        yield

    return Filter(name="cached", chat=chat)


def swallowing() -> Filter:
    """Makes an answer of whatever goes wrong within."""

    @hook
    async def turn(call: TurnCall) -> AsyncIterator[None]:
        try:
            yield
        except Exception:  # noqa: BLE001  as a careless filter would
            call.response = TurnCompleted(text="never mind")

    return Filter(name="swallowing", turn=turn)


def _on(kind: str, made: Any) -> Filter:
    match kind:
        case "turn":
            return Filter(name=kind, turn=made)
        case "iteration":
            return Filter(name=kind, iteration=made)
        case "chat":
            return Filter(name=kind, chat=made)
        case "tool":
            return Filter(name=kind, tool=made)
        case _:
            return Filter(name=kind, tokens=Shout)


def filters() -> st.SearchStrategy[Sequence[Filter]]:
    tempers = ["passes", "waits", "nursery", "raises before", "raises after", "again"]
    kinds = ["turn", "iteration", "chat", "tool", "tokens"]
    one = st.one_of(
        st.builds(layer, st.sampled_from(kinds), st.sampled_from(tempers)),
        st.builds(forgetful),
        st.builds(cached),
        st.builds(swallowing),
    )
    return st.lists(one, max_size=3)


@frozen
class Step:
    """Something that people do, after a while."""

    after: float
    what: str
    decision: Decision = field(factory=Deny)


def steps() -> st.SearchStrategy[Sequence[Step]]:
    whats = [
        "start",
        "start",
        "supersede",
        "stop",
        "resume",
        "discard",
        "read",
        "leave",
        "forget",
        "evict",
    ]
    decisions = [Approve(), Deny(reason="no"), Reply(content="mine")]
    one = st.builds(
        Step,
        st.sampled_from([0.0, 0.05, 0.3, 1.0]),
        st.sampled_from(whats),
        st.sampled_from(decisions),
    )
    return st.lists(one, min_size=1, max_size=8)


def turns() -> st.SearchStrategy[Sequence[Sequence[Say]]]:
    return st.lists(scripts(TOOLS, max_rounds=2), min_size=1, max_size=3)


@define
class Reader:
    """Somebody who reads, at a pace, until the runtime closes or they leave."""

    since: int | None
    pace: float
    got: list[Envelope | Resync] = field(factory=list, init=False)
    scope: trio.CancelScope = field(factory=trio.CancelScope, init=False)

    async def read(self, runtime: Runtime) -> None:
        with self.scope:
            async for reading in runtime.subscribe(CONVERSATION, since=self.since):
                self.got.append(reading)
                await trio.sleep(self.pace)

    def check(self) -> None:
        """No hole and no repeat, but where a resync says so."""
        place = self.since
        for reading in self.got:
            if isinstance(reading, Resync):
                assert place is None or reading.seq >= place or self.since == place
            else:
                assert place is not None
                assert reading.seq == place + 1
            place = reading.seq


@define
class World:
    """One runtime with one conversation, and all that was seen of it."""

    scripts: Sequence[Sequence[Say]]
    filters: Sequence[Filter] = ()
    refuses: frozenset[int] = frozenset()
    max_iterations: int = 3
    store: RecordingStore = field(init=False)
    memory: SlowMemory = field(factory=SlowMemory, init=False)
    tools: Tools = field(factory=Tools, init=False)
    runs: list[Run] = field(factory=list, init=False)
    lives: list[int] = field(factory=list, init=False)
    """The last number before each time that it was forgotten."""

    readers: list[Reader] = field(factory=list, init=False)
    agent: Agent = field(init=False)
    history: Sequence[Message] = field(default=(), init=False)
    transcript: Sequence[Message] = field(default=(), init=False)
    drops: int = field(default=0, init=False)

    def __attrs_post_init__(self) -> None:
        self.store = RecordingStore(max_events=20, refuses=self.refuses)
        self.agent = Agent(
            model=Model(self.scripts),
            tools=self.tools.make(),
            filters=self.filters,
            memory=self.memory,
            max_iterations=self.max_iterations,
        )

    async def live(self, plan: Sequence[Step]) -> None:
        """Open a runtime, do what the plan says, and close it."""
        async with trio.open_nursery() as nursery:
            async with open_runtime(
                self.agent, events=self.store, idle_seconds=IDLE_SECONDS
            ) as runtime:
                for step in plan:
                    await trio.sleep(step.after)
                    await self._do(step, runtime, nursery)
                await trio.sleep(0.4)
                await runtime.status(CONVERSATION)  # opens it, if it was let go
                session = runtime._sessions.get(CONVERSATION)
            if session is not None:
                self.drops = session.drops
                self.transcript = session.transcript.messages
        self.history = await self.memory.history(CONVERSATION)

    async def _do(self, step: Step, runtime: Runtime, nursery: trio.Nursery) -> None:
        acts: Mapping[str, Callable[[], Any]] = {
            "start": lambda: self._start(runtime, RunOptions()),
            "supersede": lambda: self._start(runtime, RunOptions(on_busy="supersede")),
            "discard": lambda: self._start(runtime, RunOptions(discard_pause=True)),
            "resume": lambda: self._resume(runtime, step.decision),
        }
        if step.what == "stop":
            runtime.stop(CONVERSATION)
        elif step.what == "read":
            since = (None, 0, self.store.head(CONVERSATION))[len(self.readers) % 3]
            reader = Reader(since, pace=(0.0, 0.3)[len(self.readers) % 2])
            self.readers.append(reader)
            nursery.start_soon(reader.read, runtime)
        elif step.what == "forget":
            await runtime.forget(CONVERSATION)
            self.tools.returned.clear()  # it was wished that they be forgotten
            self.lives.append(self.store.head(CONVERSATION))
        elif step.what == "evict":
            await trio.sleep(IDLE_SECONDS * 2)
        elif step.what == "leave":
            if self.readers:
                self.readers[-1].scope.cancel()
        else:
            with suppress(SessionStateError):
                self.runs.append(await acts[step.what]())

    async def _start(self, runtime: Runtime, options: RunOptions) -> Run:
        return await runtime.start_run(CONVERSATION, "go on", options)

    async def _resume(self, runtime: Runtime, decision: Decision) -> Run:
        status = await runtime.status(CONVERSATION)
        answers = {interrupt.id: decision for interrupt in status.interrupts}
        return await runtime.resume(CONVERSATION, answers)

    def _check_stream(self) -> None:
        """Numbers go on for ever; ids may come again in a conversation's next life."""
        seqs = [envelope.seq for envelope in self.store.everything]
        assert seqs == list(range(1, len(seqs) + 1))
        bounds = [0, *self.lives, len(seqs)]
        for start, end in pairwise(bounds):
            check_stream(self.store.everything[start:end], since=start)

    def check(self) -> None:
        """Every promise that holds within one process."""
        self._check_stream()  # P1, P2, P3
        assert all(run.is_over for run in self.runs)
        last = self.store.everything[-1].event if self.store.everything else None
        waiting = last.interrupts if isinstance(last, RunPaused) else ()
        open_calls = [interrupt.id for interrupt in waiting]
        faults = find_history_faults(self.history, open_calls=open_calls)
        assert not faults, faults  # P5
        for reader in self.readers:
            reader.check()  # P7
        assert self.tools.entered == self.tools.left  # P4: each cleanup has run
        kept = {
            message.call_id: message
            for message in self.history
            if isinstance(message, ToolMessage) and not message.synthetic
        }
        lost = [id_ for id_ in self.tools.returned if id_ not in kept]
        assert not lost, f"results of {lost} are forgotten"  # P8
