"""Instruction files: read anew for each call, in order, within a budget of bytes."""

import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from agentrt.agent.agent import Agent
from agentrt.core.chat import ChatRequest, ChatResponse
from agentrt.core.context import Context
from agentrt.core.messages import AssistantMessage
from agentrt.core.outcomes import TurnCompleted
from agentrt.filters.base import compile_hooks
from agentrt.filters.instructions import fit, instructions_filter
from agentrt.testing import ScriptedModel, call, no_leftovers, texts
from agentrt.tools.base import tool


@pytest.fixture(autouse=True)
def _quiet() -> None:
    logging.getLogger("agentrt").setLevel(logging.CRITICAL)


def write(folder: Path, text: str | bytes, name: str = "AGENTS.md") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    raw = text if isinstance(text, bytes) else text.encode()
    (folder / name).write_bytes(raw)


async def systems(*paths: Path, system: str = "", **options: Any) -> Sequence[str]:
    """The system prompts of one turn."""
    made = instructions_filter(*paths, **options)
    model = ScriptedModel(["done"])
    await Agent(model=model, system=system, filters=[made]).run("go")
    return [request.system for request in model.requests]


async def test_every_folder_on_the_way_adds_its_file_the_nearest_last(
    tmp_path: Path,
) -> None:
    write(tmp_path, "Be kind.\n")
    write(tmp_path / "src" / "app", "\n\nUse tabs.")
    write(tmp_path / "src" / "other", "not on the way")
    found = await systems(tmp_path, tmp_path / "src" / "app", system="You help.")
    assert found == [
        "You help.\n\n"
        "Instructions from AGENTS.md:\n\nBe kind.\n\n"
        "Instructions from src/app/AGENTS.md:\n\nUse tabs."
    ]
    assert await systems(tmp_path) == ["Instructions from AGENTS.md:\n\nBe kind."]


async def test_a_folder_gives_the_first_of_the_names_that_it_has(
    tmp_path: Path,
) -> None:
    write(tmp_path, "one", "ONE.md")
    write(tmp_path, "two", "TWO.md")
    write(tmp_path / "in", "two within", "TWO.md")
    (tmp_path / "in" / "ONE.md").mkdir()
    found = await systems(tmp_path, tmp_path / "in", names=["ONE.md", "TWO.md"])
    assert found == [
        "Instructions from ONE.md:\n\none\n\nInstructions from in/TWO.md:\n\ntwo within"
    ]
    assert await systems(tmp_path, names="TWO.md") == [
        "Instructions from TWO.md:\n\ntwo"
    ]


async def test_without_files_the_prompt_is_as_it_was(tmp_path: Path) -> None:
    write(tmp_path / "a", " \n")
    os.mkfifo(tmp_path / "AGENTS.md")
    assert await systems(tmp_path, tmp_path / "a" / "gone", system="x") == ["x"]
    assert await systems(tmp_path / "nowhere") == [""]


async def test_a_folder_that_cannot_be_read_is_skipped_and_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path, "Be kind.")
    (tmp_path / "a").mkdir()
    os.symlink("/proc/self/mem", tmp_path / "a" / "AGENTS.md")
    write(tmp_path / "a" / "b", "Use tabs.")
    with caplog.at_level(logging.WARNING, "agentrt"):
        [found] = await systems(tmp_path, tmp_path / "a" / "b")
    assert "Be kind." in found
    assert "Use tabs." in found
    assert [record.getMessage().split(":")[:2] for record in caplog.records] == [
        ["instructions", f" skipped {tmp_path / 'a'}"]
    ]


async def test_files_are_read_anew_for_each_call_and_never_stored(
    tmp_path: Path,
) -> None:
    @tool
    async def change() -> str:
        """Change the instructions."""
        await trio.lowlevel.checkpoint()
        write(tmp_path, "second")
        return "changed"

    write(tmp_path, "first")
    model = ScriptedModel([call("change"), "done"])
    agent = Agent(model=model, tools=[change], filters=[instructions_filter(tmp_path)])
    outcome = await agent.run("go", conversation_id="c")
    assert isinstance(outcome, TurnCompleted)
    said = [request.system.rsplit("\n", 1)[-1] for request in model.requests]
    assert said == ["first", "second"]
    texts = [message.text for message in await agent.history("c")]
    assert texts == ["go", "", "changed", "done"]


async def test_what_is_no_text_is_shown_as_far_as_it_is(tmp_path: Path) -> None:
    write(tmp_path, b"\xef\xbb\xbfBe \xff kind.")
    assert await systems(tmp_path) == [
        "Instructions from AGENTS.md:\n\nBe \ufffd kind."
    ]


@pytest.mark.parametrize("budget", range(1, 80))
async def test_all_of_it_is_within_the_budget(budget: int, tmp_path: Path) -> None:
    write(tmp_path, "ä€🎉" * 3)
    write(tmp_path / "a", "🎉" * 100)
    [found] = await systems(tmp_path, tmp_path / "a", max_bytes=budget)
    assert len(found.encode()) <= budget
    assert "\ufffd" not in found
    whole = (
        f"Instructions from AGENTS.md:\n\n{'ä€🎉' * 3}\n\n"
        f"Instructions from a/AGENTS.md:\n\n{'🎉' * 100}"
    )
    assert whole.startswith(found)


async def test_a_cut_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path, "x" * 100_000)
    with caplog.at_level(logging.WARNING, "agentrt"):
        [found] = await systems(tmp_path)
    assert len(found) == 32 * 1024
    assert [record.getMessage() for record in caplog.records] == [
        "instructions: AGENTS.md was cut at 32768 bytes"
    ]


@given(
    st.lists(st.tuples(st.sampled_from(["A", "b/Ä"]), texts(min_size=1)), max_size=4),
    st.integers(1, 120),
)
def test_what_fits_is_the_beginning_of_all_and_no_character_is_cut(
    found: list[tuple[str, str]], max_bytes: int
) -> None:
    clean = [(name, text.encode("utf-8", "replace").decode()) for name, text in found]
    whole = fit(clean, 10_000)
    fitted = fit(clean, max_bytes)
    assert len(fitted.encode()) <= max_bytes
    assert whole.startswith(fitted)
    assert fitted == whole or len(whole.encode()) > max_bytes


async def test_its_thread_has_a_permit_of_the_run(tmp_path: Path) -> None:
    write(tmp_path, "x")
    limiter = trio.CapacityLimiter(1)
    made = instructions_filter(tmp_path)
    assert made.chat is not None
    ask = compile_hooks([made.chat], tell_system)
    context = Context(conversation_id="c", thread_limiter=limiter)
    async with no_leftovers(limiters=[limiter]):
        async with limiter, trio.open_nursery() as nursery:
            nursery.start_soon(ask, ChatRequest(), context)
            await trio.testing.wait_all_tasks_blocked()
            assert limiter.statistics().tasks_waiting == 1
            nursery.cancel_scope.cancel()
        response = await ask(ChatRequest(), context)
    assert response.message.text == "Instructions from AGENTS.md:\n\nx"


async def tell_system(request: ChatRequest, context: Context) -> ChatResponse:
    await trio.lowlevel.checkpoint()
    return ChatResponse(message=AssistantMessage(id="m", content=request.system))


@pytest.mark.parametrize(
    ("paths", "options", "words"),
    [
        (["/a", "/b"], {}, "directory is /b, expected a folder within /a"),
        (["/a/b", "/a/b/.."], {}, "directory is /a, expected a folder within /a/b"),
        (["/a"], {"names": ["../x"]}, r"names has '\.\./x', expected plain names"),
        (["/a"], {"names": ["."]}, r"names has '\.', expected plain names"),
        (["/a"], {"names": [""]}, "names has '', expected plain names"),
        (["/a"], {"names": []}, "names is empty, expected"),
        (["/a"], {"max_bytes": 0}, "max_bytes is 0, expected 1 or more"),
    ],
)
def test_arguments_that_cannot_work_are_refused(
    paths: Any, options: Any, words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        instructions_filter(*paths, **options)
