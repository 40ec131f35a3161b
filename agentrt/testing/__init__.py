"""The kit: what verifies agents, filters, stores and event streams, ours and yours."""

from agentrt.testing.audit import no_leftovers
from agentrt.testing.conformance import (
    check_chat_memory,
    check_chat_model,
    check_embedding_model,
    check_event_store,
    check_pause_store,
    check_provider,
)
from agentrt.testing.properties import TrioMachine, trio_property
from agentrt.testing.scripted import Say, ScriptedModel, call
from agentrt.testing.strategies import (
    contents,
    histories,
    json_objects,
    json_values,
    messages,
    scripts,
    texts,
    tool_calls,
)
from agentrt.testing.streams import check_stream, read_stream
from agentrt.testing.sweeps import SweepFailure, SweepReport, cancel_sweep

__all__ = [
    "Say",
    "ScriptedModel",
    "SweepFailure",
    "SweepReport",
    "TrioMachine",
    "call",
    "cancel_sweep",
    "check_chat_memory",
    "check_chat_model",
    "check_embedding_model",
    "check_event_store",
    "check_pause_store",
    "check_provider",
    "check_stream",
    "contents",
    "histories",
    "json_objects",
    "json_values",
    "messages",
    "no_leftovers",
    "read_stream",
    "scripts",
    "texts",
    "tool_calls",
    "trio_property",
]
