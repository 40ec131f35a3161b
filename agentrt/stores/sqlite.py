"""Histories and pauses in one SQLite file, through apsw, which knows Trio itself.

Each write is one statement, so it is there as a whole or not at all, also when it is
cancelled or the process dies. Several processes may share the file.
"""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import trio
from attrs import define, field, frozen

from agentrt.core.converter import (
    message_from_json,
    message_to_json,
    snapshot_from_json,
    snapshot_to_json,
)
from agentrt.core.errors import SnapshotError
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

TAKE = "delete from pause where conversation_id = ? and id = ? returning body"

DISCARD = "delete from pause where conversation_id = ?"


@define(eq=False)
class SqliteChatMemory:
    """A `ChatMemory` in a file. Made by `open_sqlite_memory`."""

    # A text, because the name is in the stubs alone.
    _connection: "apsw.AsyncConnection" = field(repr=False)

    async def append(self, conversation_id: str, messages: Sequence[Message]) -> None:
        rows = [[_key(message.id), message_to_json(message)] for message in messages]
        await self._connection.execute(
            APPEND, (_key(conversation_id), json.dumps(rows))
        )

    async def history(self, conversation_id: str) -> Sequence[Message]:
        cursor = await self._connection.execute(HISTORY, (_key(conversation_id),))
        return tuple([message_from_json(body) async for (body,) in cursor])

    async def clear(self, conversation_id: str) -> None:
        await self._connection.execute(CLEAR, (_key(conversation_id),))


@define(eq=False)
class SqlitePauseStore:
    """A `PauseStore` in a file. Made by `open_sqlite_stores`.

    Raises `SnapshotError` for a pause that cannot be read; it stays where it is.
    """

    _connection: "apsw.AsyncConnection" = field(repr=False)

    async def save(self, snapshot: PauseSnapshot) -> None:
        body = snapshot_to_json(snapshot)
        keys = (_key(snapshot.conversation_id), _key(snapshot.id))
        await self._connection.execute(SAVE, (*keys, body))

    async def load(self, conversation_id: str) -> PauseSnapshot | None:
        cursor = await self._connection.execute(LOAD, (_key(conversation_id),))
        return self._one([body async for (body,) in cursor], conversation_id)

    async def take(self, conversation_id: str, pause_id: str) -> PauseSnapshot | None:
        await trio.lowlevel.checkpoint()
        keys = (_key(conversation_id), _key(pause_id))
        # What is taken is gone: a cancellation must not come between that and its use.
        with trio.move_on_after(CLEANUP_SECONDS, shield=True):
            cursor = await self._connection.execute(TAKE, keys)
            return self._one([body async for (body,) in cursor], conversation_id)
        return None

    async def discard(self, conversation_id: str) -> None:
        await self._connection.execute(DISCARD, (_key(conversation_id),))

    def _one(self, bodies: Sequence[str], conversation_id: str) -> PauseSnapshot | None:
        if not bodies:
            return None
        try:
            return snapshot_from_json(bodies[0])
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
async def open_sqlite_memory(path: str | Path) -> AsyncIterator[SqliteChatMemory]:
    """The histories of `open_sqlite_stores` alone."""
    async with open_sqlite_stores(path) as stores:
        yield stores.memory


@asynccontextmanager
async def open_sqlite_stores(path: str | Path) -> AsyncIterator[SqliteStores]:
    """Stores in the file at `path`, made if it is not there; `:memory:` for none.

    Owns the connection and its thread. One process may write at a time; others wait up
    to five seconds for it.

    Raises:
        ValueError: the file is of a newer version, or no database.
    """
    try:
        connection = await apsw.Connection.as_async(str(path))
    except apsw.CantOpenError:
        raise ValueError(
            f"{str(path)!r} cannot be opened: does its folder exist?"
        ) from None
    try:
        await _prepare(connection, path)
        yield SqliteStores(SqliteChatMemory(connection), SqlitePauseStore(connection))
    finally:
        with trio.move_on_after(CLEANUP_SECONDS, shield=True):
            await connection.aclose()


async def _prepare(connection: "apsw.AsyncConnection", path: str | Path) -> None:
    try:
        await connection.pragma("busy_timeout", 5000)
        await connection.pragma("journal_mode", "wal")
        await connection.pragma("synchronous", "normal")
        version = await connection.pragma("user_version")
        if version > VERSION:
            raise ValueError(
                f"{str(path)!r} has version {version}, expected {VERSION} or less: "
                "it was written by a newer agentrt"
            )
        await connection.execute(SCHEMA)
    except apsw.NotADBError:
        raise ValueError(f"{str(path)!r} is no SQLite database") from None
    await trio.lowlevel.checkpoint()
