"""Histories in one SQLite file, through apsw, which knows Trio itself.

Each write is one statement, so it is there as a whole or not at all, also when it is
cancelled or the process dies.
"""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import trio
from attrs import define, field

from agentrt.core.converter import message_from_json, message_to_json
from agentrt.core.extras import from_extra
from agentrt.core.messages import Message
from agentrt.scopes import CLEANUP_SECONDS

with from_extra("sqlite"):
    import apsw

__all__ = ["SqliteChatMemory", "open_sqlite_memory"]

SCHEMA = """
create table if not exists message (
  place integer primary key autoincrement,
  conversation_id text not null,
  id text not null,
  body text not null,
  unique (conversation_id, id)
) strict;
pragma user_version = 1;
"""

APPEND = """
insert or ignore into message (conversation_id, id, body)
select ?1, value ->> 0, value ->> 1 from json_each(?2) order by key
"""

HISTORY = "select body from message where conversation_id = ? order by place"

CLEAR = "delete from message where conversation_id = ?"


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


def _key(text: str) -> str:
    """An id as SQLite can hold it: half a surrogate pair has no UTF-8 form."""
    return text.encode("utf-8", "backslashreplace").decode()


@asynccontextmanager
async def open_sqlite_memory(path: str | Path) -> AsyncIterator[SqliteChatMemory]:
    """A memory in the file at `path`, made if it is not there; `:memory:` for none.

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
        yield SqliteChatMemory(connection)
    finally:
        with trio.move_on_after(CLEANUP_SECONDS, shield=True):
            await connection.aclose()


async def _prepare(connection: "apsw.AsyncConnection", path: str | Path) -> None:
    try:
        await connection.pragma("busy_timeout", 5000)
        await connection.pragma("journal_mode", "wal")
        await connection.pragma("synchronous", "normal")
        version = await connection.pragma("user_version")
        if version not in {0, 1}:
            raise ValueError(
                f"{str(path)!r} has version {version}, expected 1: "
                "it was written by a newer agentrt"
            )
        await connection.execute(SCHEMA)
    except apsw.NotADBError:
        raise ValueError(f"{str(path)!r} is no SQLite database") from None
    await trio.lowlevel.checkpoint()
