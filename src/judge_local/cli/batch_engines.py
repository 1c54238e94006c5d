"""Who judges the rows of a batch: the model on this machine, or actors on the machines of a Ray cluster."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from judge_local.batch.runner import JudgeRow
    from judge_local.cli.batch_call import BatchCall, BatchOptions
    from judge_local.providers.base import InferenceProvider
    from judge_local.providers.local import LocalProvider


def local_provider(
    options: BatchOptions, chat_template: str | None, *, on_event: Callable[[str], None] | None = None
) -> LocalProvider:
    """A local model as the options say, not loaded yet.

    Raises:
        ModelError: the model named is not known, not here, or no model is named and there is not exactly one.
    """
    from judge_local.providers.local import LocalProvider

    return LocalProvider(
        options.model,
        n_threads=options.threads,
        n_gpu_layers=options.gpu_layers,
        deterministic=options.deterministic,
        wait=not options.no_wait,
        on_event=on_event,
        chat_template=chat_template,
    )


@contextlib.asynccontextmanager
async def engine_of(
    options: BatchOptions, call: BatchCall, provider: InferenceProvider, on_event: Callable[[str], None]
) -> AsyncIterator[tuple[JudgeRow, int]]:
    """What judges a row, and how many rows in work keep it busy. It is ready when this is entered.

    Args:
        options: of the call.
        call: what is judged, and how.
        provider: this machine's judge; with Ray, the one that every actor's must equal, which is not used itself.
        on_event: gets lines for a person.

    Raises:
        ModelError: the model cannot be used.
        ClusterError: the cluster cannot be used.
    """
    if options.engine == "ray":
        from judge_local.batch.ray_engine import LOCAL, RayEngine, remote_work

        work = remote_work(
            partial(local_provider, options, call.chat_template), call.judging, provider, cache=options.cache
        )
        address = options.ray_address or os.environ.get("RAY_ADDRESS") or LOCAL
        # Ray reports what happens to its processes on standard output, which is for results.
        with contextlib.redirect_stdout(sys.stderr):
            async with RayEngine(
                work, address=address, actors=options.ray_actors, on_event=on_event
            ) as engine:
                yield engine.judge_row, engine.at_once
        return
    from judge_local.cache import JsonCache

    facts = getattr(provider, "facts", None)
    if facts is not None:
        await facts()  # A model that cannot be used is refused before the first row.
    cache = None if options.cache is None else JsonCache(options.cache)
    yield call.judging.judge_row(provider, cache=cache), call.judging.at_once
