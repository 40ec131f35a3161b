"""`ProviderModel`: one logical call over a provider.

Merges options, retries, takes a permit for each attempt, and treats an answer without
content as a failure.
"""

from collections.abc import Callable, Mapping
from random import random
from typing import Any, Final

from attrs import define, evolve, field, frozen

from agentrt.core.chat import (
    ChatRequest,
    ChatResponse,
    Delta,
    DeltaSink,
    FinishReason,
)
from agentrt.core.context import Context
from agentrt.core.errors import EmptyCompletionError
from agentrt.core.ids import new_id
from agentrt.models.admission import AdmissionPool
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


@define
class _Told:
    """A sink that knows whether anything was told."""

    sink: DeltaSink
    anything: bool = field(default=False, init=False)

    def __call__(self, delta: Delta) -> None:
        self.anything = True
        self.sink(delta)


@frozen(kw_only=True)
class ProviderModel:
    """A `ChatModel` over one provider."""

    provider: Provider
    model_id: str
    options: Mapping[str, Any] = field(factory=dict)
    """For each call; those of the request win, save for values of None."""

    retry: RetryPolicy = field(factory=RetryPolicy)
    admission: AdmissionPool = field(factory=AdmissionPool)
    """By default this model's own; hand one pool to several to share it."""

    random: Callable[[], float] = field(default=random, repr=False)

    @property
    def ref(self) -> str:
        return f"{self.provider.name}/{self.model_id}"

    async def call(self, request: ChatRequest, context: Context) -> ChatResponse:
        given = {k: v for k, v in request.options.items() if v is not None}
        options = {"model": self.model_id, **self.options, **given}
        merged = evolve(request, options=options)
        told = None if context.on_delta is None else _Told(context.on_delta)
        message_id = context.message_id or new_id()

        async def attempt() -> ChatResponse:
            async with self.admission.permit(self.ref):
                response = await self.provider.call(
                    merged, message_id=message_id, sink=told
                )
            if _is_empty(response):
                raise EmptyCompletionError(
                    f"{self.ref} answered without any content "
                    f"(finish reason {response.finish_reason})",
                    provider=self.provider.name,
                )
            return response

        return await call_with_retry(
            attempt,
            policy=self.retry,
            may_repeat=lambda: told is None or not told.anything,
            random=self.random,
        )


def _is_empty(response: ChatResponse) -> bool:
    message = response.message
    has_content = bool(message.content) or bool(message.tool_calls)
    return not has_content and response.finish_reason not in MAY_BE_EMPTY
