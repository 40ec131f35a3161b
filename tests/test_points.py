"""Every point of `points.toml` is shown by a test, or does not apply."""

import ast
import re
import tomllib
from pathlib import Path
from typing import Final

import pytest

TESTS: Final = Path(__file__).parent
POINTS: Final = tomllib.loads((TESTS / "points.toml").read_text())

NUMBERS: Final = [
    *(f"B{number}" for number in range(1, 73)),
    *(f"X{number}" for number in range(1, 30)),
    *(f"U{number}" for number in range(1, 50) if number != 45),  # 45 is of MCP
]

CITED: Final = [
    (number, test) for number, tests in POINTS["shown_by"].items() for test in tests
]


def test_every_point_is_shown_or_does_not_apply() -> None:
    assert all(POINTS["shown_by"].values())
    assert all(POINTS["not_here"].values())
    assert sorted([*POINTS["shown_by"], *POINTS["not_here"]]) == sorted(NUMBERS)


@pytest.mark.parametrize(("number", "test"), CITED)
def test_a_point_is_shown_by_tests_that_cite_it(number: str, test: str) -> None:
    path, _, name = test.partition("::")
    tree = ast.parse((TESTS / path).read_text())
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    named = [
        node
        for node in ast.walk(tree)
        if isinstance(node, functions) and node.name == name
    ]
    assert len(named) == 1, f"{test} is not there once"
    assert re.search(rf"\b{number}\b", ast.get_docstring(named[0]) or "")
