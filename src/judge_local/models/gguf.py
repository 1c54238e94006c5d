"""GGUF headers: what a weights file says about itself, read without loading it.

* Only scalars and strings are kept. Arrays (a vocabulary of 150,000 tokens) are stepped over in place.
* A count or length that cannot fit in the file is refused before anything is allocated for it.
* The tensor table says how long the file must be, so a cut file is refused with both sizes.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from judge_local.errors import ModelFileError, excerpt

MAGIC = b"GGUF"

_SCALARS: Mapping[int, struct.Struct] = {
    0: struct.Struct("<B"),
    1: struct.Struct("<b"),
    2: struct.Struct("<H"),
    3: struct.Struct("<h"),
    4: struct.Struct("<I"),
    5: struct.Struct("<i"),
    6: struct.Struct("<f"),
    7: struct.Struct("<?"),
    10: struct.Struct("<Q"),
    11: struct.Struct("<q"),
    12: struct.Struct("<d"),
}
_STRING, _ARRAY = 8, 9
_U32, _U64 = struct.Struct("<I"), struct.Struct("<Q")

BLOCKS: Mapping[int, tuple[int, int]] = {
    0: (1, 4),  # F32
    1: (1, 2),  # F16
    2: (32, 18),  # Q4_0
    3: (32, 20),  # Q4_1
    6: (32, 22),  # Q5_0
    7: (32, 24),  # Q5_1
    8: (32, 34),  # Q8_0
    9: (32, 40),  # Q8_1
    10: (256, 84),  # Q2_K
    11: (256, 110),  # Q3_K
    12: (256, 144),  # Q4_K
    13: (256, 176),  # Q5_K
    14: (256, 210),  # Q6_K
    15: (256, 292),  # Q8_K
    16: (256, 66),  # IQ2_XXS
    17: (256, 74),  # IQ2_XS
    18: (256, 98),  # IQ3_XXS
    19: (256, 50),  # IQ1_S
    20: (32, 18),  # IQ4_NL
    21: (256, 110),  # IQ3_S
    22: (256, 82),  # IQ2_S
    23: (256, 136),  # IQ4_XS
    24: (1, 1),  # I8
    25: (1, 2),  # I16
    26: (1, 4),  # I32
    27: (1, 8),  # I64
    28: (1, 8),  # F64
    29: (256, 56),  # IQ1_M
    30: (1, 2),  # BF16
    34: (256, 54),  # TQ1_0
    35: (256, 66),  # TQ2_0
    39: (32, 17),  # MXFP4
}
"""Tensor type → (elements in a block, bytes in a block)."""

_MAX_DIMENSIONS = 8
_MAX_ARRAY_DEPTH = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class GgufHeader:
    """What a GGUF file says about itself."""

    version: int
    tensors: int
    """How many tensors this file holds."""
    metadata: Mapping[str, int | float | bool | str]
    """Scalars and strings by key; arrays are left out."""
    array_lengths: Mapping[str, int]
    """The number of elements of each array, by key."""
    expected_bytes: int
    """The least size in bytes of a complete file; a tensor of a type unknown to us counts for its start only."""
    matrices: Mapping[int, int] = field(default_factory=dict)
    """Elements of the matrices of this file by tensor type; vectors, which are small, are left out."""

    @property
    def architecture(self) -> str:
        """`general.architecture`, or `""`."""
        return str(self.metadata.get("general.architecture", ""))

    @property
    def name(self) -> str:
        """`general.name`, or `""`."""
        return str(self.metadata.get("general.name", ""))

    @property
    def chat_template(self) -> str | None:
        """The chat template's source, or None."""
        value = self.metadata.get("tokenizer.chat_template")
        return value if isinstance(value, str) else None

    @property
    def context_length(self) -> int | None:
        """Tokens of context the model was trained for, or None."""
        value = self.metadata.get(f"{self.architecture}.context_length")
        return value if isinstance(value, int) else None

    @property
    def not_weights(self) -> str | None:
        """Why this is no model to judge with (a projector, an importance matrix, an adapter), or None."""
        kind = str(self.metadata.get("general.type", "model"))
        if kind not in ("model", ""):
            return f"its general.type is {excerpt(kind)}"
        if self.architecture == "clip":
            return "it is an image projector (architecture clip)"
        return None


def read_header(path: Path) -> GgufHeader:
    """Read the header of the GGUF file at `path` and hold the file's size against it.

    Raises:
        ModelFileError: there is no such file, it is not GGUF, it is damaged, or it is cut short.
    """
    try:
        with path.open("rb") as file:
            size = path.stat().st_size
            if size < 24:
                raise ModelFileError(str(path), _not_gguf(file.read(16)), _FETCH_AGAIN)
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
                return _Reader(path, view, size).header()
    except OSError as error:
        raise ModelFileError(str(path), f"cannot be read: {error.strerror}", "Check the path.") from error


_FETCH_AGAIN = "Fetch the file again, and compare its size with the source's."


def _not_gguf(start: bytes) -> str:
    if start.lstrip()[:1] == b"<":
        return "is a web page, not weights"
    if start[:4] == MAGIC:
        return "is cut short: its header is not complete"
    return f"is not a GGUF file: it begins with {start[:4]!r}, not {MAGIC!r}" if start else "is an empty file"


class _Reader:
    """One pass over a header. `at` is the offset in bytes of what is read next."""

    def __init__(self, path: Path, view: mmap.mmap, size: int) -> None:
        self.path, self.view, self.size = path, view, size
        self.at = 0
        self.count = _U64

    def header(self) -> GgufHeader:
        if self.view[:4] != MAGIC:
            raise ModelFileError(str(self.path), _not_gguf(self.view[:16]), _FETCH_AGAIN)
        self.at = 4
        version = self.number(_U32)
        if version not in (1, 2, 3):
            raise ModelFileError(
                str(self.path),
                f"has GGUF version {version}; 1, 2 and 3 are readable",
                "Use a little-endian GGUF file.",
            )
        self.count = _U32 if version == 1 else _U64
        tensors, keys = self.number(self.count), self.number(self.count)
        self.check(tensors * 24 + keys * 12)
        metadata: dict[str, int | float | bool | str] = {}
        lengths: dict[str, int] = {}
        for _ in range(keys):
            key = self.string().decode("utf-8", errors="replace")
            kind = self.number(_U32)
            if kind == _ARRAY:
                lengths[key] = self.skip_array()
            elif kind == _STRING:
                metadata[key] = self.text(key)
            else:
                metadata[key] = self.scalar(kind, key)
        expected, matrices = self.tensor_table(tensors, metadata.get("general.alignment", 32))
        return GgufHeader(
            version=version,
            tensors=tensors,
            metadata=metadata,
            array_lengths=lengths,
            expected_bytes=expected,
            matrices=matrices,
        )

    def check(self, length: int) -> None:
        """Refuse unless `length` more bytes are in the file."""
        if self.at + length > self.size:
            raise ModelFileError(
                str(self.path),
                f"is damaged or cut short: its header asks for {length} bytes at {self.at}, and the file has {self.size}",
                _FETCH_AGAIN,
            )

    def number(self, form: struct.Struct) -> int:
        self.check(form.size)
        (value,) = form.unpack_from(self.view, self.at)
        self.at += form.size
        return int(value)

    def scalar(self, kind: int, key: str) -> int | float | bool:
        form = _SCALARS.get(kind)
        if form is None:
            raise ModelFileError(
                str(self.path), f"is damaged: {excerpt(key)} has the unknown type {kind}", _FETCH_AGAIN
            )
        self.check(form.size)
        value: int | float | bool = form.unpack_from(self.view, self.at)[0]
        self.at += form.size
        return value

    def string(self) -> bytes:
        length = self.number(self.count)
        self.check(length)
        self.at += length
        return self.view[self.at - length : self.at]

    def text(self, key: str) -> str:
        raw = self.string()
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError as error:
            if key.startswith("tokenizer."):
                # A template or tokenizer that is read almost right would judge almost right.
                raise ModelFileError(str(self.path), f"{excerpt(key)} is not UTF-8", _FETCH_AGAIN) from error
            return raw.decode("utf-8", errors="replace")

    def skip_array(self, depth: int = 1) -> int:
        """Step over an array; returns its number of elements."""
        kind, count = self.number(_U32), self.number(self.count)
        if kind == _STRING:
            self.check(count * self.count.size)
            view, at, size, unpack, width = (
                self.view,
                self.at,
                self.size,
                self.count.unpack_from,
                self.count.size,
            )
            # The loop over a vocabulary: locals only, and one check that no offset has left the file.
            for _ in range(count):
                if at + width > size:
                    break
                at += width + unpack(view, at)[0]
            self.at = min(at, size)
            self.check(at - self.at)
        elif kind == _ARRAY:
            if depth == _MAX_ARRAY_DEPTH:
                raise ModelFileError(str(self.path), "is damaged: its arrays nest too deep", _FETCH_AGAIN)
            self.check(count * 4)
            for _ in range(count):
                self.skip_array(depth + 1)
        elif kind in _SCALARS:
            length = count * _SCALARS[kind].size
            self.check(length)
            self.at += length
        else:
            raise ModelFileError(
                str(self.path), f"is damaged: an array of the unknown type {kind}", _FETCH_AGAIN
            )
        return count

    def tensor_table(self, tensors: int, alignment: object) -> tuple[int, dict[int, int]]:
        """Read the tensor table; returns where the last tensor ends, and the elements of matrices by type."""
        if isinstance(alignment, bool) or not isinstance(alignment, int) or alignment < 1:
            raise ModelFileError(
                str(self.path), f"is damaged: its alignment is {excerpt(alignment)}", _FETCH_AGAIN
            )
        end = 0
        matrices: dict[int, int] = {}
        for _ in range(tensors):
            self.string()
            dimensions = self.number(_U32)
            if dimensions > _MAX_DIMENSIONS:
                raise ModelFileError(
                    str(self.path), f"is damaged: a tensor of {dimensions} dimensions", _FETCH_AGAIN
                )
            elements = 1
            for _ in range(dimensions):
                elements *= self.number(self.count)
            kind, offset = self.number(_U32), self.number(_U64)
            if dimensions > 1:
                matrices[kind] = matrices.get(kind, 0) + elements
            block, width = BLOCKS.get(kind, (1, 0))
            end = max(end, offset + -(-elements // block) * width)
        data = -(-self.at // alignment) * alignment if tensors else self.at
        expected = data + end
        if self.size < expected:
            raise ModelFileError(
                str(self.path),
                f"is cut short: {self.size} bytes of {expected}",
                "Fetch the file again; a pull resumes.",
            )
        return expected, matrices
