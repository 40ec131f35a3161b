"""Logging filters: everything at the chosen level, and nothing of it at another."""

import logging
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import given

from agentrt.agent.agent import Agent
from agentrt.core.chat import ChatResponse, Usage
from agentrt.core.errors import ServerError, ToolError
from agentrt.core.messages import ToolCall, UserMessage
from agentrt.core.outcomes import TurnCompleted, TurnFailed
from agentrt.core.parts import FilePart, TextPart
from agentrt.filters.base import ChatCall, Filter, hook
from agentrt.filters.logging import chat_logging_filter, tool_logging_filter
from agentrt.testing import Say, ScriptedModel, call, texts, trio_property
from agentrt.tools.base import ToolResult, tool


@tool
async def add(a: int) -> int:
    """Add one."""
    await trio.sleep(0.5)
    return a + 1


@tool
async def fail(text: str) -> None:
    """Fail."""
    await trio.lowlevel.checkpoint()
    raise ToolError(text, kind="transient")


@tool
async def hang() -> None:
    """Never return."""
    await trio.sleep_forever()


class Lines(logging.Handler):
    """What was logged, as level and text."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    @property
    def texts(self) -> Sequence[tuple[str, str]]:
        return [(each.levelname, each.getMessage()) for each in self.records]


def journal(level: int = logging.DEBUG) -> tuple[logging.Logger, Lines]:
    """A logger of its own, and what it wrote."""
    logger, lines = logging.Logger("test", level), Lines()
    logger.addHandler(lines)
    return logger, lines


async def run(made: Filter, *steps: Any, said: Any = "hi") -> Any:
    agent = Agent(model=ScriptedModel(steps), tools=[add, fail, hang], filters=[made])
    return await agent.run(said, conversation_id="c")


async def test_a_tool_call_is_logged_with_arguments_result_and_time(
    autojump_clock: trio.testing.MockClock,
) -> None:
    logger, lines = journal()
    await run(tool_logging_filter(logger), call("add", id="1", a=2), "done")
    assert lines.texts == [
        ("INFO", """'c': call '1' of tool 'add' asked: '{"a": 2}'"""),
        ("INFO", "'c': call '1' of tool 'add' answered in 0.500 s: '3'"),
    ]
    known = [(each.__dict__["conversation_id"], each.__dict__["call_id"])
             for each in lines.records]  # fmt: skip
    assert known == [("c", "1"), ("c", "1")]


async def test_a_failure_is_a_warning_without_words_and_words_at_the_level() -> None:
    logger, lines = journal()
    made = tool_logging_filter(logger, "DEBUG")
    await run(made, call("fail", id="1", text="the key is s3cret"), "done")
    assert lines.texts[1:] == [
        ("WARNING", "'c': call '1' of tool 'fail' failed in 0.000 s (ToolError)"),
        ("DEBUG", "'c': call '1' of tool 'fail' failed in 0.000 s: "
                  "'the key is s3cret'"),
    ]  # fmt: skip


async def test_an_error_result_is_a_failure_of_its_kind() -> None:
    @tool
    async def refuse() -> ToolResult:
        """Refuse."""
        await trio.lowlevel.checkpoint()
        return ToolResult(content="no", is_error=True, failure="environment")

    logger, lines = journal()
    script: Sequence[Any] = [call("refuse", id="1"), "done"]
    agent = Agent(
        model=ScriptedModel(script),
        tools=[refuse],
        filters=[tool_logging_filter(logger)],
    )
    await agent.run("go", conversation_id="c")
    assert ("WARNING",
            "'c': call '1' of tool 'refuse' failed in 0.000 s (environment)",
            ) in lines.texts  # fmt: skip


async def test_a_level_that_is_off_shows_no_words_at_all() -> None:
    logger, lines = journal(logging.WARNING)
    secret = "s3cret"
    steps: list[Any] = [call("fail", text=secret), ServerError(secret)]
    filters = [tool_logging_filter(logger), chat_logging_filter(logger)]
    agent = Agent(model=ScriptedModel(steps), tools=[fail], filters=filters)
    outcome = await agent.run(secret, conversation_id="c")
    assert isinstance(outcome, TurnFailed)
    assert len(lines.texts) == 2
    assert secret not in str(lines.texts)


async def test_what_was_cancelled_is_said_so(
    autojump_clock: trio.testing.MockClock,
) -> None:
    logger, lines = journal()
    with trio.move_on_after(2):
        await run(tool_logging_filter(logger), call("hang", id="1"))
    assert lines.texts[-1] == (
        "INFO",
        "'c': call '1' of tool 'hang' was cancelled after 2.000 s",
    )


async def test_a_model_call_is_logged_with_what_is_new_and_the_answer(
    autojump_clock: trio.testing.MockClock,
) -> None:
    usage = Usage(total_tokens=12)
    asks = Say(calls=(call("add", id="1", a=2),), usage=usage)
    picture = FilePart(media_type="image/png", data="c2VjcmV0")
    question = UserMessage(content=(TextPart(text="hi\nthere"), picture))
    logger, lines = journal()
    await run(chat_logging_filter(logger), asks, "done", said=question)
    assert [text for _, text in lines.texts] == [
        "'c': model asked: 1 messages, 3 tools; user 'hi\\nthere [image/png]'",
        "'c': model answered in 0.000 s: 'model', tool_use, 12 tokens; ''; "
        """calls add '{"a": 2}'""",
        "'c': model asked: 3 messages, 3 tools; tool '3'",
        "'c': model answered in 0.000 s: 'model', stop; 'done'",
    ]


async def test_an_answer_of_a_filter_is_told_as_one() -> None:
    @hook
    async def chat(call: ChatCall) -> AsyncIterator[None]:
        yield
        call.response = ChatResponse(message=call.response.message)

    logger, lines = journal()
    agent = Agent(
        model=ScriptedModel(["done"]),
        filters=[chat_logging_filter(logger), Filter(name="f", chat=chat)],
    )
    await agent.run("hi", conversation_id="c")
    assert lines.texts[-1][1] == "'c': model answered in 0.000 s: a filter; 'done'"


async def test_arguments_that_were_no_json_are_shown_as_they_came() -> None:
    bad = ToolCall(id="1", name="add", invalid_arguments='{"a": ')
    logger, lines = journal()
    await run(chat_logging_filter(logger), bad, "done")
    assert """calls add '{"a": '""" in lines.texts[1][1]


@pytest.mark.parametrize(
    ("preview", "shown"),
    [(3, "'hel'... of 5 characters"), (0, "''... of 5 characters"), (5, "'hello'"),
     (None, "'hello'")],
)  # fmt: skip
async def test_the_preview_bounds_each_text(preview: int | None, shown: str) -> None:
    logger, lines = journal()
    await run(chat_logging_filter(logger, preview=preview), "ok", said="hello")
    assert lines.texts[0][1].endswith(f"user {shown}")


@given(texts())
@trio_property
async def test_a_line_stays_a_line_whatever_is_said(text: str) -> None:
    logger, lines = journal()
    made = chat_logging_filter(logger, preview=None)
    await run(made, Say(text=text), said=text or "x")
    for _, line in lines.texts:
        assert len(line.splitlines()) == 1
        line.encode()


async def test_the_default_logger_is_the_modules_own(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO, "agentrt.filters.logging"):
        outcome = await run(chat_logging_filter(), "ok")
    assert isinstance(outcome, TurnCompleted)
    assert [each.name for each in caplog.records] == ["agentrt.filters.logging"] * 2


def test_wrong_arguments_are_refused_at_once() -> None:
    with pytest.raises(ValueError, match="level is 'LOUD', expected a number or one"):
        tool_logging_filter(level="LOUD")
    with pytest.raises(ValueError, match="preview is -1, expected 0 or more"):
        chat_logging_filter(preview=-1)
