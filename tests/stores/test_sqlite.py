"""Histories and pauses in a file: their contracts' promises, restarts, foreign files.

The connection has a thread, so time is real here; nothing waits for it.
"""

import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path

import apsw
import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from agentrt.core.errors import SnapshotError, StoreError
from agentrt.core.messages import AssistantMessage, Message, ToolCall, UserMessage
from agentrt.core.outcomes import Interrupt, PauseSnapshot
from agentrt.stores.base import ChatMemory, PauseStore
from agentrt.stores.sqlite import (
    SqliteStores,
    open_sqlite_memory,
    open_sqlite_stores,
)
from agentrt.testing import check_chat_memory, check_pause_store, no_leftovers
from agentrt.testing.strategies import messages, texts


def users(count: int, name: str = "m") -> Sequence[UserMessage]:
    return [UserMessage(id=f"{name}{n}", content=str(n)) for n in range(count)]


@pytest.mark.parametrize("where", ["file", ":memory:"])
async def test_the_memory_keeps_its_promises(where: str, tmp_path: Path) -> None:
    path = tmp_path / "chat.db" if where == "file" else where

    @asynccontextmanager
    async def opened() -> AsyncIterator[ChatMemory]:
        async with open_sqlite_memory(path) as memory:
            yield memory

    async with no_leftovers():
        await check_chat_memory(opened)


async def test_a_history_is_there_after_a_restart(tmp_path: Path) -> None:
    """B66"""
    path = tmp_path / "chat.db"
    async with open_sqlite_memory(path) as memory:
        await memory.append("c", users(3))
    async with open_sqlite_memory(path) as memory:
        await memory.append("c", users(4))
        assert await memory.history("c") == tuple(users(4))


async def test_a_memory_without_a_file_lives_as_long_as_it_is_open() -> None:
    """B66"""
    async with open_sqlite_memory(":memory:") as memory:
        await memory.append("c", users(2))
        assert len(await memory.history("c")) == 2


async def test_appends_of_many_tasks_lose_nothing(tmp_path: Path) -> None:
    """B66"""
    async with open_sqlite_memory(tmp_path / "chat.db") as memory:

        async def write(task: int) -> None:
            for message in users(25, f"{task}-"):
                await memory.append("c", [message])

        async with trio.open_nursery() as nursery:
            for task in range(8):
                nursery.start_soon(write, task)
        history = await memory.history("c")
    assert len(history) == 200
    for task in range(8):
        mine = [m.id for m in history if m.id.startswith(f"{task}-")]
        assert mine == [f"{task}-{number}" for number in range(25)]


async def test_two_openers_of_one_file_wait_for_each_other(tmp_path: Path) -> None:
    path = tmp_path / "chat.db"
    async with open_sqlite_memory(path) as one, open_sqlite_memory(path) as other:
        async with trio.open_nursery() as nursery:
            for number, memory in enumerate([one, other] * 5):
                nursery.start_soon(memory.append, "c", users(3, f"{number}-"))
        assert len(await one.history("c")) == len(await other.history("c")) == 30


@pytest.mark.parametrize("checkpoints", range(6))
async def test_an_append_that_is_cut_is_there_as_a_whole_or_not_at_all(
    checkpoints: int, tmp_path: Path
) -> None:
    async with open_sqlite_memory(tmp_path / "chat.db") as memory:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(memory.append, "c", users(200))
            for _ in range(checkpoints):
                await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()
        assert len(await memory.history("c")) in {0, 200}
        await memory.append("c", users(200))
        assert len(await memory.history("c")) == 200


@given(st.lists(st.tuples(texts(), messages()), max_size=5))
@settings(max_examples=30)
def test_whatever_is_said_comes_back(said: Sequence[tuple[str, Message]]) -> None:
    """B6: also under strange names, and with strange characters."""

    async def main() -> None:
        async with open_sqlite_memory(":memory:") as memory:
            expected: dict[str, dict[str, Message]] = {}
            for conversation, message in said:
                await memory.append(conversation, [message])
                expected.setdefault(conversation, {}).setdefault(message.id, message)
            for conversation, by_id in expected.items():
                assert await memory.history(conversation) == tuple(by_id.values())

    trio.run(main)


@pytest.mark.parametrize("odd", ["\0", "\ud800", "\\ud800", "\\x00", "'", "é\u2028"])
async def test_ids_that_differ_are_never_taken_for_the_same(odd: str) -> None:
    plain = UserMessage(id="a", content="plain")
    one = UserMessage(id=f"a{odd}b", content="one")
    other = UserMessage(id=f"a{odd}c", content="other")
    async with open_sqlite_memory(":memory:") as memory:
        await memory.append("c", [plain, one, other])
        assert await memory.history("c") == (plain, one, other)
        await memory.append(f"c{odd}x", [one])
        await memory.append(f"c{odd}y", [other])
        assert await memory.history(f"c{odd}x") == (one,)


async def test_a_file_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "chat.db"
    with closing(sqlite3.connect(path)) as database:
        database.execute("pragma user_version = 7")
    with pytest.raises(StoreError, match="has version 7, expected 2"):
        async with open_sqlite_memory(path):
            pass


async def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "chat.db"
    path.write_bytes(b"hello, this is only text " * 100)
    with pytest.raises(StoreError, match="is no SQLite database"):
        async with open_sqlite_memory(path):
            pass
    assert path.read_bytes().startswith(b"hello")


async def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    path = tmp_path / "gone" / "chat.db"
    with pytest.raises(StoreError, match="does its folder exist") as caught:
        async with open_sqlite_memory(path):
            pass
    assert str(path) in str(caught.value)


async def test_what_the_caller_raises_comes_out_plain(tmp_path: Path) -> None:
    async with no_leftovers():
        with pytest.raises(KeyError, match="mine"):
            async with open_sqlite_memory(tmp_path / "chat.db"):
                raise KeyError("mine")


@pytest.mark.parametrize("where", ["file", ":memory:"])
async def test_the_pauses_keep_their_promises(where: str, tmp_path: Path) -> None:
    path = tmp_path / "chat.db" if where == "file" else where

    @asynccontextmanager
    async def opened() -> AsyncIterator[PauseStore]:
        async with open_sqlite_stores(path) as stores:
            yield stores.pauses

    async with no_leftovers():
        await check_pause_store(opened)


def a_pause(id_: str = "p") -> PauseSnapshot:
    asked = ToolCall(id="a", name="x")
    return PauseSnapshot(
        id=id_,
        conversation_id="c",
        run_id="r",
        message=AssistantMessage(id="m", tool_calls=(asked,)),
        interrupts=(Interrupt(id="a", reason="?", call=asked),),
        remaining=1,
    )


async def test_a_pause_is_taken_by_one_of_two_processes(tmp_path: Path) -> None:
    """X24: two connections are as two processes."""
    path = tmp_path / "chat.db"
    async with open_sqlite_stores(path) as one, open_sqlite_stores(path) as other:
        await one.pauses.save(a_pause())
        assert await other.pauses.load("c") == a_pause()
        taken: list[PauseSnapshot | None] = []

        async def take(stores: SqliteStores) -> None:
            taken.append(await stores.pauses.take("c", "p"))

        async with trio.open_nursery() as nursery:
            for stores in [one, other] * 5:
                nursery.start_soon(take, stores)
        assert [each for each in taken if each] == [a_pause()]


async def test_a_pause_that_is_being_taken_is_not_lost_by_a_cancellation(
    tmp_path: Path,
) -> None:
    async with open_sqlite_stores(tmp_path / "chat.db") as stores:
        for seconds in (0.0, 0.00002, 0.0001, 0.001):
            await stores.pauses.save(a_pause())
            taken: PauseSnapshot | None = None
            with trio.move_on_after(seconds):
                taken = await stores.pauses.take("c", "p")
            left = await stores.pauses.load("c")
            assert [taken, left].count(a_pause()) == 1


async def test_a_pause_that_cannot_be_read_stays_where_it_is(tmp_path: Path) -> None:
    path = tmp_path / "chat.db"
    async with open_sqlite_stores(path) as stores:
        with closing(sqlite3.connect(path)) as raw:
            raw.execute("insert into pause values ('c', 'p', '{\"version\": 99}')")
            raw.commit()
        for _ in range(2):
            with pytest.raises(SnapshotError, match=r"\$.version is 99"):
                await stores.pauses.load("c")
            with pytest.raises(SnapshotError, match=r"\$.version is 99"):
                await stores.pauses.take("c", "p")
        assert await stores.pauses.take("c", "another") is None
        await stores.pauses.discard("c")
        assert await stores.pauses.load("c") is None


OPERATIONS: dict[str, Callable[[SqliteStores], Awaitable[object]]] = {
    "append": lambda stores: stores.memory.append("c", users(1)),
    "history": lambda stores: stores.memory.history("c"),
    "clear": lambda stores: stores.memory.clear("c"),
    "save": lambda stores: stores.pauses.save(a_pause()),
    "load": lambda stores: stores.pauses.load("c"),
    "take": lambda stores: stores.pauses.take("c", "p"),
    "discard": lambda stores: stores.pauses.discard("c"),
}


@contextmanager
def locked(path: Path) -> Iterator[apsw.Connection]:
    """Somebody else is in the middle of a write.

    By apsw: two SQLite libraries in one process do not see each other's locks.
    """
    with closing(apsw.Connection(str(path))) as other:
        other.execute("begin immediate")
        yield other


@pytest.mark.parametrize("name", ["append", "clear", "save", "take", "discard"])
async def test_a_file_that_stays_locked_is_an_error_that_names_it(
    name: str, tmp_path: Path
) -> None:
    path = tmp_path / "chat.db"
    async with open_sqlite_stores(path, busy_seconds=0.0) as stores:
        await stores.pauses.save(a_pause())
        with locked(path):
            with pytest.raises(StoreError, match="was locked") as caught:
                await OPERATIONS[name](stores)
            assert await stores.pauses.load("c") == a_pause()
        assert str(path) in str(caught.value)
        await OPERATIONS[name](stores)


@pytest.mark.parametrize("name", ["append", "take"])
async def test_a_locked_file_is_waited_for(name: str, tmp_path: Path) -> None:
    """P8: a result that exists is not lost to a backup."""
    path = tmp_path / "chat.db"
    async with open_sqlite_stores(path) as stores:
        await stores.pauses.save(a_pause())
        with locked(path) as other:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(OPERATIONS[name], stores)
                await trio.testing.wait_all_tasks_blocked(0.02)
                assert len(nursery.child_tasks) == 1
                other.execute("rollback")
        if name == "append":
            assert await stores.memory.history("c") == tuple(users(1))
        else:
            assert await stores.pauses.load("c") is None


async def test_who_waits_for_a_locked_file_can_be_cancelled(tmp_path: Path) -> None:
    """And has done nothing then."""
    path = tmp_path / "chat.db"
    async with no_leftovers(), open_sqlite_stores(path) as stores:
        await stores.pauses.save(a_pause())
        with locked(path), trio.move_on_after(0.02) as scope:
            await stores.pauses.take("c", "p")
        assert scope.cancelled_caught
        assert await stores.pauses.load("c") == a_pause()


@pytest.mark.parametrize("name", OPERATIONS)
async def test_no_error_of_the_library_comes_out(name: str, tmp_path: Path) -> None:
    """Neither of a damaged file, nor of a closed one."""
    path = tmp_path / "chat.db"
    async with open_sqlite_stores(path) as stores:
        with closing(sqlite3.connect(path)) as raw:
            raw.executescript("drop table message; drop table pause")
        with pytest.raises(StoreError, match=r"chat\.db"):
            await OPERATIONS[name](stores)
    with pytest.raises(StoreError, match="is closed: use it within the block"):
        await OPERATIONS[name](stores)


@pytest.mark.parametrize("path", ["", "folder", "gone/chat.db"])
async def test_what_is_no_file_cannot_be_opened(path: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(StoreError, match="cannot be opened"):
        async with open_sqlite_stores(tmp_path / path):
            pass


async def test_a_message_that_cannot_be_read_is_told_of(tmp_path: Path) -> None:
    path = tmp_path / "chat.db"
    async with open_sqlite_stores(path) as stores:
        with closing(sqlite3.connect(path)) as raw:
            raw.execute("insert into message values (1, 'c', 'm', '{}')")
            raw.commit()
        with pytest.raises(StoreError, match="a message of conversation 'c'"):
            await stores.memory.history("c")
        assert await stores.memory.history("d") == ()


async def test_a_file_of_version_1_gets_pauses(tmp_path: Path) -> None:
    path = tmp_path / "chat.db"
    with closing(sqlite3.connect(path)) as raw:
        raw.executescript(
            "create table message (place integer primary key autoincrement,"
            "conversation_id text not null, id text not null, body text not null,"
            "unique (conversation_id, id)) strict; pragma user_version = 1;"
        )
    async with open_sqlite_stores(path) as stores:
        await stores.pauses.save(a_pause())
        await stores.memory.append("c", users(1))
        assert await stores.pauses.load("c") == a_pause()
