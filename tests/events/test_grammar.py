"""Each rule has the smallest stream that breaks it, and streams that keep them all."""

from collections.abc import Sequence

import pytest

from agentrt.core.messages import ToolCall
from agentrt.core.outcomes import Interrupt
from agentrt.events import grammar
from agentrt.events import types as e
from agentrt.events.grammar import Fault, Grammar, find_faults

START = e.RunStarted()
END = e.RunFinished()
SAYS = e.MessageStarted(message_id="m")
WORD = e.MessageDelta(message_id="m", text="hi")
SAID = e.MessageEnded(message_id="m")
THINKS = e.ReasoningStarted(message_id="t", parent_id="m")
THOUGHT = e.MessageThinking(message_id="t", text="hm")
DONE_THINKING = e.ReasoningEnded(message_id="t")
CALLS = e.ToolStarted(call_id="c", name="add", message_id="m")
ARGUES = e.ToolArgsDelta(call_id="c", text="{}")
CALLED = e.ToolEnded(call_id="c", arguments={})
RESULT = e.ToolReturned(call_id="c", name="add", content="2", status="ok")
ASKED = Interrupt(id="c", reason="?", call=ToolCall(id="c", name="add"))
PAUSE = e.RunPaused(interrupts=[ASKED])


def stream(*events: e.Event, run_id: str = "r") -> Sequence[e.Envelope]:
    return [
        e.Envelope(seq=seq, conversation_id="c", run_id=run_id, at=0.0, event=event)
        for seq, event in enumerate(events, 1)
    ]


@pytest.mark.parametrize(
    ("rule", "events"),
    [
        ("run-order", [SAYS]),
        ("run-order", [START, START, END]),
        ("run-order", [START, END, START, END]),
        ("terminal", [START]),
        ("terminal", [START, END, SAYS]),
        ("terminal", [START, END, END]),
        ("block", [START, WORD, END]),
        ("block", [START, SAID, END]),
        ("block", [START, SAYS, SAYS, SAID, END]),
        ("block", [START, THOUGHT, END]),
        ("block", [START, DONE_THINKING, END]),
        ("block", [START, ARGUES, END]),
        (
            "block",
            [START, SAYS, e.MessageThinking(message_id="m", text="x"), SAID, END],
        ),
        ("block-id", [START, SAYS, SAID, SAYS, SAID, END]),
        (
            "block-id",
            [
                START,
                SAYS,
                SAID,
                e.ReasoningStarted(message_id="m", parent_id="x"),
                e.ReasoningEnded(message_id="m"),
                END,
            ],
        ),
        ("empty", [START, SAYS, e.MessageDelta(message_id="m", text=""), SAID, END]),
        (
            "empty",
            [
                START,
                THINKS,
                e.MessageThinking(message_id="t", text=""),
                DONE_THINKING,
                END,
            ],
        ),
        (
            "empty",
            [START, CALLS, e.ToolArgsDelta(call_id="c", text=""), CALLED, RESULT, END],
        ),
        ("result", [START, RESULT, END]),
        ("result", [START, CALLS, RESULT, CALLED, RESULT, END]),
        ("result", [START, CALLS, CALLED, RESULT, RESULT, END]),
        ("left-open", [START, SAYS, END]),
        ("left-open", [START, CALLS, CALLED, END]),
        ("left-open", [START, e.RunPaused(interrupts=[])]),
        ("left-open", [START, PAUSE]),
        ("left-open", [START, CALLS, CALLED, RESULT, PAUSE]),
    ],
)
def test_the_smallest_bad_stream_breaks_its_rule_alone(
    rule: str, events: Sequence[e.Event]
) -> None:
    assert [fault.rule for fault in find_faults(stream(*events))] == [rule]


@pytest.mark.parametrize(
    "events",
    [
        [],
        [START, END],
        [START, e.RunFailed(message="x", error_code="y")],
        [START, e.RunCancelled(reason="x")],
        [START, SAYS, WORD, WORD, SAID, END],
        [START, SAYS, THINKS, THOUGHT, DONE_THINKING, WORD, SAID, END],
        [START, CALLS, ARGUES, CALLED, SAYS, SAID, RESULT, END],
        [START, CALLS, CALLED, PAUSE],
        [
            START,
            e.IterationStarted(index=0),
            e.ModelStarted(message_id="m"),
            e.ModelFinished(message_id="m", elapsed=0.0),
            e.RunUsage(usage=()),
            END,
        ],
    ],
)
def test_a_good_stream_has_no_fault(events: Sequence[e.Event]) -> None:
    assert find_faults(stream(*events)) == []


def test_a_pause_is_answered_in_the_next_run() -> None:
    first = stream(START, CALLS, CALLED, PAUSE)
    second = stream(e.RunStarted(kind="resume"), RESULT, END, run_id="s")
    both = [*first, *(_moved(each, by=4) for each in second)]
    assert find_faults(both) == []


def _moved(envelope: e.Envelope, *, by: int) -> e.Envelope:
    return e.Envelope(
        seq=envelope.seq + by,
        conversation_id=envelope.conversation_id,
        run_id=envelope.run_id,
        at=envelope.at,
        event=envelope.event,
    )


def test_a_run_within_another_is_named_with_the_events_of_it() -> None:
    envelopes = [
        e.Envelope(seq=1, conversation_id="c", run_id="a", at=0.0, event=START),
        e.Envelope(seq=2, conversation_id="c", run_id="b", at=0.0, event=SAYS),
        e.Envelope(seq=3, conversation_id="c", run_id="a", at=0.0, event=END),
    ]
    assert [str(fault) for fault in find_faults(envelopes, complete=False)] == [
        "[run-order] at seq 2: message/started of run 'b', which has not started",
        "[left-open] at seq 3: run/finished leaves text 'm' open",
    ]


@pytest.mark.parametrize(
    ("seqs", "since", "faults"),
    [
        ([1, 2], 0, []),
        ([6, 7], 5, []),
        ([2, 3], 0, ["expected 1, got 2"]),
        ([1, 3], 0, ["expected 2, got 3"]),
        ([1, 1], 0, ["expected 2, got 1"]),
    ],
)
def test_numbers_go_up_by_one(
    seqs: Sequence[int], since: int, faults: Sequence[str]
) -> None:
    """P1"""
    envelopes = stream(START, END)
    for envelope, seq in zip(envelopes, seqs, strict=True):
        envelope.seq = seq
    assert [fault.message for fault in find_faults(envelopes, since=since)] == faults


def test_a_reader_who_begins_anywhere_takes_the_first_number_as_it_is() -> None:
    reader = Grammar()
    (first, _) = stream(START, END)
    first.seq = 40
    assert reader.check(first) == []
    assert reader.seq == 40


def test_another_conversation_in_a_stream_is_named() -> None:
    first, second = stream(START, END)
    second.conversation_id = "d"
    assert find_faults([first, second]) == [
        Fault(rule="conversation", seq=2, message="'d' among 'c'")
    ]


def test_a_stream_that_is_still_going_on_needs_no_terminal_event() -> None:
    assert find_faults(stream(START, SAYS), complete=False) == []


def test_calls_without_a_result_are_known_said_to_the_end_or_not() -> None:
    reader = Grammar(0)
    other = e.ToolStarted(call_id="d", name="sub", message_id="m")
    for envelope in stream(START, CALLS, CALLED, other, SAYS):
        reader.check(envelope)
    assert reader.calls_without_result() == {"c": "add", "d": "sub"}


def test_asking_for_a_fault_changes_nothing() -> None:
    reader = Grammar(0)
    reader.check(stream(START)[0])
    for _ in range(2):
        assert reader.fault("r", SAYS) is None
    assert reader.open == {}


def test_every_rule_of_the_docstring_has_a_stream_that_breaks_it() -> None:
    lines = (grammar.__doc__ or "").splitlines()
    rules = {line.split("`")[1] for line in lines if line.startswith("| `")}
    assert rules == {
        "seq",
        "conversation",
        "run-order",
        "terminal",
        "block",
        "block-id",
        "empty",
        "result",
        "left-open",
    }
