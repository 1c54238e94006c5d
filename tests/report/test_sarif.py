"""SARIF: valid under its schema, the same bytes for the same results, and findings that are recognised again."""

import io
import json
import random
import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from judge_local.printable import one_line
from judge_local.report import sarif
from judge_local.report.sarif import SarifReport, file_uri, message_text
from made_results import HEADER, KINDS, result

SCHEMA = json.loads(
    (Path(__file__).parents[1] / "data" / "formats" / "sarif-2.1.0-rtm.5.json").read_text("utf-8")
)
VALIDATOR = jsonschema.Draft4Validator(SCHEMA, format_checker=jsonschema.Draft4Validator.FORMAT_CHECKER)
ANY_TEXT = st.text(st.characters(), max_size=60)


def text_of(results) -> str:
    report = SarifReport(HEADER, "0.1.0")
    for one in results:
        report.add(one)
    file = io.StringIO()
    report.write(file)
    return file.getvalue()


def run_of(results):
    document = json.loads(text_of(results))
    VALIDATOR.validate(document)
    (run,) = document["runs"]
    return run


def rows(kinds=KINDS, **facts):
    return [result(row, kind, **{"subject_file": "docs/a.md", **facts}) for row, kind in enumerate(kinds, 1)]


def test_each_kind_of_row():
    run = run_of(rows())

    assert [(one["ruleId"], one["level"]) for one in run["results"]] == [
        ("auto-fail", "error"),
        ("human-review", "warning"),
        ("not-judged", "error"),
    ]
    assert [run["tool"]["driver"]["rules"][one["ruleIndex"]]["id"] for one in run["results"]] == [
        one["ruleId"] for one in run["results"]
    ]
    assert run["results"][0]["locations"] == [
        {
            "physicalLocation": {
                "artifactLocation": {"uri": "docs/a.md"},
                "region": {"startLine": 1},
            }
        }
    ]
    assert run["results"][0]["message"]["text"] == (
        "Claim 2. (0 pass, 1 fail, 1 partial, 0 errored; mean confidence 0.9. fail: r)"
    )
    assert run["properties"]["modelSha256"] == "ab" * 32
    assert run["invocations"][0]["executionSuccessful"] is False


def test_all_well_is_a_valid_report_too():
    run = run_of(rows(["auto-pass"]))

    assert run["results"] == []
    assert run["invocations"] == [{"executionSuccessful": True}]


def test_the_same_results_in_any_order_give_the_same_bytes():
    results = rows(KINDS * 20)
    shuffled = results.copy()
    random.Random(3).shuffle(shuffled)

    assert text_of(results) == text_of(shuffled)


def test_rows_about_no_file_are_counted():
    run = run_of([result(row, "auto-fail") for row in (1, 2)])

    assert run["results"] == []
    (note,) = run["invocations"][0]["toolExecutionNotifications"]
    assert note["message"]["text"].startswith("2 rows")


def test_more_than_code_scanning_takes_are_left_out_the_worst_kept(monkeypatch):
    monkeypatch.setattr(sarif, "MOST_FINDINGS", 5)
    run = run_of(rows(["human-review"] * 4 + ["auto-fail"] * 3 + ["error"]))

    assert [one["properties"]["row"] for one in run["results"]] == [1, 5, 6, 7, 8]
    (note,) = run["invocations"][0]["toolExecutionNotifications"]
    assert note["message"]["text"].startswith("3 more findings")


def test_two_results_of_one_row_are_two_findings():
    """A file that was put together by hand may have them."""
    assert len(run_of(rows(["auto-fail"]) * 2)["results"]) == 2


def fingerprint(**facts):
    (one,) = run_of(rows(["auto-fail"], **facts))["results"]
    return one["partialFingerprints"]


def test_a_finding_is_recognised_by_what_it_is_about():
    assert fingerprint() == fingerprint(id="other", label="fail")
    different = [
        fingerprint(),
        fingerprint(claim="x"),
        fingerprint(subject_file="b.md"),
        fingerprint(reference="r"),
    ]
    assert len({one["primaryLocationLineHash"] for one in different}) == 4
    assert len({one["judgeLocal/v1"] for one in different}) == 4


@settings(deadline=None)
@given(claim=ANY_TEXT, text=ANY_TEXT, name=ANY_TEXT, file=ANY_TEXT, kind=st.sampled_from(KINDS[1:]))
def test_any_text_survives(claim, text, name, file, kind):
    (one,) = run_of([result(1, kind, text=text, id=name, claim=claim, subject_file=file)])["results"]

    assert one["properties"]["id"] == one_line(name, 1000)
    assert one["message"]["text"].startswith(one_line(claim, 1000)) or set(claim) & set("{}[]\\")


@settings(deadline=None)
@given(st.text("ab10{}[]()\\", max_size=12))
def test_a_message_is_never_more_than_its_text(text):
    """Read by the rules of the standard, it shows the text, with no placeholder and no link in it."""
    message = message_text(text)
    shown = re.sub(r"\\([\\\[\]])", r"\1", message) if "](" in text else message
    braces = re.sub(r"\{\{|\}\}", "", message)

    assert not re.search(r"\{\d+\}", braces)
    assert not re.search(r"(?<!\\)(?:\\\\)*\]\(", message)
    if re.search(r"\{\d+\}", text):
        shown = shown.replace("{{", "{").replace("}}", "}")
    assert shown == text


@pytest.mark.parametrize(
    ("path", "uri"),
    [
        ("docs/a b.md", "docs/a%20b.md"),
        ("a:b#c?d%.md", "a%3Ab%23c%3Fd%25.md"),
        ("ü.md", "%C3%BC.md"),
        ("/srv/a.md", "file:///srv/a.md"),
        ("../a.md", "../a.md"),
    ],
)
def test_uris(path, uri):
    assert uri == file_uri(path)
    assert unquote(urlsplit(uri).path) == path


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("plain [1] {x}", "plain [1] {x}"),
        ("{0}", "{{0}}"),
        ("[a](http://b.example)", "\\[a\\](http://b.example)"),
        ("{{0}}", "{{{{0}}}}"),
    ],
)
def test_messages_are_text(text, message):
    assert message == message_text(text)
