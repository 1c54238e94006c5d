"""A chat API on loopback that plays faults from a script, and remembers what it was asked."""

from __future__ import annotations

import json
import socketserver
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

Wire = Callable[[bytes], object]
"""Sends bytes to the client."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One request as it came."""

    method: str
    path: str
    headers: Mapping[str, str]
    """Names in lower case."""
    json: Any


@dataclass(frozen=True, slots=True)
class Act:
    """One scripted behaviour: what is sent, and how."""

    body: bytes = b""
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    declared: int | None = None
    """Content-Length; None is the body's own."""
    seconds: float = 0.0
    """Between two bytes of the body, or before hanging up."""
    hang_up: bool = False
    """Close without a word."""


def completion(content: Any, *, finish: str = "stop", **more: Any) -> Act:
    """A well-formed chat completion."""
    text = content if isinstance(content, str) or content is None else json.dumps(content)
    message = {"role": "assistant", "content": text}
    data = {"choices": [{"index": 0, "message": message, "finish_reason": finish}], **more}
    return Act(json.dumps(data).encode())


def fault(status: int, message: str = "scripted", **headers: str) -> Act:
    """An error in the API's own form."""
    named = tuple((name.replace("_", "-"), value) for name, value in headers.items())
    return Act(json.dumps({"error": {"message": message}}).encode(), status, named)


class ScriptedServer:
    """Plays `acts` in order, the last one over and over. `GET` plays `health`."""

    def __init__(self, acts: Sequence[Act], *, health: Act | None = None) -> None:
        self.acts = list(acts)
        self.health = health or Act(b'{"data": []}')
        self.asked: list[Asked] = []
        self._lock = threading.Lock()  # Protects `asked`.
        outer = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                outer._answer(self.rfile, self.wfile.write)

        class Server(socketserver.ThreadingTCPServer):
            daemon_threads = True
            allow_reuse_address = True

            def handle_error(self, request: Any, client_address: Any) -> None:
                """A client that left is what some tests are about."""

        self._server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    @property
    def posts(self) -> list[Asked]:
        """The completions asked for."""
        return [asked for asked in self.asked if asked.method == "POST"]

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=[0.01], daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _answer(self, stream: Any, wire: Wire) -> None:
        method, path, _ = stream.readline().decode().split(" ", 2)
        headers: dict[str, str] = {}
        while line := stream.readline().decode().strip():
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        body = stream.read(int(headers.get("content-length", 0)))
        with self._lock:
            self.asked.append(Asked(method, path, headers, json.loads(body) if body else None))
            turn = len(self.posts) - 1
        act = self.health if method == "GET" else self.acts[min(turn, len(self.acts) - 1)]
        if act.hang_up:
            time.sleep(act.seconds)
            return
        length = len(act.body) if act.declared is None else act.declared
        named = {"content-type": "application/json", **dict(act.headers), "content-length": str(length)}
        head = [f"HTTP/1.1 {act.status} X", *(f"{name}: {value}" for name, value in named.items())]
        wire("\r\n".join([*head, "connection: close", "", ""]).encode())
        if not act.seconds:
            wire(act.body)
            return
        for byte in act.body:
            wire(bytes([byte]))
            time.sleep(act.seconds)
