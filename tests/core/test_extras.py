"""What an extra would bring is named when it is missing."""

import subprocess
import sys

import pytest

from agentrt.core.extras import from_extra

IMPORTS_WITHOUT = """
import importlib, sys
sys.modules[sys.argv[2]] = None
try:
    importlib.import_module(sys.argv[1])
except ModuleNotFoundError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("module", "missing", "extra"),
    [
        ("agentrt.cli", "cyclopts", "cli"),
        ("agentrt.cli", "rich", "cli"),
        ("agentrt.servers.http", "hypercorn", "server"),
        ("agentrt.servers.http", "starlette", "server"),
        ("agentrt.servers.websocket", "trio_websocket", "server"),
        ("agentrt.stores.sqlite", "apsw", "sqlite"),
        ("agentrt.testing", "hypothesis", "testing"),
    ],
)
def test_what_is_missing_is_named_with_what_brings_it(
    module: str, missing: str, extra: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", IMPORTS_WITHOUT, module, missing],
        check=True,
        capture_output=True,
        text=True,
    )
    told = done.stdout
    assert told.startswith(missing)
    assert told.endswith(
        f"is not installed; pip install 'agentrt[{extra}]' brings it\n"
    )


def test_another_fault_in_an_import_is_left_as_it_is() -> None:
    with pytest.raises(ImportError, match=r"^built for another"), from_extra("cli"):
        raise ImportError("built for another Python")
