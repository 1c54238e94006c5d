"""`scripts/score_grammar.py`: what it says of a case, and what it says of public schemas where they are at hand."""

import json

import pytest

from conftest import load_script


@pytest.fixture(scope="module")
def scores():
    return load_script("score_grammar")


@pytest.mark.parametrize(
    ("schema", "tests", "outcomes"),
    [
        ({"type": "integer"}, [(1, True), ("a", False)], ("right", "right")),
        ({"type": "integer"}, [(1, False)], ("unsound", "unsound")),
        ({"type": "integer"}, [("a", True)], ("over-constrained", "over-constrained")),
        ({"properties": {"a": {}, "b": {}}}, [({"b": 1, "a": 2}, True)], ("over-constrained", "right")),
        ({"type": "string", "pattern": "(?=a)"}, [("a", True)], ("refused", "refused")),
    ],
)
def test_each_outcome(scores, schema, tests, outcomes):
    found = scores.score(schema, [{"data": data, "valid": valid} for data, valid in tests], None)

    assert outcomes == (found.outcome, found.rekeyed)


def test_what_the_validator_is_left_with_counts_as_checked(scores):
    schema = {"type": "array", "uniqueItems": True}
    tests = [{"data": [1, 2], "valid": True}, {"data": [1, 1], "valid": False}]

    assert scores.score(schema, tests, None).outcome == "refused"
    assert scores.score(schema, tests, ()).outcome == "right"
    assert scores.score(schema, tests, ("uniqueItems",)).outcome == "right"


def test_options_of_the_compiler_are_handed_on(scores):
    schema = {"properties": {"a": {}, "b": {"type": "null"}}}
    tests = [{"data": {"b": None, "a": 2}, "valid": True}]

    assert scores.score(schema, tests, None).outcome == "over-constrained"
    assert scores.score(schema, tests, None, {"property_order": "any"}).outcome == "right"


def test_a_folder_is_read(scores, tmp_path):
    case = {"description": "d", "schema": {"type": "null"}, "tests": [{"data": None, "valid": True}]}
    (tmp_path / "one.json").write_text(json.dumps(case))
    (tmp_path / "two.json").write_text(json.dumps([case, case]))

    assert [name for name, _, _ in scores.cases(tmp_path)] == ["one.json", "two.json#0 d", "two.json#1 d"]


def test_public_schemas(scores, shared):
    """No unsound schema, and most of them fully right."""
    folder = shared / "data" / "grammar" / "real-world"
    found = [scores.score(schema, tests, None) for _, schema, tests in scores.cases(folder)]
    outcomes = [each.outcome for each in found]

    assert outcomes.count("unsound") == 0
    assert 0.9 * len(found) <= outcomes.count("right")
    assert all("/" in each.detail for each in found if each.outcome == "refused")
