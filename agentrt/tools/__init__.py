"""What a model may call."""

from agentrt.tools.arguments import ArgumentChecker, Checked, schema_fault
from agentrt.tools.base import (
    NestedAgents,
    Tool,
    ToolHints,
    ToolResult,
    ToolRetry,
    ToolSuspended,
    tool,
)
from agentrt.tools.failures import failure_kind
from agentrt.tools.registry import ToolRegistry
from agentrt.tools.signature import Param, Signature, read_signature

__all__ = [
    "ArgumentChecker",
    "Checked",
    "NestedAgents",
    "Param",
    "Signature",
    "Tool",
    "ToolHints",
    "ToolRegistry",
    "ToolResult",
    "ToolRetry",
    "ToolSuspended",
    "failure_kind",
    "read_signature",
    "schema_fault",
    "tool",
]
