"""What a model may call."""

from agentrt.tools.arguments import ArgumentChecker, Checked, schema_fault
from agentrt.tools.base import Tool, ToolHints, ToolResult, ToolRetry, tool
from agentrt.tools.failures import failure_kind
from agentrt.tools.registry import ToolRegistry
from agentrt.tools.signature import Param, Signature, read_signature

__all__ = [
    "ArgumentChecker",
    "Checked",
    "Param",
    "Signature",
    "Tool",
    "ToolHints",
    "ToolRegistry",
    "ToolResult",
    "ToolRetry",
    "failure_kind",
    "read_signature",
    "schema_fault",
    "tool",
]
