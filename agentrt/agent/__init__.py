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
from agentrt.agent.history import (
    ABANDONED,
    CUT,
    NOT_STARTED,
    call_ids,
    denied_text,
    find_history_faults,
    mend,
    synthetic_result,
    unanswered_calls,
)
from agentrt.agent.loop import Loop
from agentrt.agent.pause import Answered, apply_answers, check_answers

__all__ = [
    "ABANDONED",
    "CUT",
    "DEFAULT_MAX_ITERATIONS",
    "NOT_STARTED",
    "Agent",
    "Answered",
    "ApprovalPolicy",
    "ChatClient",
    "Loop",
    "Ruling",
    "Verdict",
    "apply_answers",
    "call_ids",
    "check_answers",
    "denied_text",
    "find_history_faults",
    "mend",
    "rule",
    "sensitive_policy",
    "synthetic_result",
    "unanswered_calls",
]
