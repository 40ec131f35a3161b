"""`ProviderModel`: one logical call over a provider.

Merges options, retries, takes a permit for each attempt, and treats an answer without
content as a failure.
"""

from collections.abc import Callable, Mapping
from random import random
from typing import Any, Final

from attrs import evolve, field, frozen

from agentrt.core.chat import ChatRequest, ChatResponse, FinishReason
from agentrt.core.context import Context
from agentrt.core.errors import EmptyCompletionError, ModelError, describe
from agentrt.core.ids import new_id
from agentrt.events.types import ModelRetried
from agentrt.models.admission import AdmissionPool
from agentrt.models.attempt import Told, timed_attempt
from agentrt.models.retry import RetryPolicy, call_with_retry
from agentrt.providers.base import Provider

__all__ = ["ProviderModel"]

MAY_BE_EMPTY: Final = frozenset(
    {
        FinishReason.CONTENT_FILTER,
        FinishReason.MAX_TOKENS,
        FinishReason.PAUSE,
        FinishReason.REFUSAL,
    }
)
"""Reasons that explain why there is nothing."""


@frozen(kw_only=True)
class ProviderModel:
    """A `ChatModel` over one provider."""

    provider: Provider
    model_id: str
    options: Mapping[str, Any] = field(factory=dict)
    """For each call; those of the request win, save for values of None. `retry` among
    them is a `RetryPolicy`, or False; no vendor sees it."""

    retry: RetryPolicy = field(factory=RetryPolicy)
    admission: AdmissionPool = field(factory=AdmissionPool)
    """By default this model's own; hand one pool to several to share it."""

    random: Callable[[], float] = field(default=random, repr=False)

    @property
    def ref(self) -> str:
        return f"{self.provider.name}/{self.model_id}"

    async def call(self, request: ChatRequest, context: Context) -> ChatResponse:
        merged, retry = self._merged(request)
        told = None if context.on_delta is None else Told(context.on_delta)
        message_id = context.message_id or new_id()

        async def send() -> ChatResponse:
            return await self.provider.call(merged, message_id=message_id, sink=told)

        async def attempt() -> ChatResponse:
            async with self.admission.permit(self.ref):
                response = await timed_attempt(
                    send, told, context.deadlines, ref=self.ref
                )
            if _is_empty(response):
                raise EmptyCompletionError(
                    f"{self.ref} answered without any content "
                    f"(finish reason {response.finish_reason})",
                    provider=self.provider.name,
                )
            return response

        def observe(number: int, wait: float, error: ModelError) -> None:
            retried = ModelRetried(
                message_id=message_id,
                ref=self.ref,
                attempt=number,
                wait_seconds=wait,
                error=describe(error),
                error_code=error.code,
            )
            if context.emit is not None:
                context.emit(retried)

        return await call_with_retry(
            attempt,
            policy=retry.for_call(streams=told is not None),
            may_repeat=lambda: told is None or not told.anything,
            on_retry=observe,
            random=self.random,
        )

    def _merged(self, request: ChatRequest) -> tuple[ChatRequest, RetryPolicy]:
        """The request with all options that a vendor is to see, and how to retry it."""
        given = {k: v for k, v in request.options.items() if v is not None}
        options = {"model": self.model_id, **self.options, **given}
        retry = _retry(options.pop("retry", self.retry))
        return evolve(request, options=options), retry


def _retry(value: RetryPolicy | bool) -> RetryPolicy:
    """What a call's `retry` option asks for: a policy, or False for no retries."""
    if value is False:
        return RetryPolicy(max_retries=0, empty_retries=0)
    if not isinstance(value, RetryPolicy):
        raise ValueError(f"retry is {value!r}, expected a RetryPolicy or False")
    return value


def _is_empty(response: ChatResponse) -> bool:
    message = response.message
    has_content = bool(message.content) or bool(message.tool_calls)
    return not has_content and response.finish_reason not in MAY_BE_EMPTY
