"""JUnit: read by three others (junitparser, the schema that pytest checks its own files with, the standard library)."""

import io
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest
import xmlschema
from hypothesis import given, settings
from hypothesis import strategies as st
from junitparser import xunit2

from judge_local.counts import Counts
from judge_local.printable import clean, one_line
from judge_local.report.gate import FailOn
from judge_local.report.junit import NAME_CHARS, JUnitReport, class_name
from made_results import HEADER, KINDS, decided, result, run, zone_of

XSD = Path(__file__).parents[1] / "data" / "formats" / "junit-10.xsd"
SCHEMA = xmlschema.XMLSchema(XSD)
ANY_TEXT = st.text(st.characters(), max_size=60)
ROWS = [result(row, kind) for row, kind in enumerate(KINDS, 1)]


def written(results, fail_on=FailOn.FAIL, header=HEADER, strict=False) -> str:
    file = io.StringIO()
    report = JUnitReport(file, header, Counts.of(results), fail_on, strict=strict)
    for one in results:
        report.add(one)
    report.finish()
    return file.getvalue()


def read(text: str) -> list[xunit2.TestCase]:
    (suite,) = xunit2.JUnitXml.fromstring(text.encode())
    return list(suite)


def without_properties_of_cases(text: str) -> str:
    return re.sub(r"(<testcase [^>]*>\n)<properties>.*?</properties>\n", r"\1", text, flags=re.DOTALL)


def test_each_kind_of_row_as_junitparser_reads_it():
    cases = read(written(ROWS))

    assert [case.name for case in cases] == ["r1: Claim 1.", "r2: Claim 2.", "r3: Claim 3.", "r4: Claim 4."]
    assert [[type(outcome).__name__ for outcome in case.result] for case in cases] == [
        [],
        ["Failure"],
        ["Skipped"],
        ["Error"],
    ]
    assert [case.time for case in cases] == [0.5, 0.5, 0.5, 0.0]


def test_a_review_is_a_failure_where_it_stops_the_gate():
    review = read(written(ROWS, FailOn.REVIEW))[2]

    assert [(type(one).__name__, one.type) for one in review.result] == [("Failure", "human-review")]


@pytest.mark.parametrize("fail_on", FailOn)
@pytest.mark.parametrize("strict", [False, True])
def test_the_totals_are_those_of_the_cases(fail_on, strict):
    rows = [result(row, kind) for row, kind in enumerate([*KINDS, *KINDS, "human-review", "error"], 1)]
    root = ET.fromstring(written(rows, fail_on, strict=strict))
    (suite,) = root
    found = {
        "tests": len(suite.findall("testcase")),
        "failures": len(suite.findall("testcase/failure")),
        "errors": len(suite.findall("testcase/error")),
        "skipped": len(suite.findall("testcase/skipped")),
    }

    assert found == {name: int(suite.attrib[name]) for name in found}
    assert {name: int(root.attrib[name]) for name in ("tests", "failures", "errors")}.items() <= found.items()
    assert found["tests"] == 10
    assert float(suite.attrib["time"]) == sum(
        float(case.attrib["time"]) for case in suite.findall("testcase")
    )


def test_properties():
    review = read(written(ROWS))[2]

    assert {each.name: each.value for each in review.properties()} == {
        "zone": "human-review",
        "agreement": "0.5",
        "confidence": "0.9",
        "certified": "false",
        "row": "3",
        "modelSha256": "ab" * 32,
    }


def test_suite_properties_say_what_it_was_made_with():
    (suite,) = xunit2.JUnitXml.fromstring(written(ROWS).encode())

    assert {each.name: each.value for each in suite.properties()} == {
        "model": "mock:mock-model",
        "modelSha256": "ab" * 32,
        "schemaSha256": "cd" * 32,
        "promptVersion": "judge-local:prompt:2",
    }


@pytest.mark.parametrize("fail_on", FailOn)
def test_pytests_schema_reads_the_strict_file(fail_on):
    SCHEMA.validate(written(ROWS, fail_on, strict=True))


def test_pytests_schema_reads_all_but_the_properties_of_cases():
    """As it reads all but those of what pytest writes: `test_pytest_departs_from_its_schema_in_the_same_way`."""
    text = written(ROWS)

    assert "<properties>" in text.partition("<testcase")[2]
    SCHEMA.validate(without_properties_of_cases(text))
    assert [(error.elem.tag, error.reason[:40]) for error in SCHEMA.iter_errors(text)] == [
        ("testcase", "Unexpected child with tag 'properties' a")
    ] * len(ROWS)


def test_pytest_departs_from_its_schema_in_the_same_way(pytester_file):
    text = pytester_file("def test_a(record_property):\n    record_property('zone', 'auto-pass')\n")

    assert {error.elem.tag for error in SCHEMA.iter_errors(text)} == {"testcase"}


@pytest.fixture
def pytester_file(tmp_path):
    """What pytest's own `--junitxml` writes of some tests."""

    def write(code: str) -> str:
        (tmp_path / "test_it.py").write_text(code)
        command = [sys.executable, "-m", "pytest", "-q", "--junitxml=it.xml", "-p", "no:cacheprovider"]
        subprocess.run([*command, "test_it.py"], cwd=tmp_path, check=True, capture_output=True)
        return (tmp_path / "it.xml").read_text(encoding="utf-8")

    return write


def test_strict_properties_stand_in_the_output():
    case = read(written(ROWS, strict=True))[2]

    assert list(case.properties()) == []
    assert case.system_out.splitlines()[:2] == [
        "[[PROPERTY|zone=human-review]]",
        "[[PROPERTY|agreement=0.5]]",
    ]


def test_the_body_has_votes_quotes_and_reasons():
    decision = decided(
        run("fail", observed='It says "nine".', reasoning="Nine is not ten."), run("partial", reasoning="Hm.")
    )
    (case,) = read(written([result(1, "auto-fail", decision=decision)]))
    (failure,) = case.result

    assert failure.message == (
        "0 pass, 1 fail, 1 partial, 0 errored; mean confidence 0.9. fail: Nine is not ten."
    )
    for part in ("0 pass, 1 fail, 1 partial, 0 errored", 'It says "nine".', "Nine is not ten.", "Hm."):
        assert part in failure.text


def test_a_pass_shows_its_runs_too():
    assert "observed    r" in read(written(ROWS))[0].system_out


def test_an_error_says_which():
    failed = result(1, "auto-pass", decision=decided(run("error", reasoning="model: it died.")))
    ours, bad = read(written([failed, result(2, "error", text="claim is missing")]))

    assert (ours.result[0].type, ours.result[0].message) == ("ProviderError", "model: it died.")
    assert (bad.result[0].type, bad.result[0].message) == ("error", "line 2: claim is missing")


@settings(deadline=None)
@given(claim=ANY_TEXT, text=ANY_TEXT, name=ANY_TEXT, file=st.none() | ANY_TEXT, kind=st.sampled_from(KINDS))
def test_any_text_survives(claim, text, name, file, kind):
    """Well-formed, valid, and what was said is all there, with what XML forbids shown as an escape."""
    one = result(1, kind, text=text, id=name, claim=claim, subject_file=file)
    document = written([one], strict=True)
    SCHEMA.validate(document)
    (case,) = read(document)
    body = (case.system_out if kind == "auto-pass" else case.result[0].text) or ""

    assert case.name == one_line(f"{name}: {claim}", NAME_CHARS)
    assert clean(claim).replace("\n", "\\n").rstrip() in body
    assert clean(text).replace("\n", "\\n").rstrip() in body
    assert zone_of(kind).value in case.system_out


@settings(deadline=None)
@given(model=ANY_TEXT)
def test_any_model_survives(model):
    (suite,) = xunit2.JUnitXml.fromstring(written(ROWS, header=replace(HEADER, model=model)).encode())

    assert next(each.value for each in suite.properties() if each.name == "model") == clean(model)


@pytest.mark.parametrize(
    ("file", "name"),
    [
        (None, "judge-local"),
        ("a.md", "judge-local.a"),
        ("docs/guide.de.md", "judge-local.docs.guide.de"),
        ("../docs/a", "judge-local.docs.a"),
        ("/srv/a.txt", "judge-local.srv.a"),
        ("", "judge-local"),
    ],
)
def test_class_names(file, name):
    assert name == class_name(file)


def test_no_rows():
    (suite,) = xunit2.JUnitXml.fromstring(written([]).encode())

    assert (suite.tests, list(suite)) == (0, [])
