"""What conftest promises: skips that count as failures where nothing may be skipped, and tests without settings."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[1]
SKIPPED: Final = """
import pytest

@pytest.fixture
def no_rights():
    pytest.skip("no network namespaces here")

def test_in_a_fixture(no_rights): pass

@pytest.mark.skipif(True, reason="no tmpfs here")
def test_by_a_mark(): pass

def test_by_a_call():
    pytest.skip("no browser here")
"""
OPTIONAL: Final = """
def test_it(shared): pass
"""
LIVE: Final = """
def test_it(live_model): pass
"""


@pytest.fixture
def inner(tmp_path: Path) -> Path:
    """A folder whose tests run under a copy of conftest, far from any weights."""
    (tmp_path / "tests").mkdir()
    shutil.copy(ROOT / "tests" / "conftest.py", tmp_path / "tests")
    return tmp_path


def outcomes(inner: Path, text: str, **environment: str) -> str:
    """The summary of running `text` as a test file."""
    (inner / "tests" / "test_inner.py").write_text(text, encoding="utf-8")
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("JUDGE_LOCAL_", "PYTEST_"))
    }
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-rfEs",
            "-p",
            "no:cacheprovider",
            "--rootdir",
            inner,
            inner / "tests",
        ],
        cwd=inner,
        env={**kept, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout


def test_skips_are_skips_on_a_machine_of_ones_own(inner: Path) -> None:
    assert "3 skipped" in outcomes(inner, SKIPPED)


def test_skips_are_failures_where_nothing_may_be_skipped(inner: Path) -> None:
    report = outcomes(inner, SKIPPED, JUDGE_LOCAL_NO_SKIP="1")

    assert "2 failed, 1 error" in report or "1 failed, 2 errors" in report
    for reason in ("no network namespaces here", "no tmpfs here", "no browser here"):
        assert reason in report


def test_optional_material_may_always_be_missing(inner: Path) -> None:
    assert "1 skipped" in outcomes(inner, OPTIONAL, JUDGE_LOCAL_NO_SKIP="1")
    assert "1 passed" in outcomes(inner, OPTIONAL, JUDGE_LOCAL_MATERIAL=str(inner))


def test_without_weights_live_tests_skip_or_fail(inner: Path) -> None:
    assert "1 skipped" in outcomes(inner, LIVE)

    report = outcomes(inner, LIVE, JUDGE_LOCAL_REQUIRE_LIVE="1")
    assert "1 error" in report
    assert "judge-local pull smollm2-135m" in report


def test_no_test_sees_the_persons_settings() -> None:
    folder = os.environ["JUDGE_LOCAL_MODELS_DIR"]

    assert not Path(folder).exists()
    assert {name for name in os.environ if name.startswith("JUDGE_LOCAL_")} <= {
        "JUDGE_LOCAL_MODELS_DIR",
        "JUDGE_LOCAL_CACHE_DIR",
        "JUDGE_LOCAL_REQUIRE_LIVE",
        "JUDGE_LOCAL_NO_SKIP",
        "JUDGE_LOCAL_MATERIAL",
    }
