"""The door of the command line: subcommands imported when named, and what every error looks like and exits with.

* A fault is one line on standard error, `judge-local: where: what is wrong. What to do.`, and the exit code of its class.
* Ctrl-C and SIGTERM end with 130, a reader of our output who left with 141. Neither leaves a traceback.
* What nobody foresaw names its class in one line and exits with 4; `--verbose` adds the traceback.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any, Final, NoReturn

import click

from judge_local.cli.config import defaults_for, find_configuration, strange_variables, variable_of
from judge_local.cli.interrupts import INTERRUPTED, ending_at_once
from judge_local.cli.output import say, silence_stdout, unwritable
from judge_local.errors import JudgeLocalError, UsageError

READER_LEFT: Final = 141
"""What a shell reports for a program that SIGPIPE ended."""
UNFORESEEN: Final = 4


@dataclass(frozen=True, slots=True)
class Entry:
    """A subcommand that is not imported yet."""

    name: str
    module: str
    attribute: str
    summary: str
    """The first sentence of its help; a test compares."""


SECTIONS: Final[Mapping[str, tuple[Entry, ...]]] = {
    "Judging": (
        Entry("judge", "judge", "judge", "Decide whether claims hold for a subject."),
        Entry("batch", "batch", "batch", "Judge many rows into a results file that can be continued."),
        Entry("panel", "panel", "panel", "Decide whether claims hold, by several judges at once."),
        Entry("report", "report", "report", "Report on a results file, and gate on it."),
        Entry("merge", "merge", "merge", "Merge the results of shards into one results file."),
        Entry("grammar", "grammar", "grammar", "Print the grammar of a JSON Schema, and what it enforces."),
    ),
    "Models": (
        Entry("pull", "models", "pull", "Fetch a model into the models folder."),
        Entry("ls", "models", "ls", "List the models on this disk."),
        Entry("show", "models", "show", "Show one model: its file, hash, licence and size."),
        Entry("rm", "models", "rm", "Remove a model from the models folder."),
        Entry("verify", "models", "verify", "Hash models again and compare."),
        Entry("path", "models", "path", "Print the path of a model's first file."),
        Entry("optimize", "optimize", "optimize", "Write a model anew in a faster type of weights."),
        Entry("import", "models", "import_", "Take in a file brought by hand."),
    ),
    "This machine": (
        Entry("bench", "bench", "bench", "Measure how fast this machine judges."),
        Entry("doctor", "doctor", "doctor", "Say what works on this machine, and what to do about the rest."),
    ),
}
ENTRIES: Final[Mapping[str, Entry]] = {
    entry.name: entry for entries in SECTIONS.values() for entry in entries
}


def load(name: str) -> click.Command:
    """Import the subcommand `name`, which is a key of `ENTRIES`."""
    entry = ENTRIES[name]
    with ending_at_once():
        command = getattr(import_module(f"judge_local.cli.{entry.module}"), entry.attribute)
    assert isinstance(command, click.Command)
    for option in command.params:
        if isinstance(option, click.Option) and option.allow_from_autoenv:
            # One flat prefix: JUDGE_LOCAL_MODEL serves every command that has a --model.
            option.envvar = variable_of(option)
    return command


class LazyGroup(click.Group):
    """A click group whose subcommands are imported when they are named, with the error policy of the whole program."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of all subcommands, in the order of the help."""
        return list(ENTRIES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the subcommand `cmd_name`; None when there is none of that name."""
        return load(cmd_name) if cmd_name in ENTRIES else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the subcommand, and give its options the defaults that a configuration file sets."""
        try:
            name, command, rest = super().resolve_command(ctx, args)
        except click.exceptions.NoSuchCommand:
            raise click.exceptions.NoSuchCommand(args[0], possibilities=list(ENTRIES), ctx=ctx) from None
        # Help and completion describe the program, whatever folder they are asked in.
        asks_for_help = bool({"-h", "--help"} & set(rest))
        if name is not None and command is not None and not ctx.resilient_parsing and not asks_for_help:
            configuration = find_configuration(Path.cwd())
            if configuration is not None:
                ctx.default_map = {name: defaults_for(configuration, name, tuple(ENTRIES), load)}
            for line in strange_variables(os.environ, name, tuple(ENTRIES), load):
                say(f"warning: {line}")
        return name, command, rest

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the subcommands in sections, from their summaries alone."""
        width = max(map(len, ENTRIES))
        for title, entries in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(entry.name.ljust(width), entry.summary) for entry in entries])

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Read the program's own options; `--help` and `--version` print from here."""
        try:
            return super().make_context(info_name, args, parent, **extra)
        except OSError as error:  # Click would exit with 1, which here means an auto-fail.
            raise click.exceptions.Exit(report(error)) from error

    def invoke(self, ctx: click.Context) -> int:
        """Run the subcommand. Its own faults become one line and an exit code here, before click words them."""
        try:
            super().invoke(ctx)
        except (click.exceptions.Exit, click.Abort, click.ClickException):
            raise
        except BaseException as error:
            raise click.exceptions.Exit(report(error, verbose=bool(ctx.meta.get(VERBOSE)))) from error
        return 0

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> NoReturn:
        """Run the command line and exit. Every way out is here.

        Args:
            args: the words after the program's name; None takes the process's own.
            prog_name: ignored, so that help is the same for `python -m judge_local`.
            complete_var: the variable that asks for shell completion; None takes click's name for it.
            standalone_mode: ignored; this method always exits.
            windows_expand_args: ignored; Windows is refused.
            extra: handed to click's context.
        """
        with terminating_like_ctrl_c(), plain_warnings():
            try:
                if sys.platform == "win32":
                    raise UsageError(
                        "Windows", "is not supported", "Run judge-local on Linux or macOS, or inside WSL."
                    )
                code = super().main(args, "judge-local", complete_var, standalone_mode=False, **extra)
                if sys.stdout is not None:
                    sys.stdout.flush()  # While a failure can still be reported.
            except BaseException as error:
                if isinstance(error, SystemExit):  # Shell completion exits by itself.
                    raise
                code = report(error)
        sys.exit(code)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The console script's entry: after it, Ctrl-C no longer interrupts the interpreter's own last steps."""
        try:
            return self.main(*args, **kwargs)
        finally:
            signal.signal(signal.SIGINT, signal.SIG_IGN)


VERBOSE: Final = "judge_local.verbose"
"""The key in a click context's `meta` under which `--verbose` is remembered."""


def report(error: BaseException, *, verbose: bool = False) -> int:
    """Say what happened in one line on standard error, and return the exit code it means."""
    if isinstance(error, KeyboardInterrupt | click.Abort):
        say("interrupted")
        return INTERRUPTED
    if isinstance(error, BrokenPipeError):
        silence_stdout()
        return READER_LEFT
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        error.show()
        return error.exit_code
    if isinstance(error, click.UsageError):
        path = error.ctx.command_path if error.ctx is not None else "judge-local"
        message = " ".join(error.format_message().split())
        say(f"{message} Try '{path} --help'.", command=path)
        return error.exit_code
    if isinstance(error, click.ClickException):
        say(error.format_message())
        return error.exit_code
    if verbose:
        import traceback

        traceback.print_exception(error)
    if isinstance(error, JudgeLocalError):
        say(str(error))
        return error.exit_code
    if isinstance(error, OSError) and error.errno == errno.ENOSPC and error.filename is None:
        silence_stdout()
        return report(unwritable(error))
    hint = "" if verbose else " Run `judge-local --verbose …` for the traceback."
    detail = " ".join(str(error).split())
    say(
        f"unforeseen {type(error).__name__}{': ' if detail else ''}{detail.rstrip('.')}. This is a fault of ours.{hint}"
    )
    return UNFORESEEN


@contextmanager
def terminating_like_ctrl_c() -> Iterator[None]:
    """While inside, SIGTERM takes the path that SIGINT takes, so that both close the engine on their way out."""
    if threading.current_thread() is not threading.main_thread():
        yield  # Only the main thread may set a handler, and only it receives signals.
        return

    def terminate(number: int, frame: FrameType | None) -> None:
        handler = signal.getsignal(signal.SIGINT)
        # asyncio's handler cancels the task that runs; a shell's `&` ignores SIGINT, and that must not hold back this.
        (handler if callable(handler) else signal.default_int_handler)(number, frame)

    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before if before is not None else signal.SIG_DFL)


@contextmanager
def plain_warnings() -> Iterator[None]:
    """While inside, a warning is one line for a person, without the source line that raised it."""

    def show(message: Warning | str, *_: object, **__: object) -> None:
        say(f"warning: {str(message).removeprefix('judge-local: ')}")

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield


def remember_verbose(ctx: click.Context, _: click.Parameter, value: bool) -> bool:
    """Option callback of every `--verbose`: tracebacks are wanted."""
    if value:
        ctx.meta[VERBOSE] = True
    return value


verbose_option: Final = click.option(
    "--verbose",
    is_flag=True,
    expose_value=False,
    callback=remember_verbose,
    help="Print the traceback of every fault.",
)
"""Of the program, and of every command that takes long."""


def program_version() -> str:
    """The version of the installed distribution."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("judge-local")
    except PackageNotFoundError:
        return "(run from a checkout that is not installed)"


def print_version(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    """Option callback of `--version`."""
    if value and not ctx.resilient_parsing:
        click.echo(f"judge-local {program_version()}")
        ctx.exit()


@click.group(
    cls=LazyGroup,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "max_content_width": 100,
        "auto_envvar_prefix": "JUDGE_LOCAL",
    },
    epilog="Exit codes: 0 passed; 1 an auto-fail; 2 usage or configuration; 3 review needed; 4 model or engine error; "
    "5 nothing to judge; 130 interrupted. Options may also be set as JUDGE_LOCAL_<OPTION> in the environment, in "
    "judge-local.toml, or under [tool.judge-local] in pyproject.toml. Shell completion: "
    'eval "$(_JUDGE_LOCAL_COMPLETE=bash_source judge-local)", and the same with zsh or fish.',
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=print_version,
    help="Print the version.",
)
@verbose_option
def main() -> None:
    """Judge text with a model of your own: a claim and its subject go in, a decision comes out.

    Nothing leaves this machine, and only `pull` uses the network, unless a server is named as a judge on a panel.
    """


__all__ = ["ENTRIES", "SECTIONS", "main"]
