"""The reader of server-sent events, against the rules and against a plain reading."""

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrt.core.errors import ResponseFormatError
from agentrt.providers.sse import SseEvent, SseReader


def events_of(*pieces: bytes) -> Sequence[SseEvent]:
    reader = SseReader()
    events = [event for piece in pieces for event in reader.feed(piece)]
    return [*events, *reader.finish()]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"data: a\n\n", [("message", "a")]),
        (b"data:a\n\n", [("message", "a")]),
        (b"data:  a\n\n", [("message", " a")]),
        (b"data: a\r\n\r\ndata: b\r\n\r\n", [("message", "a"), ("message", "b")]),
        (b"data: a\r\rdata: b\r\r", [("message", "a"), ("message", "b")]),
        (b"data: a\ndata: b\n\n", [("message", "a\nb")]),
        (b"data: a\ndata\n\n", [("message", "a\n")]),
        (b"event: ping\ndata: a\n\ndata: b\n\n", [("ping", "a"), ("message", "b")]),
        (b": OPENROUTER PROCESSING\n\ndata: a\n\n", [("message", "a")]),
        (b"id: 7\nretry: 9\ndata: a\n\n", [("message", "a")]),
        (b"event: ping\n\n", []),
        (b"data:\n\n", []),
        (b"\xef\xbb\xbfdata: a\n\n", [("message", "a")]),
        (b"data: a", [("message", "a")]),
        (b"data: a\n", [("message", "a")]),
        (b'error: {"code":500}\n', [("error", '{"code":500}')]),
        (b'data: a\n\nerror: {"x":1}', [("message", "a"), ("error", '{"x":1}')]),
        (b"data: \xff\n\n", [("message", "\ufffd")]),
        (b"", []),
    ],
)
def test_the_reader_keeps_the_rules_of_event_streams(
    body: bytes, expected: list[SseEvent]
) -> None:
    assert events_of(body) == expected


def test_line_separators_of_unicode_do_not_end_a_line() -> None:
    text = "a\u2028b\u2029c\x85d\x0be\x0cf"
    assert events_of(f"data: {text}\n\n".encode()) == [("message", text)]


def test_an_event_that_grows_without_end_is_an_error() -> None:
    reader = SseReader(max_event_bytes=100)
    reader.feed(b"data: " + b"a" * 94)
    with pytest.raises(ResponseFormatError, match="more than 100 bytes"):
        reader.feed(b"a")


def test_an_event_of_many_lines_without_end_is_an_error() -> None:
    reader = SseReader(max_event_bytes=100)
    reader.feed(b"data:\n" * 20)
    with pytest.raises(ResponseFormatError, match="more than 100 bytes"):
        reader.feed(b"data:\n")


def test_many_short_events_may_be_longer_together_than_one() -> None:
    reader = SseReader(max_event_bytes=100)
    assert len(reader.feed(b"data: a\n\n" * 50)) == 50


LINES = [
    *(b"data: a", b"data:", b"data", b"event: e", b"event:", b":", b": c", b"id: 1"),
    *(b"error: x", b"error:", b"other: y", b"data: \xe2", "data: ü€😀\u2028".encode()),
]
ENDS = [b"\n", b"\r", b"\r\n", b"\n\n", b"\r\n\r\n", b"\xef\xbb\xbf"]
BODIES = st.lists(st.sampled_from(LINES + ENDS), max_size=12).map(b"".join)


@given(BODIES, st.data())
def test_where_a_body_is_cut_does_not_matter(body: bytes, data: Any) -> None:
    places = st.lists(st.integers(0, len(body)), max_size=6).map(sorted)
    cuts = [0, *data.draw(places), len(body)]
    pieces = [body[a:b] for a, b in pairwise(cuts)]
    assert events_of(*pieces) == events_of(body)


@given(BODIES)
def test_single_bytes_give_the_same_events(body: bytes) -> None:
    assert events_of(*(bytes([byte]) for byte in body)) == reference(body)


@given(st.binary(max_size=60))
def test_any_bytes_at_all_give_what_the_plain_reading_gives(body: bytes) -> None:
    assert events_of(body) == reference(body)


def reference(body: bytes) -> list[SseEvent]:
    """The rules read off one by one, over the whole body."""
    lines = re.split(rb"\r\n|\n|\r", body.removeprefix(b"\xef\xbb\xbf"))
    events: list[SseEvent] = []
    name = ""
    data: list[str] = []
    for line in [*lines, b""]:
        text = line.decode("utf-8", "replace")
        field, _, value = text.partition(":")
        value = value.removeprefix(" ")
        if not line:
            if "\n".join(data):
                events.append((name or "message", "\n".join(data)))
            name, data = "", []
        elif field == "data":
            data.append(value)
        elif field == "event":
            name = value
        elif field == "error" and value:
            events.append(("error", value))
    return events
