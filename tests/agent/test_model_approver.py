"""A model as approver: what it is shown, what it allows, and that it fails closed."""

import json
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from agentrt.agent.agent import Agent
from agentrt.agent.approvers import Approval, Question
from agentrt.agent.model_approver import Evidence, model_approver, read_judgment
from agentrt.core.chat import Usage
from agentrt.core.context import Context
from agentrt.core.errors import ServerError
from agentrt.core.messages import Message, ToolCall, UserMessage
from agentrt.core.outcomes import Approve, Decision, Deny, TurnCompleted
from agentrt.filters.base import ToolRequest
from agentrt.testing import Say, ScriptedModel, call
from agentrt.tools.base import tool


@pytest.fixture(autouse=True)
def _quiet() -> None:
    logging.getLogger("agentrt").setLevel(logging.CRITICAL)


@tool(sensitive=True)
async def delete(path: str) -> str:
    """Delete a file for good."""
    await trio.lowlevel.checkpoint()
    return f"deleted {path}"


def judgment(**fields: Any) -> str:
    return json.dumps(
        {
            "risk": "low",
            "authorization": "high",
            "outcome": "allow",
            "rationale": "the user asked for it",
            **fields,
        }
    )


async def decide(
    *answers: Any,
    arguments: Any = None,
    said: Sequence[Message] = (),
    history: Callable[[], Awaitable[Sequence[Message]]] | None = None,
    **options: Any,
) -> tuple[Decision | None, ScriptedModel]:
    model = ScriptedModel(answers)

    async def all_said() -> Sequence[Message]:
        await trio.lowlevel.checkpoint()
        return said

    given = arguments or {"path": "/x"}
    request = ToolRequest(
        call=ToolCall(id="d", name="delete", arguments=given), tool=delete
    )
    question = Question(
        request=request,
        reason="'delete' needs your approval",
        context=Context(conversation_id="c"),
        history=history or all_said,
    )
    return await model_approver(model, **options)(question), model


@pytest.mark.parametrize(
    ("answer", "decision"),
    [
        (judgment(), Approve()),
        (f"```json\n{judgment()}\n```", Approve()),
        (judgment(risk="high"), Approve()),
        (judgment(risk="critical"), Deny(reason="the user asked for it")),
        (judgment(outcome="deny", rationale="no"), Deny(reason="no")),
        (judgment(outcome="deny", rationale=""), Deny(reason="its risk is low")),
    ],
)
async def test_a_judgment_is_followed_up_to_a_risk(
    answer: str, decision: Decision
) -> None:
    assert (await decide(answer))[0] == decision


async def test_the_highest_risk_is_set() -> None:
    made, _ = await decide(judgment(risk="medium"), max_risk="low")
    assert isinstance(made, Deny)
    with pytest.raises(ValueError, match="max_risk is 'some', expected one of low"):
        model_approver(ScriptedModel([]), max_risk="some")


def crash(error: Exception) -> Say:
    """A model that has a bug."""

    async def fail() -> None:
        await trio.lowlevel.checkpoint()
        raise error

    return Say(before=fail)


FAILURES = [
    "",
    "I allow it.",
    "null",
    "[]",
    judgment(outcome="ALLOW"),
    judgment(outcome=True),
    judgment(risk="none"),
    judgment(authorization=None),
    judgment(rationale=7),
    judgment() + judgment(),
    ServerError("down"),
    crash(KeyError("a bug in the judge")),
    crash(RuntimeError("sk-SECRET")),
    crash(MemoryError()),
    crash(ExceptionGroup("of a nursery", [OSError("sk-SECRET")])),
]


@pytest.mark.parametrize("answer", FAILURES)
async def test_whatever_fails_is_a_denial(answer: Any) -> None:
    """P6"""
    made, _ = await decide(answer)
    assert isinstance(made, Deny)
    assert made.reason.startswith("the approval of it failed: ")
    assert "SECRET" not in made.reason


async def test_a_history_that_cannot_be_read_is_a_denial() -> None:
    """P6: the next approver is not asked."""

    async def history() -> Sequence[Message]:
        await trio.lowlevel.checkpoint()
        raise OSError("sk-SECRET")

    made, model = await decide(judgment(), history=history)
    assert made == Deny(reason="the approval of it failed: OSError")
    assert model.requests == []


async def test_a_judge_that_crashes_lets_nobody_else_approve() -> None:
    """P6"""

    async def approve_all(question: Question) -> Decision:
        await trio.lowlevel.checkpoint()
        return Approve()

    judge = model_approver(ScriptedModel([crash(KeyError("sk-SECRET"))]))
    agent = Agent(
        model=ScriptedModel([call("delete", path="/x"), "done"]),
        tools=[delete],
        approval=Approval(approvers=[judge, approve_all]),
    )
    outcome = await agent.run("go")
    assert [each.status for each in outcome.calls] == ["denied"]
    assert "SECRET" not in str(outcome.calls[0].content)


@pytest.mark.parametrize("answer", FAILURES)
async def test_or_it_is_left_to_the_next_who_decides(answer: Any) -> None:
    made, _ = await decide(answer, abstain_on_failure=True)
    assert made is None


async def test_a_model_that_takes_too_long_has_denied(
    autojump_clock: trio.testing.MockClock,
) -> None:
    made, _ = await decide(Say(before=trio.sleep_forever))
    assert made == Deny(reason="the approval of it failed: it took too long")


@given(st.text())
def test_no_text_breaks_the_reader(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_judgment(text)


async def test_it_is_shown_the_call_and_the_newest_messages() -> None:
    said = [UserMessage(content=f"word {number} " + "x" * 300) for number in range(50)]
    limits = Evidence(conversation_tokens=500, message_tokens=60)
    _, model = await decide(judgment(), said=said, evidence=limits)
    (asked,) = model.requests
    text = asked.messages[0].text
    assert '"path": "/x"' in text
    assert "Delete a file for good." in text
    assert "word 49" in text
    assert "word 0" not in text
    assert "(older messages are left out)" in text
    assert len(text) < 500 * 4 + 1000
    assert asked.tools == ()


async def test_a_call_that_cannot_be_shown_whole_is_denied_unasked() -> None:
    """What is left out could be what matters."""
    arguments = {"path": "/x" * 10_000}
    made, model = await decide(judgment(), arguments=arguments)
    assert model.requests == []
    assert made == Deny(
        reason="the approval of it failed: its arguments have more than 2000 tokens"
    )


async def test_a_turn_accounts_for_what_its_approver_used() -> None:
    used = Usage(provider="scripted", model="judge", total_tokens=7)
    judge = ScriptedModel([Say(text=judgment(), usage=used)], "scripted/judge")
    agent = Agent(
        model=ScriptedModel([call("delete", path="/x"), "done"]),
        tools=[delete],
        approval=Approval(approvers=[model_approver(judge)]),
    )
    outcome = await agent.run("delete /x")
    assert isinstance(outcome, TurnCompleted)
    assert [each.status for each in outcome.calls] == ["ok"]
    assert [each.total_tokens for each in outcome.usage] == [7]
