"""Configuration files: which one counts, what wins over it, and what it cannot say."""

import click
import pytest

from judge_local.cli.config import Configuration, defaults_for, find_configuration
from judge_local.errors import UsageError

NAMES = ("judge", "ls")


@click.command()
@click.option("--model")
@click.option("--runs", type=int)
@click.option("--json", is_flag=True)
@click.option("--schema", type=click.Path())
@click.option("--gpu-layers")
@click.option("--claim", multiple=True)
def judge(**_):
    """Stands in for a real command."""


@click.command("ls")
@click.option("--long", is_flag=True)
def ls(**_):
    """Stands in for another."""


def load(name):
    return {"judge": judge, "ls": ls}[name]


def defaults(tmp_path, settings, name="judge"):
    return defaults_for(Configuration(tmp_path / "judge-local.toml", settings), name, NAMES, load)


def test_the_nearest_file_upward_counts(tmp_path):
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    (tmp_path / "judge-local.toml").write_text("runs = 1")
    (tmp_path / "a" / "pyproject.toml").write_text("[tool.judge-local]\nruns = 2")
    (inner / "pyproject.toml").write_text("[tool.other]\nruns = 3")

    found = find_configuration(inner)

    assert found == Configuration(tmp_path / "a" / "pyproject.toml", {"runs": 2})


def test_in_one_folder_our_own_file_wins(tmp_path):
    (tmp_path / "judge-local.toml").write_text("runs = 1")
    (tmp_path / "pyproject.toml").write_text("[tool.judge-local]\nruns = 2")

    found = find_configuration(tmp_path)

    assert found == Configuration(tmp_path / "judge-local.toml", {"runs": 1})


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("judge-local.toml", b"runs = ", "is not TOML"),
        ("judge-local.toml", b"\xff", "is not TOML"),
        ("pyproject.toml", b"[tool]\njudge-local = 3", "not a table"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path, name, data, message):
    (tmp_path / name).write_bytes(data)

    with pytest.raises(UsageError, match=message) as caught:
        find_configuration(tmp_path)
    assert str(tmp_path / name) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_keys_are_the_options_long_names(tmp_path):
    found = defaults(tmp_path, {"runs": 5, "gpu-layers": "auto", "json": True})

    assert found == {"runs": 5, "gpu_layers": "auto", "json": True}


def test_a_table_of_its_own_wins_over_what_all_share(tmp_path):
    settings = {"runs": 5, "judge": {"runs": 7}, "ls": {"long": True}}

    assert defaults(tmp_path, settings) == {"runs": 7}
    assert defaults(tmp_path, settings, "ls") == {"long": True}


def test_a_key_of_another_command_is_passed_over(tmp_path):
    assert defaults(tmp_path, {"long": True, "runs": 2}) == {"runs": 2}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rnus": 3}, "'rnus' is not an option. Did you mean runs?"),
        ({"gpu_layers": 3}, "Did you mean gpu-layers?"),
        ({"judge": {"long": True}}, "judge.long is not an option"),
        ({"jugde": {}}, r"\[jugde\] is no command. Did you mean judge?"),
        ({"claim": "always this"}, "'claim' is not an option"),
        ({"runs": True}, "not a text or a number"),
        ({"runs": [3]}, "not a text or a number"),
        ({"json": "yes"}, "not true or false"),
    ],
)
def test_what_no_option_can_be_is_refused(tmp_path, settings, message):
    with pytest.raises(UsageError, match=message):
        defaults(tmp_path, settings)


def test_a_path_is_relative_to_the_file(tmp_path):
    found = defaults(tmp_path, {"schema": "s.json", "model": "weights/m.gguf"})

    assert found == {"schema": str(tmp_path / "s.json"), "model": str(tmp_path / "weights" / "m.gguf")}


@pytest.mark.parametrize("model", ["smollm2-135m", "auto", "hf:org/repo/file.gguf", "/weights/m.gguf"])
def test_a_reference_that_is_no_relative_path_stays_as_it_is(tmp_path, model):
    assert defaults(tmp_path, {"model": model}) == {"model": model}
