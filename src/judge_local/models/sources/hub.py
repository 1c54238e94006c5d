"""The hub source: a file of a Hugging Face repository, through `huggingface_hub`, held to the hub's own record.

The commit, the size and the sha256 come from the hub before the first byte; all parts come from that one commit.
`HF_ENDPOINT`, `HF_TOKEN` and `HF_HUB_OFFLINE` mean here what they mean to that library.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any, TypeVar

from judge_local.errors import (
    CorruptDownloadError,
    GatedModelError,
    ModelNotFoundError,
    PullError,
    SourceUnreachableError,
    UnknownModelError,
    excerpt,
)
from judge_local.models.files import OnProgress
from judge_local.models.partfile import PartFile
from judge_local.models.references import (
    HubFile,
    HubQuant,
    is_weights_name,
    matches_quant,
    near_misses,
    split_parts,
)
from judge_local.models.sources import Offer, RemoteFile
from judge_local.models.sources.web import ANSWER_SECONDS, LOGIN_PAGE, STALL_SECONDS, Http, within

LIBRARY = "judge-local"
"""Who asks, in the request's user agent."""

T = TypeVar("T")
_SHA256 = re.compile(r"[0-9a-f]{64}")


class HubSource:
    """One file, or all parts of one split file, of a hub repository.

    Args:
        reference: the file.
        ask_licence: whether to ask the repository what licence it declares.
        stall_seconds: how long the hub may send nothing.
    """

    def __init__(
        self, reference: HubFile, *, ask_licence: bool = True, stall_seconds: float = STALL_SECONDS
    ) -> None:
        self._reference, self._ask_licence = reference, ask_licence
        self._hub = Hub(reference.repo, str(reference), stall_seconds)
        self._revision = reference.revision

    def look(self) -> Offer:
        """See `Source`."""
        names = split_parts(self._reference.filename)
        files = []
        for name in names:
            try:
                metadata = self._hub.metadata(name, self._revision)
            except ModelNotFoundError as error:
                raise self._not_there(error) from error
            # A branch may move between two parts; a commit does not.
            self._revision = metadata.commit_hash or self._revision
            files.append(
                RemoteFile(name=name, sha256=self._sha256(name, metadata.etag), size_bytes=metadata.size)
            )
        source = str(HubFile(self._reference.repo, names[0]))
        return Offer(source=source, revision=self._revision, files=tuple(files), licence=self._licence())

    def fetch(self, file: RemoteFile, part: PartFile, on_progress: OnProgress) -> None:
        """See `Source`."""
        self._hub.fetch(file, self._revision, part, on_progress)

    def close(self) -> None:
        """See `Source`. The session is the library's."""

    def _sha256(self, name: str, etag: str | None) -> str:
        """The hub's record of the file's hash: the tag it is served with, or its entry for large files."""
        if etag and _SHA256.fullmatch(etag):
            return etag
        recorded = self._hub.recorded_sha256(name, self._revision)
        if recorded is None:
            raise CorruptDownloadError(
                str(self._reference),
                "the hub records no sha256 for it, so there is nothing to hold the file to",
                "Fetch it by hand and import it with --sha256.",
            )
        return recorded

    def _licence(self) -> str | None:
        """What the repository declares; a hub that does not say leaves it open, and the weights are as good."""
        if not self._ask_licence:
            return None
        try:
            card = self._hub.info(self._revision).card_data
        except PullError:
            return None
        licence = getattr(card, "license", None)
        return licence if isinstance(licence, str) else None

    def _not_there(self, error: ModelNotFoundError) -> PullError:
        """`error` with what the repository does have, where it can be listed."""
        try:
            there = self._hub.weights(self._revision)
        except PullError:
            return error
        near = near_misses(self._reference.filename, there) or there[:8]
        names = ", ".join(near) or "no weights at all"
        return ModelNotFoundError(error.where, error.problem, f"The repository has {names}.")


def resolve_quant(reference: HubQuant) -> HubFile:
    """The one file of the repository with that quantisation.

    Raises:
        UnknownModelError: several files have it; the message lists them.
        PullError: the hub does not answer, has no such repository, or none of its files has it.
    """
    hub = Hub(reference.repo, str(reference), STALL_SECONDS)
    there = hub.weights(reference.revision)
    found = [name for name in there if matches_quant(name, reference.quant)]
    if not found:
        names = ", ".join(there[:20]) or "no weights at all"
        raise ModelNotFoundError(
            str(reference), f"no file has {excerpt(reference.quant)}", f"The repository has {names}."
        )
    if len(found) > 1:
        forms = ", ".join(str(HubFile(reference.repo, name, reference.revision)) for name in found)
        raise UnknownModelError(
            str(reference), f"{len(found)} files have {excerpt(reference.quant)}", f"Name one: {forms}."
        )
    return HubFile(reference.repo, found[0], reference.revision)


class Hub:
    """One repository as the library sees it, its errors being ours."""

    def __init__(self, repo: str, where: str, stall_seconds: float) -> None:
        self.repo, self.where = repo, where
        # Read now, not when the library was imported, so that it can be set in between.
        self.endpoint = (os.environ.get("HF_ENDPOINT") or "").rstrip("/") or None
        self.http = Http(stall_seconds)

    def metadata(self, name: str, revision: str | None) -> Any:
        """The hub's record of one file: `commit_hash`, `etag`, `size`."""
        from huggingface_hub import get_hf_file_metadata

        url = self.url(name, revision)
        return self.ask(lambda: get_hf_file_metadata(url, timeout=self.http.patience, library_name=LIBRARY))

    def recorded_sha256(self, name: str, revision: str | None) -> str | None:
        """The hash in the repository's entry for a large file, or None."""
        found = self.ask(lambda: self._api().get_paths_info(self.repo, [name], revision=revision))
        sha256 = getattr(getattr(found[0], "lfs", None), "sha256", None) if found else None
        return sha256 if isinstance(sha256, str) and _SHA256.fullmatch(sha256) else None

    def info(self, revision: str | None) -> Any:
        """The repository's own page, as data."""
        return self.ask(
            lambda: self._api().model_info(self.repo, revision=revision, timeout=self.http.patience)
        )

    def weights(self, revision: str | None) -> list[str]:
        """The weights in the repository, by name; a split file once, by its first part."""
        names = sorted(sibling.rfilename for sibling in self.info(revision).siblings or [])
        return [name for name in names if is_weights_name(name) and split_parts(name)[0] == name]

    def fetch(self, file: RemoteFile, revision: str | None, part: PartFile, on_progress: OnProgress) -> None:
        """Append to `part` what it lacks of `file`."""
        from huggingface_hub.utils import build_hf_headers

        try:
            self.http.download(
                self.where,
                self.url(file.name, revision),
                part,
                size_bytes=file.size_bytes,
                headers=build_hf_headers(library_name=LIBRARY),
                on_progress=on_progress,
            )
        except GatedModelError as error:
            raise self._gated(error.problem) from error
        except OSError as error:
            raise self._translated(error) from error

    def url(self, name: str, revision: str | None) -> str:
        """Where the hub serves the file."""
        from huggingface_hub import hf_hub_url

        return str(hf_hub_url(self.repo, name, revision=revision, endpoint=self.endpoint))

    def ask(self, call: Callable[[], T]) -> T:
        """The library's answer, its errors being ours.

        Raises:
            PullError: the hub does not answer, has no such thing, or does not give it to us.
        """
        try:
            return within(ANSWER_SECONDS, self.where, call)
        except (self.http.library.HTTPError, OSError, ValueError) as error:
            raise self._translated(error) from error

    def _api(self) -> Any:
        from huggingface_hub import HfApi

        return HfApi(endpoint=self.endpoint, library_name=LIBRARY)

    def _translated(self, error: Exception) -> PullError:
        from huggingface_hub.errors import HfHubHTTPError, HFValidationError, OfflineModeIsEnabled

        if isinstance(error, OfflineModeIsEnabled):
            return SourceUnreachableError(
                self.where, "HF_HUB_OFFLINE is set", "Unset it to fetch from the hub."
            )
        if isinstance(error, HFValidationError):
            return ModelNotFoundError(
                self.where, f"{excerpt(self.repo)} is no repository's name", "Check the spelling."
            )
        response = getattr(error, "response", None)
        if not isinstance(error, HfHubHTTPError) or response is None:
            if isinstance(error, ValueError):
                problem = f"what answers is no hub: {excerpt(str(error))}"
                return SourceUnreachableError(self.where, problem, LOGIN_PAGE)
            return self.http.unreachable(self.where, error)
        status = response.status_code
        if status in (401, 403):
            return self._gated(f"access is refused (HTTP {status})")
        if status in (404, 410):
            what = {"RepoNotFound": "repository", "RevisionNotFound": "revision"}
            missing = what.get(response.headers.get("X-Error-Code", ""), "file")
            return ModelNotFoundError(
                self.where, f"the hub has no such {missing} (HTTP {status})", "Check the spelling."
            )
        return SourceUnreachableError(
            self.where, f"the hub cannot answer (HTTP {status})", "Try again later."
        )

    def _gated(self, problem: str) -> GatedModelError:
        page = f"{self.endpoint or 'https://huggingface.co'}/{self.repo}"
        return GatedModelError(
            self.where,
            problem,
            f"Accept the terms at {page}, and set HF_TOKEN to a token of that account; a repository that does not "
            "exist answers the same way, so check the spelling too.",
        )
