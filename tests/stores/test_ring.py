"""The ring against a plain list: what it keeps, and what it says it has lost."""

import gc
import weakref
from collections.abc import Sequence

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from agentrt.core.messages import UserMessage
from agentrt.core.outcomes import CallRecord
from agentrt.events import types as e
from agentrt.stores.ring import ENVELOPE_BYTES, EventRing, weight


def envelope(seq: int, text: str = "x") -> e.Envelope:
    return e.Envelope(
        seq=seq,
        conversation_id="c",
        run_id="r",
        at=0.0,
        event=e.MessageDelta(message_id="m", text=text),
    )


@given(
    st.lists(st.integers(1, 300), max_size=40),
    st.integers(1, 8),
    st.integers(300, 2000),
    st.integers(0, 5),
)
def test_the_ring_is_the_end_of_a_list(
    sizes: Sequence[int], max_events: int, max_bytes: int, head: int
) -> None:
    ring = EventRing(head, max_events, max_bytes)
    everything: list[e.Envelope] = []
    for place, size in enumerate(sizes, 1):
        everything.append(envelope(head + place, "x" * size))
        ring.append(everything[-1])
        assert ring.head == ring.visible == head + len(everything)
        kept = everything[ring.oldest - head - 1 :]
        assert kept, "the newest is always there"
        assert len(kept) <= max_events
        assert ring.bytes == sum(weight(each) for each in kept)
        assert len(kept) == 1 or ring.bytes <= max_bytes
        for seq in range(ring.oldest - 1, ring.head + 1):
            after = [each for each in everything if each.seq > seq]
            assert list(ring.after(seq, limit=3)) == after[:3]
        assert [ring[each.seq] for each in kept] == kept


def test_an_empty_ring_begins_after_its_head() -> None:
    ring = EventRing(7)
    assert (ring.oldest, ring.visible, list(ring.after(7, limit=1))) == (8, 7, [])


@pytest.mark.parametrize("seq", [0, 1, 3])
def test_a_hole_or_a_repeat_is_refused(seq: int) -> None:
    """P1"""
    ring = EventRing()
    ring.append(envelope(1))
    with pytest.raises(ValueError, match=f"seq is {seq}, expected 2"):
        ring.append(envelope(seq))
    assert ring.head == 1


async def test_all_readers_are_woken_by_what_comes_and_by_the_end() -> None:
    ring = EventRing()
    woken: list[int] = []

    async def wait(number: int) -> None:
        await ring.wait_for_more()
        woken.append(number)

    def add() -> None:
        ring.append(envelope(ring.head + 1))

    for wake in (add, ring.close):
        async with trio.open_nursery() as nursery:
            for number in range(3):
                nursery.start_soon(wait, number)
            await trio.testing.wait_all_tasks_blocked()
            assert ring.readers == 3
            wake()
            assert ring.readers == 0
    assert sorted(woken) == [0, 0, 1, 1, 2, 2]
    assert ring.closed


RECORD = CallRecord(id="c", name="add", arguments={}, status="ok", content="y" * 500)


@pytest.mark.parametrize(
    ("event", "least"),
    [
        (e.MessageDelta(message_id="m", text="x" * 500), 500),
        (e.MessageThinking(message_id="m", text="x" * 500), 500),
        (e.ToolArgsDelta(call_id="c", text="x" * 500), 500),
        (e.ToolReturned(call_id="c", name="add", content="x" * 500), 500),
        (e.RunStarted(input=[UserMessage(content="x" * 500)]), 500),
        (e.RunFinished(text="x" * 500, calls=[RECORD]), 1000),
        (e.RunCancelled(reason="stop", text="x" * 500, calls=[RECORD]), 1000),
        (e.RunFailed(message="no", error_code="x", calls=[RECORD]), 500),
        (e.RunPaused(interrupts=[], calls=[RECORD]), 500),
        (e.ToolEnded(call_id="c", arguments={"a": "x" * 500}), 500),
        (
            e.ToolReturned(call_id="c", name="a", content="", writes={"a": "x" * 500}),
            500,
        ),
        (e.IterationStarted(index=0), 0),
    ],
)
def test_an_event_weighs_what_it_says(event: e.Event, least: int) -> None:
    weighed = weight(
        e.Envelope(seq=1, conversation_id="c", run_id="r", at=0.0, event=event)
    )
    assert weighed >= ENVELOPE_BYTES + least


def test_what_the_ring_dropped_is_not_held() -> None:
    """Bytes that are not counted any more are not there any more."""
    ring = EventRing(max_events=100, max_bytes=10_000)
    dropped: list[weakref.ref[e.Envelope]] = []
    for seq in range(1, 51):
        one = envelope(seq, "x" * 1000)
        dropped.append(weakref.ref(one))
        ring.append(one)
    del one
    gc.collect()
    held = sum(ref() is not None for ref in dropped)
    assert held == ring.head + 1 - ring.oldest
    assert held <= 10
