"""llama-cpp-python's own server with the random model, for whoever wants a real one on loopback."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def llama_server(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Base URL of a running server; its model is called `tiny`."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = tmp_path_factory.mktemp("server") / "log.txt"
    command = [
        *(sys.executable, "-m", "llama_cpp.server", "--model", str(tiny_model), "--model_alias", "tiny"),
        *("--host", "127.0.0.1", "--port", str(port), "--n_ctx", "2048", "--n_threads", "1"),
    ]
    environment = {key: value for key, value in os.environ.items() if key.lower() != "model"}
    with log.open("wb") as file:
        server = subprocess.Popen(command, stdout=file, stderr=file, env=environment)
    url = f"http://127.0.0.1:{port}/v1"
    try:
        until = time.monotonic() + 60
        while True:
            with contextlib.suppress(OSError), urllib.request.urlopen(f"{url}/models", timeout=5):
                break
            assert server.poll() is None, log.read_text("utf-8", "replace")
            assert time.monotonic() < until, "the server did not begin to answer"
            time.sleep(0.1)
        yield url
    finally:
        server.terminate()
        server.wait(10)
