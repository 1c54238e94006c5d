"""Settings: `judge-local.toml`, or `[tool.judge-local]` in `pyproject.toml`, nearest first upward, and the environment.

* A key is an option's long name without its dashes: `runs = 5`. A table named like a command holds keys for it alone.
* The command line wins over the environment, the environment over the file.
* One file counts, the nearest; in one folder `judge-local.toml` wins. A key that no command has is refused.
* A path in the file is relative to the file.
* What may be repeated, and what is judged, is said in each call: neither the environment nor a file can set it.
* A variable that looks like a setting and is none is warned of. One that is like no setting is some other program's.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click

from judge_local.errors import UsageError, excerpt

FILE_NAME: Final = "judge-local.toml"
PREFIX: Final = "JUDGE_LOCAL_"
"""What a setting's variable begins with."""
_MEANINGLESS_AS_HABIT: Final = frozenset({"help", "version", "check"})
_OTHER_VARIABLES: Final = (f"{PREFIX}MODELS_DIR", f"{PREFIX}CACHE_DIR")
_LIKENESS: Final = 0.75
"""From 0 to 1, how much a variable must look like a setting to be taken for a slip of the pen."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """The settings of one file."""

    path: Path
    settings: Mapping[str, Any]


def find_configuration(folder: Path) -> Configuration | None:
    """The nearest configuration in `folder` or above it.

    Raises:
        UsageError: a file on the way cannot be read, or is not TOML.
    """
    for here in (folder, *folder.parents):
        own = here / FILE_NAME
        if own.is_file():
            return Configuration(own, _read(own))
        project = here / "pyproject.toml"
        if project.is_file():
            tool = _read(project).get("tool", {})
            settings = tool.get("judge-local") if isinstance(tool, Mapping) else None
            if settings is not None:
                if not isinstance(settings, Mapping):
                    raise UsageError(str(project), f"tool.judge-local is {excerpt(settings)}, not a table")
                return Configuration(project, settings)
    return None


def defaults_for(
    configuration: Configuration, name: str, names: Sequence[str], load: Callable[[str], click.Command]
) -> dict[str, Any]:
    """What `configuration` sets for the options of the command `name`, by parameter name.

    Args:
        configuration: the file's settings.
        name: the command about to run.
        names: the names of all commands; a table may be named like one.
        load: imports a command by its name. The others are imported only for a key that this one does not have.

    Raises:
        UsageError: a key or table that no command has, or a value that cannot be one of the option's.
    """
    where = str(configuration.path)
    shared = {key: value for key, value in configuration.settings.items() if not isinstance(value, Mapping)}
    tables = {key: value for key, value in configuration.settings.items() if isinstance(value, Mapping)}
    for key in tables:
        if key not in names:
            raise UsageError(where, f"[{key}] is no command", _near(key, names))
    options = _options(load(name))
    strangers = shared.keys() - options.keys()
    if strangers:
        everyones = {key for other in names for key in _options(load(other))}
        for key in sorted(strangers - everyones):
            raise UsageError(where, f"{key!r} is not an option", _near(key, sorted(everyones)))
    own = tables.get(name, {})
    for key in own:
        if key not in options:
            raise UsageError(where, f"{name}.{key} is not an option", _near(key, sorted(options)))
    chosen = {key: value for key, value in {**shared, **own}.items() if key in options}
    return {
        str(options[key].name): _value(configuration, options[key], key, value)
        for key, value in chosen.items()
    }


def strange_variables(
    environment: Iterable[str], name: str, names: Sequence[str], load: Callable[[str], click.Command]
) -> list[str]:
    """A line for each variable that somebody may take for a setting.

    Args:
        environment: the names of all variables.
        name: the command about to run.
        names: the names of all commands.
        load: imports a command by its name. The others are imported only for a variable that this one does not have.
    """
    unknown = {variable for variable in environment if variable.startswith(PREFIX)}
    unknown -= {*_OTHER_VARIABLES, *_variables(load(name), settable=True)}
    if not unknown:
        return []
    commands = [load(other) for other in names]
    settable = {variable for command in commands for variable in _variables(command, settable=True)}
    per_call = {variable for command in commands for variable in _variables(command, settable=False)}
    lines = []
    for variable in sorted(unknown - settable):
        if variable in per_call:
            lines.append(f"{variable} sets nothing: give the option in the call.")
            continue
        # Without the prefix, which makes all of them alike.
        known = [word.removeprefix(PREFIX) for word in (*settable, *_OTHER_VARIABLES)]
        near = difflib.get_close_matches(variable.removeprefix(PREFIX), known, n=1, cutoff=_LIKENESS)
        if near:
            lines.append(f"{variable} is no setting. Did you mean {PREFIX}{near[0]}?")
    return lines


def variable_of(option: click.Option) -> str:
    """The variable that sets `option`: its long name, whatever the function behind it calls it."""
    return PREFIX + max(option.opts, key=len).removeprefix("--").replace("-", "_").upper()


def _variables(command: click.Command, *, settable: bool) -> set[str]:
    """The variables of a command's options: those that set something, or those that could be thought to."""
    return {
        variable_of(option)
        for option in command.params
        if isinstance(option, click.Option) and option.allow_from_autoenv is settable
    }


def _read(path: Path) -> Mapping[str, Any]:
    import tomllib

    try:
        return tomllib.loads(path.read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(str(path), f"is not TOML: {error}") from None
    except OSError as error:
        raise UsageError(str(path), f"cannot be read: {error.strerror or error}") from None


def _options(command: click.Command) -> dict[str, click.Option]:
    """The options of `command` by long name, without those that a file may not set."""
    return {
        word.removeprefix("--"): option
        for option in command.params
        if isinstance(option, click.Option)
        for word in option.opts
        if word.startswith("--")
        and option.allow_from_autoenv
        and word.removeprefix("--") not in _MEANINGLESS_AS_HABIT
    }


def _value(configuration: Configuration, option: click.Option, key: str, value: Any) -> Any:
    """`value` as click takes it, checked where click would be too kind: it reads `true` as the number 1."""
    where = str(configuration.path)
    if option.is_flag:
        if not isinstance(value, bool):
            raise UsageError(where, f"{key} is {excerpt(value)}, not true or false")
        return value
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise UsageError(where, f"{key} is {excerpt(value)}, not a text or a number")
    names_file = isinstance(option.type, click.Path) or (
        option.name == "model" and str(value).endswith(".gguf")
    )
    if names_file and isinstance(value, str) and ":" not in value:
        return str(configuration.path.parent / Path(value).expanduser())
    try:
        # Click would refuse it too, and name an option that nobody has written.
        option.type.convert(value, option, None)
    except click.BadParameter as error:
        raise UsageError(where, f"{key} is {excerpt(value)}: {error.message.rstrip('.')}") from None
    return value


def _near(word: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(word, known, n=3)
    return f"Did you mean {' or '.join(near)}?" if near else f"Known: {', '.join(known)}."
