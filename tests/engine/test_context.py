"""The context: what llama.cpp looks at outlives it."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path

from judge_local.engine.binding import AbortFlag, Model, start_backend
from judge_local.engine.context import Context, Decoded


def test_a_context_keeps_what_llama_looks_at(tiny_model: Path) -> None:
    """A flag that is gone is memory of somebody else's, and stops decodes at random."""
    start_backend()
    flag, model = AbortFlag(), Model(tiny_model)
    kept = weakref.ref(flag), weakref.ref(model)
    context = Context(model, n_ctx=256, n_sequences=1, n_outputs=1, n_batch=8, n_threads=1, abort=flag)
    del flag, model
    gc.collect()

    assert [each() is not None for each in kept] == [True, True]
    assert context.decode([1], [0], [0], [True]) is Decoded.DONE
    context.close()
