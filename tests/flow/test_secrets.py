"""What foreign code raises reaches no reader of events with its words.

They may hold a secret: a URL with a key, the address of a database.
"""

import logging
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, NoReturn

import pytest
import trio

from agentrt.agent.agent import Agent
from agentrt.core.chat import ChatRequest
from agentrt.filters.base import Filter, hook
from agentrt.models.fallback import FallbackModel, LazyModel
from agentrt.models.function import FunctionModel
from agentrt.runtime.runtime import open_runtime
from agentrt.stores.in_memory import InMemoryChatMemory
from agentrt.testing import ScriptedModel, call
from agentrt.tools.base import tool

SECRET = "sk-SECRET"


@pytest.fixture(autouse=True)
def _quiet() -> None:
    logging.getLogger("agentrt").setLevel(logging.CRITICAL)


def leak(*_: Any) -> NoReturn:
    raise RuntimeError(f"GET https://example.org/?key={SECRET} failed")


def answering(**options: Any) -> Agent:
    return Agent(model=ScriptedModel(["hi"]), **options)


def with_model() -> Agent:
    def answer(request: ChatRequest) -> str:
        leak()

    return Agent(model=FunctionModel(answer))


def with_lazy_model() -> Agent:
    return Agent(
        model=FallbackModel([LazyModel("a/b", leak), ScriptedModel(["hi"], "c/d")])
    )


def with_hook(kind: str) -> Callable[[], Agent]:
    @hook
    async def broken(call: Any) -> AsyncIterator[None]:
        await trio.lowlevel.checkpoint()
        leak()
        yield

    options: dict[str, Any] = {kind: broken}
    return lambda: answering(filters=[Filter(name="broken", **options)])


class LeakingMemory(InMemoryChatMemory):
    async def append(self, conversation_id: str, messages: Sequence[Any]) -> NoReturn:
        await trio.lowlevel.checkpoint()
        leak()


@tool(fatal=True)
async def fatal() -> None:
    """End the run."""
    await trio.lowlevel.checkpoint()
    leak()


PLACES: dict[str, Callable[[], Agent]] = {
    "model": with_model,
    "lazy model": with_lazy_model,
    "chat hook": with_hook("chat"),
    "iteration hook": with_hook("iteration"),
    "turn hook": with_hook("turn"),
    "memory": lambda: answering(memory=LeakingMemory()),
    "fatal tool": lambda: Agent(model=ScriptedModel([call("fatal")]), tools=[fatal]),
}


@pytest.mark.parametrize("place", PLACES)
async def test_no_event_has_the_words_of_a_foreign_error(place: str) -> None:
    async with open_runtime(PLACES[place]()) as runtime:
        run = await runtime.start_run("c", "go")
        await run.wait()
        told = runtime._events.ring("c").after(0, limit=1000)
        assert told
        for envelope in told:
            assert SECRET not in repr(envelope)
