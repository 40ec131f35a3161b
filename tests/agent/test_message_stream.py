"""One message as events, whatever a vendor's deltas look like."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrt.agent.message_stream import MessageStream
from agentrt.core.chat import Delta, ReasoningDelta, TextDelta, ToolCallDelta
from agentrt.core.messages import AssistantMessage, ToolCall
from agentrt.events import types as e
from agentrt.events.emitter import Emitter
from agentrt.events.grammar import Grammar
from agentrt.testing import check_stream


def stream(
    taken: Sequence[str] = (),
) -> tuple[MessageStream, list[e.Event]]:
    events: list[e.Event] = []
    return MessageStream("m", events.append, taken.__contains__), events


def finish(
    calls: Sequence[ToolCall], *deltas: Delta, taken: Sequence[str] = ()
) -> Sequence[str]:
    """The ids of the calls at the end."""
    told, events = stream(taken)
    for delta in deltas:
        told.feed(delta)
    message = told.finish(AssistantMessage(id="theirs", tool_calls=tuple(calls)))
    assert message.id == "m"
    ids = [call.id for call in message.tool_calls]
    assert [x.call_id for x in events if isinstance(x, e.ToolStarted)] == ids
    assert [x.call_id for x in events if isinstance(x, e.ToolEnded)] == ids
    return ids


def call(id_: str) -> ToolCall:
    return ToolCall(id=id_, name="add")


@pytest.mark.parametrize(
    ("given_", "taken", "ids"),
    [
        (["a", "b"], [], ["a", "b"]),
        (["", ""], [], ["m-call-1", "m-call-2"]),
        (["a", "a"], [], ["a", "m-call-2"]),
        (["a", "b"], ["a"], ["m-call-1", "b"]),
        (["m-call-2", ""], [], ["m-call-2", "m-call-2-2"]),
    ],
)
def test_each_call_has_an_id_that_nobody_else_has(
    given_: Sequence[str], taken: Sequence[str], ids: Sequence[str]
) -> None:
    """X14: missing, empty, repeated or taken ones are replaced."""
    calls = [call(id_) for id_ in given_]
    assert finish(calls, taken=taken) == ids
    deltas = [
        ToolCallDelta(index=index, id=id_, name="add")
        for index, id_ in enumerate(given_)
    ]
    assert finish(calls, *deltas, taken=taken) == ids


IDS = st.sampled_from(["", "a", "b", "m-call-1", "m-call-2", "m-call-2-2"])


@given(st.lists(IDS, max_size=5), st.sets(IDS), st.integers(0, 5))
def test_ids_are_unique_whatever_a_vendor_gives(
    given_: Sequence[str], taken: set[str], streamed: int
) -> None:
    deltas = [
        ToolCallDelta(index=index, id=id_, name="add")
        for index, id_ in enumerate(given_[:streamed])
    ]
    ids = finish([call(id_) for id_ in given_], *deltas, taken=list(taken))
    assert len(set(ids)) == len(given_)
    assert all(ids)
    assert not {*ids} & taken


def deltas() -> st.SearchStrategy[Delta]:
    texts = st.sampled_from(["", "x", "\n"])
    return st.one_of(
        st.builds(TextDelta, text=texts),
        st.builds(ReasoningDelta, text=texts),
        st.builds(
            ToolCallDelta,
            index=st.integers(0, 2),
            id=IDS,
            name=st.sampled_from(["", "add"]),
            arguments=texts,
        ),
    )


@given(st.lists(deltas(), max_size=12), st.booleans(), st.integers(0, 3))
def test_whatever_comes_the_events_keep_the_grammar(
    told: Sequence[Delta], is_cut: bool, count: int
) -> None:
    """P2: in whatever order pieces come, and however it ends."""
    envelopes: list[e.Envelope] = []
    emitter = Emitter(
        conversation_id="c", run_id="r", grammar=Grammar(0), record=envelopes.append
    )
    emitter.start(e.RunStarted())
    message = MessageStream("m", emitter.emit, lambda id_: False)
    text = "".join(d.text for d in told if isinstance(d, TextDelta))
    first_text = [d for d in told if isinstance(d, TextDelta) and d.text]
    for delta in told:
        message.feed(delta)
    if is_cut:
        message.cut()
    else:
        calls = tuple(call("") for _ in range(count))
        message.finish(AssistantMessage(id="x", content=text, tool_calls=calls))
    emitter.close(e.RunFinished())
    assert emitter.drops == 0
    check_stream(envelopes)
    said = [x.event for x in envelopes if isinstance(x.event, e.MessageDelta)]
    assert "".join(event.text for event in said) == text
    started = [x for x in envelopes if isinstance(x.event, e.MessageStarted)]
    assert len(started) == bool(first_text)


def test_thinking_ends_when_words_begin_and_may_begin_again() -> None:
    told, events = stream()
    for delta in (
        ReasoningDelta(text="a"),
        TextDelta(text="b"),
        ReasoningDelta(text="c"),
    ):
        told.feed(delta)
    told.finish(AssistantMessage(id="m"))
    assert [(event.tag, getattr(event, "message_id", "")) for event in events] == [
        ("reasoning/started", "m-reasoning-1"),
        ("message/thinking", "m-reasoning-1"),
        ("reasoning/ended", "m-reasoning-1"),
        ("message/started", "m"),
        ("message/delta", "m"),
        ("reasoning/started", "m-reasoning-2"),
        ("message/thinking", "m-reasoning-2"),
        ("reasoning/ended", "m-reasoning-2"),
        ("message/ended", "m"),
    ]


def test_arguments_that_came_before_the_name_are_not_lost() -> None:
    told, events = stream()
    told.feed(ToolCallDelta(index=0, id="c", arguments='{"a"'))
    told.feed(ToolCallDelta(index=0, name="add", arguments=":1}"))
    told.finish(AssistantMessage(id="m", tool_calls=(call("c"),)))
    assert events == [
        e.ToolStarted(call_id="c", name="add", message_id="m"),
        e.ToolArgsDelta(call_id="c", text='{"a":1}'),
        e.ToolEnded(call_id="c", arguments={}),
    ]


def test_arguments_that_did_not_stream_are_told_whole() -> None:
    told, events = stream()
    asks = ToolCall(id="c", name="add", arguments={"a": 1})
    broken = ToolCall(id="d", name="add", invalid_arguments="{")
    told.finish(AssistantMessage(id="m", tool_calls=(asks, broken)))
    assert events == [
        e.ToolStarted(call_id="c", name="add", message_id="m"),
        e.ToolArgsDelta(call_id="c", text='{"a": 1}'),
        e.ToolEnded(call_id="c", arguments={"a": 1}),
        e.ToolStarted(call_id="d", name="add", message_id="m"),
        e.ToolArgsDelta(call_id="d", text="{"),
        e.ToolEnded(call_id="d", arguments=None),
    ]


def test_a_cut_message_says_that_its_calls_were_not_started() -> None:
    told, events = stream()
    told.feed(TextDelta(text="so"))
    told.feed(ToolCallDelta(index=0, id="c", name="add"))
    told.cut()
    assert events[-3:] == [
        e.MessageEnded(message_id="m"),
        e.ToolEnded(call_id="c", cut=True),
        e.ToolReturned(
            call_id="c",
            name="add",
            content="This call was not started: its message was cut.",
            is_error=True,
            synthetic=True,
            status="not_started",
        ),
    ]
