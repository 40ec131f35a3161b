"""Every name that is promised is there, and the front door defines none itself."""

import ast
import importlib
import pkgutil
from pathlib import Path

import pytest

import agentrt

PROMISED = [
    "Agent",
    "tool",
    "Tool",
    "ToolResult",
    "Filter",
    "hook",
    "TurnCall",
    "IterationCall",
    "ChatCall",
    "ToolUse",
    "SystemMessage",
    "UserMessage",
    "AssistantMessage",
    "ToolMessage",
    "Message",
    "ToolCall",
    "TurnCompleted",
    "TurnPaused",
    "TurnCancelled",
    "TurnFailed",
    "TurnOutcome",
    "Approve",
    "Reply",
    "Deny",
    "Retry",
    "Decision",
    "RetryPolicy",
    "ChatClient",
    "FallbackModel",
    "ToolRegistry",
    "Context",
    "open_runtime",
    "AgentRTError",
    "ModelError",
]

MODULES = sorted(
    found.name
    for found in pkgutil.walk_packages(agentrt.__path__, "agentrt.")
    if not found.name.endswith("__main__")
)


def test_the_names_that_programs_need_are_at_the_front_door() -> None:
    assert set(PROMISED) <= set(agentrt.__all__)


@pytest.mark.parametrize("name", ["agentrt", *MODULES])
def test_each_promised_name_is_there_and_in_order(name: str) -> None:
    module = importlib.import_module(name)
    promised = list(module.__all__)
    missing = [each for each in promised if not hasattr(module, each)]
    assert missing == []
    assert len(promised) == len(set(promised))


def test_the_front_door_defines_nothing_itself() -> None:
    tree = ast.parse(Path(agentrt.__file__).read_text(encoding="utf-8"))
    docstring, *statements = tree.body
    assert isinstance(docstring, ast.Expr)
    *imports, last = statements
    assert all(isinstance(each, ast.ImportFrom) for each in imports)
    assert isinstance(last, ast.Assign)
    assert [ast.unparse(target) for target in last.targets] == ["__all__"]
