"""The catalog: the models we know by a short name, and the facts a `pull` holds them to.

The data is `catalog.json` beside this file. Where an entry has a sha256, no source may deliver anything else; where it
has none, the source's own record counts.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib import resources

TIERS = ("fast", "balanced", "quality")
"""From the least demanding to the most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogModel:
    """What is known of one model before it is on this disk."""

    alias: str
    sources: tuple[str, ...]
    """References, in the order in which they are tried."""
    size_bytes: int
    sha256: str | None = None
    """64 hex digits, or None where only the source's record says."""
    licence: str
    tier: str | None = None
    """`fast`, `balanced` or `quality`: the one model a selector of that name means."""
    notes: str = ""


@cache
def catalog() -> tuple[CatalogModel, ...]:
    """All models we know, in the order of the file.

    >>> [model.alias for model in catalog()][:2]
    ['smollm2-135m', 'gemma-4-e2b']
    """
    text = resources.files("judge_local.models").joinpath("catalog.json").read_text(encoding="utf-8")
    return tuple(
        CatalogModel(
            alias=entry["alias"],
            sources=tuple(entry["sources"]),
            size_bytes=entry["sizeBytes"],
            sha256=entry.get("sha256"),
            licence=entry["licence"],
            tier=entry.get("tier"),
            notes=entry.get("notes", ""),
        )
        for entry in json.loads(text)["models"]
    )


def by_alias(alias: str) -> CatalogModel | None:
    """The catalog's model of that name, or None."""
    return next((model for model in catalog() if model.alias == alias), None)


def by_tier(tier: str) -> CatalogModel:
    """The one model that a tier means; `tier` is one of `TIERS`."""
    return next(model for model in catalog() if model.tier == tier)


def by_sha256(sha256: str) -> CatalogModel | None:
    """The catalog's model with exactly these bytes, or None."""
    return next((model for model in catalog() if model.sha256 == sha256), None)
