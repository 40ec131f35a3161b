"""A browser, and the servers that it visits.

Skips when playwright or a browser is missing. Each test leaves a screenshot of every
tab in `artifacts/browser`, and fails if a tab logged an error or saw a promise broken.
"""

import json
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.browser.chat import ROOT, Chat, Server, playwright

BROWSERS: Final = ("chromium", "chromium-browser", "google-chrome")
FLAGS: Final = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
COMMAND: Final = "import sys, agentrt.cli as c; sys.argv[0] = 'agentrt'; c.main()"


def _start(*command: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )


def _end(process: "subprocess.Popen[str]") -> None:
    with process:  # closes the pipes
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()


@pytest.fixture(scope="session")
def served() -> Iterator[Server]:
    """`agentrt serve`, as a user starts it."""
    process = _start("-c", COMMAND, "serve", "--port", "0", "--ws-port", "0")
    assert process.stdout is not None
    line = process.stdout.readline()
    found = re.search(r"http://\S+/", line)
    assert found is not None, line
    yield Server(url=found[0], process=process)
    _end(process)


@pytest.fixture
def rigged(tmp_path: Path) -> Iterator[Server]:
    """The server of `server.py`, which can be cut and is quicker."""
    notes = tmp_path / "notes"
    notes.touch()
    process = _start(str(Path(__file__).with_name("server.py")), str(notes))
    assert process.stdout is not None
    port = json.loads(process.stdout.readline())["port"]
    yield Server(url=f"http://127.0.0.1:{port}/", process=process, notes=notes)
    _end(process)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    if playwright is None:
        pytest.skip("playwright is not installed")
    path = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if path is None:
        pytest.skip(f"no browser: looked for {', '.join(BROWSERS)}")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def open_chat(
    browser: Any, request: pytest.FixtureRequest
) -> Iterator[Callable[..., Chat]]:
    """Open a tab at an address, with the options of a browser context."""
    chats: list[Chat] = []
    contexts: list[Any] = []

    def open_(url: str, *, beside: Chat | None = None, **options: Any) -> Chat:
        if beside is None:
            options = {"viewport": {"width": 1280, "height": 800}, **options}
            context = browser.new_context(**options)
            contexts.append(context)
        else:
            context = beside.page.context
        name = re.sub(r"\W+", "-", request.node.name)
        chat = Chat(context.new_page(), f"{name}-{len(chats) + 1}")
        chats.append(chat)
        return chat.open(url)

    yield open_
    for chat in chats:
        chat.picture()
    errors = [error for chat in chats for error in chat.errors]
    kept = all(chat.promises_kept() for chat in chats)
    for context in contexts:
        context.close()
    assert errors == []
    assert kept, "a live check of the page failed"
