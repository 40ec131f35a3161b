"""The AG-UI frontend protocol; knows no engine."""

from agentrt.agui.codec import (
    PROTOCOL_VERSION,
    Dialect,
    Json,
    encode,
    encode_interrupt,
    encode_messages,
    encode_resync,
)
from agentrt.agui.intake import RunInput, dialect_of, read_decision, read_run_input

__all__ = [
    "PROTOCOL_VERSION",
    "Dialect",
    "Json",
    "RunInput",
    "dialect_of",
    "encode",
    "encode_interrupt",
    "encode_messages",
    "encode_resync",
    "read_decision",
    "read_run_input",
]
