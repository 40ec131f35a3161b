"""Tool calls out of the pieces in which OpenAI and all who copy its wire send them.

Beneath `openai_stream`; pure. Which call a piece belongs to is the whole difficulty:
vendors leave out the index, use 0 for each, count from 1, repeat the name, blank the
id. The rules, in order:

* The index says which call. A piece without one goes by its id, or to the last call.
* A name along with another id begins a new call, whatever the index. So does a name
  where the call is whole already, unless the piece only repeats what is known.
* The first id and the first name stay. An id that an earlier call has is dropped.
* Arguments are joined. An object is taken as its JSON text; the whole text once more
  is a repetition.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attrs import define, field

from agentrt.core.chat import ToolCallDelta
from agentrt.core.messages import ToolCall, parse_arguments

__all__ = ["CallAccumulator"]


@define
class _Slot:
    """One call as far as it is known."""

    index: int
    id: str = ""
    name: str = ""
    told: bool = False
    told_id: str = ""
    """The id that its first delta had: "" where it was unknown or not its own."""

    next_name: str = ""
    """A name that came when the arguments were whole: of this call, or of the next."""

    extra: Mapping[str, Any] | None = None
    pieces: list[str] = field(factory=list)
    characters: int = 0

    @property
    def text(self) -> str:
        if len(self.pieces) > 1:
            self.pieces = ["".join(self.pieces)]
        return self.pieces[0] if self.pieces else ""

    @property
    def is_whole(self) -> bool:
        """Whether the arguments are a JSON object to its last brace."""
        if not self.characters or not self.text.rstrip().endswith("}"):
            return False
        try:
            return isinstance(json.loads(self.text), dict)
        except (ValueError, RecursionError):
            return False

    def repeats(self, piece: str) -> bool:
        """Whether `piece` is all of the arguments once more."""
        same = len(piece) == self.characters and piece == self.text
        return same and self.is_whole


@define
class CallAccumulator:
    """Collects the calls of one reply, and tells each piece of them."""

    _tell: Callable[[ToolCallDelta], None]
    _slots: list[_Slot] = field(factory=list, init=False)
    _by_index: dict[int | str, _Slot] = field(factory=dict, init=False)
    _by_id: dict[str, _Slot] = field(factory=dict, init=False)

    def __bool__(self) -> bool:
        return bool(self._slots)

    @property
    def extras(self) -> Sequence[Mapping[str, Any] | None]:
        """The `extra_content` of each call: Gemini's signatures, to be sent back."""
        return [slot.extra for slot in self._slots]

    def feed(self, entry: Mapping[str, Any]) -> None:
        """Take one element of `tool_calls`."""
        function = entry.get("function")
        if not isinstance(function, dict):
            function = {}
        id_, name = _word(entry.get("id")), _word(function.get("name"))
        piece = _arguments_text(function.get("arguments"))
        slot = self._find(entry.get("index"), id_=id_, name=name, piece=piece)
        if slot is None:
            return
        if id_ and not slot.id:
            slot.id = id_
            self._by_id[id_] = slot
        slot.name = slot.name or name
        if isinstance(entry.get("extra_content"), dict):
            slot.extra = entry["extra_content"]
        if piece and not slot.repeats(piece):
            slot.pieces.append(piece)
            slot.characters += len(piece)
            self._tell_piece(slot, piece)
        else:
            self._tell_piece(slot, "")

    def finish(self, *, cut: bool) -> Sequence[ToolCall]:
        """The calls in the order in which they first appeared.

        `cut` says that the reply was ended from outside: then a last call that has no
        arguments yet lost them, and must not run as if it needed none.
        """
        for slot in self._slots:
            if not slot.told:
                self._tell_first(slot)
        calls = [_call(slot) for slot in self._slots]
        if cut and calls and not self._slots[-1].text.strip():
            last = self._slots[-1]
            calls[-1] = ToolCall(id=last.told_id, name=last.name, invalid_arguments="")
        return tuple(calls)

    def _find(self, index: Any, *, id_: str, name: str, piece: str) -> _Slot | None:
        """The call that a piece belongs to; None for a piece of nothing."""
        has_index = isinstance(index, int | str) and not isinstance(index, bool)
        if has_index:
            known = self._by_index.get(index)
        elif id_:
            known = self._by_id.get(id_)
        else:
            known = self._slots[-1] if self._slots else None
            if known is not None and name and known.is_whole:
                known = None  # nothing says that it only repeats
        if known is None and not (id_ or name or piece):
            return None
        if known is not None and not _is_another(known, id_, name=name, piece=piece):
            if name and known.is_whole:
                known.next_name = name
            return known
        slot = _Slot(index=len(self._slots), name=known.next_name if known else "")
        self._slots.append(slot)
        if has_index:
            self._by_index[index] = slot
        return slot

    def _tell_piece(self, slot: _Slot, piece: str) -> None:
        if slot.told:
            if piece:
                self._tell(ToolCallDelta(index=slot.index, arguments=piece))
        elif slot.name:  # held back until now: the first delta has the name
            self._tell_first(slot)

    def _tell_first(self, slot: _Slot) -> None:
        slot.told = True
        taken = any(other.told_id == slot.id for other in self._slots)
        slot.told_id = "" if taken else slot.id
        self._tell(
            ToolCallDelta(
                index=slot.index,
                id=slot.told_id,
                name=slot.name,
                arguments=slot.text,
            )
        )


def _is_another(slot: _Slot, id_: str, *, name: str, piece: str) -> bool:
    """Whether a piece that seems to belong to `slot` begins a call of its own."""
    if name and id_ and slot.id and id_ != slot.id:
        return True
    if not (name or slot.next_name) or not slot.name:
        return False
    brings_more = piece.strip() != "" and piece != slot.text
    return (brings_more or (name or slot.name) != slot.name) and slot.is_whole


def _call(slot: _Slot) -> ToolCall:
    arguments, invalid = parse_arguments(slot.text)
    return ToolCall(
        id=slot.told_id,
        name=slot.name,
        arguments=arguments,
        invalid_arguments=invalid,
    )


def _word(value: Any) -> str:
    """An id or a name: text, a number as its digits, anything else as none."""
    if isinstance(value, str):
        return value
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return str(value) if is_number else ""


def _arguments_text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=False)
    except RecursionError:  # too deep to be written; so it must not run
        return "{"
