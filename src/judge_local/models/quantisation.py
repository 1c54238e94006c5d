"""Weight types: which a file holds, which of them this engine reads slowly, and what it would be in another.

* *Slow* is what llama.cpp multiplies one token at a time on a processor, so that a prompt is read no faster in large
  pieces than in small ones. A graphics card has kernels of its own, to which none of this applies.
* Going to more bits keeps what a file says but for the last rounding; going to fewer, or to as few again, does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from judge_local.errors import UsageError, excerpt
from judge_local.models.gguf import BLOCKS, GgufHeader

NAMES: Final[Mapping[int, str]] = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 6: "Q5_0", 7: "Q5_1", 8: "Q8_0", 10: "Q2_K", 11: "Q3_K", 12: "Q4_K",
    13: "Q5_K", 14: "Q6_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S", 20: "IQ4_NL", 21: "IQ3_S",
    22: "IQ2_S", 23: "IQ4_XS", 29: "IQ1_M", 30: "BF16", 34: "TQ1_0", 35: "TQ2_0", 39: "MXFP4",
}  # fmt: skip
"""Tensor types by ggml's number."""

SLOW: Final = frozenset({3, 7, 11, 16, 17, 18, 19, 21, 22, 23, 29, 34, 35})
"""Types for which llama.cpp's processor backend has neither a matrix kernel nor a repacked layout."""

_SLOW_SHARE: Final = 0.5
_EXACT_BITS: Final = 8.0
"""A type of fewer bits loses something whatever it is made from."""


@dataclass(frozen=True, slots=True)
class Target:
    """A type that weights can be written in."""

    name: str
    bits: float
    """Of one weight, about."""


TARGETS: Final[Mapping[str, Target]] = {
    target.name: target
    for target in (
        Target("Q8_0", 8.5),
        Target("Q6_K", 6.6),
        Target("Q5_K_M", 5.7),
        Target("Q4_K_M", 4.9),
        Target("Q4_0", 4.6),
        Target("F16", 16.0),
    )
}


def target(name: str) -> Target:
    """The target called `name`, upper and lower case alike.

    Raises:
        UsageError: there is none.
    """
    found = TARGETS.get(name.upper())
    if found is None:
        raise UsageError(
            "type", f"{excerpt(name)} is none that can be written", f"Use one of {', '.join(TARGETS)}."
        )
    return found


def types_in(header: GgufHeader) -> tuple[str, ...]:
    """The types of a file's matrices, the most frequent first."""
    found = sorted(header.matrices, key=lambda kind: -header.matrices[kind])
    return tuple(NAMES.get(kind, f"type {kind}") for kind in found)


def slow_type(header: GgufHeader) -> str | None:
    """The slow type that most of the file's weights are in, or None."""
    total = sum(header.matrices.values())
    slow = {kind: count for kind, count in header.matrices.items() if kind in SLOW}
    if not total or sum(slow.values()) < _SLOW_SHARE * total:
        return None
    return NAMES[max(slow, key=lambda kind: slow[kind])]


def size_as(header: GgufHeader, to: Target) -> int:
    """About how many bytes the file would have as `to`."""
    matrices = sum(count * _bits(kind) / 8 for kind, count in header.matrices.items())
    weights = sum(header.matrices.values()) * to.bits / 8
    return max(0, int(header.expected_bytes - matrices + weights))


def loss(header: GgufHeader, to: Target) -> str | None:
    """Why writing the file as `to` would lose something, or None."""
    most = max(header.matrices, key=_bits, default=None)
    if most is not None and _bits(most) > to.bits:
        name = NAMES.get(most, f"type {most}")
        return f"it holds {name}, {_bits(most):g} bits a weight, and {to.name} has {to.bits:g}"
    if to.bits < _EXACT_BITS:
        return f"{to.name} has {to.bits:g} bits a weight, which rounds every weight anew"
    return None


def _bits(kind: int) -> float:
    elements, size = BLOCKS.get(kind, (1, 4))
    return 8 * size / elements
