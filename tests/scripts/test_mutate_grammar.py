"""The check of the tests by mutations: a change is really made, wherever it stands, and a test that fails kills it."""

import json
import subprocess
import sys

import pytest

TRY = """
import sys
sys.path.insert(0, "scripts")
import mutate_grammar as check
check._prepare()
wanted = sys.argv[1]
job = next(each for each in check.mutations("strings") if wanted in each.what)
code = check.code_of(job) if sys.argv[2] == "changed" else None
print("\\n", *check.outcome(check._afresh("strings", code, ["test_strings.py"]), 120), sep="|")
"""


@pytest.mark.parametrize("wanted", ["_ESCAPED: Final", "held = [point"])
@pytest.mark.parametrize("changed", [True, False])
def test_a_change_inside_or_outside_of_a_function_is_made(root, wanted, changed):
    run = subprocess.run(
        [sys.executable, "-c", TRY, wanted, "changed" if changed else "as it is"],
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
    )
    _, result, test = run.stdout.splitlines()[-1].split("|")

    assert result == ("killed" if changed else "survived")
    assert test.startswith("tests/grammar/test_strings.py::") == changed


def test_every_reviewed_change_has_a_reason(root):
    reviewed = json.loads((root / "tests" / "data" / "grammar-survivors.json").read_text(encoding="utf-8"))

    assert all(len(reason) > 20 for reason in reviewed.values())
