"""Who may run a tool: policies rule on each call before it runs.

The strictest ruling wins, and whatever goes wrong asks: nothing that a human must
decide is decided by silence. What the policies want asked is put to the approvers of
`agent/approvers.py` first, and then to a person, by a pause.
"""

import inspect
import json
import logging
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import IntEnum
from fnmatch import fnmatchcase
from typing import Any, TypeAlias

from attrs import Attribute, evolve, field, frozen

from agentrt.core.context import Context
from agentrt.core.errors import public_words
from agentrt.filters.base import ToolRequest
from agentrt.tools.base import ToolHints

__all__ = [
    "ApprovalPolicy",
    "Rule",
    "Ruling",
    "Verdict",
    "hints_policy",
    "rule",
    "rules_policy",
    "sensitive_policy",
]

logger = logging.getLogger(__name__)


class Verdict(IntEnum):
    """From the mildest to the strictest."""

    ALLOW = 0
    ASK = 1
    FORBID = 2


def _is_verdict(_: Any, attribute: "Attribute[Verdict]", value: Any) -> None:
    if not isinstance(value, Verdict):
        names = ", ".join(f"Verdict.{each.name}" for each in Verdict)
        raise TypeError(f"{attribute.name} is {value!r}, expected one of {names}")


@frozen
class Ruling:
    verdict: Verdict = field(validator=_is_verdict)
    reason: str = ""
    """For a person to read, or for the model where the call is forbidden."""

    may_remember: bool = field(default=True, kw_only=True)
    """Of `ASK`: whether an approval may stand for later calls like this one."""


ApprovalPolicy: TypeAlias = Callable[[ToolRequest, Context], Ruling | Awaitable[Ruling]]
"""Plain or async. An exception from it counts as `ASK`."""

ALLOW = Ruling(Verdict.ALLOW)


def sensitive_policy(request: ToolRequest, context: Context) -> Ruling:
    """Ask about each call of a tool that was declared sensitive."""
    if request.tool.sensitive:
        return Ruling(Verdict.ASK, f"{request.name!r} needs your approval")
    return ALLOW


@frozen(kw_only=True)
class Rule:
    """What is ruled on calls of some tools, with some arguments."""

    tool: str
    """A name, or a pattern as `file_*`."""

    arguments: Mapping[str, str] = field(factory=dict)
    """By name: a regular expression that is found in the argument's text (of what is
    no text, its JSON). All must be found; an absent argument has no text."""

    verdict: Verdict = field(validator=_is_verdict)
    reason: str = ""
    _searches: Mapping[str, re.Pattern[str]] = field(init=False, repr=False, eq=False)

    def __attrs_post_init__(self) -> None:
        searches = {name: _compiled(name, t) for name, t in self.arguments.items()}
        object.__setattr__(self, "_searches", searches)

    def fits(self, request: ToolRequest) -> bool:
        """Whether this is a call that the rule is about."""
        given = request.call.arguments
        return fnmatchcase(request.name, self.tool) and all(
            name in given and search.search(_text(given[name]))
            for name, search in self._searches.items()
        )


def rules_policy(
    rules: Sequence[Rule], *, otherwise: Verdict = Verdict.ALLOW
) -> ApprovalPolicy:
    """Rule by the first rule that fits, or `otherwise` where none does."""
    fixed = tuple(rules)
    fallback = Ruling(otherwise)

    def policy(request: ToolRequest, context: Context) -> Ruling:
        for each in fixed:
            if each.fits(request):
                return Ruling(each.verdict, each.reason or _reason(each, request))
        return evolve(fallback, reason=f"no rule allows {request.name!r}")

    return policy


def _compiled(name: str, pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise ValueError(
            f"the pattern for the argument {name!r} is {pattern!r}: {error}"
        ) from error


def _reason(rule: Rule, request: ToolRequest) -> str:
    verb = "forbids" if rule.verdict is Verdict.FORBID else "asks about"
    return f"the rule for {rule.tool!r} {verb} {request.name!r}"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _is_risky(hints: ToolHints) -> bool:
    """What MCP says of a tool without hints: it may destroy, and reach the world."""
    if hints.read_only:
        return False
    return hints.destructive is not False


def hints_policy(
    *,
    is_risky: Callable[[ToolHints], bool] = _is_risky,
    verdict: Verdict = Verdict.ASK,
) -> ApprovalPolicy:
    """Rule `verdict` on tools whose hints are risky, and allow the others.

    By default a tool is risky unless it says that it only reads or only adds: a tool
    without hints is. Hints are what a tool's author says, and nothing checks them.
    """

    def policy(request: ToolRequest, context: Context) -> Ruling:
        if not is_risky(request.tool.hints):
            return ALLOW
        return Ruling(verdict, f"{request.name!r} may change or delete something")

    return policy


async def rule(
    policies: Sequence[ApprovalPolicy], request: ToolRequest, context: Context
) -> Ruling:
    """The strictest ruling of all policies; among equals, the first.

    To ask each time is stricter than to ask once. Waits only where a policy does.
    """
    strictest = ALLOW
    for policy in policies:
        ruling = await _ask_policy(policy, request, context)
        if _strictness(ruling) > _strictness(strictest):
            strictest = ruling
    return strictest


def _strictness(ruling: Ruling) -> tuple[int, bool]:
    return ruling.verdict, ruling.verdict is Verdict.ASK and not ruling.may_remember


async def _ask_policy(
    policy: ApprovalPolicy, request: ToolRequest, context: Context
) -> Ruling:
    failure: Exception | None = None
    try:
        ruling: Any = policy(request, context)
        if inspect.isawaitable(ruling):
            ruling = await ruling
        if isinstance(ruling, Ruling):
            return ruling
        why = f"it gave {ruling!r}, expected a Ruling"
    except Exception as error:  # noqa: BLE001  a policy's failure must not allow a call
        failure, why = error, public_words(error)
    words = "the approval policy for %r failed: %s"
    logger.error(words, request.name, why, exc_info=failure)
    reason = f"the approval policy for {request.name!r} failed: {why}"
    return Ruling(Verdict.ASK, reason, may_remember=False)
