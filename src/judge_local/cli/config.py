"""Configuration files: `judge-local.toml`, or `[tool.judge-local]` in `pyproject.toml`, nearest first from here upward.

* A key is an option's long name without its dashes: `runs = 5`. A table named like a command holds keys for it alone.
* The command line wins over the environment, the environment over the file.
* One file counts, the nearest; in one folder `judge-local.toml` wins. A key that no command has is refused.
* A path in the file is relative to the file.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click

from judge_local.errors import UsageError, excerpt

FILE_NAME: Final = "judge-local.toml"
# Set per call, or meaningless as a habit.
_NOT_CONFIGURABLE: Final = frozenset(
    {"help", "version", "claim", "claims", "check", "checked", "judge", "substitute"}
    | {"output", "map", "fresh", "retry-errors", "only-zone", "dry-run"}
)


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
        if word.startswith("--") and word.removeprefix("--") not in _NOT_CONFIGURABLE
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
    return value


def _near(word: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(word, known, n=3)
    return f"Did you mean {' or '.join(near)}?" if near else f"Known: {', '.join(known)}."
