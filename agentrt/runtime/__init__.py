"""Sessions, runs, subscriptions."""

from agentrt.runtime.phases import NEXT_PHASE, Action, Phase, next_phase
from agentrt.runtime.registry import DEFAULT_AGENT, AgentRegistry, Agents
from agentrt.runtime.run import DEFAULT_OPTIONS, Run, RunOptions
from agentrt.runtime.runtime import Runtime, open_runtime
from agentrt.runtime.session import Session, SessionStatus
from agentrt.runtime.subscriptions import BATCH, Reading, Subscription

__all__ = [
    "BATCH",
    "DEFAULT_AGENT",
    "DEFAULT_OPTIONS",
    "NEXT_PHASE",
    "Action",
    "AgentRegistry",
    "Agents",
    "Phase",
    "Reading",
    "Run",
    "RunOptions",
    "Runtime",
    "Session",
    "SessionStatus",
    "Subscription",
    "next_phase",
    "open_runtime",
]
