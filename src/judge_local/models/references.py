"""References: the ways to name a model, and what each of them means.

* Reading a reference looks at nothing but its text: no disk, no network, no environment.
* A word that is neither a catalog alias nor a selector is refused with its near misses, never guessed at.
* Files named `mmproj`, `imatrix` or `mtp` travel beside weights and are never weights themselves.
* The parts of a split file (`-00001-of-00003`) are one model, named by the first of them.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from urllib.parse import unquote, urlsplit

from judge_local.errors import UnknownModelError, excerpt
from judge_local.models.catalog import TIERS, catalog

SELECTORS = ("auto", *TIERS)
"""Words that choose a model instead of naming one. None of them ever enters a cache key."""

FORMS = (
    "a catalog alias, auto, fast, balanced, quality, hf:org/repo/file.gguf[@revision], org/repo:QUANT, "
    "pypi:package==version/file.gguf, https://host/file.gguf with its sha256, or a path ending in .gguf"
)

_HUB_HOSTS = ("huggingface.co", "www.huggingface.co", "hf.co")
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_REPO = r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*"
_HUB = re.compile(rf"hf:(?P<repo>{_REPO})/(?P<file>[^@]+\.gguf)(?:@(?P<revision>[^@\s]+))?", re.IGNORECASE)
_QUANT = re.compile(rf"(?:hf:)?(?P<repo>{_REPO}):(?P<quant>[A-Za-z0-9][\w.-]*)(?:@(?P<revision>[^@\s]+))?")
_PYPI = re.compile(
    r"pypi:(?P<package>[A-Za-z0-9][\w.-]*)==(?P<version>[A-Za-z0-9][\w.+!-]*)/(?P<member>.+\.gguf)",
    re.IGNORECASE,
)
_SPLIT = re.compile(r"(?P<stem>.*)-(?P<part>\d{5})-of-(?P<parts>\d{5})\.gguf", re.IGNORECASE)
_NOT_WEIGHTS = re.compile(r"(?:^|[-._])(?:mmproj|imatrix|mtp)(?:$|[-._])", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Alias:
    """A model of the catalog."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Selector:
    """A word that chooses: for `pull` by the machine's memory, for judging among the models on disk."""

    word: str

    def __str__(self) -> str:
        return self.word


@dataclass(frozen=True, slots=True)
class HubFile:
    """A file in a repository of the hub; for a split file, its first part."""

    repo: str
    filename: str
    revision: str | None = None
    """A branch, tag or commit; None is the default branch."""

    def __str__(self) -> str:
        return f"hf:{self.repo}/{self.filename}" + (f"@{self.revision}" if self.revision else "")


@dataclass(frozen=True, slots=True)
class HubQuant:
    """The one file of a hub repository that has this quantisation."""

    repo: str
    quant: str
    revision: str | None = None

    def __str__(self) -> str:
        return f"{self.repo}:{self.quant}" + (f"@{self.revision}" if self.revision else "")


@dataclass(frozen=True, slots=True)
class PypiFile:
    """A member of a wheel. Nothing of the package is run."""

    package: str
    version: str
    member: str

    def __str__(self) -> str:
        return f"pypi:{self.package}=={self.version}/{self.member}"


@dataclass(frozen=True, slots=True)
class WebFile:
    """A file at an address of its own. Nobody vouches for it, so its sha256 must be given."""

    url: str

    def __str__(self) -> str:
        return self.url


@dataclass(frozen=True, slots=True)
class LocalFile:
    """A path to a file on this disk, as it was written."""

    path: str

    def __str__(self) -> str:
        return self.path


Reference = Alias | Selector | HubFile | HubQuant | PypiFile | WebFile | LocalFile


def parse_reference(text: str, *, known: Sequence[str] = ()) -> Reference:
    """Read a reference. `known` are further names to look for near misses in.

    >>> parse_reference("unsloth/gemma-4-E4B-it-qat-GGUF:Q4_K_M")
    HubQuant(repo='unsloth/gemma-4-E4B-it-qat-GGUF', quant='Q4_K_M', revision=None)

    Raises:
        UnknownModelError: the text has none of the forms, or is a word that names nothing.
    """
    if text in SELECTORS:
        return Selector(text)
    if any(model.alias == text for model in catalog()):
        return Alias(text)
    scheme = text.partition(":")[0].lower()
    if "://" in text and scheme in ("http", "https"):
        return _web(text)
    if scheme == "hf" and (match := _HUB.fullmatch(text)):
        return HubFile(match["repo"], _safe_member(text, match["file"]), match["revision"])
    if scheme == "pypi" and (match := _PYPI.fullmatch(text)):
        return PypiFile(match["package"], match["version"], _safe_member(text, match["member"]))
    if match := _QUANT.fullmatch(text):
        return HubQuant(match["repo"], match["quant"], match["revision"])
    if text.lower().endswith(".gguf") and scheme not in ("hf", "pypi"):
        return LocalFile(text)
    raise _unknown(text, known)


def _web(text: str) -> Reference:
    """A web address: a file of the hub where it is one, so that the hub's own record can be asked for."""
    try:
        url = urlsplit(text)
    except ValueError as error:
        raise UnknownModelError("model", f"{excerpt(text)} is no address: {error}", "Correct it.") from error
    if not url.path.lower().endswith(".gguf"):
        raise UnknownModelError(
            "model", f"{excerpt(text)} does not end in .gguf", "Give the address of the GGUF file itself."
        )
    parts = unquote(url.path).strip("/").split("/")
    if url.hostname in _HUB_HOSTS and len(parts) >= 5 and parts[2] in ("resolve", "blob"):
        return HubFile("/".join(parts[:2]), "/".join(parts[4:]), None if parts[3] == "main" else parts[3])
    if url.scheme != "https" and url.hostname not in _LOOPBACK:
        raise UnknownModelError(
            "model", f"{excerpt(text)} is not https", "Use an https address, or fetch the file and import it."
        )
    return WebFile(text)


def _safe_member(text: str, name: str) -> str:
    """`name`, unless it points out of its repository or wheel."""
    if name.startswith("/") or ".." in PurePosixPath(name).parts or "//" in name:
        raise UnknownModelError("model", f"{excerpt(text)} does not name a file inside its source")
    return name


def _unknown(text: str, known: Sequence[str]) -> UnknownModelError:
    """The refusal of `text`, with the near misses or the form it was probably meant to have."""
    if not text.strip():
        return UnknownModelError("model", "no model is named", f"Give {FORMS}.")
    if re.fullmatch(_REPO, text):
        return UnknownModelError(
            "model",
            f"{excerpt(text)} names a repository, not a file",
            f"Say which quantisation ({text}:Q4_K_M) or which file (hf:{text}/FILE.gguf).",
        )
    if text.lower().startswith(("hf:", "pypi:")):
        form = (
            "hf:org/repo/file.gguf[@revision]"
            if text.lower().startswith("hf:")
            else "pypi:package==version/file.gguf"
        )
        return UnknownModelError("model", f"{excerpt(text)} is not of the form {form}", "Correct it.")
    names = list(dict.fromkeys([*known, *(model.alias for model in catalog())]))
    near = near_misses(text, [*names, *SELECTORS])
    remedy = f"Did you mean {' or '.join(near)}?" if near else f"Known: {', '.join(names)}."
    return UnknownModelError("model", f"{excerpt(text)} names no model", f"{remedy} A reference is {FORMS}.")


def near_misses(word: str, known: list[str]) -> list[str]:
    """At most three of `known` that `word` may have been meant to be, nearest first.

    >>> near_misses("gemma4-e4b", ["gemma-4-e4b", "smollm2-135m"])
    ['gemma-4-e4b']
    """
    by_squeezed = {re.sub(r"[\W_]", "", name).lower(): name for name in known}
    squeezed = re.sub(r"[\W_]", "", word).lower()
    close = [by_squeezed[key] for key in difflib.get_close_matches(squeezed, by_squeezed, n=3, cutoff=0.6)]
    begins = [name for key, name in by_squeezed.items() if squeezed and key.startswith(squeezed)]
    return list(dict.fromkeys([*close, *begins]))[:3]


def is_weights_name(filename: str) -> bool:
    """Whether a file of this name can be a model's weights: a GGUF file that is no projector, matrix or draft head.

    >>> [is_weights_name(n) for n in ("m-Q4_K_M.gguf", "mmproj-F16.gguf", "m.imatrix.gguf", "MTP/mtp-m.gguf", "x.bin")]
    [True, False, False, False, False]
    """
    path = PurePosixPath(filename.replace("\\", "/"))
    return path.suffix.lower() == ".gguf" and not _NOT_WEIGHTS.search(path.stem)


def split_parts(filename: str) -> tuple[str, ...]:
    """All parts of the split file that `filename` is a part of, in order; just `filename` for a whole file.

    >>> split_parts("q/m-00001-of-00002.gguf")
    ('q/m-00001-of-00002.gguf', 'q/m-00002-of-00002.gguf')
    >>> split_parts("m.gguf")
    ('m.gguf',)
    """
    match = _SPLIT.fullmatch(filename)
    if match is None:
        return (filename,)
    parts = int(match["parts"])
    ending = filename[-len(".gguf") :]
    return tuple(f"{match['stem']}-{k:05}-of-{parts:05}{ending}" for k in range(1, parts + 1))


def stem_of(filename: str) -> str:
    """The model's name in a file's name: no folder, no `.gguf`, no part number.

    >>> stem_of("Q8_0/Big-Q8_0-00001-of-00003.gguf")
    'Big-Q8_0'
    """
    name = PurePosixPath(filename.replace("\\", "/")).name
    match = _SPLIT.fullmatch(name)
    return match["stem"] if match else name[: -len(".gguf")] if name.lower().endswith(".gguf") else name


def matches_quant(filename: str, quant: str) -> bool:
    """Whether a file's name carries `quant` as a whole word, upper and lower case alike.

    >>> matches_quant("m-UD-Q4_K_XL.gguf", "q4_k_xl"), matches_quant("m-Q4_K_M_L.gguf", "Q4_K_M")
    (True, False)
    """
    return re.search(rf"(?:^|[-.]){re.escape(quant)}(?:$|[-.])", stem_of(filename), re.IGNORECASE) is not None
