"""Long tool results: within one limit, whatever the tool; the whole kept elsewhere."""

import logging
import os
import re
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import trio
from attrs import define, field
from hypothesis import example, given
from hypothesis import strategies as st

from agentrt.agent.agent import Agent
from agentrt.core.context import Context
from agentrt.core.errors import ToolError
from agentrt.core.messages import Message, ToolMessage
from agentrt.core.outcomes import TurnCompleted
from agentrt.core.parts import Content, FilePart, NativePart, Part, TextPart, text_of
from agentrt.events.types import Event, ToolReturned
from agentrt.filters.base import Filter, ToolRequest, ToolUse, compile_hooks, hook
from agentrt.filters.tool_output import (
    OWN_FOLDER,
    READ_TOOL,
    SpillFolder,
    tool_output_filter,
)
from agentrt.models.estimate import estimate_text
from agentrt.stores.in_memory import InMemoryChatMemory
from agentrt.testing import ScriptedModel, call, cancel_sweep, trio_property
from agentrt.tools.base import Tool, ToolResult, tool

LONG = "head " + "x" * 5_000 + " tail"


def giving(result: Any, **options: Any) -> Tool:
    """A tool `give` that returns, or raises, `result`."""

    @tool(name="give", **options)
    async def give() -> Any:
        """Give it."""
        await trio.lowlevel.checkpoint()
        if isinstance(result, BaseException):
            raise result
        return result

    return give


def results(history: Sequence[Message]) -> Sequence[ToolMessage]:
    return [message for message in history if isinstance(message, ToolMessage)]


async def run(
    made: Tool, *filters: Filter, steps: Sequence[Any] = ()
) -> Sequence[ToolMessage]:
    """The results of one turn that calls the tool, then does `steps`."""
    model = ScriptedModel([call("give"), *steps, "done"])
    agent = Agent(model=model, tools=[made], filters=filters)
    outcome = await agent.run("go", conversation_id="c")
    assert isinstance(outcome, TurnCompleted), outcome
    return results(await agent.history("c"))


async def test_a_long_result_keeps_its_head_and_its_tail() -> None:
    """U41"""
    (told,) = await run(giving(LONG), tool_output_filter(400))
    assert len(told.text) == 400
    note = "[This result is too long (5,010 characters): its middle is left out.]"
    assert told.text.startswith(f"{note}\nhead xxx")
    assert told.text.endswith("xxx tail")
    assert "characters left out ...]" in told.text


async def test_a_short_result_is_left_alone() -> None:
    (told,) = await run(giving("x" * 400), tool_output_filter(400))
    assert told.text == "x" * 400


async def test_tokens_may_be_counted_in_place_of_characters() -> None:
    (told,) = await run(giving("天" * 5_000), tool_output_filter(200, unit="tokens"))
    assert 196 <= estimate_text(told.text) <= 200
    assert told.text.endswith("天天天")


@pytest.mark.parametrize(
    ("raised", "failure"),
    [
        (ValueError(LONG), "semantic"),
        (ToolError(LONG, kind="environment"), "environment"),
        (ConnectionError(LONG), "transient"),
    ],
)
async def test_a_long_error_is_cut_and_stays_the_failure_that_it_was(
    raised: Exception, failure: str, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[ToolResult] = []

    @hook
    async def look(use: ToolUse) -> AsyncIterator[None]:
        yield
        seen.append(use.response)

    with caplog.at_level(logging.WARNING):
        (told,) = await run(
            giving(raised), Filter(name="look", tool=look), tool_output_filter(400)
        )
    assert (len(told.text), told.is_error, seen[0].failure) == (400, True, failure)
    assert "error: head" in told.text
    logged = [] if isinstance(raised, ToolError) else ["tool 'give' failed"]
    assert [record.message for record in caplog.records] == logged


async def test_a_short_error_passes_as_it_is() -> None:
    seen: list[Exception] = []

    @hook
    async def look(use: ToolUse) -> AsyncIterator[None]:
        try:
            yield
        except ToolError as error:
            seen.append(error)
            raise

    error = ToolError("no")
    look_filter = Filter(name="look", tool=look)
    (told,) = await run(giving(error), look_filter, tool_output_filter(400))
    assert (told.text, told.is_error, seen) == ("error: no", True, [error])


@pytest.mark.parametrize("long", [ValueError(LONG), MemoryError(LONG)])
async def test_what_ends_the_run_ends_it_also_when_its_words_are_long(
    long: Exception,
) -> None:
    with pytest.raises(type(long)):
        await run(giving(long, fatal=True), tool_output_filter(400))


async def test_an_error_result_is_cut_like_any_other() -> None:
    result = ToolResult(content=LONG, is_error=True, failure="transient")
    (told,) = await run(giving(result), tool_output_filter(400))
    assert (len(told.text), told.is_error) == (400, True)


PARTS = st.lists(
    st.text(alphabet="ab天", max_size=300).map(lambda text: TextPart(text=text))
    | st.just(FilePart(media_type="image/png", data="AAAA"))
    | st.text(alphabet="cd", max_size=300).map(
        lambda text: NativePart(block={"type": "text", "text": text})
    )
    | st.just(NativePart(block={"type": "image"})),
    min_size=1,
    max_size=8,
)


async def through(filter_: Filter, content: Content) -> Content:
    """What the filter makes of a result with this content."""

    async def inner(request: ToolRequest, context: Context) -> ToolResult:
        await trio.lowlevel.checkpoint()
        return ToolResult(content=content)

    assert filter_.tool is not None
    request = ToolRequest(call=call("give"), tool=giving(""))
    ask = compile_hooks([filter_.tool], inner)
    return (await ask(request, Context(conversation_id="c"))).content


def not_text(parts: Sequence[Part]) -> Sequence[Part]:
    """The files, and the blocks that have no words."""
    blocks = [each for each in parts if not isinstance(each, TextPart)]
    return [b for b in blocks if isinstance(b, FilePart) or "text" not in b.block]


@given(PARTS, st.integers(400, 600))
@trio_property
async def test_parts_together_fit_and_files_stay(
    parts: Sequence[Part], limit: int
) -> None:
    """B70: and cutting again changes nothing."""
    output = tool_output_filter(limit)
    kept = await through(output, parts)
    assert not isinstance(kept, str)
    words = "".join(text_of([part]) for part in kept)
    whole = "".join(text_of([part]) for part in parts)
    assert len(words) <= limit
    if len(whole) <= limit:
        assert kept == parts
    else:
        assert words[-50:] == whole[-50:]
        assert whole[:50] in words
    assert not_text(kept) == not_text(parts)
    assert await through(output, kept) == kept


async def test_what_outer_hooks_add_is_cut_by_a_filter_registered_first() -> None:
    @hook
    async def add(use: ToolUse) -> AsyncIterator[None]:
        yield
        use.response = ToolResult(content=text_of(use.response.content) + LONG)

    adding = Filter(name="add", tool=add)
    (told,) = await run(giving("x"), tool_output_filter(400), adding)
    assert len(told.text) == 400


async def test_an_async_function_keeps_the_whole_and_says_where() -> None:
    kept: list[tuple[str, str]] = []

    async def spill(name: str, text: str) -> str:
        await trio.lowlevel.checkpoint()
        kept.append((name, text))
        return "s3://outputs/1"

    (told,) = await run(giving(LONG), tool_output_filter(400, spill=spill))
    assert len(told.text) == 400
    assert "The whole is at s3://outputs/1.]" in told.text
    ((name, text),) = kept
    assert (name.startswith("give-"), text) == (True, LONG)


async def test_a_place_that_is_too_long_is_left_out() -> None:
    async def spill(name: str, text: str) -> str:
        await trio.lowlevel.checkpoint()
        return "x" * 1_000

    (told,) = await run(giving(LONG), tool_output_filter(400, spill=spill))
    assert len(told.text) == 400
    assert "The whole is" not in told.text


async def test_a_result_is_cut_though_the_whole_cannot_be_kept(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def spill(name: str, text: str) -> str:
        await trio.lowlevel.checkpoint()
        raise OSError("disk full")

    (told,) = await run(giving(LONG), tool_output_filter(400, spill=spill))
    assert len(told.text) == 400
    assert "could not be kept" in caplog.text


def name_in(text: str) -> str:
    return text.split("name '")[1].split("'")[0]


async def read_all(spilling: Filter, name: str) -> tuple[str, Sequence[str]]:
    """The text that the model gets by reading on, and the results as it sees them."""
    (reader,) = spilling.tools
    context = Context(conversation_id="c")
    told: list[str] = []
    text = ""
    start = 0
    while True:
        told.append(await reader.run({"name": name, "start": start}, context))
        header, _, piece = told[-1].partition("\n")
        text += piece
        if "go on with start=" not in header:
            return text, told
        start = int(header.split("start=")[1].rstrip("]"))


@pytest.mark.parametrize("unit", ["characters", "tokens"])
async def test_the_model_reads_what_was_cut_in_pieces_that_fit(
    unit: Any, tmp_path: Path
) -> None:
    text = "".join(f"line {number} 天\r\n" for number in range(400)) + "\ud800"
    spilling = tool_output_filter(800, unit=unit, spill=tmp_path)
    (told,) = await run(giving(text), spilling)
    read, pieces = await read_all(spilling, name_in(told.text))
    assert read == text
    measure = len if unit == "characters" else estimate_text
    assert all(measure(piece) <= 800 for piece in pieces)
    assert pieces[0].startswith("[characters 0 to ")


async def test_the_model_calls_a_tool_to_read(tmp_path: Path) -> None:
    spilling = tool_output_filter(400, spill=tmp_path)
    (told,) = await run(giving(LONG), spilling)
    step = call(READ_TOOL, name=name_in(told.text), start=5_000)
    _, read = await run(giving("x"), spilling, steps=[step])
    assert read.text == "[characters 5,000 to 5,010 of 5,010]\nxxxxx tail"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "no-such"}, "there is no output 'no-such', or no longer"),
        ({"name": "../secret"}, "there is no output '../secret', or no longer"),
        ({"name": "{}", "start": 9_999}, "start is 9999, expected 0 to 5010"),
    ],
)
async def test_the_model_is_told_what_it_cannot_read(
    arguments: dict[str, Any], message: str, tmp_path: Path
) -> None:
    (tmp_path / "secret.txt").write_text("secret")
    spilling = tool_output_filter(400, spill=str(tmp_path / "outputs"))
    (told,) = await run(giving(LONG), spilling)
    name = arguments["name"].replace("{}", name_in(told.text))
    (reader,) = spilling.tools
    with pytest.raises(ToolError, match=re.escape(message)):
        await reader.run({**arguments, "name": name}, Context(conversation_id="c"))


def test_another_conversation_cannot_read_it(tmp_path: Path) -> None:
    folder = SpillFolder(tmp_path)
    folder.write("a", "x-1", "text")
    assert folder.read("a", "x-1") == "text"
    assert folder.read("b", "x-1") is None


def test_a_full_folder_lets_the_oldest_go_and_keeps_the_newest(tmp_path: Path) -> None:
    folder = SpillFolder(tmp_path, max_bytes=25)
    for place, name in enumerate(["one", "two", "three"]):
        folder.write("c", name, "x" * 10)
        for path in tmp_path.glob(f"*/{name}.txt"):
            os.utime(path, ns=(place, place))
    folder.write("d", "four", "x" * 10)
    kept = [folder.read("c", name) for name in ("one", "two", "three")]
    assert kept == [None, None, "x" * 10]
    folder.write("c", "huge", "x" * 100)
    assert folder.read("c", "huge") == "x" * 100
    assert folder.read("d", "four") is None


PLACES = st.lists(
    st.sampled_from(
        ["a", "src", "x.txt", "x.part", "outputs-1", "outputs-", "0123456789abcdef"]
    )
    | st.from_regex(r"outputs-[0-9a-f]{16}", fullmatch=True),
    min_size=1,
    max_size=3,
)


@given(st.lists(PLACES, max_size=6), st.lists(st.integers(1, 40), max_size=6))
@example(places=[["photos", "wedding.jpg"]], sizes=[20])
@example(places=[["project", "src", "main.py"]], sizes=[20])
@example(places=[["photos", "list.txt"]], sizes=[20])
def test_what_others_put_into_the_folder_stays_there(
    places: Sequence[Sequence[str]], sizes: Sequence[int]
) -> None:
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        for place in places:
            path = root.joinpath(*place)
            if not (OWN_FOLDER.fullmatch(path.parent.name) and len(place) == 2):
                with suppress(OSError):
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_text("x" * 30)
        others = set(root.rglob("*"))
        for number, size in enumerate(sizes):
            SpillFolder(root, max_bytes=50).write("c", f"give-{number}", "x" * size)
        assert others <= set(root.rglob("*"))
        own = [p for p in root.rglob("give-*") if p.is_file()]
        assert sum(p.stat().st_size for p in own) <= 50
        assert not sizes or SpillFolder(root).read("c", f"give-{len(sizes) - 1}")


def test_a_folder_by_the_name_of_a_file_of_ours_is_passed_over(tmp_path: Path) -> None:
    folder = SpillFolder(tmp_path, max_bytes=10)
    folder.write("c", "one", "x" * 10)
    (beside,) = tmp_path.iterdir()
    (beside / "more.txt").mkdir()
    (beside / "link.txt").symlink_to(beside / "more.txt")
    folder.write("c", "two", "x" * 10)
    kept = sorted(path.name for path in beside.iterdir())
    assert kept == ["link.txt", "more.txt", "two.txt"]


@pytest.mark.skipif(os.name == "nt", reason="has no such modes")
def test_only_its_user_may_read_what_it_keeps(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        SpillFolder(tmp_path / "a" / "outputs").write("c", "one", "x")
    finally:
        os.umask(before)
    made = (tmp_path / "a" / "outputs", *(tmp_path / "a" / "outputs").rglob("*"))
    modes = [(path.is_file(), path.stat().st_mode & 0o777) for path in made]
    assert modes == [(False, 0o700), (False, 0o700), (True, 0o600)]


async def test_the_tool_to_read_is_there_only_with_a_folder(tmp_path: Path) -> None:
    async def spill(name: str, text: str) -> str:
        raise AssertionError

    assert [t.name for t in tool_output_filter(spill=tmp_path).tools] == [READ_TOOL]
    assert list(tool_output_filter().tools) == []
    assert list(tool_output_filter(spill=spill).tools) == []


@define
class World:
    memory: InMemoryChatMemory = field(factory=InMemoryChatMemory)
    events: list[Event] = field(factory=list)


def test_wherever_it_is_stopped_no_long_result_is_kept() -> None:
    """Also while the whole is being kept elsewhere."""

    async def spill(name: str, text: str) -> str:
        await trio.sleep(1)
        return "there"

    async def scenario(world: World) -> None:
        agent = Agent(
            model=ScriptedModel([call("give"), "done"]),
            tools=[giving(LONG)],
            filters=[tool_output_filter(400, spill=spill)],
            memory=world.memory,
        )
        await agent.run("go", conversation_id="c", emit=world.events.append)

    async def check(world: World) -> None:
        told = results(await world.memory.history("c"))
        returned = [e for e in world.events if isinstance(e, ToolReturned)]
        assert all(len(message.text) <= 400 for message in told)
        assert [e.content for e in returned] == [message.content for message in told]

    assert cancel_sweep(World, scenario, check).runs > 30


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"limit": 399}, "limit is 399, expected 400 characters or more"),
        ({"limit": 99, "unit": "tokens"}, "limit is 99, expected 100 tokens or more"),
        ({"unit": "bytes"}, "unit is 'bytes', expected 'characters' or 'tokens'"),
    ],
)
def test_bad_options_fail_at_once(options: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tool_output_filter(**options)
