"""agentrt: a runtime for LLM agents on Trio.

The names that most programs need. All else is in the packages beneath: a leaf, as
`agentrt.stores.sqlite`, is imported from its module.
"""

from agentrt.agent.agent import DEFAULT_MAX_ITERATIONS, Agent
from agentrt.agent.approval import Ruling, Verdict
from agentrt.agent.approvers import Approval
from agentrt.agent.client import ChatClient
from agentrt.core.context import Context, Slot
from agentrt.core.deadlines import Deadlines
from agentrt.core.errors import (
    AgentRTError,
    AnswerError,
    ModelError,
    NotPausedError,
    SessionBusyError,
    SessionPausedError,
    ToolError,
)
from agentrt.core.messages import (
    AssistantMessage,
    Message,
    SystemMessage,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from agentrt.core.options import TurnOptions
from agentrt.core.outcomes import (
    Approve,
    Decision,
    Deny,
    Interrupt,
    Reply,
    Retry,
    TurnCancelled,
    TurnCompleted,
    TurnFailed,
    TurnOutcome,
    TurnPaused,
)
from agentrt.events.types import Envelope, Resync, TerminalEvent
from agentrt.filters.base import (
    ChatCall,
    Filter,
    IterationCall,
    ToolUse,
    TurnCall,
    hook,
)
from agentrt.models.catalog import ModelSettings, open_model
from agentrt.models.fallback import FallbackModel
from agentrt.models.retry import RetryPolicy
from agentrt.runtime.run import Run, RunOptions
from agentrt.runtime.runtime import Runtime, open_runtime
from agentrt.tools.base import Tool, ToolResult, tool
from agentrt.tools.registry import ToolRegistry
from agentrt.tools.signature import Param

__all__ = [
    "DEFAULT_MAX_ITERATIONS",
    "Agent",
    "AgentRTError",
    "AnswerError",
    "Approval",
    "Approve",
    "AssistantMessage",
    "ChatCall",
    "ChatClient",
    "Context",
    "Deadlines",
    "Decision",
    "Deny",
    "Envelope",
    "FallbackModel",
    "Filter",
    "Interrupt",
    "IterationCall",
    "Message",
    "ModelError",
    "ModelSettings",
    "NotPausedError",
    "Param",
    "Reply",
    "Resync",
    "Retry",
    "RetryPolicy",
    "Ruling",
    "Run",
    "RunOptions",
    "Runtime",
    "SessionBusyError",
    "SessionPausedError",
    "Slot",
    "SystemMessage",
    "TerminalEvent",
    "Tool",
    "ToolCall",
    "ToolError",
    "ToolMessage",
    "ToolRegistry",
    "ToolResult",
    "ToolUse",
    "TurnCall",
    "TurnCancelled",
    "TurnCompleted",
    "TurnFailed",
    "TurnOptions",
    "TurnOutcome",
    "TurnPaused",
    "UserMessage",
    "Verdict",
    "hook",
    "open_model",
    "open_runtime",
    "tool",
]
