"""What is to be done with a call: run it, ask a person, or refuse it.

Everything that can be known before a tool runs is decided here: whether there is such a
tool and the model was offered it, whether the arguments fit, what the policies say, and
what approvers answer. A person is asked only about a call that could run.
"""

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import TypeAlias

from attrs import define, evolve, field, frozen

from agentrt.agent.approval import (
    ApprovalPolicy,
    Ruling,
    Verdict,
    rule,
    sensitive_policy,
)
from agentrt.agent.approvers import Approval, Question
from agentrt.agent.client import check_call
from agentrt.core.context import Context
from agentrt.core.history import forbidden_text
from agentrt.core.messages import Message, ToolCall
from agentrt.core.outcomes import Approve, CallStatus, Decision, Interrupt, Reply
from agentrt.core.parts import Content
from agentrt.filters.base import ToolRequest
from agentrt.tools.registry import ToolRegistry

__all__ = ["Gate", "Judged", "Refused"]

TOO_MANY = "approvals were refused too often: nobody is asked any more"


@frozen(kw_only=True)
class Refused:
    """A call that does not run."""

    call: ToolCall
    text: Content
    """For the model to read."""

    status: CallStatus = "error"


Judged: TypeAlias = ToolRequest | Interrupt | Refused


@define
class Gate:
    """The tools of one agent, and who may use them."""

    tools: ToolRegistry
    approval: Approval
    human_seconds: float | None = None
    """How long approvers may take for one call."""

    _policies: Sequence[ApprovalPolicy] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._policies = (sensitive_policy, *self.approval.policies)

    async def judge(
        self,
        call: ToolCall,
        context: Context,
        offered: Collection[str] | None,
        history: Callable[[], Awaitable[Sequence[Message]]],
    ) -> Judged:
        """What becomes of a call that the model made; None offers every tool.

        Waits only where a policy or an approver does.
        """
        names = [spec.name for spec in self.tools.specs]
        known = [n for n in names if offered is None or n in offered]
        if call.name not in known:
            there = ", ".join(map(repr, known)) or "none"
            text = f"error: there is no tool {call.name!r}; there are {there}"
            return Refused(call=call, text=text)
        request = self.check(call)
        if isinstance(request, Refused):
            return request
        ruling = await rule(self._policies, request, context)
        match ruling.verdict:
            case Verdict.ALLOW:
                return _run(request)
            case Verdict.ASK:
                question = Question(
                    request=request,
                    reason=ruling.reason,
                    context=context,
                    history=history,
                )
                return await self._ask(question, ruling)
            case Verdict.FORBID:
                return _forbidden(call, ruling.reason)

    async def admit(self, call: ToolCall, context: Context) -> ToolRequest | Refused:
        """A call that a person approved, judged once more.

        Its arguments may have been edited and the tools may have changed since. What is
        forbidden no approval allows.
        """
        request = self.check(call)
        if isinstance(request, Refused):
            return request
        ruling = await rule(self._policies, request, context)
        if ruling.verdict is Verdict.FORBID:
            return _forbidden(call, ruling.reason)
        return request

    def fault(self, call: ToolCall) -> str | None:
        """What is wrong with arguments that a person gave; None if nothing is.

        A name that the tool does not have is let go where a model gave it. Here it is a
        fault: what a person meant by it would not happen.
        """
        checked = self.check(call)
        if isinstance(checked, Refused):
            return str(checked.text).removeprefix("error: ")
        there = checked.call.arguments
        for name, value in call.arguments.items():
            if name not in there and value is not None:
                names = ", ".join(
                    map(repr, checked.tool.parameters.get("properties", ()))
                )
                return f"{call.name!r} has no parameter {name!r}; there are {names}"
        return None

    async def _ask(self, question: Question, ruling: Ruling) -> Judged:
        request, context = question.request, question.context
        if ruling.may_remember and self.approval.knows(request.call, context):
            return _run(request)
        if self.approval.is_tripped(context):
            return _forbidden(request.call, TOO_MANY)
        decision = await self.approval.ask(question, self.human_seconds)
        if decision is None:
            return Interrupt(
                id=request.call.id,
                kind="external" if request.tool.runs_elsewhere else "approval",
                reason=ruling.reason,
                call=request.call,
            )
        judged = await self._decided(request, decision, context)
        self.approval.note(request.call, decision, context)
        return judged

    async def _decided(
        self, request: ToolRequest, decision: Decision, context: Context
    ) -> Judged:
        """What an approver's word comes to. Only an approval runs a tool."""
        match decision:
            case Approve(arguments=None):
                return _run(request)
            case Approve(arguments=arguments) if arguments is not None:
                call = evolve(request.call, arguments=arguments)
                edited = await self.admit(call, context)
                if isinstance(edited, Refused):
                    return edited
                return _run(evolve(edited, edited=True))
            case Reply(content=content):
                return Refused(call=request.call, text=content, status="replied")
            case _:
                reason = getattr(decision, "reason", "")
                return _forbidden(request.call, reason)

    def check(self, call: ToolCall) -> ToolRequest | Refused:
        """The call as it can run; refused if its tool or its arguments do not fit."""
        checked = check_call(self.tools, call)
        if isinstance(checked, str):
            return Refused(call=call, text=f"error: {checked}")
        return checked


def _run(request: ToolRequest) -> ToolRequest | Interrupt:
    """Run it here, or wait for whoever runs it elsewhere."""
    if not request.tool.runs_elsewhere:
        return request
    return Interrupt(
        id=request.call.id,
        kind="external",
        reason=f"{request.name!r} runs elsewhere: its result is awaited",
        call=request.call,
    )


def _forbidden(call: ToolCall, reason: str) -> Refused:
    return Refused(call=call, text=forbidden_text(reason), status="denied")
