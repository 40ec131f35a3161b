"""For all tests."""

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def logger_as_it_was() -> Iterator[None]:
    """A test may quiet our logger; the next one finds it as it was."""
    logger = logging.getLogger("agentrt")
    before = logger.level
    yield
    logger.setLevel(before)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show what the cancel sweeps found, which is otherwise shown of failures only."""
    for report in terminalreporter.stats.get("passed", []):
        for line in report.capstdout.splitlines():
            if line.startswith("cancel sweep:"):
                terminalreporter.write_line(f"{line}  {report.nodeid}")
