"""The turn, its iterations, pause and resume."""

from agentrt.agent.agent import DEFAULT_MAX_ITERATIONS, Agent
from agentrt.agent.approval import (
    ApprovalPolicy,
    Ruling,
    Verdict,
    rule,
    sensitive_policy,
)
from agentrt.agent.client import ChatClient
from agentrt.agent.loop import Loop
from agentrt.agent.pause import Answered, apply_answers, check_answers

__all__ = [
    "DEFAULT_MAX_ITERATIONS",
    "Agent",
    "Answered",
    "ApprovalPolicy",
    "ChatClient",
    "Loop",
    "Ruling",
    "Verdict",
    "apply_answers",
    "check_answers",
    "rule",
    "sensitive_policy",
]
