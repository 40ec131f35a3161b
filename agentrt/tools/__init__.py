"""What a model may call."""

from agentrt.tools.arguments import ArgumentChecker, Checked, schema_fault
from agentrt.tools.base import Tool, ToolResult, tool
from agentrt.tools.registry import ToolRegistry
from agentrt.tools.signature import Param, Signature, read_signature

__all__ = [
    "ArgumentChecker",
    "Checked",
    "Param",
    "Signature",
    "Tool",
    "ToolRegistry",
    "ToolResult",
    "read_signature",
    "schema_fault",
    "tool",
]
