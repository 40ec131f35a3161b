"""Who may run a tool: a policy rules on each call before it runs.

The strictest ruling wins, and whatever goes wrong asks a person: nothing that a human
must decide is decided by silence.
"""

import logging
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import TypeAlias

from attrs import frozen

from agentrt.core.context import Context
from agentrt.core.errors import describe
from agentrt.filters.base import ToolRequest

__all__ = ["ApprovalPolicy", "Ruling", "Verdict", "rule", "sensitive_policy"]

logger = logging.getLogger(__name__)


class Verdict(IntEnum):
    """From the mildest to the strictest."""

    ALLOW = 0
    ASK = 1
    FORBID = 2


@frozen
class Ruling:
    verdict: Verdict
    reason: str = ""
    """For a person to read, or for the model where the call is forbidden."""


ApprovalPolicy: TypeAlias = Callable[[ToolRequest, Context], Ruling]
"""Plain and quick. An exception from it counts as `ASK`."""

ALLOW = Ruling(Verdict.ALLOW)


def sensitive_policy(request: ToolRequest, context: Context) -> Ruling:
    """Ask a person about each call of a tool that was declared sensitive."""
    if request.tool.sensitive:
        return Ruling(Verdict.ASK, f"{request.name!r} needs your approval")
    return ALLOW


def rule(
    policies: Sequence[ApprovalPolicy], request: ToolRequest, context: Context
) -> Ruling:
    """The strictest ruling of all policies; among equals, the first."""
    strictest = ALLOW
    for policy in policies:
        ruling = _ask_policy(policy, request, context)
        if ruling.verdict > strictest.verdict:
            strictest = ruling
    return strictest


def _ask_policy(
    policy: ApprovalPolicy, request: ToolRequest, context: Context
) -> Ruling:
    try:
        ruling = policy(request, context)
        if isinstance(ruling, Ruling):
            return ruling
        why = f"it gave {ruling!r}, expected a Ruling"
    except Exception as error:  # noqa: BLE001  a policy's failure must not allow a call
        why = describe(error)
    logger.error("the approval policy for %r failed: %s", request.name, why)
    return Ruling(
        Verdict.ASK, f"the approval policy for {request.name!r} failed: {why}"
    )
