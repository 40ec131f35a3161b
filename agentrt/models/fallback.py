"""`FallbackModel`: the next model when this one cannot.

Each model has its own retries; what is left after those decides, by the error's
`switchable`. Once a delta was told there is no switching: the reader would get two
beginnings. A cancellation never switches.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Any

from attrs import define, evolve, field, frozen

from agentrt.core.chat import ChatRequest, ChatResponse, Delta, FallbackReport
from agentrt.core.context import Context
from agentrt.core.errors import ModelError, describe, public_words
from agentrt.core.messages import without_blocks
from agentrt.events.types import ModelSwitched
from agentrt.models.base import ChatModel

__all__ = ["FallbackModel", "LazyModel"]

logger = logging.getLogger(__name__)


@frozen
class LazyModel:
    """A model for a fallback chain that is made when it is needed, at most once."""

    ref: str
    create: Callable[[], ChatModel]
    """What it raises is this model's failure: the next one is tried."""


@define
class FallbackModel:
    """A `ChatModel` that asks the first of its models that can answer.

    When another vendor takes over, blocks that are not its own are left out and the
    request's `model` option with them. The response tells in `fallback` what was
    tried; so does the last error, in `fallback` and in its notes.
    """

    _models: Sequence[ChatModel | LazyModel]
    _made: dict[int, ChatModel] = field(factory=dict, init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        if not self._models:
            raise ValueError("a FallbackModel needs at least one model, got none")

    @property
    def ref(self) -> str:
        """That of the first model."""
        return self._models[0].ref

    async def call(self, request: ChatRequest, context: Context) -> ChatResponse:
        failures: list[tuple[str, str]] = []
        told = False
        sink = context.on_delta

        def note(delta: Delta) -> None:
            nonlocal told
            told = True
            if sink is not None:
                sink(delta)

        noting = context if sink is None else evolve(context, on_delta=note)
        last = len(self._models) - 1
        for index, entry in enumerate(self._models):
            try:
                model = self._make(index)
            except Exception as error:
                # Whatever a constructor raises is this one model's failure.
                failures.append((entry.ref, describe(error)))
                if index == last:
                    _add_report(error, failures)
                    raise
                self._tell_switch(index, error, context)
                continue
            try:
                response = await model.call(self._request(index, request), noting)
            except ModelError as error:
                failures.append((entry.ref, describe(error)))
                if index == last or told or not error.switchable:
                    _add_report(error, failures)
                    raise
                self._tell_switch(index, error, context)
                continue
            report = FallbackReport(answered_by=entry.ref, failures=tuple(failures))
            return evolve(response, fallback=report)
        raise AssertionError("the last model answers or raises")

    def _tell_switch(self, index: int, error: Exception, context: Context) -> None:
        here, there = (self._models[place].ref for place in (index, index + 1))
        logger.warning("%s failed, asking %s: %s", here, there, describe(error))
        if context.emit is not None:
            context.emit(
                ModelSwitched(
                    message_id=context.message_id,
                    from_ref=here,
                    to_ref=there,
                    error=public_words(error),
                    error_code=getattr(error, "code", "internal"),
                )
            )

    def _make(self, index: int) -> ChatModel:
        entry = self._models[index]
        if not isinstance(entry, LazyModel):
            return entry
        if index not in self._made:
            self._made[index] = entry.create()
        return self._made[index]

    def _request(self, index: int, request: ChatRequest) -> ChatRequest:
        """The request as model number `index` may see it."""
        if index == 0:
            return request
        options: dict[str, Any] = dict(request.options)
        options.pop("model", None)
        messages = request.messages
        if _vendor(self._models[index].ref) != _vendor(self.ref):
            messages = without_blocks(messages)
        return evolve(request, options=options, messages=messages)


def _vendor(ref: str) -> str:
    return ref.partition("/")[0]


def _add_report(error: BaseException, failures: Sequence[tuple[str, str]]) -> None:
    if isinstance(error, ModelError):
        error.fallback = FallbackReport(answered_by=None, failures=tuple(failures))
    if len(failures) > 1:
        lines = "; ".join(f"{ref}: {text}" for ref, text in failures)
        error.add_note(f"models tried, in order: {lines}")
