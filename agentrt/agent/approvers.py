"""Who answers what the policies want asked, before a person is: and what is remembered.

An approver decides in a person's place, or abstains. What approvers and people have
approved for good is kept by an `ApprovalCache`; who refuses too often is asked no more,
by a `Breaker`. Both know conversations for the life of the process, up to a number.
"""

import json
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias, get_args

import trio
from attrs import define, field, frozen

from agentrt.agent.approval import ApprovalPolicy
from agentrt.core.context import Context
from agentrt.core.errors import public_words
from agentrt.core.messages import Message, ToolCall
from agentrt.core.outcomes import Approve, Decision, Deny, Reply
from agentrt.filters.base import ToolRequest

__all__ = ["Approval", "ApprovalCache", "Approver", "Breaker", "Question"]

logger = logging.getLogger(__name__)

MAX_APPROVALS = 10_000
MAX_CONVERSATIONS = 10_000


@frozen(kw_only=True)
class Question:
    """A call that somebody is to decide on."""

    request: ToolRequest
    """With arguments that were checked."""

    reason: str
    """Why it is asked."""

    context: Context
    history: Callable[[], Awaitable[Sequence[Message]]] = field(repr=False)
    """The conversation so far, the message that makes the call included."""


Approver: TypeAlias = Callable[[Question], Awaitable[Decision | None]]
"""Decides, or gives None to let the next one decide; the last is a person. An exception
from it counts as None."""


def canonical(value: Any) -> str:
    """Any JSON value as one text, whatever the order of its keys."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, default=str)


@define
class ApprovalCache:
    """Calls that were approved for good: the same tool with the same arguments.

    When it is full, the oldest approval goes, and is asked for again.
    """

    max_approvals: int = MAX_APPROVALS
    _approved: OrderedDict[tuple[str, str, str], None] = field(
        factory=OrderedDict, init=False, repr=False
    )

    def add(self, conversation_id: str, call: ToolCall) -> None:
        self._approved[_key(conversation_id, call)] = None
        while len(self._approved) > self.max_approvals:
            self._approved.popitem(last=False)

    def knows(self, conversation_id: str, call: ToolCall) -> bool:
        return _key(conversation_id, call) in self._approved

    def forget(self, conversation_id: str) -> None:
        for key in [key for key in self._approved if key[0] == conversation_id]:
            del self._approved[key]


def _key(conversation_id: str, call: ToolCall) -> tuple[str, str, str]:
    return conversation_id, call.name, canonical(call.arguments)


@define
class Breaker:
    """Stops asking where approvals are refused too often, in one conversation.

    What would be asked is forbidden then, and the model told so.
    """

    max_consecutive: int = 3
    """Refusals in a row; an approval begins the row anew."""

    max_total: int = 10
    _refusals: OrderedDict[str, tuple[int, int]] = field(
        factory=OrderedDict, init=False, repr=False
    )
    """By conversation: in a row, and in all."""

    def __attrs_post_init__(self) -> None:
        for name in ("max_consecutive", "max_total"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}, expected 1 or more")

    def note(self, conversation_id: str, *, approved: bool) -> None:
        """Take down how one question was answered."""
        row, total = self._refusals.pop(conversation_id, (0, 0))
        counts = (0, total) if approved else (row + 1, total + 1)
        self._refusals[conversation_id] = counts
        while len(self._refusals) > MAX_CONVERSATIONS:
            self._refusals.popitem(last=False)

    def is_tripped(self, conversation_id: str) -> bool:
        row, total = self._refusals.get(conversation_id, (0, 0))
        return row >= self.max_consecutive or total >= self.max_total

    def forget(self, conversation_id: str) -> None:
        self._refusals.pop(conversation_id, None)


@frozen(kw_only=True)
class Approval:
    """How an agent decides on calls: policies, approvers, and what they remember."""

    policies: Sequence[ApprovalPolicy] = ()
    """Beside the tool's own `sensitive`; the strictest ruling wins."""

    approvers: Sequence[Approver] = ()
    """Asked in order, where the ruling is to ask. Who abstains leaves it to the next,
    and the last is a person: the turn pauses."""

    cache: ApprovalCache | None = field(factory=ApprovalCache)
    """What `Approve(remember=True)` goes into; None remembers nothing."""

    breaker: Breaker | None = None

    def knows(self, call: ToolCall, context: Context) -> bool:
        """Whether a call like this one was approved for good."""
        cache = self.cache
        return cache is not None and cache.knows(context.conversation_id, call)

    def is_tripped(self, context: Context) -> bool:
        breaker = self.breaker
        return breaker is not None and breaker.is_tripped(context.conversation_id)

    async def ask(self, question: Question, seconds: float | None) -> Decision | None:
        """What the first approver says that does not abstain; None: ask a person.

        After `seconds` of asking the answer is no.
        """
        if not self.approvers:
            return None
        with trio.move_on_after(float("inf") if seconds is None else seconds) as scope:
            for approver in self.approvers:
                decision = await _ask(approver, question)
                if decision is not None:
                    return decision
        if scope.cancelled_caught:
            return Deny(reason=too_late(seconds))
        return None

    def note(self, call: ToolCall, decision: Decision | None, context: Context) -> None:
        """Remember how a question about `call`, as it will run, was answered."""
        approval = decision if isinstance(decision, Approve) else None
        if self.breaker is not None and not isinstance(decision, Reply):
            approved = approval is not None
            self.breaker.note(context.conversation_id, approved=approved)
        if self.cache is not None and approval is not None and approval.remember:
            self.cache.add(context.conversation_id, call)

    def forget(self, conversation_id: str) -> None:
        """Drop what is remembered of a conversation."""
        for each in (self.cache, self.breaker):
            if each is not None:
                each.forget(conversation_id)


def too_late(seconds: float | None) -> str:
    """Why an answer that came after the human deadline is none."""
    return f"the human deadline of {seconds:g} s fired before there was an answer"


async def _ask(approver: Approver, question: Question) -> Decision | None:
    failure: Exception | None = None
    try:
        decision = await approver(question)
    except Exception as error:  # noqa: BLE001  its failure must leave it to a person
        failure, why = error, public_words(error)
    else:
        if decision is None or isinstance(decision, get_args(Decision)):
            return decision
        why = f"it gave {decision!r}, expected a Decision or None"
    words = "an approver of %r failed: %s"
    logger.error(words, question.request.name, why, exc_info=failure)
    return None
