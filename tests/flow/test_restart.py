"""A pause outlives its process: killed, and taken up by another one."""

import json
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from agentrt.agent.agent import Agent
from agentrt.core.errors import NotPausedError
from agentrt.core.history import find_history_faults
from agentrt.stores.sqlite import SqliteStores, open_sqlite_stores
from agentrt.testing import ScriptedModel
from tests.flow import restarts

ROOT = Path(__file__).parent.parent.parent


async def start(path: Path, what: str) -> trio.Process:
    command = [sys.executable, "-m", "tests.flow.restarts", str(path), what]
    opened: trio.Process = await trio.lowlevel.open_process(
        command, stdout=subprocess.PIPE, cwd=ROOT
    )
    return opened


async def pause_and_kill(path: Path) -> None:
    process = await start(path, "pause")
    assert process.stdout is not None
    told = b""
    with trio.fail_after(30):
        while b"\n" not in told:
            piece = await process.stdout.receive_some()
            assert piece, "it ended before it paused"
            told += piece
    process.send_signal(signal.SIGKILL)
    assert await process.wait() == -signal.SIGKILL
    assert told == b"paused\n"


async def resume(path: Path) -> Any:
    command = [sys.executable, "-m", "tests.flow.restarts", str(path), "resume"]
    run = partial(trio.run_process, command, capture_stdout=True, cwd=ROOT)
    return json.loads((await run()).stdout)


@pytest.mark.integration
async def test_a_paused_turn_goes_on_in_another_process(tmp_path: Path) -> None:
    """B57, U27, U30, U33: two interrupts of a batch of four, and a SIGKILL between."""
    path = tmp_path / "chat.db"
    ran = trio.Path(f"{path}.ran")
    await pause_and_kill(path)
    assert sorted((await ran.read_text()).split()) == ["r1", "r2"]
    async with open_sqlite_stores(path) as stores:
        history = await stores.memory.history("c")
        assert find_history_faults(history, open_calls=["d1", "d2"]) == []
    told = await resume(path)
    assert sorted((await ran.read_text()).split()) == ["d1", "r1", "r2"]
    assert told["text"] == "all done"
    assert not told["paused"]
    results = dict(told["results"])
    assert len(results) == len(told["results"]) == len(restarts.BATCH)
    assert results == {
        "r1": "read by r1",
        "d1": "deleted by d1",
        "r2": "read by r2",
        "d2": "This call was denied by the user: not that one",
    }
    async with open_sqlite_stores(path) as stores:
        assert find_history_faults(await stores.memory.history("c")) == []


@pytest.mark.integration
async def test_two_processes_that_resume_at_once_run_it_once(tmp_path: Path) -> None:
    """X24"""
    path = tmp_path / "chat.db"
    ran = trio.Path(f"{path}.ran")
    await pause_and_kill(path)
    async with (
        open_sqlite_stores(path) as first,
        open_sqlite_stores(path) as second,
    ):
        ends: list[str] = []

        async def one(stores: SqliteStores) -> None:
            agent = Agent(
                model=ScriptedModel(["all done"]),
                tools=restarts.tools(Path(f"{path}.ran")),
                memory=stores.memory,
                pauses=stores.pauses,
            )
            try:
                outcome = await agent.resume("c", restarts.ANSWERS)
                ends.append(type(outcome).__name__)
            except NotPausedError:
                ends.append("not paused")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(one, first)
            nursery.start_soon(one, second)
    assert sorted(ends) == ["TurnCompleted", "not paused"]
    assert sorted((await ran.read_text()).split()) == ["d1", "r1", "r2"]


async def end(path: Path, what: str) -> bool:
    """Whether the program was killed, and did not end by itself."""
    command = [sys.executable, "-m", "tests.flow.restarts", str(path), what]
    with trio.move_on_after(20):
        ended = await trio.run_process(
            command, capture_stdout=True, check=False, cwd=ROOT
        )
        assert ended.returncode in {0, -signal.SIGKILL}
        return bool(ended.returncode)
    raise AssertionError(f"{what} did not end")


@pytest.mark.integration
@pytest.mark.parametrize("what", ["pause", "resume"])
async def test_a_kill_after_any_durable_write_loses_nothing(
    what: str, tmp_path: Path
) -> None:
    """P5, P8, U33: whatever the process had come to, the next one goes on from it."""
    for number in range(1, 20):
        path = tmp_path / f"{number}.db"
        if what == "resume":
            await pause_and_kill(path)
        if not await end(path, f"{what}-{number}"):
            break
        assert not await end(path, "resume")
        ran = trio.Path(f"{path}.ran")
        did = (await ran.read_text()).split() if await ran.exists() else []
        assert len(did) == len(set(did)), "a call ran twice"
        async with open_sqlite_stores(path) as stores:
            history = await stores.memory.history("c")
        assert find_history_faults(history) == []
        assert "d2" not in did, "what was denied ran"
    else:
        raise AssertionError("it never ended by itself")
    assert number > 2
