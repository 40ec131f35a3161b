"""One logical call over a provider: options, attempts, permits, and empty answers."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing
from attrs import evolve

from agentrt.core.chat import ChatRequest, ChatResponse, Delta, FinishReason, TextDelta
from agentrt.core.context import Context
from agentrt.core.errors import (
    AuthenticationError,
    EmptyCompletionError,
    ServerError,
)
from agentrt.core.messages import AssistantMessage, ToolCall
from agentrt.models.admission import AdmissionPool
from agentrt.models.base import ChatModel
from agentrt.models.chat_model import ProviderModel
from agentrt.models.retry import RetryPolicy
from agentrt.testing import check_chat_model
from tests.models.providers import Step, StepProvider

CONTEXT = Context(conversation_id="c", message_id="m")


def model(*steps: Step, **more: Any) -> tuple[ProviderModel, StepProvider]:
    provider = StepProvider(list(steps))
    made = ProviderModel(provider=provider, model_id="big", random=lambda: 0.5, **more)
    return made, provider


@pytest.mark.parametrize(
    ("own", "asked", "sent"),
    [
        ({}, {}, {"model": "big"}),
        ({"a": 1}, {}, {"model": "big", "a": 1}),
        ({"a": 1}, {"a": 2}, {"model": "big", "a": 2}),
        ({"a": 1}, {"a": None}, {"model": "big", "a": 1}),
        ({"a": 1}, {"a": 0}, {"model": "big", "a": 0}),
        ({"model": "own"}, {"model": "asked"}, {"model": "asked"}),
        ({"model": "own"}, {}, {"model": "own"}),
    ],
)
async def test_the_requests_options_win_and_none_does_not(
    own: Mapping[str, Any], asked: Mapping[str, Any], sent: Mapping[str, Any]
) -> None:
    """B14, X8"""
    made, provider = model("hi", options=own)
    await made.call(ChatRequest(options=asked), CONTEXT)
    assert provider.options == [sent]


async def test_the_model_keeps_the_promises_of_a_model() -> None:
    @asynccontextmanager
    async def opened() -> AsyncIterator[ChatModel]:
        yield model("hi", "hi")[0]

    await check_chat_model(opened)


async def test_two_models_share_no_configuration() -> None:
    """B19"""
    one, first = model("x", options={"a": 1})
    other, second = model("x")
    await one.call(ChatRequest(), CONTEXT)
    await other.call(ChatRequest(), CONTEXT)
    assert (first.options, second.options) == (
        [{"model": "big", "a": 1}],
        [{"model": "big"}],
    )
    assert one.admission is not other.admission


async def test_no_permit_is_held_while_waiting_for_the_next_attempt(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """B40, U48"""
    pool = AdmissionPool(1)
    slow, _ = model(ServerError("no"), "slow", admission=pool)
    quick, _ = model("quick", admission=pool)
    done: list[tuple[str, float]] = []

    async def ask(made: ProviderModel) -> None:
        response = await made.call(ChatRequest(), CONTEXT)
        done.append((response.message.text, trio.current_time()))

    start = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask, slow)
        await trio.testing.wait_all_tasks_blocked()
        assert pool.in_flight("steps/big") == 0
        nursery.start_soon(ask, quick)
    assert [(text, at - start) for text, at in done] == [("quick", 0.0), ("slow", 0.5)]


def message(**more: Any) -> ChatResponse:
    reason = more.pop("finish_reason", FinishReason.STOP)
    answer = AssistantMessage(id="m", **more)
    return ChatResponse(message=answer, finish_reason=reason)


@pytest.mark.parametrize(
    ("answer", "is_empty"),
    [
        (message(), True),
        (message(reasoning="hm"), True),
        (message(finish_reason=None), True),
        (message(finish_reason=FinishReason.TOOL_USE), True),
        (message(finish_reason=FinishReason.REFUSAL), False),
        (message(finish_reason=FinishReason.CONTENT_FILTER), False),
        (message(finish_reason=FinishReason.MAX_TOKENS), False),
        (message(finish_reason=FinishReason.PAUSE), False),
        (message(content="x"), False),
        (message(tool_calls=(ToolCall(id="c", name="a"),)), False),
    ],
)
async def test_an_answer_without_content_is_a_failure_unless_explained(
    answer: ChatResponse, is_empty: bool
) -> None:
    made, _ = model(answer, retry=RetryPolicy(empty_retries=0))
    if is_empty:
        with pytest.raises(EmptyCompletionError, match="steps/big answered without"):
            await made.call(ChatRequest(), CONTEXT)
    else:
        assert await made.call(ChatRequest(), CONTEXT) == answer


async def test_nothing_is_sent_again_once_a_delta_was_told() -> None:
    """B36"""
    told: list[Delta] = []
    context = Context(conversation_id="c", on_delta=told.append)

    class Talks(StepProvider):
        async def call(self, *args: Any, **more: Any) -> ChatResponse:
            await StepProvider.call(self, *args, **more)
            raise ServerError("broke")

    talks = ProviderModel(provider=Talks(["word", "word"]), model_id="m")
    with pytest.raises(ServerError):
        await talks.call(ChatRequest(), context)
    assert [d.text for d in told if isinstance(d, TextDelta)] == ["word"]


async def test_a_refused_key_is_not_tried_again() -> None:
    """B34, B1: type and status stay as they are."""
    refusal = AuthenticationError("no", status=401)
    made, provider = model(refusal)
    with pytest.raises(AuthenticationError) as caught:
        await made.call(ChatRequest(), CONTEXT)
    assert caught.value is refusal
    assert len(provider.requests) == 1


async def test_an_answer_without_a_given_id_gets_a_new_one() -> None:
    made, _ = model("a", "b")
    ids = [
        (await made.call(ChatRequest(), Context(conversation_id="c"))).message.id
        for _ in range(2)
    ]
    assert all(ids)
    assert len(set(ids)) == 2


@pytest.mark.parametrize(
    ("streams", "policy", "attempts"),
    [
        (False, RetryPolicy(), 3),
        (True, RetryPolicy(), 3),
        (False, RetryPolicy(stream_retries=0), 3),
        (True, RetryPolicy(stream_retries=0), 1),
        (True, RetryPolicy(max_retries=0, stream_retries=1), 2),
    ],
)
async def test_streams_have_a_budget_of_their_own(
    streams: bool,
    policy: RetryPolicy,
    attempts: int,
    autojump_clock: trio.testing.MockClock,
) -> None:
    made, provider = model(*[ServerError("no")] * 3, retry=policy)
    told: list[Delta] = []
    context = evolve(CONTEXT, on_delta=told.append if streams else None)
    with pytest.raises(ServerError):
        await made.call(ChatRequest(), context)
    assert (len(provider.requests), told) == (attempts, [])


@pytest.mark.parametrize("name", ["max_retries", "stream_retries", "empty_retries"])
def test_a_number_of_retries_below_0_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} is -1, expected 0 or more"):
        RetryPolicy(**{name: -1})
