"""A turn that waits for people: what is asked, and what the answers come to.

A pause lists all open interrupts of a batch; an answer must cover them all. A wrong
answer is refused before anything is touched, so that the pause stays as it was. Only an
explicit `Approve` runs a tool. Pure.
"""

from collections.abc import Callable, Mapping, Sequence

from attrs import evolve, frozen

from agentrt.core.errors import AnswerError
from agentrt.core.messages import ToolCall
from agentrt.core.outcomes import (
    Approve,
    Decision,
    Deny,
    Interrupt,
    PauseSnapshot,
    Reply,
)
from agentrt.core.parts import Content

__all__ = ["Answered", "apply_answers", "check_answers"]


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


def check_answers(
    interrupts: Sequence[Interrupt],
    answers: Mapping[str, Decision],
    check: Callable[[ToolCall], str | None],
) -> None:
    """Refuse answers that do not fit; changes nothing.

    `check` says what is wrong with a call's arguments, or None.

    Raises:
        AnswerError: an interrupt is not known or not answered, a reply says nothing, or
            edited arguments do not fit the tool.
    """
    known = {interrupt.id: interrupt for interrupt in interrupts}
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
        call = known[id_].call
        if isinstance(decision, Reply) and not decision.content:
            raise AnswerError(f"the reply to {id_!r} says nothing")
        if isinstance(decision, Approve) and decision.arguments is not None:
            edited = evolve(call, arguments=decision.arguments)
            if (fault := check(edited)) is not None:
                raise AnswerError(f"edited arguments for {call.name!r}: {fault}")


def apply_answers(snapshot: PauseSnapshot, answers: Mapping[str, Decision]) -> Answered:
    """Sort the waiting calls by their answers, which were checked before.

    What is no `Approve` and no `Reply` is a denial.
    """
    approved: list[ToolCall] = []
    edited: set[str] = set()
    denied: list[tuple[ToolCall, str]] = []
    replied: list[tuple[ToolCall, Content]] = []
    for interrupt in snapshot.interrupts:
        call = interrupt.call
        match answers.get(interrupt.id):
            case Approve(arguments=arguments) if arguments is not None:
                approved.append(evolve(call, arguments=arguments))
                edited.add(call.id)
            case Approve():
                approved.append(call)
            case Reply(content=content):
                replied.append((call, content))
            case Deny(reason=reason):
                denied.append((call, reason))
            case _:
                denied.append((call, "no clear answer was given"))
    return Answered(
        approved=tuple(approved),
        edited=frozenset(edited),
        denied=tuple(denied),
        replied=tuple(replied),
    )


def _list(ids: Mapping[str, Interrupt]) -> str:
    return ", ".join(repr(id_) for id_ in ids) or "none"
