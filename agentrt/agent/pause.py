"""A turn that waits for people: what is asked, and what the answers come to.

A pause lists all open interrupts of a batch; an answer must cover them all. A wrong
answer is refused before anything is touched, so that the pause stays as it was. Only an
explicit `Approve` runs a tool, or a `Retry` where the call ran and failed. Pure.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, get_args

from attrs import evolve, field, frozen

from agentrt.core.errors import AnswerError
from agentrt.core.messages import ToolCall
from agentrt.core.outcomes import (
    Approve,
    Decision,
    Deny,
    Interrupt,
    InterruptKind,
    PauseSnapshot,
    Reply,
    Retry,
)
from agentrt.core.parts import Content, is_content

__all__ = ["Answered", "apply_answers", "check_answers", "find_snapshot_faults"]


@frozen(kw_only=True)
class Answered:
    """What became of the waiting calls, in the order of their interrupts."""

    approved: Sequence[ToolCall] = ()
    """With arguments as they will run."""

    edited: frozenset[str] = frozenset()
    """The ids of those that were approved with other arguments."""

    denied: Sequence[tuple[ToolCall, str]] = ()
    """With the reason that was given."""

    replied: Sequence[tuple[ToolCall, Content]] = ()
    failed: Sequence[Interrupt] = ()
    """Calls that failed for want of something, and stay so."""

    retried: Sequence[Interrupt] = ()
    """Those of them that are to be made again; they are among `approved`."""

    nested: Mapping[str, Mapping[str, Decision]] = field(factory=dict)
    """By call: the answers to what its subagents ask, by their ids."""


ALLOWED: Final[Mapping[InterruptKind, tuple[type[Decision], ...]]] = {
    "approval": (Approve, Reply, Deny),
    "external": (Reply, Deny),
    "environment": (Retry, Approve, Deny),
}
"""What each kind of question can be answered with."""


def find_snapshot_faults(
    snapshot: PauseSnapshot, conversation_id: str
) -> Sequence[str]:
    """Why a turn cannot go on from this pause; empty if it can.

    A stored pause may come from another version or another hand.
    """
    ids = [each.id for each in snapshot.interrupts]
    asked = {each.call_id for each in snapshot.interrupts}
    done = [each.call_id for each in snapshot.results]
    known = {*asked, *done}
    calls = {call.id: call.name for call in snapshot.message.tool_calls}
    twice = {id_ for id_, n in Counter([*ids, *done]).items() if n > 1}
    twice |= asked & {*done}
    faults: list[str] = []
    if snapshot.conversation_id != conversation_id:
        faults.append(f"it is of conversation {snapshot.conversation_id!r}")
    if not ids:
        faults.append("it asks nothing")
    if snapshot.remaining < 0 or snapshot.index < 0:
        faults.append("it counts below 0")
    faults.extend(f"call {id_!r} is there twice" for id_ in sorted(twice))
    odd, left = sorted(known - {*calls}), sorted({*calls} - known)
    faults.extend(f"call {id_!r} is not in its message" for id_ in odd)
    faults.extend(f"call {id_!r} has no answer to come" for id_ in left)
    faults.extend(_interrupt_faults(snapshot, calls))
    return faults


def _interrupt_faults(
    snapshot: PauseSnapshot, calls: Mapping[str, str]
) -> Iterable[str]:
    for each in snapshot.interrupts:
        if each.parent_call_id:
            if not each.id.startswith(f"{each.parent_call_id}/"):
                yield f"interrupt {each.id!r} is of another call"
            if each.parent_call_id not in snapshot.nested:
                yield f"call {each.parent_call_id!r} runs no subagent"
            continue
        if (each.call.id, each.call.name) != (each.id, calls.get(each.id)):
            yield f"interrupt {each.id!r} asks about another call"
        held = each.result
        if (each.kind == "environment") != (held is not None):
            yield f"interrupt {each.id!r} of kind {each.kind!r} does not fit"
        if held is not None and held.call_id != each.id:
            yield f"interrupt {each.id!r} holds the result of another call"


def check_answers(
    interrupts: Sequence[Interrupt],
    answers: Mapping[str, Decision],
    check: Callable[[Interrupt, ToolCall], str | None],
) -> None:
    """Refuse answers that do not fit; changes nothing.

    `check` says what is wrong with a call that was edited, or None.

    Raises:
        AnswerError: an interrupt is not known or not answered, a reply says nothing, or
            edited arguments do not fit the tool.
    """
    known = {interrupt.id: interrupt for interrupt in interrupts}
    if not isinstance(answers, Mapping):
        raise AnswerError(
            f"answers is a {type(answers).__name__}, expected decisions by interrupt id"
        )
    unknown = [id_ for id_ in answers if id_ not in known]
    if unknown:
        raise AnswerError(
            f"interrupt {unknown[0]!r} is not open; open are {_list(known)}"
        )
    missing = [id_ for id_ in known if id_ not in answers]
    if missing:
        raise AnswerError(
            f"interrupt {missing[0]!r} has no answer; all of {_list(known)} need one"
        )
    for id_, decision in answers.items():
        _check_answer(known[id_], decision, check)


def _check_answer(
    interrupt: Interrupt,
    decision: Any,
    check: Callable[[Interrupt, ToolCall], str | None],
) -> None:
    allowed = ALLOWED[interrupt.kind]
    known = isinstance(decision, get_args(Decision))
    if known and not isinstance(decision, allowed):
        names = ", ".join(each.__name__ for each in allowed)
        raise AnswerError(
            f"interrupt {interrupt.id!r} is of kind {interrupt.kind!r} and takes "
            f"{names}, got {type(decision).__name__}"
        )
    if fault := _form_fault(decision):
        raise AnswerError(f"the answer to {interrupt.id!r} {fault}")
    if isinstance(decision, Approve) and decision.arguments is not None:
        edited = evolve(interrupt.call, arguments=decision.arguments)
        if (fault := check(interrupt, edited)) is not None:
            raise AnswerError(
                f"the arguments in the answer to {interrupt.id!r} do not fit: {fault}"
            )


def _form_fault(decision: Any) -> str | None:
    """What is wrong with the form of an answer, which no type has checked."""
    match decision:
        case Reply(content=content) if not content:
            return "says nothing"
        case Reply(content=content) if not is_content(content):
            return f"is {str(content)[:80]!r}, expected a text or parts"
        case Approve(arguments=arguments) if not isinstance(arguments, Mapping | None):
            return f"gives the arguments {str(arguments)[:80]!r}, expected an object"
        case Deny(reason=reason) if not isinstance(reason, str):
            return f"gives the reason {str(reason)[:80]!r}, expected a text"
        case _:
            return None


def apply_answers(snapshot: PauseSnapshot, answers: Mapping[str, Decision]) -> Answered:
    """Sort the waiting calls by their answers, which were checked before.

    What is no `Approve` and no `Reply` is a denial.
    """
    all_said = [
        (each, _clear(each, answers.get(each.id))) for each in snapshot.interrupts
    ]
    said = [(each, d) for each, d in all_said if not each.parent_call_id]
    nested: dict[str, dict[str, Decision]] = {}
    for each, decision in all_said:
        if parent := each.parent_call_id:
            own_id = each.id.removeprefix(f"{parent}/")
            nested.setdefault(parent, {})[own_id] = decision
    go = [(each, d) for each, d in said if isinstance(d, Approve | Retry)]
    no = [(each, d) for each, d in said if isinstance(d, Deny)]
    return Answered(
        approved=tuple(_approved(each.call, d) for each, d in go),
        edited=frozenset(each.id for each, d in go if _is_edited(each, d)),
        retried=tuple(each for each, _ in go if each.result is not None),
        denied=tuple((each.call, d.reason) for each, d in no if each.result is None),
        failed=tuple(each for each, _ in no if each.result is not None),
        replied=tuple(
            (each.call, d.content) for each, d in said if isinstance(d, Reply)
        ),
        nested=nested,
    )


def _clear(interrupt: Interrupt, answer: Any) -> Decision:
    """The answer, if it is one to this question; else a denial."""
    if isinstance(answer, ALLOWED[interrupt.kind]):
        return answer
    return Deny(reason="no clear answer was given")


def _is_edited(interrupt: Interrupt, decision: Decision) -> bool:
    """Whether the call has other arguments than the model gave it, now or before."""
    result = interrupt.result
    before = result is not None and result.edited_arguments is not None
    return before or _arguments(decision) is not None


def _arguments(decision: Decision) -> Mapping[str, Any] | None:
    return decision.arguments if isinstance(decision, Approve) else None


def _approved(call: ToolCall, decision: Decision) -> ToolCall:
    arguments = _arguments(decision)
    return call if arguments is None else evolve(call, arguments=arguments)


def _list(ids: Mapping[str, Interrupt]) -> str:
    return ", ".join(repr(id_) for id_ in ids) or "none"
