"""Fetching over HTTP: one file into one part file, resuming, and never believing what comes.

The client is the hub library's own session, so that proxies, certificates and its switches for offline work hold here
too. That library does not go on with a file after its process was killed; asking for the missing range is ours.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar
from urllib.parse import urlsplit

from judge_local.errors import (
    CorruptDownloadError,
    GatedModelError,
    ModelNotFoundError,
    PullError,
    SourceUnreachableError,
    excerpt,
)
from judge_local.models.files import OnProgress, human_size, need_space
from judge_local.models.gguf import MAGIC
from judge_local.models.partfile import PartFile
from judge_local.models.references import WebFile
from judge_local.models.sources import Offer, RemoteFile

CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 10.0
STALL_SECONDS = 30.0
PAUSES_SECONDS = (0.5, 2.0)
"""Waits between tries that bring no new byte; one more try than there are waits."""

RESUME = "Run the same command again: it resumes where it stopped."
LOGIN_PAGE = "A login page of a proxy or a hotel network? Open it in a browser."
NETWORK = "Check the network; behind a proxy or VPN, set HTTPS_PROXY."

T = TypeVar("T")


class Http:
    """The hub library's session and the classes of the HTTP library under it, whichever that is."""

    def __init__(self, stall_seconds: float = STALL_SECONDS) -> None:
        # Without this the library fetches, on its first request, a list of programs to recognise and report.
        os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
        from huggingface_hub import get_session

        self.session: Any = get_session()
        self.library: Any = sys.modules[type(self.session).__module__.partition(".")[0]]
        self.stall_seconds = stall_seconds
        self.patience: Any = self.library.Timeout(ANSWER_SECONDS, connect=CONNECT_SECONDS)

    def unreachable(self, where: str, error: Exception) -> SourceUnreachableError:
        """What a failed connection means."""
        if isinstance(error, self.library.ConnectTimeout | self.library.ConnectError):
            problem = f"does not answer: {excerpt(str(error) or type(error).__name__)}"
            return SourceUnreachableError(where, problem, NETWORK)
        if isinstance(error, self.library.TimeoutException):
            return SourceUnreachableError(where, "connects and then sends nothing", f"{NETWORK} {RESUME}")
        return SourceUnreachableError(
            where,
            f"the connection failed: {excerpt(str(error) or type(error).__name__)}",
            f"{NETWORK} {RESUME}",
        )

    def download(
        self,
        where: str,
        url: str,
        part: PartFile,
        *,
        size_bytes: int | None,
        headers: Mapping[str, str],
        on_progress: OnProgress,
    ) -> None:
        """Append to `part` what it lacks of the file at `url`.

        Connections that break are made anew as long as each brings new bytes, or `PAUSES_SECONDS` allow.

        Raises:
            PullError: the file did not come whole, or is no weights.
        """
        barren = 0
        while True:
            before = part.size
            try:
                if self._stream(where, url, part, size_bytes, headers, on_progress):
                    return
                broken: PullError = CorruptDownloadError(
                    where, f"stopped after {_of(part, size_bytes)}", RESUME
                )
            except self.library.ReadTimeout as error:
                raise SourceUnreachableError(
                    where,
                    f"no byte came for {self.stall_seconds:g} seconds, after {_of(part, size_bytes)}",
                    f"{NETWORK} {RESUME}",
                ) from error
            except self.library.RemoteProtocolError:
                broken = CorruptDownloadError(
                    where, f"the connection ended after {_of(part, size_bytes)}", RESUME
                )
            except self.library.HTTPError as error:
                broken = self.unreachable(where, error)
            except SourceUnreachableError as error:
                broken = error
            barren = 0 if part.size > before else barren + 1
            if barren > len(PAUSES_SECONDS):
                raise broken
            time.sleep(PAUSES_SECONDS[max(0, barren - 1)])

    def _stream(
        self,
        where: str,
        url: str,
        part: PartFile,
        size_bytes: int | None,
        headers: Mapping[str, str],
        on_progress: OnProgress,
    ) -> bool:
        """One request; returns whether the whole file is there by what the server says."""
        asked = {**headers, "Accept-Encoding": "identity"}
        if part.size:
            asked["Range"] = f"bytes={part.size}-"
        timeout = self.library.Timeout(self.stall_seconds, connect=CONNECT_SECONDS)
        with self.session.stream(
            "GET", url, headers=asked, timeout=timeout, follow_redirects=True
        ) as response:
            if response.status_code == 416 and part.size:
                # Nothing is left to send: the file is complete, or wrong, and its hash will tell.
                return True
            refuse_status(where, response.status_code, response.headers)
            start = _range_start(response.headers) if response.status_code == 206 else 0
            if start != part.size:
                part.restart()
                if start:
                    return False
            if part.size == 0:
                _refuse_page(where, response.headers)
            total = _total(response.headers, start)
            if size_bytes is None and total is not None:
                need_space(part.path.parent, total - part.size)
            wanted = size_bytes if size_bytes is not None else total
            self._receive(where, response, part, wanted, on_progress)
            return wanted is None or part.size >= wanted

    @staticmethod
    def _receive(
        where: str, response: Any, part: PartFile, wanted: int | None, on_progress: OnProgress
    ) -> None:
        head = b""
        for received in response.iter_bytes():
            chunk = received
            if part.size == 0:
                # The first bytes are looked at before any is kept.
                chunk = head = head + received
                if len(head) < len(MAGIC):
                    continue
                _refuse_magic(where, head)
            if wanted is not None and part.size + len(chunk) > wanted:
                part.restart()
                raise CorruptDownloadError(
                    where, f"more came than the {wanted} bytes that it has", "Try again later."
                )
            part.append(chunk)
            on_progress(part.size, wanted or part.size)


class WebSource:
    """A file at an address of its own, held to the sha256 that the user gives."""

    def __init__(self, reference: WebFile, sha256: str, *, stall_seconds: float = STALL_SECONDS) -> None:
        self._reference, self._sha256 = reference, sha256
        self._http = Http(stall_seconds)

    def look(self) -> Offer:
        """See `Source`. The server is asked for the size only."""
        url, where = self._reference.url, str(self._reference)

        def ask() -> Any:
            return self._http.session.head(url, timeout=self._http.patience, follow_redirects=True)

        try:
            response = within(ANSWER_SECONDS, where, ask)
        except (self._http.library.HTTPError, self._http.library.InvalidURL, OSError) as error:
            raise self._http.unreachable(where, error) from error
        # Some servers know no HEAD: then the GET says what there is.
        size = None
        if response.status_code not in (403, 405, 501):
            refuse_status(where, response.status_code, response.headers)
            _refuse_page(where, response.headers)
            size = _total(response.headers, 0)
        name = urlsplit(url).path.rpartition("/")[2]
        file = RemoteFile(name=name, sha256=self._sha256, size_bytes=size)
        return Offer(source=where, revision=None, files=(file,))

    def fetch(self, file: RemoteFile, part: PartFile, on_progress: OnProgress) -> None:
        """See `Source`."""
        url = self._reference.url
        self._http.download(
            str(self._reference), url, part, size_bytes=file.size_bytes, headers={}, on_progress=on_progress
        )

    def close(self) -> None:
        """See `Source`. The session is the library's."""


def within(seconds: float, where: str, ask: Callable[[], T]) -> T:
    """The answer of `ask`, or a `SourceUnreachableError` after `seconds`.

    A name server that does not answer, and a host with many dead addresses, each take longer than any timeout of the
    HTTP library bounds; the thread that waits for them is left behind.
    """
    answers: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            answers.append(ask())
        except BaseException as error:  # noqa: BLE001 - raised again below, in the thread that asked.
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if errors:
        raise errors[0]
    if not answers:
        raise SourceUnreachableError(where, f"does not answer within {seconds:g} seconds", NETWORK)
    return answers[0]


def refuse_status(where: str, status: int, headers: Mapping[str, str]) -> None:
    """Refuse an answer that is no file.

    Raises:
        PullError: the status is not 200 or 206.
    """
    if status in (200, 206):
        return
    if status in (401, 403):
        raise GatedModelError(
            where,
            f"access is refused (HTTP {status})",
            "Check that the address is public, or fetch the file by hand.",
        )
    if status in (404, 410):
        raise ModelNotFoundError(where, f"there is no such file (HTTP {status})", "Check the spelling.")
    detail = f", retry after {headers['Retry-After']}" if "Retry-After" in headers else ""
    raise SourceUnreachableError(
        where, f"the server cannot answer (HTTP {status}{detail})", "Try again later."
    )


def _refuse_page(where: str, headers: Mapping[str, str]) -> None:
    kind = headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if kind in ("text/html", "application/xhtml+xml"):
        raise _page(where)


def _refuse_magic(where: str, head: bytes) -> None:
    if head.startswith(MAGIC):
        return
    if head.lstrip()[:1] == b"<":
        raise _page(where)
    raise CorruptDownloadError(
        where,
        f"what comes is not a GGUF file: it begins with {head[:4]!r}",
        "Check that the reference names weights.",
    )


def _page(where: str) -> CorruptDownloadError:
    return CorruptDownloadError(
        where,
        "a web page comes instead of weights",
        LOGIN_PAGE,
    )


def _range_start(headers: Mapping[str, str]) -> int:
    """Where the bytes of a 206 answer begin; -1 where it does not say."""
    first = headers.get("Content-Range", "").removeprefix("bytes ").partition("-")[0]
    return int(first) if first.isdigit() else -1


def _total(headers: Mapping[str, str], start: int) -> int | None:
    """The whole file's size in bytes, by an answer that begins at `start`."""
    total = headers.get("Content-Range", "").rpartition("/")[2]
    if total.isdigit():
        return int(total)
    length = headers.get("Content-Length", "")
    return start + int(length) if length.isdigit() and "Content-Encoding" not in headers else None


def _of(part: PartFile, size_bytes: int | None) -> str:
    return human_size(part.size) + (f" of {human_size(size_bytes)}" if size_bytes else "")
