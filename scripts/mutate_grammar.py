"""Change one thing at a time in the modules that write numbers, strings and objects; the tests must notice each change.

    python scripts/prove_grammar.py mutate [--progress DIR] [--only MODULE ...] [--limit 120]

* A mutation flips a comparison, swaps `and` and `or`, drops a `not`, or makes a whole number one more. The sizes of
  caches are left alone: they change no answer.
* Each runs in a fork of a process that has collected the tests: the fork gives the functions of one module their
  changed code, forgets what was cached, and runs the tests, those first that are about that module. A change outside
  of any function is made in a fork that imports the compiler anew.
* Every mutation ends killed (a test failed, or did not end within the limit) or reviewed: it stands in
  `tests/data/grammar-survivors.json` with the reason why no test can notice it.
* `--progress DIR` keeps what became of each, so that a proof that was stopped goes on. A killed one is not tried
  again while its module stays as it is; a surviving one is tried again once a test was changed.
"""

from __future__ import annotations

import ast
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
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import _lru_cache_wrapper
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[1]
PACKAGE: Final = ROOT / "src" / "judge_local" / "grammar"
TESTS: Final = ROOT / "tests" / "grammar"
SURVIVORS: Final = ROOT / "tests" / "data" / "grammar-survivors.json"
"""Reviewed mutations that no test notices, each with the reason."""

_ALWAYS: Final = ("test_zoo.py", "test_public_faults.py", "test_compile.py", "test_exhaustive.py")
_OBJECTS: Final = ("test_objects.py", "test_opt_in.py", *_ALWAYS)
KILLERS: Final = {
    "numbers": ("test_number_facets.py", "test_numbers.py", "test_numerals.py", *_ALWAYS),
    "numerals": ("test_number_facets.py", "test_numerals.py", "test_numbers.py", *_ALWAYS),
    "strings": ("test_strings.py", *_ALWAYS),
    "objects": _OBJECTS,
    "keys": _OBJECTS,
    "scalars": ("test_numerals.py", "test_strings.py", *_ALWAYS),
}
"""The modules that are changed, and the tests that are to notice it, the quickest to do so first."""
_MEMORY: Final = 4 << 30
_BROKEN: Final = 70
"""With this a fork ends that could not run the tests."""
_FLIPS: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}


class Mutation(NamedTuple):
    """One change to one module."""

    module: str
    number: int
    """Which of the places of the module that can be changed."""
    line: int
    inside: bool
    """Whether it is inside a function."""
    what: str
    """Module, line of source and change in words; it names the mutation in the list of survivors."""


class _Mutator(ast.NodeTransformer):
    """Changes the `wanted`-th place that can be changed, and notes all of them."""

    def __init__(self, wanted: int = -1) -> None:
        self.wanted = wanted
        self.places: list[tuple[int, bool, str]] = []
        self._depth = 0

    def _hit(self, node: ast.expr, what: str) -> bool:
        self.places.append((node.lineno, self._depth > 0, what))
        return len(self.places) - 1 == self.wanted

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:  # ast's own name
        node.args = self.visit(node.args)
        self._depth += 1
        node.body = [self.visit(each) for each in node.body]
        self._depth -= 1
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.AST:  # ast's own name
        self.generic_visit(node)
        for at, operator in enumerate(node.ops):
            flipped = _FLIPS[type(operator)]
            which = f" at {at + 1}" if at else ""
            if self._hit(node, f"{ast.unparse(node)} flipped{which}"):
                node.ops = [*node.ops[:at], flipped(), *node.ops[at + 1 :]]
        return node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:  # ast's own name
        self.generic_visit(node)
        if self._hit(node, f"{ast.unparse(node)[:80]}: and, or swapped"):
            node.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        return node

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:  # ast's own name
        self.generic_visit(node)
        if isinstance(node.op, ast.Not) and self._hit(node, f"{ast.unparse(node)[:80]}: not dropped"):
            return node.operand
        return node

    def visit_Constant(self, node: ast.Constant) -> ast.AST:  # ast's own name
        if type(node.value) is int and self._hit(node, f"{node.value} made one more"):
            return ast.copy_location(ast.Constant(node.value + 1), node)
        return node


def mutations(module: str) -> list[Mutation]:
    """Every change to one module, in the order of its source."""
    source = (PACKAGE / f"{module}.py").read_text(encoding="utf-8")
    lines = source.splitlines()
    mutator = _Mutator()
    mutator.visit(ast.parse(source))
    seen: Counter[str] = Counter()
    found = []
    for number, (line, inside, change) in enumerate(mutator.places):
        what = f"{module}: {lines[line - 1].strip()}: {change}"
        seen[what] += 1
        nth = f" (number {seen[what]})" if seen[what] > 1 else ""
        found.append(Mutation(module, number, line, inside, what + nth))
    return found


def _code(mutation: Mutation) -> CodeType:
    path = PACKAGE / f"{mutation.module}.py"
    tree = _Mutator(mutation.number).visit(ast.parse(path.read_text(encoding="utf-8")))
    return compile(ast.fix_missing_locations(tree), str(path), "exec")


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
        """A test, or what it asked for, failed."""
        self._write(report)

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
    options += ["--no-header", "-W", "ignore::pytest.PytestAssertRewriteWarning"]
    return int(pytest.main([*options, *(str(TESTS / name) for name in names)], plugins=[plugin]))


def _afresh(module: str, code: CodeType | None) -> Callable[[int], int]:
    """Import the compiler anew, with one module changed, and run the tests that are to notice it."""

    def run(pipe: int) -> int:
        if code is not None:
            sys.meta_path.insert(0, _Changed(module, code))
        return _pytest(KILLERS[module], _Plugin(pipe=pipe))

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
        try:
            result = run(writing)
        except BaseException as error:  # noqa: BLE001 # the fork must end here, whatever the change did
            os.write(writing, f"{type(error).__name__}: {error}\n".encode())
            result = _BROKEN
        os._exit(result)
    os.close(writing)
    said, over = b"", False
    ends = time.monotonic() + limit
    while True:
        ready, _, _ = select.select([reading], [], [], max(0.0, ends - time.monotonic()))
        more = os.read(reading, 4096) if ready else b""
        if not more:
            over = not ready
            break
        said += more
    os.close(reading)
    if over:
        os.kill(process, signal.SIGKILL)
    _, status = os.waitpid(process, 0)
    if over:
        return "killed", f"no end within {limit:.0f} s"
    exit_code = os.waitstatus_to_exitcode(status)
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
        self._known: dict[str, dict[str, str]] = {}
        self._tests = _digest(sorted(TESTS.glob("*.py")))
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
        if self._file is not None and self._file.is_file():
            for line in self._file.read_text(encoding="utf-8").splitlines():
                record = json.loads(line)
                self._known[record["mutation"]] = record

    def of(self, mutation: Mutation) -> str | None:
        """What became of a mutation, if that still holds."""
        record = self._known.get(mutation.what)
        if record is None or record["module"] != _digest([PACKAGE / f"{mutation.module}.py"]):
            return None
        if record["outcome"] == "survived" and record["tests"] != self._tests:
            return None
        return record["outcome"]

    def note(self, mutation: Mutation, result: str, test: str, seconds: float) -> None:
        """Keep what became of a mutation."""
        record = {
            "mutation": mutation.what,
            "line": str(mutation.line),
            "module": _digest([PACKAGE / f"{mutation.module}.py"]),
            "tests": self._tests,
            "outcome": result,
            "by": test,
            "seconds": f"{seconds:.1f}",
        }
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
    kept = _Progress(progress)
    reviewed: dict[str, str] = json.loads(SURVIVORS.read_text(encoding="utf-8"))
    jobs = [mutation for module in modules for mutation in mutations(module)]
    untried = [job for job in jobs if kept.of(job) is None]
    # What is not inside a function is read once, when the compiler is imported; so these come first, before it is.
    outside = [job for job in untried if not job.inside]
    for job in outside:
        _check_unchanged(job.module, _afresh(job.module, None), limit)
        _try(job, _afresh(job.module, _code(job)), kept, reviewed, limit)
    inside = [job for job in untried if job.inside]
    if inside:
        names = list(dict.fromkeys(name for job in inside for name in KILLERS[job.module]))

        def run(items: list[Any]) -> None:
            gc.freeze()
            for job in inside:
                order = {name: at for at, name in enumerate(KILLERS[job.module])}
                chosen = sorted(
                    (each for each in items if each.path.name in order),
                    key=lambda each: order[each.path.name],
                )
                _check_unchanged(job.module, _swapped(chosen, None, plugin), limit)
                _try(job, _swapped(chosen, _code(job), plugin), kept, reviewed, limit)

        plugin = _Plugin(run)
        if _pytest(names, plugin):
            sys.exit("pytest did not collect the tests. Run it on tests/grammar to see why.")
    return _told(jobs, kept, reviewed, modules)


_checked: set[tuple[str, str]] = set()


def _check_unchanged(module: str, run: Callable[[int], int], limit: float) -> None:
    """Once for each way and module: without any change the tests pass."""
    key = (module, run.__qualname__)
    if key not in _checked:
        _checked.add(key)
        result, test = outcome(run, 10 * limit)
        if result != "survived":
            sys.exit(f"the tests of {module} fail without any change: {test}. Repair them first.")


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
    alive = {job.what for job in jobs if kept.of(job) == "survived"}
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
