"""Long results of tools: cut in the middle, and kept whole elsewhere if you like.

One huge output would fill the model's window and end the conversation. Here each
result, of whatever tool, and each error, is held to one limit. Register it before other
filters with a tool hook: it then cuts what they made, too.
"""

import hashlib
import logging
import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Annotated, Final, Literal, TypeAlias

from attrs import evolve, frozen

from agentrt.core.context import Context
from agentrt.core.errors import ToolError, describe
from agentrt.core.ids import new_id
from agentrt.core.parts import Content, FilePart, Part, TextPart
from agentrt.core.truncate import Cut, Measure, find_cut, fitting_prefix
from agentrt.filters.base import Filter, ToolRequest, ToolUse, hook
from agentrt.models.estimate import estimate_text
from agentrt.tools.base import Tool, ToolResult, tool
from agentrt.tools.failures import result_of_failure
from agentrt.tools.signature import Param
from agentrt.tools.workers import run_in_thread

__all__ = ["READ_TOOL", "Spill", "SpillFolder", "tool_output_filter"]

logger = logging.getLogger(__name__)

READ_TOOL: Final = "read_tool_output"

Unit: TypeAlias = Literal["characters", "tokens"]

UNITS: Final[dict[str, tuple[Measure, int]]] = {
    "characters": (len, 400),
    "tokens": (estimate_text, 100),
}
"""How each is measured, and the least that may be asked for."""

NOTE: Final = "[This result is too long ({:,} characters): its middle is left out.{}]\n"
WHERE: Final = " The whole is at {}."
READ: Final = " The whole is kept: read it in pieces with {}, name {!r}."
PIECE: Final = "[characters {:,} to {:,} of {:,}{}]\n"

MAX_BYTES: Final = 256 * 1024 * 1024

NAME: Final = re.compile(r"[\w-]{1,100}", re.ASCII)

OWN_FOLDER: Final = re.compile(r"outputs-[0-9a-f]{16}")
OWN_SUFFIXES: Final = (".txt", ".part")
"""A file so named, in a folder so named, is ours; no other is ever deleted."""

Spill: TypeAlias = Callable[[str, str], Awaitable[str]]
"""`spill(name, text)` keeps the text and says where, for the model to read."""


@frozen
class SpillFolder:
    """Keeps long results as files, each conversation's apart; the model may read them.

    The folder is made when it is needed; only this user may read what it writes. What
    is in it when the program ends stays, as the conversations that name it do. With
    more than `max_bytes` of its own files, the oldest of them go; the newest always
    stays, and so does what others put there.
    """

    path: Path
    max_bytes: int = MAX_BYTES

    def write(self, conversation_id: str, name: str, text: str) -> None:
        """Keep a text. Blocks."""
        self.path.mkdir(0o700, parents=True, exist_ok=True)
        folder = self._folder(conversation_id)
        folder.mkdir(0o700, exist_ok=True)
        unfinished = folder / f"{name}.part"
        with open(unfinished, "wb", opener=partial(os.open, mode=0o600)) as file:
            file.write(text.encode("utf-8", "surrogatepass"))
        unfinished.replace(folder / f"{name}.txt")
        self._make_room()

    def read(self, conversation_id: str, name: str) -> str | None:
        """A text of this conversation; None if there is none, or no more. Blocks."""
        if NAME.fullmatch(name) is None:
            return None
        path = self._folder(conversation_id) / f"{name}.txt"
        if not path.is_file():
            return None
        return path.read_bytes().decode("utf-8", "surrogatepass")

    def _folder(self, conversation_id: str) -> Path:
        raw = conversation_id.encode("utf-8", "surrogatepass")
        return self.path / f"outputs-{hashlib.sha256(raw).hexdigest()[:16]}"

    def _make_room(self) -> None:
        files = []
        for path in self.path.glob("outputs-*/*"):
            if not _is_own(path):
                continue
            with suppress(FileNotFoundError):  # another thread makes room as well
                stat = path.stat()
                files.append((stat.st_mtime_ns, stat.st_size, path))
        held = 0
        for place, (_, bytes_, path) in enumerate(sorted(files, reverse=True)):
            held += bytes_
            if held > self.max_bytes and place > 0:
                path.unlink(missing_ok=True)


def _is_own(path: Path) -> bool:
    return (
        OWN_FOLDER.fullmatch(path.parent.name) is not None
        and path.suffix in OWN_SUFFIXES
        and path.is_file()
        and not path.is_symlink()
    )


def tool_output_filter(
    limit: int = 20_000,
    *,
    unit: Unit = "characters",
    spill: Spill | SpillFolder | str | os.PathLike[str] | None = None,
) -> Filter:
    """Hold each tool result to `limit`, in characters or in tokens by our estimate.

    What is longer keeps its head and its tail; a note and a marker, which count, say
    what is missing. Files in a result stay. `spill` keeps the whole text: a folder,
    which the model reads in pieces by the tool `read_tool_output`, or an async function
    that says where it put the text. If that fails, the result is cut all the same.

    Raises:
        ValueError: `unit` is none, or `limit` is too low for the note.
    """
    size = _size(limit, unit)
    folder = SpillFolder(Path(spill)) if isinstance(spill, str | os.PathLike) else spill
    keep = _keeper(folder)

    @hook
    async def tool(call: ToolUse) -> AsyncIterator[None]:
        try:
            yield
        except Exception as error:  # noqa: BLE001  what a tool raises is its result
            call.response = _failed(call.request, error, size)
        result = call.response
        if not size.is_over(result.content):
            return
        cut = evolve(result, content=size.cut(result.content, ""))
        if call.context.tool_returned is not None:
            call.context.tool_returned(cut)  # should we be stopped while it is kept
        call.response = cut
        if keep is not None:
            where = await keep(call, _words(result.content))
            call.response = evolve(cut, content=size.cut(result.content, where))

    brought = [_reader(folder, size)] if isinstance(folder, SpillFolder) else []
    return Filter(name="tool_output", tool=tool, tools=brought)


@frozen
class _Size:
    """A limit, and how it is measured."""

    limit: int
    measure: Measure

    def is_over(self, content: Content) -> bool:
        return self.measure("".join(_texts(content))) > self.limit

    def cut(self, content: Content, where: str) -> Content:
        """A content that is too long, within the limit. `where` is left out if long."""
        whole = "".join(_texts(content))
        note = NOTE.format(len(whole), where)
        if self.measure(note) > self.limit // 2:
            note = NOTE.format(len(whole), "")
        room = self.limit - self.measure(note)
        cut = find_cut(whole, room, measure=self.measure)
        assert cut is not None, "only what is over the limit is cut"
        if isinstance(content, str):
            return note + "".join(_pieces(whole, 0, cut, len(whole)))
        return (TextPart(text=note), *_cut_parts(content, cut, len(whole)))


def _size(limit: int, unit: str) -> _Size:
    if unit not in UNITS:
        raise ValueError(f"unit is {unit!r}, expected 'characters' or 'tokens'")
    measure, least = UNITS[unit]
    if limit < least:
        raise ValueError(f"limit is {limit}, expected {least} {unit} or more")
    return _Size(limit, measure)


def _texts(content: Content) -> Sequence[str]:
    if isinstance(content, str):
        return [content]
    return ["" if isinstance(part, FilePart) else part.text for part in content]


def _words(content: Content) -> str:
    """The whole text, for keeping: parts on lines of their own."""
    return "\n".join(text for text in _texts(content) if text)


def _cut_parts(parts: Sequence[Part], cut: Cut, total: int) -> Sequence[Part]:
    """The parts without what the cut leaves out; files stay."""
    kept: list[Part] = []
    start = 0
    for part, text in zip(parts, _texts(parts), strict=True):
        pieces = "".join(_pieces(text, start, cut, total))
        if pieces == text:
            kept.append(part)
        elif pieces:
            kept.append(TextPart(text=pieces))
        start += len(text)
    return kept


def _pieces(text: str, start: int, cut: Cut, total: int) -> Sequence[str]:
    """What stays of a text that begins at `start` of the whole."""
    head, tail = cut.head - start, total - cut.tail - start
    marker = cut.marker if 0 <= head < len(text) else ""
    return [text[: max(0, head)], marker, text[max(0, tail) :]]


def _failed(request: ToolRequest, error: Exception, size: _Size) -> ToolResult:
    """The result of a failure whose words are too long; any other goes on."""
    if not size.is_over(f"error: {describe(error)}"):
        raise error
    return result_of_failure(error, request.tool)


Keep: TypeAlias = Callable[[ToolUse, str], Awaitable[str]]


def _keeper(spill: Spill | SpillFolder | None) -> Keep | None:
    """What keeps a text and says where, in a sentence; "" if it failed."""
    if spill is None:
        return None

    async def keep(call: ToolUse, text: str) -> str:
        name = f"{call.request.name}-{new_id()[:8]}"
        try:
            if not isinstance(spill, SpillFolder):
                return WHERE.format(await spill(name, text))
            context = call.context
            write = partial(spill.write, context.conversation_id, name, text)
            await run_in_thread(write, name="tool_output", context=context)
        except Exception:
            # The result is there and must not be lost with the copy of it.
            logger.exception("a result of %r could not be kept", call.request.name)
            return ""
        return READ.format(READ_TOOL, name)

    return keep


def _reader(folder: SpillFolder, size: _Size) -> Tool:
    """The tool by which the model reads what was cut."""

    @tool(name=READ_TOOL)
    def read(
        name: str,
        start: Annotated[int, Param(minimum=0)] = 0,
        *,
        context: Context,
    ) -> str:
        """Read a tool result that was too long to be shown whole, in pieces.

        Args:
            name: The name that the shortened result gives.
            start: The character to begin at, counted from 0.
        """
        text = folder.read(context.conversation_id, name)
        if text is None:
            raise ToolError(f"there is no output {name[:100]!r}, or no longer")
        if start > len(text):
            raise ToolError(f"start is {start}, expected 0 to {len(text)}")
        more = "; go on with start={}"
        longest = PIECE.format(len(text), len(text), len(text), more.format(len(text)))
        room = size.limit - size.measure(longest)
        piece = fitting_prefix(text[start:], room, measure=size.measure)
        end = start + len(piece)
        rest = more.format(end) if end < len(text) else ""
        return PIECE.format(start, end, len(text), rest) + piece

    return read
