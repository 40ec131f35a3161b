"""Opening a model by its reference: vendors are found by entry point."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from agentrt.core.chat import ChatRequest
from agentrt.core.context import Context
from agentrt.core.errors import AuthenticationError, ModelReferenceError
from agentrt.core.messages import UserMessage
from agentrt.events.types import ModelSwitched
from agentrt.models.catalog import ModelSettings, open_chain, open_model
from agentrt.models.chat_model import ProviderModel
from agentrt.models.function import FunctionModel
from agentrt.models.limits import ModelCatalog, ModelSpec
from agentrt.models.retry import RetryPolicy
from tests.models.providers import StepProvider

ENTRY_POINTS = """\
[agentrt.providers]
steps = tests.models.test_catalog:open_steps

[agentrt.models]
whole = tests.models.test_catalog:open_whole
broken = tests.models.test_catalog:open_broken
"""

OPENED: list[Any] = []
FAILURES: list[Exception] = []


@asynccontextmanager
async def open_steps(model_id: str, **settings: Any) -> AsyncIterator[StepProvider]:
    await trio.lowlevel.checkpoint()
    OPENED.append((model_id, settings))
    yield StepProvider(["hi"])
    OPENED.append("closed")


@asynccontextmanager
async def open_whole(model_id: str) -> AsyncIterator[FunctionModel]:
    await trio.lowlevel.checkpoint()
    yield FunctionModel(lambda request: "whole", ref=f"whole/{model_id}")


@asynccontextmanager
async def open_broken(model_id: str) -> AsyncIterator[FunctionModel]:
    await trio.lowlevel.checkpoint()
    raise FAILURES.pop()
    yield


@pytest.fixture(autouse=True)
def _installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package that brings a vendor, as an installed one would."""
    folder = tmp_path / "steps-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: steps\nVersion: 1.0\n"
    )
    (folder / "entry_points.txt").write_text(ENTRY_POINTS)
    monkeypatch.syspath_prepend(tmp_path)
    OPENED.clear()


async def test_a_provider_is_opened_with_settings_and_closed() -> None:
    settings = ModelSettings(base_url="https://x.org", api_key="k", options={"a": 1})
    async with open_model("steps/org/big", settings, environ={"E": "1"}) as model:
        assert isinstance(model, ProviderModel)
        assert model.ref == "steps/org/big"
        assert model.options == {"a": 1}
        assert model.retry is settings.retry
        assert model.admission is settings.admission
    told = {"base_url": "https://x.org", "api_key": "k", "environ": {"E": "1"}}
    assert [("org/big", told), "closed"] == OPENED


async def test_a_whole_model_needs_no_provider() -> None:
    async with open_model("whole/x") as model:
        assert model.ref == "whole/x"


async def test_the_offline_model_is_always_there() -> None:
    async with open_model("offline/demo") as model:
        request = ChatRequest(messages=[UserMessage(content="hello")])
        response = await model.call(request, Context(conversation_id="c"))
    assert response.message.text.startswith("Hello!")


async def test_a_vendor_that_nobody_knows_is_named_with_those_that_are() -> None:
    with pytest.raises(ModelReferenceError) as caught:
        async with open_model("nobody/x"):
            pass
    words = str(caught.value)
    assert "no vendor is named 'nobody'" in words
    for name in ("offline", "openai", "openai-compatible", "steps", "whole"):
        assert name in words


async def test_a_reference_without_a_vendor_is_refused() -> None:
    with pytest.raises(ModelReferenceError, match="expected 'vendor/model-id'"):
        async with open_model("gpt"):
            pass


def test_a_key_is_not_shown() -> None:
    assert "secret" not in repr(ModelSettings(api_key="secret"))


CATALOG = ModelCatalog(
    [
        ModelSpec(ref="steps/one", fallbacks=["nobody/two", "whole/three"]),
        ModelSpec(ref="whole/three", fallbacks=["steps/one"]),
    ]
)


async def test_a_chain_is_opened_from_the_catalog() -> None:
    """Settings go by reference or vendor; each model once, nearest first."""
    settings = {
        "steps": ModelSettings(options={"a": 1}, retry=RetryPolicy(max_retries=0))
    }
    events: list[Any] = []
    async with open_chain("steps/one", CATALOG, settings, environ={}) as chain:
        assert chain.ref == "steps/one"
        context = Context(conversation_id="c", emit=events.append)
        request = ChatRequest(messages=[UserMessage(content="hi")])
        assert (await chain.call(request, context)).message.text == "hi"
        assert events == []
    assert OPENED[-1] == "closed"


async def test_a_model_of_a_chain_that_cannot_be_opened_is_passed_over() -> None:
    catalog = ModelCatalog([ModelSpec(ref="nobody/x", fallbacks=["whole/three"])])
    events: list[Any] = []
    async with open_chain("nobody/x", catalog) as chain:
        context = Context(conversation_id="c", emit=events.append, message_id="m")
        request = ChatRequest(messages=[UserMessage(content="hi")])
        response = await chain.call(request, context)
    assert response.message.text == "whole"
    assert response.fallback is not None
    assert response.fallback.answered_by == "whole/three"
    (switched,) = events
    assert isinstance(switched, ModelSwitched)
    assert (switched.from_ref, switched.to_ref) == ("nobody/x", "whole/three")
    assert "no vendor is named 'nobody'" in switched.error


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ModuleNotFoundError("pip install it"), "ModuleNotFoundError"),
        (KeyError("sk-SECRET"), "KeyError"),
        (OSError("no such file"), "OSError"),
        (AuthenticationError("no key is set"), "no key is set"),
        (ExceptionGroup("g", [ValueError("sk-SECRET")]), "ValueError"),
    ],
)
async def test_whatever_opening_raises_is_that_models_failure(
    error: Exception, told: str
) -> None:
    FAILURES.append(error)
    catalog = ModelCatalog([ModelSpec(ref="broken/x", fallbacks=["whole/three"])])
    events: list[Any] = []
    async with open_chain("broken/x", catalog) as chain:
        context = Context(conversation_id="c", emit=events.append, message_id="m")
        request = ChatRequest(messages=[UserMessage(content="hi")])
        response = await chain.call(request, context)
    assert response.message.text == "whole"
    (switched,) = events
    assert switched.error == told


async def test_a_chain_that_has_only_what_cannot_be_opened_raises_why() -> None:
    FAILURES.append(ModuleNotFoundError("pip install it"))
    async with open_chain("broken/x", ModelCatalog()) as chain:
        request = ChatRequest(messages=[UserMessage(content="hi")])
        with pytest.raises(ModuleNotFoundError, match="pip install it"):
            await chain.call(request, Context(conversation_id="c"))


async def test_who_is_cancelled_while_a_chain_opens_is_cancelled() -> None:
    with trio.CancelScope() as scope:
        scope.cancel()
        async with open_chain("whole/x", ModelCatalog()):
            raise AssertionError("it was opened")
    assert scope.cancelled_caught


async def test_a_reference_without_a_vendor_in_a_chain_is_refused() -> None:
    """Though there are settings for it."""
    with pytest.raises(ModelReferenceError, match="expected 'vendor/model-id'"):
        async with open_chain("gpt", ModelCatalog(), {"gpt": ModelSettings()}):
            pass


async def test_a_chain_whose_reference_has_no_vendor_is_refused() -> None:
    with pytest.raises(ModelReferenceError, match="expected 'vendor/model-id'"):
        async with open_chain("gpt", ModelCatalog()):
            pass
