"""Histories and pauses in one SQLite file, through apsw, which knows Trio itself.

Each write is one statement, so it is there as a whole or not at all, also when it is
cancelled or the process dies. Several processes may share the file; while one writes,
the others wait. The only door to apsw: its errors come out as `StoreError`.
"""

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import trio
from attrs import define, field, frozen

from agentrt.core.converter import (
    message_from_json,
    message_to_json,
    snapshot_from_json,
    snapshot_to_json,
)
from agentrt.core.errors import SnapshotError, StoreError
from agentrt.core.extras import from_extra
from agentrt.core.messages import Message
from agentrt.core.outcomes import PauseSnapshot
from agentrt.scopes import CLEANUP_SECONDS

with from_extra("sqlite"):
    import apsw

__all__ = [
    "SqliteChatMemory",
    "SqlitePauseStore",
    "SqliteStores",
    "open_sqlite_memory",
    "open_sqlite_stores",
]

SCHEMA = """
create table if not exists message (
  place integer primary key autoincrement,
  conversation_id text not null,
  id text not null,
  body text not null,
  unique (conversation_id, id)
) strict;
create table if not exists pause (
  conversation_id text primary key,
  id text not null,
  body text not null
) strict;
pragma user_version = 2;
"""

VERSION = 2

BUSY_SECONDS: Final = 30.0
"""A writer holds the file for milliseconds. Who is refused loses a result that exists,
so it is waited for as long as a copy or a `vacuum` may take."""

SLICE_SECONDS: Final = 0.1
"""Of that, at a time within SQLite, where no cancellation reaches."""

PAUSE_SECONDS: Final = 0.01
"""After a refusal that SQLite did not wait for."""

APPEND = """
insert or ignore into message (conversation_id, id, body)
select ?1, value ->> 0, value ->> 1 from json_each(?2) order by key
"""

HISTORY = "select body from message where conversation_id = ? order by place"

CLEAR = "delete from message where conversation_id = ?"

SAVE = """
insert into pause (conversation_id, id, body) values (?, ?, ?)
on conflict (conversation_id) do update set id = excluded.id, body = excluded.body
"""

LOAD = "select body from pause where conversation_id = ?"

FIND = "select body from pause where conversation_id = ? and id = ?"

TAKE = """
delete from pause where conversation_id = ? and id = ? and body = ? returning id
"""

DISCARD = "delete from pause where conversation_id = ?"


REMEDIES: Final[Mapping[type[apsw.Error], str]] = {
    apsw.CantOpenError: "cannot be opened: does its folder exist, may it be written?",
    apsw.ReadOnlyError: "may not be written: check the rights on it and on its folder",
    apsw.PermissionsError: "may not be used: check the rights on it and on its folder",
    apsw.FullError: "has no room to grow: make some on its disk",
    apsw.IOError: "could not be read or written: check its disk",
    apsw.CorruptError: "is damaged: put a copy in its place",
    apsw.NotADBError: "is no SQLite database: name another file",
    apsw.ConnectionClosedError: "is closed: use it within the block that opened it",
}


@define(eq=False)
class _File:
    """The connection to one file, with patience, and words for what fails."""

    _path: str
    _busy_seconds: float
    # A text, because the name is in the stubs alone.
    _connection: "apsw.AsyncConnection" = field(repr=False)

    async def run(
        self, sql: str, values: Sequence[Any] = (), *, shielded: bool = False
    ) -> list[tuple[Any, ...]]:
        """The rows of one statement; with `shielded`, once begun it is not cancelled.

        Raises:
            StoreError: the file cannot be used, or was locked for too long.
        """
        give_up = trio.current_time() + self._busy_seconds
        while True:
            try:
                if not shielded:
                    return await self._attempt(sql, values)
                await trio.lowlevel.checkpoint()
                with trio.move_on_after(CLEANUP_SECONDS, shield=True):
                    return await self._attempt(sql, values)
                raise self.error(f"did not answer for {CLEANUP_SECONDS:g} s")
            except (apsw.BusyError, apsw.LockedError):
                if trio.current_time() >= give_up:
                    raise self.error(
                        "was locked by somebody else for more than "
                        f"{self._busy_seconds:g} s: end what holds it, as a backup"
                    ) from None
            except apsw.Error as error:
                raise self.error(_words(error)) from error
            await trio.sleep(PAUSE_SECONDS)

    def error(self, what: str) -> StoreError:
        return StoreError(f"the file {self._path!r} {what}")

    async def _attempt(self, sql: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        cursor = await self._connection.execute(sql, tuple(values))
        return [row async for row in cursor]


def _words(error: apsw.Error) -> str:
    return REMEDIES.get(type(error)) or f"cannot be used: {error}"


@define(eq=False)
class SqliteChatMemory:
    """A `ChatMemory` in a file. Made by `open_sqlite_memory`.

    Raises `StoreError` where the file cannot be used.
    """

    _file: _File = field(repr=False)

    async def append(self, conversation_id: str, messages: Sequence[Message]) -> None:
        rows = [[_key(message.id), message_to_json(message)] for message in messages]
        await self._file.run(APPEND, (_key(conversation_id), json.dumps(rows)))

    async def history(self, conversation_id: str) -> Sequence[Message]:
        rows = await self._file.run(HISTORY, (_key(conversation_id),))
        try:
            return tuple([message_from_json(body) for (body,) in rows])
        except ValueError as error:
            raise self._file.error(
                f"holds a message of conversation {conversation_id!r} that cannot be "
                f"read: {error}"
            ) from None

    async def clear(self, conversation_id: str) -> None:
        await self._file.run(CLEAR, (_key(conversation_id),))


@define(eq=False)
class SqlitePauseStore:
    """A `PauseStore` in a file. Made by `open_sqlite_stores`.

    Raises `SnapshotError` for a pause that cannot be read, which stays where it is, and
    `StoreError` where the file cannot be used.
    """

    _file: _File = field(repr=False)

    async def save(self, snapshot: PauseSnapshot) -> None:
        body = snapshot_to_json(snapshot)
        keys = (_key(snapshot.conversation_id), _key(snapshot.id))
        await self._file.run(SAVE, (*keys, body))

    async def load(self, conversation_id: str) -> PauseSnapshot | None:
        rows = await self._file.run(LOAD, (_key(conversation_id),))
        return _snapshot(rows[0][0], conversation_id) if rows else None

    async def take(self, conversation_id: str, pause_id: str) -> PauseSnapshot | None:
        keys = (_key(conversation_id), _key(pause_id))
        while rows := await self._file.run(FIND, keys):
            body = rows[0][0]
            snapshot = _snapshot(body, conversation_id)
            # Gone only as it was read. What is taken is gone: a cancellation must not
            # come between that and its use.
            if await self._file.run(TAKE, (*keys, body), shielded=True):
                return snapshot
        return None

    async def discard(self, conversation_id: str) -> None:
        await self._file.run(DISCARD, (_key(conversation_id),))


def _snapshot(body: str, conversation_id: str) -> PauseSnapshot:
    try:
        return snapshot_from_json(body)
    except ValueError as error:
        raise SnapshotError(conversation_id, str(error)) from None


@frozen
class SqliteStores:
    """What one file keeps. Made by `open_sqlite_stores`."""

    memory: SqliteChatMemory
    pauses: SqlitePauseStore


def _key(text: str) -> str:
    """An id as SQLite can hold it: half a surrogate pair has no UTF-8 form."""
    return text.encode("utf-8", "backslashreplace").decode()


@asynccontextmanager
async def open_sqlite_memory(
    path: str | Path, *, busy_seconds: float = BUSY_SECONDS
) -> AsyncIterator[SqliteChatMemory]:
    """The histories of `open_sqlite_stores` alone."""
    async with open_sqlite_stores(path, busy_seconds=busy_seconds) as stores:
        yield stores.memory


@asynccontextmanager
async def open_sqlite_stores(
    path: str | Path, *, busy_seconds: float = BUSY_SECONDS
) -> AsyncIterator[SqliteStores]:
    """Stores in the file at `path`, made if it is not there; `:memory:` for none.

    Owns the connection and its thread. One process may write at a time; others wait up
    to `busy_seconds` for it, and fail then.

    Raises:
        StoreError: the file cannot be opened, is of a newer version, or no database.
    """
    try:
        connection = await apsw.Connection.as_async(str(path))
    except apsw.Error as error:
        raise StoreError(f"the file {str(path)!r} {_words(error)}") from error
    try:
        file = _File(str(path), busy_seconds, connection)
        await _prepare(file, int(min(busy_seconds, SLICE_SECONDS) * 1000))
        yield SqliteStores(SqliteChatMemory(file), SqlitePauseStore(file))
    finally:
        with trio.move_on_after(CLEANUP_SECONDS, shield=True):
            await connection.aclose()


async def _prepare(file: _File, busy_milliseconds: int) -> None:
    await file.run(f"pragma busy_timeout = {busy_milliseconds}")
    await file.run("pragma journal_mode = wal")
    await file.run("pragma synchronous = normal")
    ((version,),) = await file.run("pragma user_version")
    if version > VERSION:
        raise file.error(
            f"has version {version}, expected {VERSION} or less: "
            "it was written by a newer agentrt"
        )
    await file.run(SCHEMA)
