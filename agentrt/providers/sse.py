"""Server-sent events out of the bytes of a body.

Pure. Events are read from bytes because the line reader of httpx also breaks at U+2028,
U+2029 and U+0085, which may stand in a JSON text, and so cuts events in two. All events
of a piece are given at once, so that a burst of tokens is one step.

Source: HTML Living Standard, section 9.2.6, and what vendors make of it.
"""

from collections.abc import Sequence
from typing import Final, TypeAlias

from attrs import define, field

from agentrt.core.errors import ResponseFormatError

__all__ = ["SseEvent", "SseReader"]

MAX_EVENT_BYTES: Final = 8 * 1024 * 1024
"""An event that grows beyond this is an error, lest it fill the memory."""

BOM: Final = b"\xef\xbb\xbf"

SseEvent: TypeAlias = tuple[str, str]
"""The event's name (`message` where it has none) and its data."""


@define
class SseReader:
    """Server-sent events out of bytes, wherever these are cut.

    Lines end in LF, CR or CRLF. Data is UTF-8; what is not becomes U+FFFD. Comments,
    ids and retry times are skipped, and so is an event without data. A raw line
    `error: {...}`, as GPUStack writes when it fails, is an event of that name.
    """

    max_event_bytes: int = field(default=MAX_EVENT_BYTES, kw_only=True)
    _begun: list[bytes] = field(factory=list, init=False)
    """Pieces of the line that has no end yet."""

    _begun_bytes: int = field(default=0, init=False)
    _lines: list[bytes] = field(factory=list, init=False)
    """Data of the event that has no end yet."""

    _lines_bytes: int = field(default=0, init=False)
    _name: str = field(default="", init=False)
    _after_cr: bool = field(default=False, init=False)
    """The last byte was a CR, so an LF now belongs to it."""

    _at_start: bool = field(default=True, init=False)

    def feed(self, piece: bytes) -> Sequence[SseEvent]:
        """The events that `piece` completes, in order.

        Raises:
            ResponseFormatError: an event is longer than `max_event_bytes`.
        """
        if self._after_cr and piece:
            self._after_cr = False
            piece = piece.removeprefix(b"\n")
        if b"\r" in piece:
            self._after_cr = piece.endswith(b"\r")
            piece = piece.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        head, end, rest = piece.rpartition(b"\n")
        events: list[SseEvent] = []
        if end:
            lines = b"".join([*self._begun, head]).split(b"\n")
            self._begun, self._begun_bytes = [], 0
            self._read_lines(lines, events)
        if rest:
            self._begun.append(rest)
            self._begun_bytes += len(rest)
        if self._begun_bytes + self._lines_bytes > self.max_event_bytes:
            raise ResponseFormatError(
                f"an event of more than {self.max_event_bytes} bytes: "
                "a stream of tokens has none so long"
            )
        return events

    def finish(self) -> Sequence[SseEvent]:
        """The event that the end of the body cut short, if there is one.

        Some vendors leave out the last blank line; others were cut off. Only the data
        can tell.
        """
        events: list[SseEvent] = []
        self._read_lines([b"".join(self._begun), b""], events)
        self._begun, self._begun_bytes = [], 0
        return events

    def _read_lines(self, lines: Sequence[bytes], events: list[SseEvent]) -> None:
        if self._at_start:
            self._at_start = False
            lines = [lines[0].removeprefix(BOM), *lines[1:]]
        for line in lines:
            if not line:
                self._dispatch(events)
            elif line.startswith(b"data:"):
                self._lines.append(line[6:] if line[5:6] == b" " else line[5:])
                self._lines_bytes += len(line)
            else:
                self._read_field(line, events)

    def _read_field(self, line: bytes, events: list[SseEvent]) -> None:
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        match name:
            case b"data":  # without a colon: an empty line of data
                self._lines.append(b"")
                self._lines_bytes += len(line)
            case b"event":
                self._name = value.decode("utf-8", "replace")
            case b"error" if value:
                events.append(("error", value.decode("utf-8", "replace")))
            case _:
                pass

    def _dispatch(self, events: list[SseEvent]) -> None:
        data = b"\n".join(self._lines)
        if data:
            name = self._name or "message"
            events.append((name, data.decode("utf-8", "replace")))
        self._lines, self._lines_bytes, self._name = [], 0, ""
