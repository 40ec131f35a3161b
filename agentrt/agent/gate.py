"""What is to be done with a call: run it, ask a person, or refuse it.

Everything that can be known before a tool runs is decided here: whether there is such a
tool and the model was offered it, whether the arguments fit, and what the policies say.
A person is asked only about a call that could run. Plain functions.
"""

from collections.abc import Collection, Sequence

from attrs import define, evolve, frozen

from agentrt.agent.approval import ApprovalPolicy, Verdict, rule
from agentrt.agent.history import denied_text
from agentrt.core.context import Context
from agentrt.core.messages import ToolCall
from agentrt.core.outcomes import CallStatus, Interrupt
from agentrt.filters.base import ToolRequest
from agentrt.tools.registry import ToolRegistry

__all__ = ["Gate", "Refused"]


@frozen(kw_only=True)
class Refused:
    """A call that does not run."""

    call: ToolCall
    text: str
    """For the model to read."""

    status: CallStatus = "error"


@define
class Gate:
    """The tools of one agent, and who may use them."""

    tools: ToolRegistry
    policies: Sequence[ApprovalPolicy]

    def judge(
        self, call: ToolCall, context: Context, offered: Collection[str] | None
    ) -> ToolRequest | Interrupt | Refused:
        """What becomes of a call that the model made; None offers every tool."""
        names = [spec.name for spec in self.tools.specs]
        known = [n for n in names if offered is None or n in offered]
        if call.name not in known:
            there = ", ".join(map(repr, known)) or "none"
            text = f"error: there is no tool {call.name!r}; there are {there}"
            return Refused(call=call, text=text)
        request = self._check(call)
        if isinstance(request, Refused):
            return request
        ruling = rule(self.policies, request, context)
        match ruling.verdict:
            case Verdict.ALLOW:
                return request
            case Verdict.ASK:
                return Interrupt(id=call.id, reason=ruling.reason, call=request.call)
            case Verdict.FORBID:
                return _forbidden(call, ruling.reason)

    def admit(self, call: ToolCall, context: Context) -> ToolRequest | Refused:
        """A call that a person approved, judged once more.

        Its arguments may have been edited and the tools may have changed since. What is
        forbidden no approval allows.
        """
        request = self._check(call)
        if isinstance(request, Refused):
            return request
        ruling = rule(self.policies, request, context)
        if ruling.verdict is Verdict.FORBID:
            return _forbidden(call, ruling.reason)
        return request

    def fault(self, call: ToolCall) -> str | None:
        """What is wrong with a call's arguments; None if nothing is."""
        checked = self._check(call)
        return checked.text if isinstance(checked, Refused) else None

    def _check(self, call: ToolCall) -> ToolRequest | Refused:
        tool = self.tools.find(call.name)
        if tool is None:
            return Refused(call=call, text=f"error: there is no tool {call.name!r}")
        where = f"error: arguments of {call.name!r}"
        if call.invalid_arguments is not None:
            raw = call.invalid_arguments[:200]
            return Refused(call=call, text=f"{where} are no JSON object: {raw!r}")
        checked = self.tools.check(call.name, call.arguments)
        if checked.faults:
            return Refused(call=call, text=f"{where}: " + "; ".join(checked.faults))
        return ToolRequest(call=evolve(call, arguments=checked.arguments), tool=tool)


def _forbidden(call: ToolCall, reason: str) -> Refused:
    return Refused(call=call, text=denied_text(reason), status="denied")
