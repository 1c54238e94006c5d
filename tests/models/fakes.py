"""Small GGUF files, a hub on loopback that serves them and misbehaves on request, and pulls from it."""

import hashlib
import json
import os
import struct
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"
KIB = 1024
REPO, FILE = "org/Repo-GGUF", "Judge-Q4_K_M.gguf"
REFERENCE = f"hf:{REPO}/{FILE}"
SRC = Path(__file__).parents[2] / "src"


def _string(text):
    raw = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(raw)) + raw


def _value(value):
    if isinstance(value, bool):
        return struct.pack("<I?", 7, value)
    if isinstance(value, int):
        return struct.pack("<II", 4, value)
    if isinstance(value, float):
        return struct.pack("<If", 6, value)
    if isinstance(value, list):
        kind = 8 if isinstance(value[0], str) else 4
        items = b"".join(_string(v) if kind == 8 else struct.pack("<I", v) for v in value)
        return struct.pack("<IIQ", 9, kind, len(value)) + items
    return struct.pack("<I", 8) + _string(value)


def gguf(size=200 * KIB, *, seed=b"", metadata=None, version=3):
    """A valid GGUF file of about `size` bytes: a few keys, and one F32 tensor of bytes that `seed` decides."""
    keys = {"general.architecture": "llama", "llama.context_length": 2048, **(metadata or {})}
    elements = max(1, size // 4)
    header = b"GGUF" + struct.pack("<IQQ", version, 1, len(keys))
    header += b"".join(_string(key) + _value(value) for key, value in keys.items())
    header += _string("weights") + struct.pack("<IQIQ", 1, elements, 0, 0)
    header += b"\0" * (-len(header) % 32)
    return header + hashlib.shake_128(seed).digest(4 * elements)


def sha256(data):
    return hashlib.sha256(data).hexdigest()


@dataclass
class Served:
    """One file of the hub and how it is served."""

    data: bytes
    recorded_sha256: str | None = None
    """What the hub says its hash is; None is the truth."""
    status: int = 200
    error_code: str = ""
    body: bytes | None = None
    """What really comes in place of `data`."""
    kind: str = "application/octet-stream"
    cut_after: int | None = None
    """Bytes of the body after which a connection is closed, `cuts` times."""
    cuts: int = 10**6
    stall_after: int | None = None
    """Bytes after which nothing more is sent until the hub ends."""
    ranges: bool = True
    etag: bool = True
    always_416: bool = False


@dataclass
class FakeHub:
    """A hub with its files, and what it was asked."""

    files: dict = field(default_factory=dict)
    """(repo, filename) → Served."""
    licence: str = "apache-2.0"
    portal: bool = False
    """Every answer is a login page."""
    asked: list = field(default_factory=list)
    """(server, method, path, headers) of each request; server is `hub` or `cdn`."""
    url: str = ""
    cdn_url: str = ""
    ended: threading.Event = field(default_factory=threading.Event)
    sent: int = 0
    """Bytes of bodies sent."""

    def add(self, repo, filename, data, **how):
        served = self.files[repo, filename] = Served(data, **how)
        return served

    def ranges(self):
        """The `Range` header of each request for bytes, in order."""
        return [
            headers.get("Range")
            for _, method, path, headers in self.asked
            if method == "GET" and path.startswith("/cdn/")
        ]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: FakeHub
    server_name = "hub"

    def log_message(self, *_):
        pass

    def handle_one_request(self):
        try:
            super().handle_one_request()
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def _note(self):
        path = unquote(urlsplit(self.path).path)
        self.hub.asked.append((self.server_name, self.command, path, dict(self.headers)))
        return path

    def do_HEAD(self):
        self._answer()

    def do_GET(self):
        self._answer()

    def do_POST(self):
        path = self._note()
        if self.hub.portal:
            self._page()
            return
        asked = self.rfile.read(int(self.headers["Content-Length"])).decode()
        repo = "/".join(path.split("/")[3:5])
        names = [name for (owner, name) in self.hub.files if owner == repo and name in unquote(asked)]
        entries = [
            {
                "type": "file",
                "path": name,
                "size": len(self.hub.files[repo, name].data),
                "oid": "0" * 40,
                "lfs": {"oid": sha256(self.hub.files[repo, name].data), "size": 1, "pointerSize": 1},
            }
            for name in names
        ]
        self._json(entries)

    def _json(self, value):
        body = json.dumps(value).encode()
        self._head(200, {"Content-Type": "application/json", "Content-Length": str(len(body))})
        self.wfile.write(body)

    def _page(self):
        body = b"<!doctype html><html>Sign in</html>"
        self._head(200, {"Content-Type": "text/html", "Content-Length": str(len(body))})
        if self.command != "HEAD":
            self.wfile.write(body)

    def _head(self, status, headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def _answer(self):
        path = self._note()
        parts = path.strip("/").split("/")
        if self.hub.portal:
            self._page()
        elif parts[0] == "api":
            self._api("/".join(parts[2:4]))
        elif parts[0] == "cdn":
            self._bytes(self.hub.files["/".join(parts[1:3]), "/".join(parts[3:])])
        else:
            self._resolve("/".join(parts[:2]), "/".join(parts[4:]))

    def _api(self, repo):
        names = [name for owner, name in self.hub.files if owner == repo]
        if not names:
            self._head(404, {"Content-Length": "0", "X-Error-Code": "RepoNotFound"})
            return
        card = {"license": self.hub.licence} if self.hub.licence else {}
        self._json(
            {"id": repo, "sha": COMMIT, "siblings": [{"rfilename": n} for n in names], "cardData": card}
        )

    def _resolve(self, repo, filename):
        served = self.hub.files.get((repo, filename))
        if served is None:
            self._head(404, {"Content-Length": "0", "X-Error-Code": "EntryNotFound"})
            return
        if served.status != 200:
            self._head(
                served.status,
                {"Content-Length": "0", **({"X-Error-Code": served.error_code} if served.error_code else {})},
            )
            return
        self._head(
            302,
            {
                "Location": f"{self.hub.cdn_url}/cdn/{repo}/{filename}",
                "Content-Length": "0",
                "X-Repo-Commit": COMMIT,
                "X-Linked-Size": str(len(served.data)),
                "X-Linked-Etag": f'"{served.recorded_sha256 or sha256(served.data)}"'
                if served.etag
                else f'"{"1" * 40}"',
            },
        )

    def _bytes(self, served):
        body = served.data if served.body is None else served.body
        start = 0
        if served.ranges and (asked := self.headers.get("Range")):
            start = int(asked.removeprefix("bytes=").removesuffix("-"))
            if start >= len(body) or served.always_416:
                self._head(416, {"Content-Range": f"bytes */{len(body)}", "Content-Length": "0"})
                return
        headers = {"Content-Type": served.kind, "Content-Length": str(len(body) - start)}
        if start:
            headers["Content-Range"] = f"bytes {start}-{len(body) - 1}/{len(body)}"
        self._head(206 if start else 200, headers)
        if self.command == "HEAD":
            return
        stop = len(body)
        if served.cut_after is not None and served.cuts > 0:
            served.cuts -= 1
            stop = min(stop, start + served.cut_after)
        if served.stall_after is not None:
            stop = min(stop, served.stall_after)
        for at in range(start, stop, 64 * KIB):
            self.wfile.write(body[at : min(at + 64 * KIB, stop)])
            self.hub.sent += min(64 * KIB, stop - at)
        self.wfile.flush()
        if stop < len(body):
            if served.stall_after is not None:
                self.hub.ended.wait(30)
            self.close_connection = True


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, request, client_address):
        pass  # Clients of these tests are killed and hang up.


@contextmanager
def serving(hub=None):
    """A hub on loopback, and the host its bytes come from on another port."""
    hub = hub or FakeHub()
    servers = []
    for name in ("hub", "cdn"):
        handler = type("Handler", (_Handler,), {"hub": hub, "server_name": name})
        servers.append(_Server(("127.0.0.1", 0), handler))
    hub.url, hub.cdn_url = (f"http://127.0.0.1:{server.server_address[1]}" for server in servers)
    threads = [
        threading.Thread(target=s.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True) for s in servers
    ]
    for thread in threads:
        thread.start()
    try:
        yield hub
    finally:
        hub.ended.set()
        for server, thread in zip(servers, threads, strict=True):
            server.shutdown()
            server.server_close()
            thread.join()


def wait_until(true, seconds=20):
    """Wait for `true()`; fail after far more time than it can take."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)


DATA = gguf(600 * KIB, seed=b"hub")
"""What the hub has as `FILE`, unless a test says otherwise."""


def left(store):
    """The names in the folder, but for those that only this program looks at."""
    return sorted(path.name for path in store.directory.iterdir())


def part_of(store, data=DATA, name="Judge-Q4_K_M"):
    return store.directory / f"{name}.{sha256(data)[:12]}.gguf.part"


def keep_part(store, content, data=DATA):
    """What an earlier pull left."""
    store.directory.mkdir(exist_ok=True)
    part_of(store, data).write_bytes(content)


CHILD = (
    "import sys; from judge_local.models.pull import pull; from judge_local.models.store import Store;"
    "pull(sys.argv[1], store=Store(sys.argv[2]), on_event=lambda text: print(text, flush=True))"
)


def start_pull(store, reference=REFERENCE):
    """A pull in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-c", CHILD, reference, str(store.directory)],
        env={**os.environ, "PYTHONPATH": str(SRC)},
        stdout=subprocess.PIPE,
        text=True,
    )
