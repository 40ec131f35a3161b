"""Transports: bytes in, bytes out."""

from agentrt.servers.base import (
    MAX_BODY_BYTES,
    MAX_FRAME_BYTES,
    Disconnects,
    OriginPolicy,
    error_body,
    open_disconnects,
)

__all__ = [
    "MAX_BODY_BYTES",
    "MAX_FRAME_BYTES",
    "Disconnects",
    "OriginPolicy",
    "error_body",
    "open_disconnects",
]
