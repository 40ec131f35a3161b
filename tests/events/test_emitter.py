"""The emitter: numbers without a hole, one terminal event, and failures of stores."""

import logging
from collections.abc import Sequence
from typing import Any

import pytest
from attrs import define, field
from hypothesis import given
from hypothesis import strategies as st

from agentrt.core.messages import ToolCall
from agentrt.core.outcomes import Interrupt
from agentrt.events import types as e
from agentrt.events.emitter import LOST, Emitter
from agentrt.events.grammar import Grammar
from agentrt.testing import check_stream


@pytest.fixture(autouse=True)
def _quiet() -> None:
    logging.getLogger("agentrt").setLevel(logging.CRITICAL)


@define
class Log:
    """Records what it is given, but for some appends."""

    refuses: frozenset[int] = frozenset()
    envelopes: list[e.Envelope] = field(factory=list, init=False)
    appends: int = field(default=0, init=False)

    def record(self, envelope: e.Envelope) -> None:
        self.appends += 1
        if self.appends in self.refuses:
            raise OSError("full")
        self.envelopes.append(envelope)

    @property
    def events(self) -> Sequence[e.Event]:
        return [envelope.event for envelope in self.envelopes]


def emitter(log: Log, grammar: Grammar | None = None, **more: Any) -> Emitter:
    return Emitter(
        conversation_id="c",
        run_id=more.pop("run_id", "r"),
        grammar=grammar or Grammar(0),
        record=log.record,
        clock=lambda: 1.5,
        **more,
    )


def text(id_: str, words: str = "hi") -> Sequence[e.Event]:
    return [
        e.MessageStarted(message_id=id_),
        e.MessageDelta(message_id=id_, text=words),
    ]


def test_events_are_numbered_and_stamped() -> None:
    log = Log()
    run = emitter(log, Grammar(7))
    run.start(e.RunStarted())
    run.close(e.RunFinished())
    assert log.envelopes == [
        e.Envelope(
            seq=8, conversation_id="c", run_id="r", at=1.5, event=e.RunStarted()
        ),
        e.Envelope(
            seq=9, conversation_id="c", run_id="r", at=1.5, event=e.RunFinished()
        ),
    ]


def test_an_event_that_breaks_the_grammar_is_counted_and_costs_no_number() -> None:
    log = Log()
    run = emitter(log)
    run.start(e.RunStarted())
    run.emit(e.MessageEnded(message_id="m"))
    run.close(e.RunFinished())
    assert run.drops == 1
    check_stream(log.envelopes)


def test_nothing_follows_the_terminal_event_and_it_comes_once() -> None:
    """P2"""
    log = Log()
    run = emitter(log)
    run.start(e.RunStarted())
    run.close(e.RunFinished())
    run.close(e.RunFailed(message="x", error_code="y"))
    run.emit(e.IterationStarted(index=0))
    assert log.events == [e.RunStarted(), e.RunFinished()]
    assert run.drops == 1


def test_a_terminal_event_is_told_by_close_alone() -> None:
    """P2: what a tool or a filter emits cannot end the run."""
    log = Log()
    run = emitter(log)
    run.start(e.RunStarted())
    run.emit(e.RunFinished(text="hijacked"))
    run.emit(e.IterationStarted(index=0))
    run.close(e.RunFinished())
    assert log.events == [
        e.RunStarted(),
        e.IterationStarted(index=0),
        e.RunFinished(),
    ]
    assert run.drops == 1


def test_closing_ends_what_is_open_the_latest_first() -> None:
    log = Log()
    run = emitter(log)
    run.start(e.RunStarted())
    for event in (
        *text("m"),
        e.ReasoningStarted(message_id="t", parent_id="m"),
        e.ToolStarted(call_id="a", name="add", message_id="m"),
        e.ToolStarted(call_id="b", name="sub", message_id="m"),
        e.ToolEnded(call_id="b", arguments={}),
    ):
        run.emit(event)
    run.close(e.RunCancelled(reason="stop"))
    result: dict[str, Any] = {
        "content": "The call did not complete: the run ended (run/cancelled).",
        "is_error": True,
        "synthetic": True,
        "status": "cut",
    }
    assert log.events[-6:] == [
        e.ToolEnded(call_id="a", cut=True),
        e.ReasoningEnded(message_id="t"),
        e.MessageEnded(message_id="m"),
        e.ToolReturned(call_id="b", name="sub", **result),
        e.ToolReturned(call_id="a", name="add", **result),
        e.RunCancelled(reason="stop"),
    ]
    check_stream(log.envelopes)


def test_a_pause_leaves_the_calls_that_wait_for_people() -> None:
    log = Log()
    run = emitter(log)
    run.start(e.RunStarted())
    for id_ in ("a", "b"):
        run.emit(e.ToolStarted(call_id=id_, name="add", message_id="m"))
        run.emit(e.ToolEnded(call_id=id_, arguments={}))
    asked = Interrupt(id="a", reason="?", call=ToolCall(id="a", name="add"))
    run.close(e.RunPaused(interrupts=[asked]))
    returned = [x.call_id for x in log.events if isinstance(x, e.ToolReturned)]
    assert returned == ["b"]
    check_stream(log.envelopes)


def test_a_listener_that_fails_ends_nothing() -> None:
    def fail(envelope: e.Envelope) -> None:
        raise RuntimeError("no")

    log = Log()
    run = emitter(log, recorded=fail)
    run.start(e.RunStarted())
    run.close(e.RunFinished())
    check_stream(log.envelopes)
    assert run.drops == 0


def test_a_start_that_could_not_be_recorded_is_tried_before_the_next_event() -> None:
    log = Log(frozenset({1, 2}))
    run = emitter(log)
    run.start(e.RunStarted(label="x"))
    run.emit(e.IterationStarted(index=0))
    assert log.events == []
    run.emit(e.IterationStarted(index=1))
    run.close(e.RunFinished())
    assert log.events == [
        e.RunStarted(label="x"),
        e.IterationStarted(index=1),
        e.RunFinished(),
    ]
    check_stream(log.envelopes)


def test_a_run_whose_end_could_not_be_recorded_is_ended_by_the_next() -> None:
    """P2: the terminal event may be late, and it is never missing."""
    log = Log(frozenset({4}))
    grammar = Grammar(0)
    first = emitter(log, grammar)
    first.start(e.RunStarted())
    for event in text("m"):
        first.emit(event)
    # the fourth append is the end of the message, so the terminal event is refused too
    log.refuses = frozenset({4, 5})
    first.close(e.RunFinished())
    second = emitter(log, grammar, run_id="s")
    second.start(e.RunStarted())
    second.close(e.RunFinished())
    lost = e.RunFailed(message=LOST, error_code="terminal_lost")
    assert log.events[3:] == [
        e.MessageEnded(message_id="m"),
        lost,
        e.RunStarted(),
        e.RunFinished(),
    ]
    assert [envelope.run_id for envelope in log.envelopes[3:]] == ["r", "r", "s", "s"]
    check_stream(log.envelopes)


def events() -> st.SearchStrategy[e.Event]:
    """Any event about a few blocks, in whatever order."""
    ids = st.sampled_from(["m", "n"])
    return st.one_of(
        st.builds(e.MessageStarted, message_id=ids),
        st.builds(e.MessageDelta, message_id=ids, text=st.sampled_from(["", "x"])),
        st.builds(e.MessageEnded, message_id=ids),
        st.builds(e.ReasoningStarted, message_id=ids, parent_id=ids),
        st.builds(e.ReasoningEnded, message_id=ids),
        st.builds(e.ToolStarted, call_id=ids, name=ids, message_id=ids),
        st.builds(e.ToolArgsDelta, call_id=ids, text=st.just("{")),
        st.builds(e.ToolEnded, call_id=ids, arguments=st.just({})),
        st.builds(
            e.ToolReturned,
            call_id=ids,
            name=ids,
            content=st.just("x"),
            status=st.just("ok"),
        ),
        st.builds(e.RunStarted),
        st.builds(e.RunFinished),
    )


@given(
    st.lists(st.lists(events(), max_size=12), max_size=4),
    st.frozensets(st.integers(1, 60)),
)
def test_whatever_is_emitted_numbers_have_no_hole_and_runs_end_once(
    runs: Sequence[Sequence[e.Event]], refuses: frozenset[int]
) -> None:
    """P1, P2: a store that refuses an event costs that event, and no number."""
    log, grammar = Log(refuses), Grammar(0)
    for number, told in enumerate(runs):
        run = emitter(log, grammar, run_id=f"r{number}")
        run.start(e.RunStarted())
        for event in told:
            run.emit(event)
        run.close(e.RunFinished())
    seqs = [envelope.seq for envelope in log.envelopes]
    assert seqs == list(range(1, len(seqs) + 1))
    if not refuses:
        check_stream(log.envelopes)
