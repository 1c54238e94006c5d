"""What of a model goes to the graphics card, and how much context memory carries: planned from what is free.

Pure: free memory comes in as numbers. All sizes are bytes. An estimate may be wrong in both directions, so a plan that
llama.cpp refuses is followed by a smaller one, down to none on the card; each step is a line for a person.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

CARD_RESERVE: Final = 768 * 2**20
"""Left free on each graphics card: llama.cpp's buffers for one batch, the driver's own, and whoever draws the screen."""

HOST_RESERVE: Final = 512 * 2**20
"""Left free in main memory: llama.cpp's buffers for one batch, and everybody else."""

CELLS_AHEAD: Final = 32_768
"""A context is made at most this large for the sake of running many at once; a single run gets what it needs."""

LEAST_CELLS: Final = 1024
"""A context smaller than this judges nothing."""

ALL: Final = -1
"""Layers: all of them."""


@dataclass(frozen=True, slots=True)
class Device:
    """A graphics card."""

    name: str
    free_bytes: int
    total_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What a model needs memory for."""

    layers: int
    """Repeating layers; the output is one more that can be on a card."""
    weights_bytes: int
    cell_bytes: int
    """Of one token of context, in all layers."""

    @property
    def offloadable(self) -> int:
        """Layers that can be on a card."""
        return self.layers + 1

    def card_bytes(self, layers: int, cells: int) -> int:
        """What `layers` layers take on a card, with their part of a context of `cells` cells."""
        weights = -(-self.weights_bytes * layers // self.offloadable)
        context = self.cell_bytes * cells * min(layers, self.layers) // max(1, self.layers)
        return weights + context


@dataclass(frozen=True, slots=True)
class Offload:
    """How many layers go to the card, and why not more, where a person should know."""

    layers: int
    line: str = ""


def plan_offload(
    wanted: int | None,
    shape: Shape,
    devices: Sequence[Device],
    *,
    build_offloads: bool,
    cells: int = CELLS_AHEAD,
) -> Offload:
    """The layers to load on the graphics cards.

    Args:
        wanted: None for as many as fit, `ALL`, or a number, which is tried as it is.
        shape: the model.
        devices: the cards; a card's memory counts less a reserve.
        build_offloads: whether this build of llama.cpp can use a card at all.
        cells: the context to leave room for.
    """
    if not build_offloads or not devices:
        if not wanted:
            return Offload(0)
        why = (
            "no graphics card is found" if build_offloads else "this build of llama.cpp uses no graphics card"
        )
        return Offload(0, f"{why}: judging on the processor")
    if wanted is not None:
        return Offload(shape.offloadable if wanted < 0 else min(wanted, shape.offloadable))
    # Layers are shared out in proportion to free memory, so the sum is what counts.
    free = sum(max(0, device.free_bytes - CARD_RESERVE) for device in devices)
    layers = next(n for n in range(shape.offloadable, -1, -1) if n == 0 or shape.card_bytes(n, cells) <= free)
    if layers == shape.offloadable:
        return Offload(layers)
    return Offload(
        layers,
        f"{_gigabytes(free)} are free on the graphics card: {layers} of {shape.offloadable} layers go there",
    )


def smaller(layers: int) -> Iterator[int]:
    """What to try after llama.cpp refused `layers`, one after the other; the last is 0.

    >>> list(smaller(33))
    [24, 16, 8, 0]
    """
    last = layers
    for quarters in (3, 2, 1):
        fewer = layers * quarters // 4
        if 0 < fewer < last:
            yield fewer
            last = fewer
    if layers:
        yield 0


def cells_that_fit(shape: Shape, free_bytes: int | None, *, layers_on_card: int = 0) -> int | None:
    """Cells that main memory carries beside the weights, never less than `LEAST_CELLS`; None where it sets no limit.

    Args:
        shape: the model.
        free_bytes: main memory that can be had; None is unknown, which sets no limit.
        layers_on_card: they take none of it.
    """
    share = 1 - min(layers_on_card, shape.offloadable) / shape.offloadable
    if free_bytes is None or share == 0:
        return None
    left = free_bytes - HOST_RESERVE - int(shape.weights_bytes * share)
    return max(LEAST_CELLS, int(left / max(1.0, shape.cell_bytes * share)))


def _gigabytes(size: int) -> str:
    return f"{size / 1e9:.1f} GB"
