"""One tab with the page, as a reader uses it, and the server that it visits."""

import re
import subprocess
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from attrs import define, field, frozen

__all__ = ["ARTIFACTS", "ROOT", "Chat", "Server", "expect", "playwright"]

playwright: Final[Any] = (
    import_module("playwright.sync_api") if find_spec("playwright") else None
)
"""None where it is not installed: then the tests are skipped."""

ROOT: Final = Path(__file__).parents[2]
ARTIFACTS: Final = ROOT / "artifacts" / "browser"

PATIENCE: Final = 20_000
"""Milliseconds after which a wait in a test has failed."""

NOISE: Final = re.compile(r"WebSocket connection to .* failed|net::ERR_")
"""What a browser itself logs of a socket that was cut."""


def expect(locator: Any) -> Any:
    """What a locator is going to be; waits for it."""
    return playwright.expect(locator)


@frozen(kw_only=True)
class Server:
    """A server in a child process."""

    url: str
    process: "subprocess.Popen[str]"
    notes: Path | None = None

    def cut(self) -> None:
        """Reset every WebSocket connection, as a network does it."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("cut\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "done\n"


@define(eq=False)
class Chat:
    """One tab with the page."""

    page: Any
    name: str
    errors: list[str] = field(factory=list, init=False)

    def __attrs_post_init__(self) -> None:
        self.page.set_default_timeout(PATIENCE)
        self.page.on("console", lambda message: self._heard(message))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))

    def open(self, url: str) -> "Chat":
        self.page.goto(url)
        self.wait_online()
        return self

    def find(self, test_id: str, more: str = "") -> Any:
        return self.page.locator(f'[data-testid="{test_id}"]{more}')

    def wait_online(self) -> None:
        self.find("connection", '[data-state="online"]').wait_for(state="attached")

    def send(self, text: str) -> None:
        self.find("composer").fill(text)
        self.find("send").click()

    def wait_row(self, tag: str, count: int = 1) -> None:
        """Wait until that many events of a kind came."""
        rows = self.find("event-row", f'[data-type="{tag}"]')
        expect(rows).to_have_count(count, timeout=PATIENCE)

    def ask(self, text: str, *, runs: int = 1) -> str:
        """Send and wait for the end of the run: the answer's Markdown."""
        self.send(text)
        self.wait_row("run/finished", runs)
        return self.text()

    def text(self) -> str:
        """The Markdown of the last answer, as far as it came."""
        said: str = self.page.evaluate("agentrtDebug.text()")
        return said

    def wait_words(self, count: int) -> str:
        """Wait for that many words of an answer: its text so far.

        A row is looked for, since the page's policy lets nobody poll it by script.
        """
        words = self.find("event-row", '[data-type="message/delta"]')
        words.nth(count - 1).wait_for(state="attached")
        return self.text()

    def rows(self) -> list[tuple[int, str]]:
        """Number and kind of the events in the panel."""
        found = self.find("event-row").evaluate_all(
            "rows => rows.map((row) => [Number(row.dataset.seq), row.dataset.type])"
        )
        return [(seq, tag) for seq, tag in found]

    def card(self, name: str, status: str) -> Any:
        """The card of a tool, once it has that status."""
        chosen = f'[data-tool-name="{name}"][data-status="{status}"]'
        card = self.find("tool-card", chosen)
        card.wait_for()
        return card

    def promises_kept(self) -> bool:
        """Whether the live checks of the page never failed."""
        return all(
            self.find(promise).get_attribute("data-ok") == "true"
            for promise in ("p1", "p2")
        )

    def picture(self, path: Path | None = None) -> Path:
        path = path or ARTIFACTS / f"{self.name}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=path)
        return path

    def _heard(self, message: Any) -> None:
        if message.type == "error" and not NOISE.search(message.text):
            self.errors.append(message.text)
