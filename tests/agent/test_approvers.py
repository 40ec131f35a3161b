"""Approvers, and what is remembered of what they and people decided."""

import logging
from collections.abc import Sequence
from typing import Any

import pytest
import trio
import trio.testing
from attrs import define, field

from agentrt.agent.agent import Agent
from agentrt.agent.approval import Rule, Ruling, Verdict, hints_policy, rules_policy
from agentrt.agent.approvers import Approval, ApprovalCache, Breaker, Question
from agentrt.core.context import Context
from agentrt.core.deadlines import Deadlines
from agentrt.core.messages import ToolCall, ToolMessage
from agentrt.core.outcomes import Approve, Decision, Deny, Reply, TurnPaused
from agentrt.filters.base import ToolRequest
from agentrt.testing import ScriptedModel, call
from agentrt.tools.base import Tool, ToolHints, tool


@pytest.fixture(autouse=True)
def _quiet() -> None:
    logging.getLogger("agentrt").setLevel(logging.CRITICAL)


@define
class World:
    """A tool that asks, and what was asked."""

    ran: list[str] = field(factory=list)
    asked: list[Question] = field(factory=list)

    def agent(self, steps: Sequence[Any], **options: Any) -> Agent:
        @tool(sensitive=True)
        async def delete(path: str) -> str:
            """Delete."""
            await trio.lowlevel.checkpoint()
            self.ran.append(path)
            return f"deleted {path}"

        return Agent(model=ScriptedModel(steps), tools=[delete], **options)

    def says(self, decision: Any) -> Any:
        """An approver that takes down what it is asked."""

        async def approver(question: Question) -> Any:
            await trio.lowlevel.checkpoint()
            self.asked.append(question)
            if isinstance(decision, Exception):
                raise decision
            return decision

        return approver


def delete(path: str = "/x", id: str = "d") -> ToolCall:  # noqa: A002  its name
    return call("delete", id=id, path=path)


async def results(agent: Agent) -> Sequence[str]:
    history = await agent.history("c")
    return [message.text for message in history if isinstance(message, ToolMessage)]


@pytest.mark.parametrize(
    ("decision", "ran", "result"),
    [
        (Approve(), ["/x"], "deleted /x"),
        (Approve(arguments={"path": "/y"}), ["/y"], "deleted /y"),
        (Reply(content="it is gone already"), [], "it is gone already"),
        (Deny(reason="too dear"), [], "This call is not allowed: too dear"),
    ],
)
async def test_an_approver_decides_in_a_persons_place(
    decision: Decision, ran: Sequence[str], result: str
) -> None:
    world = World()
    approval = Approval(approvers=[world.says(decision)])
    agent = world.agent([delete(), "done"], approval=approval)
    await agent.run("go", conversation_id="c")
    assert (world.ran, await results(agent)) == (ran, [result])
    (question,) = world.asked
    assert question.reason == "'delete' needs your approval"
    words = [type(m).__name__ for m in await question.history()][:2]
    assert words == ["UserMessage", "AssistantMessage"]


async def test_arguments_that_an_approver_edits_are_checked_and_shown() -> None:
    """X22"""
    world = World()
    wrong = Approval(approvers=[world.says(Approve(arguments={"path": 7}))])
    agent = world.agent([delete(), "done"], approval=wrong)
    await agent.run("go", conversation_id="c")
    assert world.ran == []
    assert "$.path" in (await results(agent))[0]
    right = Approval(approvers=[world.says(Approve(arguments={"path": "/y"}))])
    agent = world.agent([delete(), "done"], approval=right)
    await agent.run("go", conversation_id="c")
    asks = (await agent.history("c"))[1]
    assert asks.tool_calls[0].arguments == {"path": "/y"}  # type: ignore[union-attr]


@pytest.mark.parametrize("silent", [None, True, "yes", ValueError("broken")])
async def test_who_gives_no_decision_leaves_it_to_the_next(silent: Any) -> None:
    """P6"""
    world = World()
    approvers = [world.says(silent), world.says(Approve())]
    agent = world.agent([delete(), "done"], approval=Approval(approvers=approvers))
    await agent.run("go", conversation_id="c")
    assert world.ran == ["/x"]
    agent = world.agent([delete(), "done"], approval=Approval(approvers=approvers[:1]))
    assert isinstance(await agent.run("go", conversation_id="c"), TurnPaused)


async def test_an_approver_is_not_asked_what_policies_decide() -> None:
    world = World()
    rules = [Rule(tool="delete", verdict=Verdict.FORBID, reason="never")]
    approval = Approval(
        policies=[rules_policy(rules)], approvers=[world.says(Approve())]
    )
    agent = world.agent([delete(), "done"], approval=approval)
    await agent.run("go", conversation_id="c")
    assert (world.ran, world.asked) == ([], [])
    assert await results(agent) == ["This call is not allowed: never"]


async def test_an_approver_that_takes_too_long_has_denied(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async def sleeper(question: Question) -> None:
        await trio.sleep_forever()

    world = World()
    agent = world.agent(
        [delete(), "done"],
        approval=Approval(approvers=[sleeper]),
        deadlines=Deadlines(human_seconds=5),
    )
    await agent.run("go", conversation_id="c")
    assert await results(agent) == [
        "This call is not allowed: the human deadline of 5 s fired before there was an "
        "answer"
    ]


@pytest.mark.parametrize(("late", "ran"), [(4.0, ["/x"]), (6.0, [])])
async def test_an_answer_after_the_human_deadline_is_a_denial(
    late: float, ran: Sequence[str]
) -> None:
    world, now = World(), [100.0]
    agent = world.agent(
        [delete(), "done"],
        deadlines=Deadlines(human_seconds=5),
        clock=lambda: now[0],
    )
    await agent.run("go", conversation_id="c")
    now[0] += late
    await agent.resume("c", {"d": Approve()})
    assert world.ran == ran


async def test_what_was_approved_for_good_is_asked_once() -> None:
    world = World()
    steps = [delete(), "ok", delete(id="e"), "ok", delete("/y", id="f"), "ok"]
    agent = world.agent(steps)
    assert isinstance(await agent.run("go", conversation_id="c"), TurnPaused)
    await agent.resume("c", {"d": Approve(remember=True)})
    await agent.run("again", conversation_id="c")
    assert world.ran == ["/x", "/x"]
    other = await agent.run("another path", conversation_id="c")
    assert isinstance(other, TurnPaused)


async def test_what_was_approved_is_not_approved_elsewhere() -> None:
    world = World()
    agent = world.agent([delete(), "ok", delete(id="e"), "ok"])
    await agent.run("go", conversation_id="c")
    await agent.resume("c", {"d": Approve(remember=True)})
    elsewhere = await agent.run("go", conversation_id="other")
    assert isinstance(elsewhere, TurnPaused)


async def test_an_edited_approval_stands_for_the_call_that_ran() -> None:
    world = World()
    agent = world.agent([delete(), "ok", delete("/y", id="e"), "ok"])
    await agent.run("go", conversation_id="c")
    edited = Approve(arguments={"path": "/y"}, remember=True)
    await agent.resume("c", {"d": edited})
    await agent.run("again", conversation_id="c")
    assert world.ran == ["/y", "/y"]


async def test_a_policy_may_want_to_be_asked_each_time() -> None:
    def strict(request: ToolRequest, context: Context) -> Ruling:
        return Ruling(Verdict.ASK, "each time", may_remember=False)

    @tool
    async def pay() -> str:
        """Pay."""
        await trio.lowlevel.checkpoint()
        return "paid"

    script: list[Any] = [call("pay", id="p"), "ok", call("pay", id="q"), "ok"]
    agent = Agent(model=ScriptedModel(script), tools=[pay], approval=strict)
    await agent.run("go", conversation_id="c")
    await agent.resume("c", {"p": Approve(remember=True)})
    assert isinstance(await agent.run("again", conversation_id="c"), TurnPaused)


def test_a_full_cache_asks_again_for_the_oldest() -> None:
    cache = ApprovalCache(max_approvals=2)
    calls = [delete(path) for path in ("/1", "/2", "/3")]
    for each in calls:
        cache.add("c", each)
    assert [cache.knows("c", each) for each in calls] == [False, True, True]
    cache.forget("c")
    assert not cache.knows("c", calls[2])


def test_the_order_of_arguments_does_not_matter() -> None:
    cache = ApprovalCache()
    cache.add("c", call("f", a=1, b={"x": 1, "y": 2}))
    assert cache.knows("c", call("f", b={"y": 2, "x": 1}, a=1))


async def test_who_refuses_too_often_is_asked_no_more() -> None:
    world = World()
    approval = Approval(breaker=Breaker(max_consecutive=2))
    steps: list[Any] = []
    for name in "abc":
        steps += [delete(id=name), "ok"]
    agent = world.agent(steps, approval=approval)
    for name in "ab":
        assert isinstance(await agent.run("go", conversation_id="c"), TurnPaused)
        await agent.resume("c", {name: Deny()})
    await agent.run("go", conversation_id="c")
    assert (await results(agent))[-1] == (
        "This call is not allowed: approvals were refused too often: nobody is asked "
        "any more"
    )


def test_an_approval_begins_the_row_anew_but_not_the_total() -> None:
    breaker = Breaker(max_consecutive=2, max_total=3)
    for approved in (False, True, False):
        breaker.note("c", approved=approved)
        assert not breaker.is_tripped("c")
    breaker.note("c", approved=True)
    breaker.note("c", approved=False)
    assert breaker.is_tripped("c")
    assert not breaker.is_tripped("other")
    breaker.forget("c")
    assert not breaker.is_tripped("c")


@pytest.mark.parametrize("name", ["max_consecutive", "max_total"])
def test_a_breaker_that_always_breaks_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} is 0, expected 1 or more"):
        Breaker(**{name: 0})


def request(made: Tool, **arguments: Any) -> ToolRequest:
    return ToolRequest(call=call(made.name, id="a", **arguments), tool=made)


@pytest.mark.parametrize(
    ("arguments", "verdict"),
    [
        ({"path": "/tmp/x"}, Verdict.ALLOW),
        ({"path": "/etc/x"}, Verdict.FORBID),
        ({"path": "/home"}, Verdict.ASK),
        ({"path": ["/etc/x"]}, Verdict.FORBID),
        ({}, Verdict.ASK),
    ],
)
def test_the_first_rule_that_fits_rules(
    arguments: dict[str, Any], verdict: Verdict
) -> None:
    made = Tool(name="file_delete")
    policy = rules_policy(
        [
            Rule(tool="file_*", arguments={"path": "^/tmp/"}, verdict=Verdict.ALLOW),
            Rule(tool="file_*", arguments={"path": "/etc/"}, verdict=Verdict.FORBID),
            Rule(tool="*", verdict=Verdict.ASK),
        ]
    )
    ruling = policy(request(made, **arguments), Context(conversation_id="c"))
    assert isinstance(ruling, Ruling)
    assert ruling.verdict is verdict


def test_what_no_rule_names_is_ruled_otherwise() -> None:
    policy = rules_policy([], otherwise=Verdict.FORBID)
    ruling = policy(request(Tool(name="x")), Context(conversation_id="c"))
    assert ruling == Ruling(Verdict.FORBID, "no rule allows 'x'")


@pytest.mark.parametrize(
    ("hints", "verdict"),
    [
        (ToolHints(), Verdict.ASK),
        (ToolHints(read_only=True), Verdict.ALLOW),
        (ToolHints(destructive=False), Verdict.ALLOW),
        (ToolHints(read_only=True, destructive=True), Verdict.ALLOW),
        (ToolHints(destructive=True), Verdict.ASK),
    ],
)
def test_hints_decide_as_their_specification_reads_them(
    hints: ToolHints, verdict: Verdict
) -> None:
    made = Tool(name="x", hints=hints)
    ruling = hints_policy()(request(made), Context(conversation_id="c"))
    assert isinstance(ruling, Ruling)
    assert ruling.verdict is verdict
