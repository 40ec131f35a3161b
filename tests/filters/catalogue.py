"""Fifty tools, questions that need some of them, and what a turn costs either way.

The tools are in `fixtures/tools.json`. Thirty have the names and parameters that three
public MCP servers list: filesystem (without its deprecated `read_file`), memory and
slack, of `modelcontextprotocol/servers`; their descriptions say the same in our words,
at the same length. Twenty more are written in their manner.

Used by `tests/filters/test_tool_search.py` and `python -m benchmarks tool_search`.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import trio
from attrs import frozen

from agentrt.agent.agent import Agent
from agentrt.core.context import Context
from agentrt.core.outcomes import TurnCompleted
from agentrt.filters.tool_search import SEARCH_TOOL, tool_search_filter
from agentrt.models.estimate import estimate_request
from agentrt.testing import ScriptedModel, call
from agentrt.tools.base import Tool

__all__ = ["QUESTIONS", "TOOLS", "Need", "Question", "Turns", "compare"]

SYSTEM: Final = "You are a helpful assistant. Answer with the help of your tools."


async def _run(arguments: Mapping[str, Any], context: Context) -> str:
    await trio.lowlevel.checkpoint()
    return "done"


def _read() -> Sequence[Tool]:
    path = Path(__file__).parent / "fixtures" / "tools.json"
    return [
        Tool(
            name=each["name"],
            description=each["description"],
            parameters=each["parameters"],
            run=_run,
        )
        for each in json.loads(path.read_text(encoding="utf-8"))
    ]


TOOLS: Final = _read()


@frozen
class Need:
    """One ability that a question needs."""

    query: str
    """What a model would search for."""

    tool: str
    arguments: Mapping[str, Any]


@frozen
class Question:
    text: str
    needs: Sequence[Need]


QUESTIONS: Final[Sequence[Question]] = [
    Question(
        "What is in /home/ann/notes.txt?",
        [Need("read a text file", "read_text_file", {"path": "/home/ann/notes.txt"})],
    ),
    Question(
        "Where did I put the invoices? They are PDFs.",
        [Need("find files", "search_files", {"path": "/", "pattern": "**/*.pdf"})],
    ),
    Question(
        "How large is video.mp4, and when was it changed?",
        [Need("size and time of a file", "get_file_info", {"path": "video.mp4"})],
    ),
    Question(
        "Rename draft.md to final.md.",
        [
            Need(
                "rename a file",
                "move_file",
                {"source": "draft.md", "destination": "final.md"},
            )
        ],
    ),
    Question(
        "Remember that Ann likes tea.",
        [
            Need(
                "add an observation to the knowledge graph",
                "add_observations",
                {"observations": [{"entityName": "Ann", "contents": ["likes tea"]}]},
            )
        ],
    ),
    Question(
        "Tell #general that the build is green.",
        [
            Need(
                "post a message in a Slack channel",
                "slack_post_message",
                {"channel_id": "C1", "text": "The build is green."},
            )
        ],
    ),
    Question(
        "What did people answer to my question in the thread?",
        [
            Need(
                "replies in a thread",
                "slack_get_thread_replies",
                {"channel_id": "C1", "thread_ts": "1234567890.123456"},
            )
        ],
    ),
    Question(
        "When are Ann and Bob both free next week?",
        [
            Need(
                "find free time",
                "calendar_find_free_time",
                {
                    "people": ["ann@x.org", "bob@x.org"],
                    "duration_minutes": 30,
                    "start": "2026-03-02T00:00:00Z",
                    "end": "2026-03-07T00:00:00Z",
                },
            )
        ],
    ),
    Question(
        "Why is this query so slow?",
        [Need("explain slow SQL query", "db_explain_query", {"sql": "SELECT 1"})],
    ),
    Question(
        "How many orders came in today?",
        [Need("run an SQL query", "db_run_query", {"sql": "SELECT count(*) FROM o"})],
    ),
    Question(
        "Will it rain in Munich tomorrow?",
        [Need("weather forecast", "weather_forecast", {"place": "Munich"})],
    ),
    Question(
        "Show me what example.org looks like.",
        [
            Need("open a web page", "browser_open_page", {"url": "https://x.org"}),
            Need("take a screenshot", "browser_take_screenshot", {}),
        ],
    ),
    Question(
        "Read report.md and mail it to Bob.",
        [
            Need("read a file", "read_text_file", {"path": "report.md"}),
            Need(
                "send a mail",
                "mail_send",
                {"to": ["bob@x.org"], "subject": "Report", "body": "Here it is."},
            ),
        ],
    ),
]


@frozen(kw_only=True)
class Turns:
    """One question, asked with all tools and with a search."""

    all_tools: int
    """Prompt tokens of all model calls of the turn, by our estimate."""

    searched: int
    """The same with the search tool, its calls included."""

    found: Sequence[str]
    """The tools that ran after the search."""

    @property
    def saved(self) -> float:
        """Part of the tokens that the search saves."""
        return 1 - self.searched / self.all_tools


async def compare(question: Question, *, tools: Sequence[Tool] = TOOLS) -> Turns:
    """Answer a question both ways. Calls that the question needs are made at once."""
    calls = [call(need.tool, **need.arguments) for need in question.needs]
    searches = [call(SEARCH_TOOL, query=need.query) for need in question.needs]
    plain = ScriptedModel([calls, "Done."])
    await Agent(model=plain, tools=tools, system=SYSTEM).run(question.text)
    model = ScriptedModel([searches, calls, "Done."])
    agent = Agent(
        model=model, tools=tools, system=SYSTEM, filters=[tool_search_filter()]
    )
    outcome = await agent.run(question.text)
    assert isinstance(outcome, TurnCompleted)
    return Turns(
        all_tools=sum(estimate_request(request) for request in plain.requests),
        searched=sum(estimate_request(request) for request in model.requests),
        found=[
            each.name
            for each in outcome.calls
            if each.status == "ok" and each.name != SEARCH_TOOL
        ],
    )
