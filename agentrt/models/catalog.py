"""`open_model("vendor/model-id")`: a model by its reference.

The vendor is found by entry point, so that a provider is a package of its own or one
file, and nothing here imports one.
"""

import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final

from attrs import field, frozen

from agentrt.core.errors import ModelReferenceError
from agentrt.models.admission import AdmissionPool
from agentrt.models.base import ChatModel
from agentrt.models.chat_model import ProviderModel
from agentrt.models.fallback import FallbackModel, LazyModel
from agentrt.models.limits import ModelCatalog, split_ref
from agentrt.models.retry import RetryPolicy

__all__ = ["ModelSettings", "open_chain", "open_model"]

PROVIDERS: Final = "agentrt.providers"
"""Openers of a `Provider`."""

MODELS: Final = "agentrt.models"
"""Openers of a whole `ChatModel`, for what has no wire."""


@frozen(kw_only=True)
class ModelSettings:
    """How a model from a vendor is used."""

    base_url: str | None = None
    """In place of the vendor's own."""

    api_key: str | Callable[[], str] | None = field(default=None, repr=False)
    """In place of the environment's. A function is asked before each call."""

    options: Mapping[str, Any] = field(factory=dict)
    """For each call, as `temperature`."""

    retry: RetryPolicy = field(factory=RetryPolicy)
    admission: AdmissionPool = field(factory=AdmissionPool)


@asynccontextmanager
async def open_model(
    ref: str,
    settings: ModelSettings | None = None,
    *,
    environ: Mapping[str, str] = os.environ,
) -> AsyncIterator[ChatModel]:
    """The model that `ref` names, as `openai/gpt-4o-mini`, for the length of the block.

    Owns the HTTP client, if the vendor needs one. Keys come from the settings or from
    the vendor's environment variable.

    Raises:
        ModelReferenceError: the reference has the wrong form, or nobody knows the
            vendor.
    """
    settings = settings or ModelSettings()
    vendor, model_id = split_ref(ref)
    known = {entry.name: entry for entry in entry_points(group=PROVIDERS)}
    whole = {entry.name: entry for entry in entry_points(group=MODELS)}
    if vendor in whole:
        async with whole[vendor].load()(model_id) as model:
            yield model
        return
    opener = _find(vendor, known, sorted({*known, *whole}))
    async with opener(
        model_id,
        base_url=settings.base_url,
        api_key=settings.api_key,
        environ=environ,
    ) as provider:
        yield ProviderModel(
            provider=provider,
            model_id=model_id,
            options=settings.options,
            retry=settings.retry,
            admission=settings.admission,
        )


@asynccontextmanager
async def open_chain(
    ref: str,
    catalog: ModelCatalog,
    settings: Mapping[str, ModelSettings] | None = None,
    *,
    environ: Mapping[str, str] = os.environ,
) -> AsyncIterator[FallbackModel]:
    """The model that `ref` names, with those that stand in for it by the catalog.

    Settings are given by reference, or by vendor for all of its models. A model that
    cannot be opened, as for a key or a package that is missing, counts as one that
    failed: the next is asked.

    Raises:
        ModelReferenceError: a reference has the wrong form.
    """
    given = settings or {}
    models: list[ChatModel | LazyModel] = []
    async with AsyncExitStack() as stack:
        for each in catalog.fallback_chain(ref):
            vendor, _ = split_ref(each)
            own = given.get(each) or given.get(vendor)
            opening = open_model(each, own, environ=environ)
            try:
                models.append(await stack.enter_async_context(opening))
            except Exception as error:  # noqa: BLE001  it is this one model's failure
                models.append(LazyModel(each, partial(_raise, error)))
        yield FallbackModel(models)


def _raise(error: Exception) -> ChatModel:
    raise error


def _find(vendor: str, known: Mapping[str, EntryPoint], names: list[str]) -> Any:
    if vendor not in known:
        raise ModelReferenceError(
            f"no vendor is named {vendor!r}; installed are {', '.join(names)}"
        )
    return known[vendor].load()
