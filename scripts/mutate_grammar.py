"""Change one thing at a time in the modules that write numbers, strings and objects; the tests must notice each change.

    python scripts/prove_grammar.py mutate [--progress DIR] [--only MODULE ...] [--limit 120]

* A mutation flips a comparison, swaps `and` and `or`, drops a `not`, or makes a whole number one more. The sizes of
  caches are left alone: they change no answer.
* Each runs in a fork of a process that has collected the tests: the fork gives the functions of one module their
  changed code, forgets what was cached, and runs the tests, the quick ones first. So no test may compile anything
  when it is collected; one that does is named, and nothing is tried. A change outside of any function is made in a
  fork that imports the compiler anew.
* Every mutation ends killed (a test failed, or did not end within the limit) or reviewed: it stands in
  `tests/data/grammar-survivors.json` with the reason why no test can notice it.
* `--progress DIR` keeps what became of each, so that a proof that was stopped goes on. A killed one is not tried
  again while its module stays as it is; a surviving one is tried again on the files of tests that were changed.
"""

from __future__ import annotations

import gc
import hashlib
import importlib
import importlib.abc
import importlib.util
import json
import os
import resource
import select
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from functools import _lru_cache_wrapper
from importlib.machinery import ModuleSpec
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parent))

from grammar_changes import PACKAGE, Mutation, code_of, mutations

ROOT: Final = Path(__file__).resolve().parents[1]
TESTS: Final = ROOT / "tests" / "grammar"
SURVIVORS: Final = ROOT / "tests" / "data" / "grammar-survivors.json"
"""Reviewed mutations that no test notices, each with the reason."""

_ALWAYS: Final = ("test_zoo.py", "test_public_faults.py", "test_compile.py", "test_exhaustive.py")
_OBJECTS: Final = ("test_objects.py", "test_object_keys.py", "test_opt_in.py", *_ALWAYS)
KILLERS: Final = {
    "numbers": ("test_number_facets.py", "test_numbers.py", "test_numerals.py", *_ALWAYS),
    "numerals": ("test_number_facets.py", "test_numerals.py", "test_numbers.py", *_ALWAYS),
    "strings": ("test_strings.py", *_ALWAYS),
    "objects": _OBJECTS,
    "keys": _OBJECTS,
    "scalars": (
        "test_counted_strings.py",
        "test_profile.py",
        "test_numerals.py",
        "test_strings.py",
        *_ALWAYS,
    ),
}
"""The modules that are changed, and the tests that are to notice it."""
_MEMORY: Final = 4 << 30
_BROKEN: Final = 70
"""With this a fork ends that could not run the tests."""


class _Changed(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports the changed module in place of the one on the disk."""

    def __init__(self, module: str, code: CodeType) -> None:
        self._name, self._code = f"judge_local.grammar.{module}", code

    def find_spec(self, fullname: str, path: object, target: object = None) -> ModuleSpec | None:
        if fullname != self._name:
            return None
        return importlib.util.spec_from_loader(fullname, self, origin=self._code.co_filename)

    def exec_module(self, module: ModuleType) -> None:
        exec(self._code, module.__dict__)  # the compiler's own source, changed at one place


def _swap(code: CodeType) -> None:
    """In a fork: give every function of an imported module the code that it has in `code`, and forget what was known."""
    changed = {each.co_qualname: each for each in _functions(code)}
    for known in gc.get_objects():
        if isinstance(known, FunctionType) and known.__code__.co_filename == code.co_filename:
            known.__code__ = changed.get(known.__code__.co_qualname, known.__code__)
        elif isinstance(known, _lru_cache_wrapper):
            known.cache_clear()


def _functions(code: CodeType) -> Iterator[CodeType]:
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield each
            yield from _functions(each)


class _Plugin:
    """A plugin of pytest: it hands the collected tests on instead of running them, and notes the first that fails."""

    def __init__(self, run: Callable[[list[Any]], None] | None = None, pipe: int | None = None) -> None:
        self._run = run
        self.pipe = pipe
        self.durations: Path | None = None

    def pytest_runtestloop(self, session: Any) -> bool | None:
        """What to do once the tests are collected."""
        if self._run is None:
            return None
        self._run(list(session.items))
        return True

    def _write(self, report: Any) -> None:
        if report.failed and self.pipe is not None:
            os.write(self.pipe, f"{report.nodeid}\n".encode())

    def pytest_runtest_logreport(self, report: Any) -> None:
        """A test ran, or what it asked for was made."""
        self._write(report)
        if self.durations is not None and report.when == "call":
            with self.durations.open("a", encoding="utf-8") as file:
                file.write(f"{report.duration} {_named(report.nodeid)}\n")

    def pytest_collectreport(self, report: Any) -> None:
        """A file of tests could not be read."""
        self._write(report)


def _pytest(names: Iterable[str], plugin: _Plugin) -> int:
    import pytest

    options = [
        "-x",
        "-qq",
        "-s",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        "-c",
        str(ROOT / "pyproject.toml"),
    ]
    # How long a test takes by the clock says nothing of a change: the limit on processor time does.
    options += ["-o", "timeout=0", "--no-header", "-W", "ignore::pytest.PytestAssertRewriteWarning"]
    return int(pytest.main([*options, *(str(TESTS / name) for name in names)], plugins=[plugin]))


def _afresh(module: str, code: CodeType | None, files: Iterable[str]) -> Callable[[int], int]:
    """Import the compiler anew, with one module changed, and run the tests that are to notice it."""

    def run(pipe: int) -> int:
        if code is not None:
            finder = _Changed(module, code)
            sys.meta_path.insert(0, finder)
            # Before pytest starts: it imports what belongs to a plugin, as the compiler does, by a finder of its own.
            changed = importlib.import_module(f"judge_local.grammar.{module}")
            if changed.__loader__ is not finder:
                raise RuntimeError(f"{module} was imported without its change")
        return _pytest(files, _Plugin(pipe=pipe))

    return run


def _swapped(items: list[Any], code: CodeType | None, plugin: _Plugin) -> Callable[[int], int]:
    """Change functions of the compiler where it is imported already, and run tests that are collected already."""

    def run(pipe: int) -> int:
        plugin.pipe = pipe
        if code is not None:
            _swap(code)
        for item, following in zip(items, [*items[1:], None], strict=True):
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if item.session.testsfailed:
                return 1
        return 0

    return run


def outcome(run: Callable[[int], int], limit: float) -> tuple[str, str]:
    """What tests that run in a fork say to a change: `survived`, `killed` or `broken`, and which test said so."""
    reading, writing = os.pipe()
    sys.stdout.flush()
    process = os.fork()
    if process == 0:
        os.close(reading)
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
        resource.setrlimit(resource.RLIMIT_CPU, (int(limit), int(limit) + 5))
        try:
            result = run(writing)
        except BaseException as error:  # noqa: BLE001 # the fork must end here, whatever the change did
            os.write(writing, f"{type(error).__name__}: {error}\n".encode())
            result = _BROKEN
        os._exit(result)
    os.close(writing)
    said, over = b"", False
    # The limit is one of processor time, which a busy machine does not use up; a fork that sleeps meets this one. Seconds
    # are counted one by one, since a proof that is stopped for a while must not take its forks for such.
    left = 10 * limit
    while True:
        ready, _, _ = select.select([reading], [], [], 1.0)
        if not ready:
            left -= 1.0
            if left > 0:
                continue
        more = os.read(reading, 4096) if ready else b""
        if not more:
            over = not ready
            break
        said += more
    os.close(reading)
    if over:
        os.kill(process, signal.SIGKILL)
    _, status = os.waitpid(process, 0)
    exit_code = os.waitstatus_to_exitcode(status)
    if over or exit_code == -signal.SIGXCPU:
        return "killed", f"no end within {limit:.0f} s of processor time"
    test = said.decode("utf-8", "replace").splitlines()[:1]
    if exit_code == 0:
        return "survived", ""
    if exit_code in (1, 2) or exit_code < 0:
        return "killed", test[0] if test else f"the process ended with {exit_code}"
    return "broken", test[0] if test else f"pytest ended with {exit_code}"


def _digest(paths: list[Path]) -> str:
    state = hashlib.sha256()
    for path in paths:
        state.update(path.read_bytes())
    return state.hexdigest()[:16]


class _Progress:
    """What became of each mutation, one line each, in a file of a folder that is given, or in memory."""

    def __init__(self, folder: Path | None) -> None:
        self._file = None if folder is None else folder / "mutations.jsonl"
        self._known: dict[str, dict[str, Any]] = {}
        helpers = [path for path in sorted(TESTS.glob("*.py")) if not path.name.startswith("test_")]
        names = {name for each in KILLERS.values() for name in each}
        self._tests = {name: _digest([*helpers, TESTS / name]) for name in names}
        self._modules = {module: _digest([PACKAGE / f"{module}.py"]) for module in KILLERS}
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
        if self._file is not None and self._file.is_file():
            for line in self._file.read_text(encoding="utf-8").splitlines():
                record = json.loads(line)
                self._known[record["mutation"]] = record

    def _record(self, mutation: Mutation) -> dict[str, Any]:
        record = self._known.get(mutation.what)
        return record if record and record["module"] == self._modules[mutation.module] else {}

    def untried(self, mutation: Mutation) -> list[str]:
        """The files of tests that may notice a mutation yet: none once it is killed, or has survived all as they are."""
        record = self._record(mutation)
        if record.get("outcome") == "killed":
            return []
        survived = record.get("survived", {})
        return [name for name in KILLERS[mutation.module] if survived.get(name) != self._tests[name]]

    def survived(self, mutation: Mutation) -> bool:
        """Whether a mutation was tried on all tests as they are, and none noticed it."""
        return not self.untried(mutation) and self._record(mutation).get("outcome") == "survived"

    def note(self, mutation: Mutation, result: str, test: str, seconds: float) -> None:
        """Keep what became of a mutation."""
        record: dict[str, Any] = {
            "mutation": mutation.what,
            "line": str(mutation.line),
            "module": self._modules[mutation.module],
            "outcome": result,
            "by": test,
            "seconds": f"{seconds:.1f}",
        }
        if result == "survived":
            record["survived"] = {name: self._tests[name] for name in KILLERS[mutation.module]}
        self._known[mutation.what] = record
        if self._file is not None:
            with self._file.open("a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")


def _prepare() -> None:
    """Import what the tests need and no change touches."""
    for name in ("pytest", "hypothesis", "jsonschema", "jsonschema.validators", "numpy", "llama_cpp"):
        importlib.import_module(name)
    # A failing example is enough; the smallest one is not looked for.
    from hypothesis import Phase, settings

    settings.register_profile("mutate", phases=(Phase.explicit, Phase.generate), deadline=None, database=None)
    settings.load_profile("mutate")
    loaded = [name for name in sys.modules if name.startswith("judge_local.grammar")]
    if loaded:
        raise RuntimeError(f"{loaded[0]} is imported already, so that no change to it could be seen")


def mutate(progress: Path | None, only: list[str], limit: float) -> int:
    """Try every change; 0 when each is killed or reviewed."""
    modules = only or list(KILLERS)
    unknown = [module for module in modules if module not in KILLERS]
    if unknown:
        sys.exit(f"--only: {unknown[0]!r} is not changed here. There are: {', '.join(KILLERS)}.")
    _prepare()
    reviewed: dict[str, str] = json.loads(SURVIVORS.read_text(encoding="utf-8"))
    jobs = [mutation for module in modules for mutation in mutations(module)]
    # What no test is known not to notice comes first: it is killed soon, or it is news.
    jobs.sort(key=lambda job: job.what in reviewed)
    with tempfile.TemporaryDirectory() as scratch:
        folder = progress or Path(scratch)
        # In a process of its own, since this one must not import the compiler before the changes outside of functions.
        process = os.fork()
        if process == 0:
            code = 1
            try:
                _try_inside(jobs, _Progress(folder), reviewed, limit)
                code = 0
            except SystemExit as stopped:
                print(stopped)
            finally:
                sys.stdout.flush()
                os._exit(code)
        if os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]):
            sys.exit("not all changes were tried")
        kept = _Progress(folder)
        outside = [job for job in jobs if kept.untried(job)]
        if outside:
            result, test = outcome(_afresh(outside[0].module, None, KILLERS[outside[0].module]), 10 * limit)
            if result != "survived":
                sys.exit(f"the tests fail without any change: {test}. Repair them first.")
        for job in outside:
            _try(job, _afresh(job.module, code_of(job), kept.untried(job)), kept, reviewed, limit)
        return _told(jobs, kept, reviewed, modules)


def _try_inside(jobs: list[Mutation], kept: _Progress, reviewed: dict[str, str], limit: float) -> None:
    """Try the changes inside of functions."""
    inside = [job for job in jobs if job.inside and kept.untried(job)]
    if not inside:
        return

    def run(items: list[Any]) -> None:
        sys.setprofile(None)
        if compiled:
            sys.exit(f"{min(compiled)} ran while the tests were collected. Call it inside of a test.")
        spent = _durations(items, plugin, limit)
        for job in inside:
            files = kept.untried(job)
            chosen = [each for each in items if each.path.name in files]
            # What takes no time is tried first: most changes are noticed by many tests.
            chosen.sort(key=lambda each: spent.get(_named(each.nodeid), 0.0))
            _try(job, _swapped(chosen, code_of(job), plugin), kept, reviewed, limit)

    changed = {str(PACKAGE / f"{module}.py") for module in KILLERS}
    compiled: set[str] = set()

    def notice(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        # What a module runs when it is imported is no function, or has no local names of its own.
        if event == "call" and code.co_filename in changed and code.co_flags & CO_OPTIMIZED:
            compiled.add(f"{Path(code.co_filename).stem}.{code.co_qualname}")

    plugin = _Plugin(run)
    sys.setprofile(notice)
    if _pytest(dict.fromkeys(name for job in inside for name in kept.untried(job)), plugin):
        sys.exit("pytest did not collect the tests. Run it on tests/grammar to see why.")


def _named(nodeid: str) -> str:
    return nodeid.encode("unicode_escape").decode()


def _durations(items: list[Any], plugin: _Plugin, limit: float) -> dict[str, float]:
    """How long each test takes where nothing is changed, in seconds."""
    with tempfile.TemporaryDirectory() as folder:
        plugin.durations = Path(folder) / "durations"
        result, test = outcome(_swapped(items, None, plugin), 10 * limit)
        if result != "survived":
            sys.exit(f"the tests fail without any change: {test}. Repair them first.")
        lines = plugin.durations.read_text(encoding="utf-8").splitlines()
        plugin.durations = None
    return {nodeid: float(seconds) for seconds, nodeid in (line.split(" ", 1) for line in lines)}


def _try(
    job: Mutation, run: Callable[[int], int], kept: _Progress, reviewed: dict[str, str], limit: float
) -> None:
    began = time.monotonic()
    result, test = outcome(run, limit)
    if result == "broken":
        sys.exit(f"{job.what}: {test}")
    kept.note(job, result, test, time.monotonic() - began)
    if result == "survived" and job.what not in reviewed:
        print(f"SURVIVED {job.module}.py, line {job.line}: {job.what}", flush=True)


def _told(jobs: list[Mutation], kept: _Progress, reviewed: dict[str, str], modules: list[str]) -> int:
    """Print what became of all; 0 when each is killed or reviewed, and nothing is reviewed that is not alive."""
    alive = {job.what for job in jobs if kept.survived(job)}
    known = {job.what for job in jobs}
    ours = [what for what in reviewed if what.split(":")[0] in modules]
    lines = [f"NOT REVIEWED: {what}" for what in sorted(alive - set(ours))]
    lines += [f"REVIEWED, but a test notices it: {what}" for what in ours if what in known - alive]
    lines += [f"REVIEWED, but there is no such change: {what}" for what in ours if what not in known]
    for line in lines:
        print(line)
    print(
        f"mutations {len(jobs)}  killed {len(known - alive)}  reviewed {len(alive & set(ours))}  "
        f"neither {len(alive - set(ours))}"
    )
    return 1 if lines else 0
