"""Servers: one HTTP exchange, and a few base URLs that share the work.

Conventions:

* A request goes to the server with the fewest in flight. One that failed rests, longer each time, and must answer a
  health check before it is given work again; with one server there is nothing to choose, so nothing is checked.
* Connections are closed after each exchange: an answer takes seconds, and a stale connection would cost one.
* No proxy, no redirect, no `.netrc`: text goes to the address that was named and to no other.
"""

from __future__ import annotations

import itertools
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from judge_local.errors import RemoteError, RemoteRefusedError, UsageError, excerpt

MAX_REPLY_BYTES: Final = 8 * 2**20
"""A reply longer than this is no answer of a judge."""
CONNECT_SECONDS: Final = 10.0
HEALTH_SECONDS: Final = 5.0
FIRST_REST_SECONDS: Final = 1.0
LONGEST_REST_SECONDS: Final = 60.0
_LOOPBACK: Final = ("localhost", "127.", "::1")


@dataclass(frozen=True, slots=True)
class Reply:
    """What a server sent back."""

    status: int
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes


@dataclass(slots=True)
class Server:
    """One base URL and what is known of it."""

    url: str
    """Without a slash at its end."""
    in_flight: int = 0
    failures: int = 0
    """In a row."""
    rests_until: float = 0.0
    """On the pool's clock."""
    step: int = 0
    """The first form of structured output that it did not refuse; see `openai`."""
    last_turn: int = 0

    @property
    def may_read_keys(self) -> bool:
        """Whether a key sent there stays secret on the way: TLS, or this machine."""
        parts = urlsplit(self.url)
        return parts.scheme == "https" or str(parts.hostname).startswith(_LOOPBACK)


class Pool:
    """The servers of one model.

    Args:
        urls: base URLs, at least one.
        clock: seconds that only grow.

    Raises:
        UsageError: a URL is none, or holds what does not belong into one.
    """

    def __init__(self, urls: Sequence[str], *, clock: Callable[[], float] = time.monotonic) -> None:
        if not urls:
            raise UsageError("base_url", "no server was named", "Give http://127.0.0.1:8080/v1, for one.")
        self.servers: Final = tuple(Server(checked_url(url)) for url in dict.fromkeys(urls))
        self._clock = clock
        self._turns = itertools.count(1)

    def in_order(self) -> list[Server]:
        """Whom to ask, best first. When all rest, the one that has rested most."""
        now = self._clock()
        up = [server for server in self.servers if server.rests_until <= now]
        if not up:
            return [min(self.servers, key=lambda server: server.rests_until)]
        return sorted(up, key=lambda server: (server.failures > 0, server.in_flight, server.last_turn))

    def any_up(self) -> bool:
        """Whether some server is not resting."""
        now = self._clock()
        return any(server.rests_until <= now for server in self.servers)

    def began(self, server: Server) -> None:
        """It was given work."""
        server.in_flight += 1
        server.last_turn = next(self._turns)

    def ended(self, server: Server) -> None:
        """It has that work no more, whatever came of it."""
        server.in_flight -= 1

    def worked(self, server: Server) -> None:
        """It answered, so it is well."""
        server.failures, server.rests_until = 0, 0.0

    def failed(self, server: Server) -> None:
        """It did not answer: it rests, twice as long as the time before."""
        rest = FIRST_REST_SECONDS * 2.0 ** min(server.failures, 20)
        server.failures += 1
        server.rests_until = self._clock() + min(rest, LONGEST_REST_SECONDS)

    def busy(self, server: Server, seconds: float | None) -> None:
        """It asks to be left alone for `seconds`; it is not ill."""
        rest = FIRST_REST_SECONDS if seconds is None else min(seconds, LONGEST_REST_SECONDS)
        server.rests_until = self._clock() + rest


def checked_url(url: str) -> str:
    """`url` without a slash at its end.

    Raises:
        UsageError: it is not http or https, names no host, or holds a user, a query or a fragment.
    """
    parts = urlsplit("")
    try:
        parts = urlsplit(url)
        sound = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        sound = False
    if not sound:
        raise UsageError(
            "base_url", f"{excerpt(url)} is no http(s) URL", "Give http://127.0.0.1:8080/v1, for one."
        )
    if parts.username is not None or parts.password is not None:
        # Not quoted: it holds a secret.
        raise UsageError(
            "base_url",
            f"the URL of {parts.hostname} holds a user or password",
            "Put a key into the environment.",
        )
    if parts.query or parts.fragment:
        raise UsageError("base_url", f"{excerpt(url)} has a query or fragment", "Give the base URL alone.")
    return url.rstrip("/")


async def exchange(
    url: str,
    *,
    content: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    tls: ssl.SSLContext | None = None,
    connect_seconds: float = CONNECT_SECONDS,
) -> Reply:
    """POST `content` to `url`, or GET it where there is none. The caller bounds the time.

    Raises:
        RemoteError: no connection, no whole reply, or one that is too long.
        RemoteRefusedError: the server's certificate is not to be trusted.
    """
    import httpx2

    timeout = httpx2.Timeout(None, connect=connect_seconds)
    try:
        async with (
            httpx2.AsyncClient(
                verify=tls if tls is not None else False,  # Without one, the URL is plain http.
                trust_env=False,
                timeout=timeout,
                limits=httpx2.Limits(max_keepalive_connections=0),
            ) as client,
            client.stream(
                "GET" if content is None else "POST", url, content=content, headers=dict(headers or {})
            ) as response,
        ):
            body = bytearray()
            async for chunk in response.aiter_bytes():
                body += chunk
                if len(body) > MAX_REPLY_BYTES:
                    raise RemoteError(url, f"the reply is longer than {MAX_REPLY_BYTES} bytes")
            return Reply(
                response.status_code,
                {name.lower(): value for name, value in response.headers.items()},
                bytes(body),
            )
    except (httpx2.HTTPError, httpx2.StreamError, OSError) as error:
        raise _connection_fault(url, error) from error


def _connection_fault(url: str, error: Exception) -> RemoteError:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return RemoteRefusedError(
                url,
                f"its certificate is not trusted ({cause.verify_message})",
                "Correct it, or name another server.",
            )
        cause = cause.__cause__ or cause.__context__
    said = " ".join(str(error).split()) or type(error).__name__
    return RemoteError(
        url, f"no whole reply came: {excerpt(said)}", "Is the server running, and is this its base URL?"
    )


def tls_context() -> ssl.SSLContext:
    """Certificates checked against the system's own store."""
    return ssl.create_default_context()
