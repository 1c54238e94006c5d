"""What every test may ask for: the tiny random model, the real small one, and a machine with no settings of its own.

* No test reads the person's own settings: `JUDGE_LOCAL_*` is cleared, and the models folder is an empty one.
* A test that needs what a machine may lack skips with the reason. `JUDGE_LOCAL_NO_SKIP=1` (set by `.ci/run`) turns such
  a skip into a failure, except where the reason begins with `OPTIONAL`: material that users do not have.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Generator
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import hypothesis
import pytest

ROOT: Final = Path(__file__).resolve().parents[1]
OPTIONAL: Final = "optional material:"
REQUIRE_LIVE: Final = os.environ.get("JUDGE_LOCAL_REQUIRE_LIVE") == "1"
NO_SKIP: Final = os.environ.get("JUDGE_LOCAL_NO_SKIP") == "1"
MODELS: Final = Path(os.environ.get("JUDGE_LOCAL_MODELS_DIR") or ROOT / "models").resolve()
"""Where the real weights are, read before the settings are cleared."""
LIVE_MODEL: Final = "smollm2-135m"
# What conftest itself reads stays; the rest are settings of the program under test.
KEPT: Final = {"JUDGE_LOCAL_REQUIRE_LIVE", "JUDGE_LOCAL_NO_SKIP", "JUDGE_LOCAL_MATERIAL"}


# An example may take long on a busy machine, and none of our tests is about time. The examples are the same each time, so
# that a commit which passes here passes elsewhere; `pytest -m hypothesis --hypothesis-profile search` looks for new ones.
hypothesis.settings.register_profile("same", deadline=None, derandomize=True)
hypothesis.settings.register_profile("search", deadline=None, max_examples=1000)
hypothesis.settings.load_profile("same")


def load_script(name: str) -> ModuleType:
    """Import `scripts/<name>.py`, which is in no package."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # Dataclasses look their module up.
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout."""
    return ROOT


@pytest.fixture(scope="session")
def make_tiny_model() -> ModuleType:
    """The script that writes random models, for tests that want another seed, template or vocabulary."""
    return load_script("make_tiny_model")


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory, make_tiny_model: ModuleType) -> Path:
    """A random-weight model of half a megabyte, named `tiny.gguf`. Do not write to it."""
    path: Path = make_tiny_model.write_tiny_model(tmp_path_factory.mktemp("tiny") / "tiny.gguf")
    return path


@pytest.fixture(scope="session")
def shared() -> Path:
    """A folder of measuring material that is no part of the project: `JUDGE_LOCAL_MATERIAL` names it."""
    named = os.environ.get("JUDGE_LOCAL_MATERIAL")
    if not named or not Path(named).is_dir():
        pytest.skip(f"{OPTIONAL} JUDGE_LOCAL_MATERIAL names no folder")
    return Path(named)


def find_live_model() -> Path | None:
    """The real weights on this disk, or None."""
    if not MODELS.is_dir():
        return None
    found = sorted(path for path in MODELS.rglob("*.gguf") if LIVE_MODEL in path.as_posix().lower())
    return found[0] if found else None


@pytest.fixture
def live_model(monkeypatch: pytest.MonkeyPatch) -> Path:
    """The first file of smollm2-135m; `JUDGE_LOCAL_MODELS_DIR` is the folder that holds it while the test runs."""
    path = find_live_model()
    if path is None:
        reason = f"{LIVE_MODEL} is not in {MODELS}: run scripts/test, or judge-local pull {LIVE_MODEL}"
        if REQUIRE_LIVE:
            pytest.fail(reason)
        pytest.skip(reason)
    monkeypatch.setenv("JUDGE_LOCAL_MODELS_DIR", str(MODELS))
    return path


@pytest.fixture(autouse=True)
def no_settings_of_ones_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> None:
    """Clear `JUDGE_LOCAL_*` and point the models folder at an empty one, unless the test asks for `live_model`."""
    for name in [name for name in os.environ if name.startswith("JUDGE_LOCAL_") and name not in KEPT]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("JUDGE_LOCAL_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "cache"))
    if "live_model" not in request.fixturenames:
        monkeypatch.setenv("JUDGE_LOCAL_MODELS_DIR", str(tmp_path_factory.getbasetemp() / "no-models"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Where nothing may be skipped, a skip is a failure that says why it would have been one."""
    report = yield
    if NO_SKIP and report.skipped and not hasattr(report, "wasxfail"):
        reason = skip_reason(report.longrepr)
        if OPTIONAL not in reason:
            report.outcome = "failed"
            report.longrepr = f"{item.nodeid}: skipped where nothing may be (JUDGE_LOCAL_NO_SKIP=1): {reason}"
    return report


def skip_reason(longrepr: Any) -> str:
    """The reason in a skipped report, which is a (file, line, reason) triple."""
    return str(longrepr[2]) if isinstance(longrepr, tuple) else str(longrepr)
