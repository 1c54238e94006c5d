"""JUnit XML: one test case for each row, for the build servers that show test results.

* An auto-fail is a `failure`, a human review is `skipped` (or a failure where reviews stop the gate), a row without any
  verdict is an `error`.
* A test case has `properties`, as pytest gives it; most readers know them. The schema of the Jenkins xUnit plugin, which
  refuses what departs from it, has them for suites only: where the file must keep to it, they stand in the output of the
  test case, as lines of the form `[[PROPERTY|name=value]]`.
* XML 1.0 cannot hold all text: what it forbids is shown as an escape. Nothing that is text gets lost.
"""

from __future__ import annotations

from io import TextIOBase
from pathlib import PurePath
from typing import Final
from xml.sax.saxutils import XMLGenerator
from xml.sax.xmlreader import AttributesImpl

from judge_local.counts import Counts
from judge_local.printable import clean, one_line
from judge_local.report.decision import decision_lines, plain, seconds_of, why
from judge_local.report.gate import FailOn
from judge_local.results import Result, ResultsHeader
from judge_local.zones import Zone

NAME_CHARS: Final = 200
"""A test case is named after its row's id and as much of the claim as fits."""
MESSAGE_CHARS: Final = 500
SUITE: Final = "judge-local"


class JUnitReport:
    """Writes the report of one results file, row by row.

    Args:
        file: where it goes, as UTF-8 text.
        header: what the results were made with.
        counts: of all results; the suite's totals come before its test cases.
        fail_on: what stops the gate; at `REVIEW`, a review is a failure.
        strict: whether the file must keep to the schema of the Jenkins xUnit plugin.
    """

    def __init__(
        self,
        file: TextIOBase,
        header: ResultsHeader,
        counts: Counts,
        fail_on: FailOn,
        *,
        strict: bool = False,
    ) -> None:
        self._strict = strict
        self._review_fails = fail_on.stops_at(FailOn.REVIEW)
        self._model_sha256 = header.model_sha256
        self._xml = XMLGenerator(file, encoding="utf-8", short_empty_elements=True)
        totals = {
            "name": SUITE,
            "tests": str(counts.results),
            "failures": str(counts.fails + (counts.reviews if self._review_fails else 0)),
            "errors": str(counts.errors),
            "time": f"{counts.milliseconds / 1000:.3f}",
        }
        self._xml.startDocument()
        self._open("testsuites", totals)
        self._open("testsuite", {**totals, "skipped": str(0 if self._review_fails else counts.reviews)})
        facts = {
            "model": header.model,
            "modelSha256": header.model_sha256,
            "schemaSha256": header.schema_sha256,
            "promptVersion": header.prompt_version,
            "shard": header.shard,
        }
        self._properties({name: fact for name, fact in facts.items() if fact is not None})

    def add(self, result: Result) -> None:
        """Write the test case of `result`."""
        decision = result.decision
        self._open(
            "testcase",
            {
                "classname": class_name(result.subject_file),
                "name": one_line(f"{result.id}: {result.claim}", NAME_CHARS),
                "time": f"{seconds_of(decision.runs):.3f}",
            },
        )
        facts = {
            "zone": decision.zone.value,
            "agreement": str(decision.agreement),
            "confidence": str(decision.mean_confidence),
            "certified": str(result.certified).lower(),
            "row": str(result.row),
        }
        if self._model_sha256 is not None:
            facts["modelSha256"] = self._model_sha256
        if not self._strict:
            self._properties(facts)
        body = "\n".join(plain(line) for line in decision_lines(result, seconds=seconds_of(decision.runs)))
        if result.fault is not None:
            kind = next((run.error_kind for run in decision.runs if run.error_kind), "error")
            self._leaf("error", body, {"type": kind, "message": why(result, limit=MESSAGE_CHARS)})
        elif decision.zone is not Zone.AUTO_PASS:
            fails = decision.zone is Zone.AUTO_FAIL or self._review_fails
            attributes = {"type": decision.zone.value, "message": why(result, limit=MESSAGE_CHARS)}
            self._leaf("failure" if fails else "skipped", body, attributes)
        output = [f"[[PROPERTY|{name}={value}]]" for name, value in facts.items()] if self._strict else []
        if result.fault is None and decision.zone is Zone.AUTO_PASS:
            output.append(body)
        if output:
            self._leaf("system-out", "\n".join(output), {})
        self._close("testcase")

    def finish(self) -> None:
        """Write what ends the document."""
        self._close("testsuite")
        self._close("testsuites")
        self._xml.endDocument()

    def _properties(self, facts: dict[str, str]) -> None:
        self._open("properties", {})
        for name, value in facts.items():
            self._leaf("property", "", {"name": name, "value": value})
        self._close("properties")

    def _leaf(self, tag: str, text: str, attributes: dict[str, str]) -> None:
        self._start(tag, attributes)
        self._xml.characters(clean(text))
        self._xml.endElement(tag)
        self._xml.ignorableWhitespace("\n")

    def _open(self, tag: str, attributes: dict[str, str]) -> None:
        self._start(tag, attributes)
        self._xml.ignorableWhitespace("\n")

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        self._xml.startElement(
            tag, AttributesImpl({name: clean(value) for name, value in attributes.items()})
        )

    def _close(self, tag: str) -> None:
        self._xml.endElement(tag)
        self._xml.ignorableWhitespace("\n")


def class_name(subject_file: str | None) -> str:
    """What stands for the class of a test: the subject's file in dots, as pytest has it, below the suite's name.

    >>> class_name("docs/guide.md")
    'judge-local.docs.guide'
    """
    if subject_file is None:
        return SUITE
    path = PurePath(subject_file)
    parts = [part for part in (*path.parent.parts, path.stem) if part not in ("/", ".", "..", "")]
    return one_line(".".join([SUITE, *parts]), NAME_CHARS)
