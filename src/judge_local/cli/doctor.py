"""`judge-local doctor`: what works on this machine, and what to do about the rest, without touching the network."""

from __future__ import annotations

import math
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from judge_local.errors import JudgeLocalError

if TYPE_CHECKING:
    from judge_local.models.store import Store, StoredModel

_LOW_DISK_BYTES: Final = 5_000_000_000
"""Below this a usable judge hardly fits."""


class State(StrEnum):
    """How one thing is."""

    OK = "ok"
    WARN = "warn"
    """Judging works, or would once the advice is followed."""
    FAIL = "fail"
    """Judging cannot work."""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing looked at."""

    name: str
    state: State
    value: str
    advice: str = ""
    """What to do; empty where there is nothing."""

    def to_json(self) -> dict[str, str]:
        """The check as a JSON object; the advice is left out when there is none."""
        fields = {"name": self.name, "state": self.state.value, "value": self.value}
        return fields | ({"advice": self.advice} if self.advice else {})


@click.command(epilog="Exit code: 0; 4 when judging cannot work on this machine.")
@click.option("--json", is_flag=True, help="All of it as one JSON object.")
@click.pass_context
def doctor(ctx: click.Context, /, json: bool) -> None:
    """Say what works on this machine, and what to do about the rest.

    Looks at the installation, the processor, memory, disk and the models folder. The network is not touched.
    """
    from judge_local.cli.output import emit_json, show

    checks = tuple(examine())
    works = all(check.state is not State.FAIL for check in checks)
    if json:
        emit_json({"works": works, "checks": [check.to_json() for check in checks]}, indent=2)
    else:
        show(line for check in checks for line in _lines(check))
    ctx.exit(0 if works else 4)


def examine() -> Iterator[Check]:
    """Everything `doctor` looks at, in the order in which it is shown."""
    from judge_local.models.store import Store

    yield _program()
    engine, on_card = _engine()
    yield from engine
    yield _cores()
    yield _memory()
    store = Store()
    yield from _folder(store)
    yield from _models(store, on_card=on_card)
    yield _disk(store.directory)
    yield _pip()
    yield _configuration()


def _program() -> Check:
    from judge_local.cli.group import program_version

    python = f"Python {sys.version.split()[0]} on {sys.platform}"
    return Check("judge-local", State.OK, f"{program_version()}, {python}, {sys.executable}")


def _engine() -> tuple[list[Check], bool]:
    """How llama.cpp is, and whether it has a graphics card to use."""
    from judge_local.engine.children import engine_info

    try:
        package = f"llama-cpp-python {version('llama-cpp-python')}"
    except PackageNotFoundError:
        missing = Check(
            "engine", State.FAIL, "llama-cpp-python is not installed", "Run: pip install judge-local"
        )
        return [missing], False
    try:
        info = engine_info()
    except JudgeLocalError as error:
        broken = Check(
            "engine", State.FAIL, f"{package}: {error}", "Install llama-cpp-python again for this machine."
        )
        return [broken], False
    engine = Check("engine", State.OK, f"{package}; {' '.join(str(info['system']).split())}")
    return [engine, *_cards(info)], bool(info["devices"])


def _cards(info: Mapping[str, Any]) -> Iterator[Check]:
    from judge_local.models.files import human_size

    if not info["gpu_offload"]:
        yield Check(
            "GPU",
            State.OK,
            "this build of llama.cpp uses the CPU only",
            "For a GPU: CMAKE_ARGS=-DGGML_CUDA=on (or -DGGML_METAL=on, -DGGML_VULKAN=on) "
            "pip install --force-reinstall --no-binary llama-cpp-python llama-cpp-python",
        )
        return
    if not info["devices"]:
        yield Check(
            "GPU",
            State.WARN,
            "this build of llama.cpp can use one, and none is found",
            "Look at the driver, and at CUDA_VISIBLE_DEVICES or its like; until then the CPU is used.",
        )
    for card in info["devices"]:
        yield Check(
            "GPU",
            State.OK,
            f"{card['name']}: {human_size(card['free_bytes'])} of {human_size(card['total_bytes'])} free",
            "A run on a GPU is stopped between micro-batches, so Ctrl-C and --timeout act a moment later than on a CPU.",
        )


def _cores() -> Check:
    from judge_local.models.hardware import cores_by_affinity, cpu_quota, usable_cores

    usable, present = usable_cores(), os.cpu_count() or 1
    value = f"{usable} of {present} may be used, one thread each"
    held = []
    if cores_by_affinity() < present:
        held.append(f"an affinity mask leaves {cores_by_affinity()}")
    if math.isfinite(quota := cpu_quota()) and quota < present:
        held.append(f"a container's quota is worth {quota:g}")
    if held:
        return Check(
            "processors",
            State.WARN,
            f"{value}: {' and '.join(held)}",
            "Judging uses what it may; raise it for speed.",
        )
    return Check("processors", State.OK, value)


def _memory() -> Check:
    from judge_local.models.files import human_size
    from judge_local.models.hardware import (
        available_memory_bytes,
        memory_budget,
        tier_for,
        total_memory_bytes,
    )

    total, available = total_memory_bytes(), available_memory_bytes()
    value = f"{human_size(available)} of {human_size(total)} available; carries the tier {tier_for(memory_budget(total))}"
    if available < total // 10:
        return Check("memory", State.WARN, value, "End what else uses memory, or judge with a smaller model.")
    return Check("memory", State.OK, value)


def _folder(store: Store) -> Iterator[Check]:
    folder = store.directory
    if not folder.exists():
        yield Check("models folder", State.OK, f"{folder}, made by the first pull")
    elif not folder.is_dir():
        yield Check(
            "models folder", State.FAIL, f"{folder} is not a folder", "Set JUDGE_LOCAL_MODELS_DIR to one."
        )
    elif not os.access(folder, os.R_OK | os.X_OK):
        yield Check(
            "models folder", State.FAIL, f"{folder} may not be read by you", f"Look at: ls -ld {folder}"
        )
    elif not os.access(folder, os.W_OK):
        advice = "Judging works; to pull, import or remove models, set JUDGE_LOCAL_MODELS_DIR to a folder of yours."
        yield Check("models folder", State.WARN, f"{folder} may not be written by you", advice)
    else:
        yield Check("models folder", State.OK, str(folder))


def _models(store: Store, *, on_card: bool) -> Iterator[Check]:
    try:
        models, problems = store.list(), store.problems()
    except JudgeLocalError as error:
        yield Check("models", State.FAIL, str(error))
        return
    for problem in problems:
        yield Check("models", State.WARN, problem, "Pull or import the model again.")
    if not models:
        advice = (
            "Run `judge-local pull smollm2-135m` for a first try, or `judge-local pull auto` for a judge."
        )
        yield Check("models", State.WARN, "none on this disk", advice)
    for model in models:
        yield _model(model, on_card=on_card)


def _model(model: StoredModel, *, on_card: bool) -> Check:
    from judge_local.engine.thinking import thinks
    from judge_local.models.files import human_size
    from judge_local.models.gguf import read_header
    from judge_local.models.hardware import fits, memory_budget, total_memory_bytes
    from judge_local.models.quantisation import slow_type

    name = f"model {model.name}"
    try:
        header = read_header(model.path)
    except JudgeLocalError as error:
        return Check(name, State.WARN, str(error), f"Run `judge-local verify {model.name}`.")
    tier = f", tier {_tier(model)}" if _tier(model) else ""
    value = f"{human_size(model.size_bytes)}{tier}, {header.architecture}"
    if header.chat_template is not None and thinks(header.chat_template):
        value += ", thinks before it answers where --thinking lets it"
    if header.chat_template is None:
        return Check(
            name, State.WARN, f"{value}, without a chat template", "Give one with --chat-template FILE."
        )
    if not fits(model.size_bytes, memory_budget(total_memory_bytes())):
        return Check(
            name,
            State.WARN,
            value,
            "It is large for this machine: judging may be slow, or run out of memory.",
        )
    if any(part in key for key in header.metadata for part in (".ssm.", ".wkv.", ".shortconv.")):
        return Check(
            name,
            State.OK,
            f"{value}, recurrent or hybrid",
            "A prompt's beginning cannot be shared in part, so each new subject is read from its first token, the task "
            "and the schema with it; the runs of one subject still share its prompt. Probabilities before an answer are "
            "read with --score-only alone.",
        )
    if (slow := slow_type(header)) is not None and not on_card:
        return Check(
            name,
            State.WARN,
            f"{value}, {slow}",
            f"A CPU reads prompts slowly in {slow}. See what is to be gained: judge-local optimize {model.name} --dry-run",
        )
    return Check(name, State.OK, value)


def _tier(model: StoredModel) -> str:
    from judge_local.models.catalog import by_sha256

    known = by_sha256(model.sha256)
    return known.tier or "" if known is not None else ""


def _disk(folder: Path) -> Check:
    from judge_local.models.files import human_size

    there = next(parent for parent in (folder, *folder.parents) if parent.is_dir())
    try:
        free = shutil.disk_usage(there).free
    except OSError as error:
        return Check("disk", State.WARN, f"{there} cannot be asked: {error.strerror or error}")
    if free < _LOW_DISK_BYTES:
        return Check(
            "disk", State.WARN, f"{human_size(free)} free at {there}", "Make room before you pull a model."
        )
    return Check("disk", State.OK, f"{human_size(free)} free at {there}")


def _pip() -> Check:
    if find_spec("pip") is None:
        return Check(
            "pip", State.WARN, "not here", "Needed to pull from `pypi:` only. Run: python -m ensurepip"
        )
    return Check("pip", State.OK, "here, for models that come from `pypi:`")


def _configuration() -> Check:
    from judge_local.cli.config import find_configuration

    named = sorted(name for name in os.environ if name.startswith("JUDGE_LOCAL_"))
    try:
        found = find_configuration(Path.cwd())
    except JudgeLocalError as error:
        return Check("settings", State.FAIL, str(error))
    file = str(found.path) if found is not None else "no file"
    return Check("settings", State.OK, ", ".join([file, *named]))


def _lines(check: Check) -> Iterator[Any]:
    from judge_local.cli.output import Line

    style = {State.OK: "green", State.WARN: "yellow", State.FAIL: "bold red"}[check.state]
    yield Line(
        f"{check.name}: {check.value}",
        label=check.state.value,
        style="" if check.state is State.OK else style,
    )
    if check.advice:
        yield Line(check.advice, indent=6)
