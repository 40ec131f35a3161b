"""The instructions filter: files beside the work that tell agents how to do it."""

import codecs
import logging
import os
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, TypeAlias

from attrs import evolve, frozen

from agentrt.filters.base import ChatCall, Filter, hook
from agentrt.tools.workers import run_in_thread

__all__ = ["instructions_filter"]

logger = logging.getLogger(__name__)

AnyPath: TypeAlias = str | os.PathLike[str]

NAMES: Final = ("AGENTS.md",)
MAX_BYTES: Final = 32 * 1024


def instructions_filter(
    root: AnyPath,
    directory: AnyPath | None = None,
    *,
    names: str | Sequence[str] = NAMES,
    max_bytes: int = MAX_BYTES,
) -> Filter:
    """Add instruction files to the system prompt of each model call.

    Every folder from `root` down to `directory` (without it, `root` alone) gives the
    first of `names` that is a file in it. Their texts follow each other in that order,
    the nearest last, each under its path, and all that is added is at most `max_bytes`
    of UTF-8: what is too much is cut at its end, never within a character, and logged.
    A folder that cannot be read is skipped and logged; a blank file adds nothing.

    The files are read anew for each call, in a worker thread; nothing of them enters
    the history. They say what the model should do, so let only those write them whom
    you trust. Register it before (around) filters that look at the whole request.

    Raises:
        ValueError: `directory` is not within `root`, a name is no plain file name, or
            `max_bytes` is below 1.
    """
    files = _Files(
        root=_absolute(root),
        levels=_levels(_absolute(root), _absolute(directory or root)),
        names=_plain([names] if isinstance(names, str) else names),
        max_bytes=max_bytes,
    )
    if max_bytes < 1:
        raise ValueError(f"max_bytes is {max_bytes}, expected 1 or more")

    @hook
    async def chat(call: ChatCall) -> AsyncIterator[None]:
        added: str = await run_in_thread(
            files.read, name="instructions", context=call.context
        )
        if added:
            parts = [part for part in (call.request.system, added) if part]
            call.request = evolve(call.request, system="\n\n".join(parts))
        yield

    return Filter(name="instructions", chat=chat)


@frozen(kw_only=True)
class _Files:
    """Where instructions are. Its methods block."""

    root: Path
    levels: Sequence[Path]
    names: Sequence[str]
    max_bytes: int

    def read(self) -> str:
        """All instructions that there are now, within the budget."""
        return fit(self._texts(), self.max_bytes)

    def _texts(self) -> Iterator[tuple[str, str]]:
        for level in self.levels:
            try:
                path = next(filter(Path.is_file, (level / n for n in self.names)), None)
                text = "" if path is None else _text(path, self.max_bytes)
            except OSError as error:
                logger.warning("instructions: skipped %s: %s", level, error)
                continue
            if path is not None and text:
                name = os.fsencode(path.relative_to(self.root).as_posix())
                yield name.decode("utf-8", "replace"), text


def _text(path: Path, max_bytes: int) -> str:
    """The beginning of a file; a character that is cut at the end is left out."""
    with path.open("rb") as file:
        start = file.read(max_bytes + 1)
    decoder = codecs.getincrementaldecoder("utf-8-sig")("replace")
    return decoder.decode(start, final=len(start) <= max_bytes).strip()


def fit(texts: Iterable[tuple[str, str]], max_bytes: int) -> str:
    """The texts, each under its name, as far as the budget reaches."""
    left = max_bytes
    fitted: list[str] = []
    for name, text in texts:
        gap = "\n\n" if fitted else ""
        head = f"{gap}Instructions from {name}:\n\n"
        room = left - len(head.encode())
        kept = text.encode()[: max(room, 0)].decode("utf-8", "ignore")
        if kept:
            fitted.append(head + kept)
            left = room - len(kept.encode())
        if kept != text:
            logger.warning("instructions: %s was cut at %d bytes", name, max_bytes)
            break
    return "".join(fitted)


def _absolute(path: AnyPath) -> Path:
    return Path(os.path.abspath(path))


def _levels(root: Path, directory: Path) -> Sequence[Path]:
    if not directory.is_relative_to(root):
        raise ValueError(f"directory is {directory}, expected a folder within {root}")
    inner = directory.relative_to(root).parts
    return [root.joinpath(*inner[:depth]) for depth in range(len(inner) + 1)]


def _plain(names: Sequence[str]) -> Sequence[str]:
    for name in names:
        if not name or name in {".", ".."} or Path(name).name != name:
            raise ValueError(f"names has {name!r}, expected plain names of files")
    if not names:
        raise ValueError("names is empty, expected names of files, as 'AGENTS.md'")
    return tuple(names)
