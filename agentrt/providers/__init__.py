"""One call over the wire: the contracts."""

from agentrt.providers.base import HttpReply, HttpRequest, HttpTransport, Provider

__all__ = [
    "HttpReply",
    "HttpRequest",
    "HttpTransport",
    "Provider",
]
