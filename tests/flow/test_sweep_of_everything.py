"""A turn with all that waits in it, cancelled at every one of its scheduling points.

Retry and fallback, a pool that others use too, three tools at once of which one is
retried, an approver, a memory, a check of the answer that asks again, deadlines, and a
pause with all kinds of questions.
"""

from collections.abc import Sequence
from typing import Any

import trio
from attrs import define, field

from agentrt.agent.agent import Agent
from agentrt.agent.approvers import Approval, Breaker, Question
from agentrt.core.chat import ChatRequest
from agentrt.core.context import Context
from agentrt.core.deadlines import Deadlines
from agentrt.core.errors import QuotaExceededError, RateLimitError, ToolError
from agentrt.core.history import find_history_faults
from agentrt.core.messages import Message, ToolMessage
from agentrt.core.outcomes import (
    Approve,
    Decision,
    Deny,
    Reply,
    Retry,
    TurnCompleted,
    TurnPaused,
)
from agentrt.events.types import RunStarted, TerminalEvent
from agentrt.filters.base import Filter
from agentrt.filters.logging import chat_logging_filter, tool_logging_filter
from agentrt.filters.validation import validation_filter
from agentrt.models.admission import AdmissionPool
from agentrt.models.chat_model import ProviderModel
from agentrt.models.fallback import FallbackModel
from agentrt.models.retry import RetryPolicy
from agentrt.runtime.runtime import open_runtime
from agentrt.stores.in_memory import InMemoryChatMemory, InMemoryPauseStore
from agentrt.testing import Say, ScriptedModel, call, cancel_sweep, check_stream
from agentrt.tools.base import Tool, tool
from tests.flow.test_cancel_sweep import ScriptedProvider, _ponder
from tests.flow.worlds import RecordingStore


def model(name: str, pool: AdmissionPool, *steps: Any) -> ProviderModel:
    return ProviderModel(
        provider=ScriptedProvider(ScriptedModel(steps), name),
        model_id="m",
        retry=RetryPolicy(max_retries=1),
        admission=pool,
        random=lambda: 0.5,
    )


@define
class World:
    """What one run of the sweep used and left."""

    store: RecordingStore = field(factory=RecordingStore)
    memory: InMemoryChatMemory = field(factory=InMemoryChatMemory)
    pauses: InMemoryPauseStore = field(factory=InMemoryPauseStore)
    pool: AdmissionPool = field(factory=lambda: AdmissionPool(1))
    returned: list[str] = field(factory=list)
    tries: list[str] = field(factory=list)
    is_full: bool = True

    def tools(self) -> Sequence[Tool]:
        @tool(sensitive=True)
        async def delete(context: Context) -> str:
            """Delete."""
            await trio.sleep(0.1)
            self.returned.append(context.call_id)
            return "deleted"

        @tool(retry=True)
        async def flaky(context: Context) -> str:
            """Fail once."""
            await trio.sleep(0.1)
            self.tries.append(context.call_id)
            if len(self.tries) == 1:
                raise ToolError("busy", kind="transient")
            self.returned.append(context.call_id)
            return "there"

        @tool(timeout_seconds=5)
        async def save(context: Context) -> str:
            """Save."""
            await trio.sleep(0.1)
            if self.is_full:
                raise ToolError("the disk is full", kind="environment")
            self.returned.append(context.call_id)
            return "saved"

        return [delete, flaky, save, Tool(name="pick")]

    async def ask_too(self) -> None:
        """Somebody else who uses the only permit of the first model."""
        other = model("first", self.pool, Say(text="x", delay_seconds=0.3), "y")
        for _ in range(2):
            context = Context(conversation_id="other", on_delta=lambda delta: None)
            await other.call(ChatRequest(), context)

    async def approve(self, question: Question) -> Decision | None:
        await trio.sleep(0.1)
        return Approve() if question.request.call.id.startswith("ok") else None

    def agent(self, *steps: Any, **options: Any) -> Agent:
        slow_down = RateLimitError("slow down", retry_after=0.1)
        never = [slow_down, QuotaExceededError("used up")] * 20
        chain = FallbackModel(
            [model("first", self.pool, *never), model("second", self.pool, *steps)]
        )
        return Agent(
            model=chain,
            tools=self.tools(),
            memory=self.memory,
            pauses=self.pauses,
            approval=Approval(approvers=[self.approve], breaker=Breaker()),
            deadlines=Deadlines(
                turn_seconds=1000,
                model_seconds=500,
                attempt_seconds=100,
                first_token_seconds=100,
                tool_seconds=100,
                human_seconds=100,
            ),
            filters=[
                chat_logging_filter(),
                tool_logging_filter(),
                Filter(name="ponder", turn=_ponder),
                validation_filter(_is_final),
            ],
            **options,
        )

    async def check(self) -> None:
        """Nothing is left, and all promises are kept."""
        check_stream(self.store.everything)
        history = await self.memory.history("c")
        waiting = await self.pauses.load("c")
        asked = [] if waiting is None else [each.id for each in waiting.interrupts]
        assert find_history_faults(history, open_calls=asked) == []
        answered = _answered(history)
        assert not answered & set(asked), "an open question has a result"
        kept = _answered([m for m in history if _is_real(m)])
        assert set(self.returned) <= kept, "the result of a tool is forgotten"
        assert len(self.returned) == len(set(self.returned)), "a call ran twice"
        for name in ("first/m", "second/m"):
            assert self.pool.in_flight(name) == 0
        events = [envelope.event for envelope in self.store.everything]
        starts = sum(isinstance(event, RunStarted) for event in events)
        assert starts == sum(isinstance(event, TerminalEvent) for event in events)


def _is_final(answer: TurnCompleted) -> Sequence[str]:
    return [] if "final" in answer.text else ["it is not final"]


def _answered(history: Sequence[Message]) -> set[str]:
    return {m.call_id for m in history if isinstance(m, ToolMessage)}


def _is_real(message: Message) -> bool:
    return isinstance(message, ToolMessage) and not message.synthetic


def test_a_turn_with_everything_survives_a_cancel_anywhere() -> None:
    async def scenario(world: World) -> None:
        batch = [call("delete", id="ok1"), call("flaky", id="f"), call("save", id="s")]
        agent = world.agent(
            Say(text=["let ", "me"], calls=batch, delay_seconds=0.1),
            "a draft",
            Say(text=["the ", "final"], delay_seconds=0.1),
        )
        async with (
            open_runtime(agent, events=world.store) as runtime,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(world.ask_too)
            run = await runtime.start_run("c", "go")
            outcome = await run.wait()
            assert isinstance(outcome, TurnCompleted)
            assert (outcome.text, world.tries) == ("the final", ["f", "f"])

    report = cancel_sweep(World, scenario, World.check, seeds=range(2))
    print(report)
    assert report.runs > 200


def test_a_pause_of_all_kinds_survives_a_cancel_anywhere() -> None:
    """Also where it is answered twice, since a retry failed again."""

    async def scenario(world: World) -> None:
        batch = [
            call("delete", id="d1"),
            call("save", id="s"),
            call("pick", id="p"),
            call("delete", id="d2"),
        ]
        agent = world.agent(batch, "final", pause_on_environment=True)
        answers: dict[str, Decision] = {
            "d1": Approve(),
            "s": Retry(),
            "p": Reply(content="blue"),
            "d2": Deny(reason="no"),
        }
        async with open_runtime(agent, events=world.store) as runtime:
            run = await runtime.start_run("c", "go")
            assert isinstance(await run.wait(), TurnPaused)
            run = await runtime.resume("c", answers)
            assert isinstance(await run.wait(), TurnPaused)
            world.is_full = False
            run = await runtime.resume("c", {"s": Retry()})
            assert isinstance(await run.wait(), TurnCompleted)

    report = cancel_sweep(World, scenario, World.check, seeds=range(2))
    print(report)
    assert report.runs > 200
