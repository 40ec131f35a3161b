"""`import agentrt` brings only what every program needs."""

import json
import subprocess
import sys

LISTS_MODULES = "import agentrt, json, sys; print(json.dumps(sorted(sys.modules)))"

NOT_NEEDED = (
    "agentrt.servers",
    "agentrt.agui",
    "agentrt.cli",
    "agentrt.testing",
    "agentrt.stores.sqlite",
    "agentrt.providers.openai",
    "agentrt.models.offline",
    "apsw",
    "sqlite3",
    "starlette",
    "hypercorn",
    "trio_websocket",
    "cyclopts",
    "rich",
    "hypothesis",
    "pytest",
    "httpx",
)


def test_importing_agentrt_loads_no_server_store_command_or_test_kit() -> None:
    """A child process of its own takes longer than other tests may."""
    done = subprocess.run(
        [sys.executable, "-c", LISTS_MODULES],
        check=True,
        capture_output=True,
        text=True,
    )
    loaded = json.loads(done.stdout)
    needless = [
        name
        for name in loaded
        if any(name == each or name.startswith(f"{each}.") for each in NOT_NEEDED)
    ]
    assert needless == []
