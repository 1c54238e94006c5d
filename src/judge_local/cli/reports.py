"""The reports and the gate of a results file: where they are written, what is printed, and the exit code.

* A report is written whole or not at all. A file that is no regular one, such as `/dev/stdout`, is written as it comes.
* Workflow commands go to standard output, where people look for them, or to standard error where standard output carries
  JSON; the runner reads both.
* Paths in reports are relative to the checkout, where the build server says what that is, else to this folder.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import sys
from collections.abc import Callable, Iterable, Iterator, MutableMapping
from dataclasses import dataclass, fields, replace
from functools import partial
from io import TextIOWrapper
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

from judge_local.errors import UsageError

if TYPE_CHECKING:
    from judge_local.counts import Counts
    from judge_local.report.gate import FailOn, Outcome
    from judge_local.results import Result, ResultsHeader

P = ParamSpec("P")
T = TypeVar("T")

CHECKOUTS: Final = ("GITHUB_WORKSPACE", "CI_PROJECT_DIR")
"""Variables by which build servers say where the checkout is."""
SUMMARY: Final = "GITHUB_STEP_SUMMARY"
"""The variable that names the file of the step's summary."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportOptions:
    """The values of `options.report_options`, as click read them."""

    junit: str | None
    junit_strict: bool
    sarif: str | None
    github: bool
    fail_on: str
    min_pass_rate: float | None
    max_review_rate: float | None


def take_report_options(values: MutableMapping[str, Any], used: Iterable[str | None]) -> ReportOptions:
    """The report options out of `values`, which lose them. Checked before anything is judged.

    Args:
        values: what click read, by parameter name.
        used: files that the call reads or writes otherwise.

    Raises:
        UsageError: a report would take the place of one of these, or of another report.
    """
    options = ReportOptions(**{field.name: values.pop(field.name) for field in fields(ReportOptions)})
    if options.junit_strict and options.junit is None:
        raise UsageError("--junit-strict", "no JUnit file is asked for", "Name one: --junit FILE")
    taken = {_place(path) for path in used if path is not None and path != "-"}
    for name, path in (("--junit", options.junit), ("--sarif", options.sarif)):
        if path is None:
            continue
        if not path or path == "-":
            raise UsageError(name, f"{path!r} is no file", "Name one; /dev/stdout is one too.")
        if _place(path) in taken:
            raise UsageError(
                name, f"{path!r} is needed for something else in this call", "Name another file."
            )
        taken.add(_place(path))
    return options


def report_results(
    options: ReportOptions,
    path: str | Path,
    header: ResultsHeader,
    counts: Counts,
    *,
    folder: Path,
    unfinished: bool = False,
    nothing_read: bool = False,
    stdout_is_taken: bool = False,
    quiet: bool = False,
) -> Outcome:
    """Write the reports that are asked for, and say in one line on standard error what the gate came to.

    Args:
        options: what is asked for.
        path: of the results file.
        header: of that file.
        counts: of all results in it.
        folder: what subject files are relative to.
        unfinished: whether time ran out before every row had a result.
        nothing_read: whether there were no rows at all, in whatever shard: then an empty shard is no chance.
        stdout_is_taken: whether standard output carries JSON, so that nothing else may be printed there.
        quiet: whether to say nothing of a gate that passed.

    Returns:
        What the gate came to; its code is the exit code.

    Raises:
        UsageError: a report cannot be written, or the file holds something else than results.
        ResultsFileError: the results cannot be read.
    """
    from judge_local.batch.results_file import read_results
    from judge_local.cli.output import say
    from judge_local.report.gate import FailOn, Gate, decide

    gate = Gate(
        fail_on=FailOn(options.fail_on),
        min_pass_rate=options.min_pass_rate,
        max_review_rate=options.max_review_rate,
    )
    outcome = decide(
        gate, counts, unfinished=unfinished, may_be_empty=header.shard is not None and not nothing_read
    )
    with contextlib.ExitStack() as files:
        written = list(_open_files(options, header, counts, files))
        printed = (
            list(_open_github(header, counts, outcome, FailOn(options.fail_on), stdout_is_taken))
            if options.github
            else []
        )
        if written or printed:
            place = _Placing(folder)
            for number, result in enumerate(read_results(path)[1]):
                if number == counts.results:
                    break  # The file has grown since it was counted, and totals must be those of what is reported.
                placed = place(result)
                for add, _ in (*written, *printed):
                    add(placed)
        for _, finish in written:
            finish()
    for _, finish in printed:  # After the files are in their places, which a reader who left must not undo.
        finish()
    if not (quiet and outcome.passed):
        say(str(outcome))
    return outcome


_Report = tuple["Callable[[Result], None]", "Callable[[], None]"]
"""What takes a result, and what is called after the last one."""


def _open_files(
    options: ReportOptions, header: ResultsHeader, counts: Counts, files: contextlib.ExitStack
) -> Iterator[_Report]:
    from judge_local.report.gate import FailOn

    if options.junit is not None:
        from judge_local.report.junit import JUnitReport

        naming = _Naming("--junit", options.junit)
        file = files.enter_context(_written(options.junit, naming))
        junit = JUnitReport(file, header, counts, FailOn(options.fail_on), strict=options.junit_strict)
        yield naming.around(junit.add), naming.around(junit.finish)
    if options.sarif is not None:
        from judge_local.cli.group import program_version
        from judge_local.report.sarif import SarifReport

        naming = _Naming("--sarif", options.sarif)
        file = files.enter_context(_written(options.sarif, naming))
        sarif = SarifReport(header, program_version())
        yield sarif.add, naming.around(partial(sarif.write, file))


def _open_github(
    header: ResultsHeader, counts: Counts, outcome: Outcome, fail_on: FailOn, stdout_is_taken: bool
) -> Iterator[_Report]:
    from judge_local.report.github import Annotations, Summary

    annotations = Annotations(fail_on)
    yield annotations.add, lambda: _print_commands(annotations.lines(outcome), stdout_is_taken)
    name = os.environ.get(SUMMARY)
    if name:
        naming = _Naming(SUMMARY, name)
        summary = Summary(header, counts, outcome, room=naming.around(_room)(name))
        yield summary.add, naming.around(lambda: _append(name, summary.text()))


def _print_commands(lines: Iterable[str], stdout_is_taken: bool) -> None:
    from judge_local.cli.output import emit

    for line in lines:
        if not stdout_is_taken:
            emit(line)
        elif sys.stderr is not None:
            print(line.encode(errors="backslashreplace").decode(), file=sys.stderr)


def _room(name: str) -> int:
    """Bytes that are left in the summary of this step, which may hold what commands before this one wrote."""
    from judge_local.report.github import SUMMARY_BYTES

    try:
        return SUMMARY_BYTES - Path(name).stat().st_size
    except FileNotFoundError:
        return SUMMARY_BYTES


def _append(name: str, text: str) -> None:
    with Path(name).open("a", encoding="utf-8", newline="\n") as file:
        file.write(text)


class _Placing:
    """Gives the subject files of results the paths that they have in the checkout.

    Args:
        folder: what they are relative to now.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = os.path.abspath(folder)  # noqa: PTH100 # A name from a row may be none that Path takes.
        named = next((os.environ[name] for name in CHECKOUTS if os.environ.get(name)), os.curdir)
        self._checkout = os.path.abspath(named)  # noqa: PTH100 # As above.

    def __call__(self, result: Result) -> Result:
        if result.subject_file is None:
            return result
        path = os.path.normpath(os.path.join(self._folder, result.subject_file))  # noqa: PTH118 # As above.
        if path.startswith(self._checkout.rstrip("/") + "/"):
            path = path[len(self._checkout.rstrip("/")) + 1 :]
        return replace(result, subject_file=path)


def _place(path: str) -> str:
    return os.path.realpath(path)


class _Naming:
    """Says which option a failure to write belongs to.

    Args:
        option: that named the file.
        name: of the file.
    """

    def __init__(self, option: str, name: str) -> None:
        self._option, self._name = option, name

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if isinstance(error, OSError) and not isinstance(error, BrokenPipeError):
            raise UsageError(
                self._option,
                f"{self._name!r} cannot be written: {error.strerror or error}",
                "The results are safe: `judge-local report RESULTS` makes reports of them.",
            ) from error

    def around(self, call: Callable[P, T]) -> Callable[P, T]:
        """`call`, its failures to write named."""

        def named(*args: P.args, **kwargs: P.kwargs) -> T:
            with self:
                return call(*args, **kwargs)

        return named


@contextlib.contextmanager
def _written(name: str, naming: _Naming) -> Iterator[TextIOWrapper]:
    """A file to write a report to, which takes the place of the one at `name` when the report is whole."""
    whole = Path(name).is_file() or not Path(name).exists()
    # Through a link, so that the report does not replace the link; but a pipe has no name that a link leads to.
    path = Path(_place(name) if whole else name)
    aside = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp") if whole else path
    with naming:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = aside.open("x" if whole else "w", encoding="utf-8", newline="\n")
    try:
        yield file
        with naming:
            file.flush()
            if whole:
                os.fsync(file.fileno())
                aside.replace(path)
    except BaseException:
        if whole:
            aside.unlink(missing_ok=True)
        raise
    finally:
        with contextlib.suppress(OSError):  # What could not be flushed was said above.
            file.close()
