"""`judge-local optimize`: write a model anew in a type of weights that this machine reads faster, and measure both."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from judge_local.errors import UsageError

if TYPE_CHECKING:
    from judge_local.bench.limit import Speeds


@click.command(
    epilog="""\b
Examples:
  judge-local optimize smollm2-135m --dry-run
  judge-local optimize smollm2-135m
  judge-local optimize my-model --to Q4_0 --lossy
"""
)
@click.argument("model")
@click.option(
    "--to",
    metavar="TYPE",
    default="Q8_0",
    show_default=True,
    help="Q8_0, Q6_K, Q5_K_M, Q4_K_M, Q4_0 or F16.",
)
@click.option("--name", metavar="NAME", help="The new model's name. [default: MODEL-TYPE]")
@click.option("--lossy", is_flag=True, help="Do it although the new weights say less than the old.")
@click.option(
    "--dry-run", is_flag=True, help="Only measure the model as it is, and say what would be written."
)
@click.option(
    "--threads", type=click.IntRange(min=1), metavar="N", help="Default: the cores that may really be used."
)
@click.option("--no-wait", is_flag=True, help="Fail at once when another process is judging.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--quiet", is_flag=True, help="Say nothing on standard error but faults.")
def optimize(
    model: str,
    to: str,
    name: str | None,
    lossy: bool,
    dry_run: bool,
    threads: int | None,
    no_wait: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Write a model anew in a faster type of weights.

    For some types llama.cpp has no fast way to read a prompt on a processor; `doctor` names the models that this
    concerns. The model itself stays as it is: the new one is an entry of its own, with its own hash, and names the one it
    was made from. Certificates are for one file, so calibrate it anew. Speed is measured before and after, and both are
    printed.
    """
    from judge_local.bench import optimize as work
    from judge_local.cli.output import Progress, clean, emit, emit_json, say
    from judge_local.models.files import human_size
    from judge_local.models.store import Store

    store = Store()
    intent = work.intend(store, model, to=to, name=name)
    if intent.loss is not None and not lossy and not dry_run:
        raise UsageError(
            intent.model.name,
            f"would lose something as {intent.to.name}: {intent.loss}",
            "Add --lossy to do it all the same, or name another type with --to.",
        )
    work.check_room(store, intent)
    told = (lambda _text: None) if quiet else say
    facts: dict[str, Any] = {
        "model": intent.model.name,
        "types": list(intent.types),
        "to": intent.to.name,
        "name": intent.name,
        "sizeBytes": intent.model.size_bytes,
        "newSizeBytes": intent.size_bytes,
        "loss": intent.loss,
    }
    if not as_json:
        emit(
            f"{clean(intent.model.name)}: {', '.join(intent.types)}, {human_size(intent.model.size_bytes)}; "
            f"as {intent.to.name} about {human_size(intent.size_bytes)}, called {clean(intent.name)}"
        )
        if intent.loss is not None:
            emit(f"loses something: {intent.loss}")
    with Progress(quiet=quiet) as progress:

        def measure(which: Any, label: str) -> Speeds:
            progress.update(f"measuring {which.name}")
            speeds = work.measure(which, n_threads=threads, wait=not no_wait, say=told)
            facts[label] = _rates(speeds)
            if not as_json:
                progress.pause()
                emit(f"{label + ':':7} {_words(speeds)}")
            return speeds

        before = measure(intent.model, "before")
        if dry_run:
            if as_json:
                emit_json(facts, indent=2)
            return
        progress.update(f"writing {intent.name}")
        made = work.make(
            store, intent, n_threads=threads, on_progress=_quarters(progress, intent.name), on_event=told
        )
        after = measure(made, "after")
    times = work.gain(before, after)
    pays = times >= work.WORTH_IT
    facts |= {"path": str(made.path), "sha256": made.sha256, "newSizeBytes": made.size_bytes}
    facts |= {"gain": round(times, 2), "pays": pays}
    if as_json:
        emit_json(facts, indent=2)
        return
    emit(f"a typical verdict takes {1 / times:.0%} of the time: it {'pays' if pays else 'does not pay'}")
    advice = f"judge-local judge --model {made.name}" if pays else f"judge-local rm {made.name}"
    emit(clean(f"{made.path}  ({advice})"))


def _rates(speeds: Speeds) -> dict[str, float]:
    return {
        "readingTokensPerSecond": round(speeds.best_reading.rate, 1),
        "writingTokensPerSecond": round(speeds.best_writing.rate, 1),
        "runsAtOnce": speeds.best_writing.size,
    }


def _words(speeds: Speeds) -> str:
    reading, writing = speeds.best_reading, speeds.best_writing
    return (
        f"reads {reading.rate:.0f} tokens a second, writes {writing.rate:.0f} at {writing.size} runs at once"
    )


def _quarters(progress: Any, name: str) -> Any:
    def tell(done: int, total: int) -> None:
        progress.update(f"writing {name}: {done * 4 // max(1, total) * 25} %")

    return tell
