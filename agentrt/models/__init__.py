"""One logical model call."""

from agentrt.models.admission import AdmissionPool
from agentrt.models.base import ChatModel
from agentrt.models.catalog import ModelSettings, open_chain, open_model
from agentrt.models.chat_model import ProviderModel
from agentrt.models.embedding import (
    EmbeddingModel,
    EmbeddingResponse,
    HashingEmbedding,
)
from agentrt.models.fallback import FallbackModel, LazyModel
from agentrt.models.function import FunctionModel, tell
from agentrt.models.limits import ModelCatalog, ModelSpec, split_ref
from agentrt.models.retry import RetryPolicy, call_with_retry

__all__ = [
    "AdmissionPool",
    "ChatModel",
    "EmbeddingModel",
    "EmbeddingResponse",
    "FallbackModel",
    "FunctionModel",
    "HashingEmbedding",
    "LazyModel",
    "ModelCatalog",
    "ModelSettings",
    "ModelSpec",
    "ProviderModel",
    "RetryPolicy",
    "call_with_retry",
    "open_chain",
    "open_model",
    "split_ref",
    "tell",
]
