"""Envelopes as the JSON text that goes to clients, made once for all of them."""

import json
from collections.abc import Mapping
from math import isfinite
from typing import Any, Final

from attrs import define, field

from agentrt.agui.codec import Dialect, encode, encode_interrupt, encode_resync
from agentrt.events.types import Envelope, Resync

__all__ = ["FrameCache", "resync_frame", "to_json"]

MAX_FRAMES: Final = 2048
MAX_LENGTH: Final = 4 * 1024 * 1024
"""Characters of all frames together."""


def to_json(value: Any) -> str:
    """Compact JSON. Text that is no valid Unicode is escaped and never an error.

    Numbers that JSON does not know (NaN, the infinities) become null.
    """
    try:
        text = COMPACT.encode(value)
    except ValueError:
        text = COMPACT.encode(value := _finite(value))
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair, cut by a model
        return json.dumps(value, separators=(",", ":"))
    return text


COMPACT: Final = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, separators=(",", ":")
)


def _finite(value: Any) -> Any:
    match value:
        case float():
            return value if isfinite(value) else None
        case Mapping():
            return {key: _finite(item) for key, item in value.items()}
        case list() | tuple():
            return [_finite(item) for item in value]
        case _:
            return value


@define
class FrameCache:
    """The newest WebSocket frames, so that many readers cost one encoding."""

    _frames: dict[tuple[str, int, Dialect], str] = field(factory=dict, init=False)
    _length: int = field(default=0, init=False)

    def frame(self, envelope: Envelope, dialect: Dialect) -> str:
        """The one frame of an envelope."""
        key = (envelope.conversation_id, envelope.seq, dialect)
        frame = self._frames.get(key)
        if frame is None:
            frame = to_json(
                {
                    "threadId": envelope.conversation_id,
                    "seq": envelope.seq,
                    "runId": envelope.run_id,
                    "type": envelope.event.tag,
                    "events": encode(envelope, dialect),
                }
            )
            self._frames[key] = frame
            self._length += len(frame)
            while len(self._frames) > MAX_FRAMES or self._length > MAX_LENGTH:
                oldest = next(iter(self._frames))
                self._length -= len(self._frames.pop(oldest))
        return frame


def resync_frame(resync: Resync, dialect: Dialect) -> str:
    """The frame that brings a reader up to one number."""
    run: Mapping[str, Any] | None = None
    if resync.run_id is not None:
        run = {"runId": resync.run_id, "startedSeq": resync.run_seq}
    return to_json(
        {
            "threadId": resync.conversation_id,
            "resync": {
                "seq": resync.seq,
                "messages": encode_resync(resync, dialect),
                "state": None,
                "run": run,
                "interrupts": [encode_interrupt(each) for each in resync.interrupts],
                "open": [*resync.open_messages, *resync.open_calls],
            },
        }
    )
