"""Configuration files: which one counts, what wins over it, and what it cannot say."""

import json

import click
import pytest
from click.testing import CliRunner

from judge_local.cli import group, main
from judge_local.cli.config import Configuration, defaults_for, find_configuration, strange_variables
from judge_local.cli.group import ENTRIES
from judge_local.errors import UsageError

NAMES = ("judge", "ls")


@click.command()
@click.option("--model")
@click.option("--runs", type=click.IntRange(min=1))
@click.option("--json", is_flag=True)
@click.option("--schema", type=click.Path())
@click.option("--gpu-layers")
@click.option("--claim", multiple=True, allow_from_autoenv=False)
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
        ({"runs": "many"}, "runs is 'many': 'many' is not a valid integer"),
        ({"judge": {"runs": 0}}, "runs is '0': 0 is not in the range x>=1"),
    ],
)
def test_what_no_option_can_be_is_refused_with_the_name_of_the_file(tmp_path, settings, message):
    with pytest.raises(UsageError, match=message) as caught:
        defaults(tmp_path, settings)
    assert str(caught.value).startswith(f"{tmp_path / 'judge-local.toml'}: ")


def test_a_path_is_relative_to_the_file(tmp_path):
    found = defaults(tmp_path, {"schema": "s.json", "model": "weights/m.gguf"})

    assert found == {"schema": str(tmp_path / "s.json"), "model": str(tmp_path / "weights" / "m.gguf")}


@pytest.mark.parametrize("model", ["smollm2-135m", "auto", "hf:org/repo/file.gguf", "/weights/m.gguf"])
def test_a_reference_that_is_no_relative_path_stays_as_it_is(tmp_path, model):
    assert defaults(tmp_path, {"model": model}) == {"model": model}


# --- the environment --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("variable", "line"),
    [
        ("JUDGE_LOCAL_RUNS", None),
        ("JUDGE_LOCAL_LONG", None),
        ("JUDGE_LOCAL_GPU_LAYERS", None),
        ("JUDGE_LOCAL_MODELS_DIR", None),
        ("JUDGE_LOCAL_COLOUR_OF_THE_SKY", None),
        ("JUDGE_LOCALLY_RUN", None),
        ("RUNS", None),
        ("JUDGE_LOCAL_RUN", "JUDGE_LOCAL_RUN is no setting. Did you mean JUDGE_LOCAL_RUNS?"),
        (
            "JUDGE_LOCAL_GPULAYERS",
            "JUDGE_LOCAL_GPULAYERS is no setting. Did you mean JUDGE_LOCAL_GPU_LAYERS?",
        ),
        (
            "JUDGE_LOCAL_MODEL_DIR",
            "JUDGE_LOCAL_MODEL_DIR is no setting. Did you mean JUDGE_LOCAL_MODELS_DIR?",
        ),
        ("JUDGE_LOCAL_CLAIM", "JUDGE_LOCAL_CLAIM sets nothing: give the option in the call."),
    ],
)
def test_a_variable_that_looks_like_a_setting_is_warned_of(variable, line):
    assert strange_variables(["PATH", variable], "judge", NAMES, load) == ([] if line is None else [line])


def test_nothing_else_is_imported_for_variables_that_are_known():
    asked = []

    def count(name):
        asked.append(name)
        return load(name)

    strange_variables(["JUDGE_LOCAL_RUNS", "JUDGE_LOCAL_MODELS_DIR"], "judge", NAMES, count)

    assert asked == ["judge"]


def test_the_variables_of_our_own_tests_look_like_no_setting():
    ours = [f"JUDGE_LOCAL_{name}" for name in ("NO_SKIP", "REQUIRE_LIVE", "MATERIAL")]

    assert strange_variables(ours, "judge", tuple(ENTRIES), group.load) == []


OPTIONS = [
    pytest.param(option, id=f"{name} {max(option.opts, key=len)}")
    for name in ENTRIES
    for option in group.load(name).params
    if isinstance(option, click.Option)
]


@pytest.mark.parametrize("option", OPTIONS)
def test_every_option_is_set_under_its_long_name_or_not_at_all(option):
    """What may be repeated cannot be set: a variable has no way to say two."""
    long_name = max(option.opts, key=len).removeprefix("--").replace("-", "_")

    assert not (option.multiple and option.allow_from_autoenv)
    assert option.envvar == (f"JUDGE_LOCAL_{long_name.upper()}" if option.allow_from_autoenv else None)


def test_an_option_is_set_by_its_long_name_whatever_its_function_calls_it(monkeypatch, tmp_path):
    monkeypatch.setenv("JUDGE_LOCAL_MODELS_DIR", str(tmp_path))
    monkeypatch.setenv("JUDGE_LOCAL_JSON", "1")

    assert json.loads(CliRunner().invoke(main, ["ls"]).stdout) == []


def test_a_warning_of_a_variable_is_one_line_and_changes_nothing(monkeypatch, tmp_path):
    monkeypatch.setenv("JUDGE_LOCAL_MODELS_DIR", str(tmp_path))
    monkeypatch.setenv("JUDGE_LOCAL_JSN", "1")

    result = CliRunner().invoke(main, ["ls"])

    assert result.exit_code == 0
    assert result.stderr.splitlines()[0] == (
        "judge-local: warning: JUDGE_LOCAL_JSN is no setting. Did you mean JUDGE_LOCAL_JSON?"
    )
