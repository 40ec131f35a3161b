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
