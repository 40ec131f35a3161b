"""A provider that does what a test wrote, one step for each attempt."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

import trio
from attrs import define, field

from agentrt.core.chat import ChatRequest, ChatResponse, DeltaSink, TextDelta
from agentrt.core.messages import AssistantMessage

Step: TypeAlias = str | Exception | ChatResponse | Callable[[], Awaitable[Any]]


@define
class StepProvider:
    """A `Provider`: a text streams and is the answer, an error is raised."""

    steps: list[Step]
    name: str = "steps"
    requests: list[ChatRequest] = field(factory=list, init=False)

    async def call(
        self, request: ChatRequest, *, message_id: str, sink: DeltaSink | None = None
    ) -> ChatResponse:
        await trio.lowlevel.checkpoint()
        self.requests.append(request)
        step = self.steps.pop(0)
        if isinstance(step, Exception):
            raise step
        if isinstance(step, ChatResponse):
            return step
        text = step if isinstance(step, str) else await step()
        if sink is not None and text:
            sink(TextDelta(text=text))
        return ChatResponse(message=AssistantMessage(id=message_id, content=text))

    @property
    def options(self) -> Sequence[Any]:
        return [request.options for request in self.requests]
