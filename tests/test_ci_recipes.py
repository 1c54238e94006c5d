"""The recipes for build servers: read by a YAML reader, checked against the catalogue, and their commands run.

A recipe's own commands run in a folder like a checkout, in the recipe's own environment, with its cache restored. What
the build server does itself (checkouts, caches, artifacts) is read and compared. Two things are not as they are there:
the install is not run, because the command that is tested here stands in its place; and each row is judged once, not
three times, because it is the commands that are tested.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import junitparser
import pytest
import yaml

ROOT: Final = Path(__file__).resolve().parents[1]
FOLDER: Final = ROOT / "examples" / "ci"
INSTALL: Final = 'python -m pip install "$PACKAGE"'


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """What a recipe does, without its server's way of saying it."""

    environment: dict[str, str]
    commands: list[str]
    cache_key: str
    cache_paths: list[str]
    kept: list[str]
    junit: str | None
    """What the server itself reads as JUnit."""


def read(name: str) -> Any:
    return yaml.safe_load((FOLDER / name).read_text(encoding="utf-8"))


def read_github() -> Recipe:
    workflow = read("github.yml")
    (job,) = workflow["jobs"].values()
    steps = job["steps"]
    used = {step["uses"].partition("@")[0]: step.get("with", {}) for step in steps if "uses" in step}
    cache = used["actions/cache"]
    return Recipe(
        environment=workflow["env"],
        commands=[step["run"] for step in steps if "run" in step],
        cache_key=cache["key"],
        cache_paths=[cache["path"]],
        kept=used["actions/upload-artifact"]["path"].split(),
        junit=None,
    )


def read_gitlab() -> Recipe:
    job = read("gitlab.yml")["judge"]
    return Recipe(
        environment=job["variables"],
        commands=[*job["before_script"], *job["script"]],
        cache_key=job["cache"]["key"],
        cache_paths=job["cache"]["paths"],
        kept=[*job["artifacts"]["paths"], job["artifacts"]["reports"]["junit"]],
        junit=job["artifacts"]["reports"]["junit"],
    )


READERS: Final = {"github": read_github, "gitlab": read_gitlab}


@pytest.fixture(params=READERS)
def recipe(request: pytest.FixtureRequest) -> Recipe:
    return READERS[request.param]()


def expand(text: str, values: dict[str, str]) -> str:
    """`text` with the server's variables in it: `$NAME` of GitLab, `${{ env.NAME }}` of GitHub."""
    text = re.sub(r"\$\{\{ (?:env\.)?([\w.]+) \}\}", lambda found: values[found[1]], text)
    return re.sub(r"\$(\w+)", lambda found: values.get(found[1], found[0]), text)


def output_of(command: str, option: str) -> str:
    words = shlex.split(command)
    return words[words.index(option) + 1]


def test_every_recipe_is_read_here() -> None:
    assert sorted(path.stem for path in FOLDER.iterdir()) == sorted(READERS)


def test_the_model_is_the_one_of_the_catalogue(recipe: Recipe) -> None:
    catalogue = json.loads((ROOT / "src/judge_local/models/catalog.json").read_text(encoding="utf-8"))
    hashes = {model["alias"]: model.get("sha256") for model in catalogue["models"]}

    assert recipe.environment["MODEL_SHA256"] == hashes[recipe.environment["JUDGE_LOCAL_MODEL"]]


def test_the_cache_is_keyed_by_the_hash_and_holds_the_models(recipe: Recipe) -> None:
    values = {**recipe.environment, "github.workspace": "/checkout", "CI_PROJECT_DIR": "/checkout"}

    assert expand(recipe.cache_key, values) == f"judge-local-model-{values['MODEL_SHA256']}"
    assert [f"/checkout/{path}" for path in recipe.cache_paths] == [
        expand(values["JUDGE_LOCAL_MODELS_DIR"], values)
    ]


def test_the_model_is_pulled_before_it_judges(recipe: Recipe) -> None:
    install, pull, batch = recipe.commands

    assert install == INSTALL
    assert pull.startswith("judge-local pull ")
    assert batch.startswith("judge-local batch ")


def test_what_is_kept_is_what_is_written(recipe: Recipe) -> None:
    batch = recipe.commands[-1]
    written = [output_of(batch, option) for option in ("-o", "--junit", "--sarif") if option in batch]

    assert recipe.kept == written
    assert recipe.junit in (None, output_of(batch, "--junit"))


def test_the_rows_are_there(recipe: Recipe) -> None:
    rows = ROOT / recipe.environment["ROWS"]

    for line in rows.read_text(encoding="utf-8").splitlines():
        assert (rows.parent / json.loads(line)["subject_file"]).is_file()


@pytest.mark.live
@pytest.mark.timeout(400)
def test_the_commands_run(recipe: Recipe, tmp_path: Path, live_model: Path) -> None:
    """Their cache is restored: `.models` holds the weights, so `pull` finds what it would fetch."""
    checkout = tmp_path / "checkout"
    shutil.copytree(ROOT / "examples", checkout / "examples")
    (checkout / ".models").symlink_to(os.environ["JUDGE_LOCAL_MODELS_DIR"])
    command = tmp_path / "bin" / "judge-local"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m judge_local "$@"\n', encoding="utf-8")
    command.chmod(0o755)
    server = {"github.workspace": str(checkout), "CI_PROJECT_DIR": str(checkout)}
    environment = {
        "PATH": f"{command.parent}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "PYTHONPATH": str(ROOT / "src"),
        "JUDGE_LOCAL_RUNS": "1",
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md"),
        **{name: expand(value, server) for name, value in recipe.environment.items()},
    }
    for line in recipe.commands:
        if line == INSTALL:
            continue
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", line],
            cwd=checkout,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=380,
            check=False,
        )
        assert (line, done.returncode, done.stderr if done.returncode else "") == (line, 0, "")
        if "--github" in line:
            assert "::notice title=judge-local::gate passed: " in done.stdout
            assert (
                Path(environment["GITHUB_STEP_SUMMARY"])
                .read_text("utf-8")
                .startswith("### judge-local: passed")
            )

    for kept in recipe.kept:
        assert (checkout / kept).is_file()
    (suite,) = junitparser.JUnitXml.fromfile(str(checkout / "junit.xml"))
    rows = (checkout / recipe.environment["ROWS"]).read_text(encoding="utf-8").splitlines()
    assert suite.tests == len(rows)
    assert suite.errors == 0
