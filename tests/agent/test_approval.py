"""Rulings: the strictest wins, and whatever goes wrong asks a person."""

import logging
from collections.abc import Sequence
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from agentrt.agent.agent import Agent
from agentrt.agent.approval import (
    Rule,
    Ruling,
    Verdict,
    rule,
    rules_policy,
    sensitive_policy,
)
from agentrt.agent.approvers import Approval
from agentrt.core.context import Context
from agentrt.core.messages import ToolCall
from agentrt.core.outcomes import TurnPaused
from agentrt.filters.base import ToolRequest
from agentrt.testing import ScriptedModel, call, trio_property
from agentrt.tools.base import Tool, tool

CONTEXT = Context(conversation_id="c")


@pytest.fixture(autouse=True)
def _quiet() -> None:
    logging.getLogger("agentrt").setLevel(logging.CRITICAL)


@tool
def harmless() -> None:
    """Do nothing."""


@tool(sensitive=True)
def delete() -> None:
    """Delete."""


def request(of: Tool) -> ToolRequest:
    return ToolRequest(call=ToolCall(id="a", name=of.name), tool=of)


def says(verdict: Verdict, reason: str = "") -> Any:
    return lambda request, context: Ruling(verdict, reason)


@given(st.lists(st.sampled_from(Verdict)))
@trio_property
async def test_the_strictest_wins_and_among_equals_the_first(
    verdicts: Sequence[Verdict],
) -> None:
    policies = [says(verdict, str(place)) for place, verdict in enumerate(verdicts)]
    ruling = await rule(policies, request(harmless), CONTEXT)
    strictest = max(verdicts, default=Verdict.ALLOW)
    assert ruling.verdict is strictest
    if strictest is not Verdict.ALLOW:
        assert ruling.reason == str(verdicts.index(strictest))


async def test_a_sensitive_tool_asks_also_where_another_policy_allows() -> None:
    """B55"""
    policies = [says(Verdict.ALLOW), sensitive_policy]
    assert await rule(policies, request(delete), CONTEXT) == Ruling(
        Verdict.ASK, "'delete' needs your approval"
    )
    ruling = await rule(policies, request(harmless), CONTEXT)
    assert ruling.verdict is Verdict.ALLOW


def fails(request: ToolRequest, context: Context) -> Ruling:
    raise KeyError("rules")


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        (fails, "KeyError"),
        (lambda request, context: None, "it gave None, expected a Ruling"),
        (lambda request, context: True, "it gave True, expected a Ruling"),
    ],
)
async def test_a_policy_that_fails_asks(policy: Any, words: str) -> None:
    """P6, X19"""
    ruling = await rule([policy], request(harmless), CONTEXT)
    assert ruling.verdict is Verdict.ASK
    assert words in ruling.reason


async def test_a_policy_that_fails_allows_nothing_that_another_forbids() -> None:
    ruling = await rule([fails, says(Verdict.FORBID)], request(harmless), CONTEXT)
    assert ruling.verdict is Verdict.FORBID


async def test_a_policy_knows_the_name_and_the_checked_arguments() -> None:
    """B56: the name is text."""
    seen: list[tuple[str, Any]] = []

    def look(request: ToolRequest, context: Context) -> Ruling:
        seen.append((request.name, request.call.arguments))
        return Ruling(Verdict.ALLOW)

    await rule([look], request(harmless), CONTEXT)
    assert seen == [("harmless", {})]


@pytest.mark.parametrize("verdict", ["ask", 1, True, None])
async def test_a_verdict_that_is_none_is_refused_and_asks(verdict: Any) -> None:
    words = "expected one of Verdict.ALLOW, Verdict.ASK, Verdict.FORBID"
    with pytest.raises(TypeError, match=words):
        Ruling(verdict)
    with pytest.raises(TypeError, match=words):
        Rule(tool="harmless", verdict=verdict)
    with pytest.raises(TypeError, match=words):
        rules_policy([], otherwise=verdict)
    ruling = await rule([says(verdict)], request(harmless), CONTEXT)
    assert ruling.verdict is Verdict.ASK


def test_a_pattern_that_is_none_is_refused_by_name() -> None:
    words = r"the pattern for the argument 'path' is '\(': missing \)"
    with pytest.raises(ValueError, match=words):
        Rule(tool="read", arguments={"path": "("}, verdict=Verdict.FORBID)


@pytest.mark.parametrize("kind", ["policy", "approver"])
async def test_why_one_failed_is_in_the_log_and_not_told(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def fails(*_: Any) -> Any:
        await trio.lowlevel.checkpoint()
        raise OSError("the secret host is down")

    caplog.set_level(logging.ERROR, "agentrt")
    approval: Any = Approval(approvers=[fails]) if kind == "approver" else fails
    model = ScriptedModel([call("delete", id="a")])
    made = Agent(model=model, tools=[delete], approval=approval)
    outcome = await made.run("go")
    assert isinstance(outcome, TurnPaused)
    assert "secret" not in outcome.interrupts[0].reason
    assert "OSError: the secret host is down" in caplog.text
