"""SARIF 2.1.0: findings about files, for code scanning and editors.

* Only rows whose subject is a file have a place to point at; the others are counted, and the report says so.
* The same results give the same bytes, in whatever order they were made: there is no clock in it, and findings stand in
  the order of the rows.
* A finding is recognised again by its file, its claim and its reference, not by its row's number.
"""

from __future__ import annotations

import heapq
import json
import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import IO, Any, Final
from urllib.parse import quote

from judge_local.cache import build_cache_key
from judge_local.printable import clean, one_line
from judge_local.report.decision import NOT_JUDGED, kind_of, why
from judge_local.results import Result, ResultsHeader
from judge_local.zones import Zone

MOST_FINDINGS: Final = 25_000
"""GitHub refuses a run with more."""
MESSAGE_CHARS: Final = 1000
SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"

_RULES: Final[Mapping[str, tuple[str, str, str]]] = {
    "not-judged": (
        "error",
        "A claim could not be judged",
        "No run gave a verdict on the claim about this file.",
    ),
    Zone.AUTO_FAIL.value: (
        "error",
        "A claim about this file does not hold",
        "All runs agree, with enough confidence, that the claim does not hold.",
    ),
    # The kind `review` would be the word for it, but it allows no level, and code scanning shows what has one.
    Zone.HUMAN_REVIEW.value: (
        "warning",
        "A person must judge a claim about this file",
        "The runs disagree, are not confident enough, or some of them failed.",
    ),
}
_RULE_IDS: Final = tuple(_RULES)
_PLACEHOLDER: Final = re.compile(r"\{\d+\}")


class SarifReport:
    """Collects the findings of one results file.

    Args:
        header: what the results were made with.
        version: of judge-local.
    """

    def __init__(self, header: ResultsHeader, version: str) -> None:
        self._header, self._version = header, version
        # The findings that come first, the last of them on top: a heap of (-rule, -row, number, finding). So a million
        # rows take no memory. The number, of the finding, keeps two of one row apart.
        self._first: list[tuple[int, int, int, dict[str, Any]]] = []
        self._found = self._elsewhere = self._errors = 0

    def add(self, result: Result) -> None:
        """Take in `result`."""
        kind = kind_of(result)
        if kind is None:
            return
        self._errors += kind == NOT_JUDGED
        if result.subject_file is None:
            self._elsewhere += 1
            return
        self._found += 1
        rule = _RULE_IDS.index(kind.replace(" ", "-"))
        place = (-rule, -result.row, -self._found)
        if len(self._first) < MOST_FINDINGS:
            heapq.heappush(self._first, (*place, self._finding(result, rule)))
        elif place > self._first[0][:3]:
            heapq.heapreplace(self._first, (*place, self._finding(result, rule)))

    def write(self, file: IO[str]) -> None:
        """Write the report of everything taken in."""
        notes = []
        if self._found > len(self._first):
            notes.append(
                f"{self._found - len(self._first)} more findings are left out: {MOST_FINDINGS} is the most."
            )
        if self._elsewhere:
            notes.append(f"{self._elsewhere} rows that need attention are about no file and are left out.")
        invocation: dict[str, Any] = {"executionSuccessful": not self._errors}
        if notes:
            invocation["toolExecutionNotifications"] = [
                {"level": "note", "message": {"text": note}} for note in notes
            ]
        run = {
            "tool": {
                "driver": {
                    "name": "judge-local",
                    "version": self._version,
                    "rules": [
                        {
                            "id": rule,
                            "shortDescription": {"text": short},
                            "fullDescription": {"text": full},
                            "defaultConfiguration": {"level": level},
                        }
                        for rule, (level, short, full) in _RULES.items()
                    ],
                }
            },
            "invocations": [invocation],
            "results": [finding for *_, finding in sorted(self._first, key=_in_row_order)],
            "properties": {
                "model": clean(self._header.model),
                **({"modelSha256": self._header.model_sha256} if self._header.model_sha256 else {}),
                "schemaSha256": clean(self._header.schema_sha256),
                "promptVersion": clean(self._header.prompt_version),
            },
        }
        json.dump({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, file, indent=2)
        file.write("\n")

    def _finding(self, result: Result, rule: int) -> dict[str, Any]:
        assert result.subject_file is not None
        decision, name = result.decision, _RULE_IDS[rule]
        parts = (name, result.subject_file, result.claim, result.reference or "")
        identity = build_cache_key([clean(part) for part in parts])
        text = f"{one_line(result.claim, MESSAGE_CHARS)} ({why(result, limit=MESSAGE_CHARS)})"
        return {
            "ruleId": name,
            "ruleIndex": rule,
            "level": _RULES[name][0],
            "message": {"text": message_text(text)},
            "locations": [
                {
                    "physicalLocation": {
                        "artifactLocation": {"uri": file_uri(result.subject_file)},
                        "region": {"startLine": 1},
                    }
                }
            ],
            "partialFingerprints": {
                "judgeLocal/v1": identity,
                # Code scanning knows this one only. Left out, two claims about one file would be one alert.
                "primaryLocationLineHash": f"{identity[:16]}:1",
            },
            "properties": {
                "id": one_line(result.id, MESSAGE_CHARS),
                "row": result.row,
                "agreement": decision.agreement,
                "confidence": decision.mean_confidence,
                "certified": result.certified,
            },
        }


def _in_row_order(entry: tuple[int, int, int, dict[str, Any]]) -> tuple[int, int]:
    return -entry[1], -entry[2]


def file_uri(path: str) -> str:
    """`path` as a URI: relative to the checkout where the path is relative.

    >>> file_uri("docs/a b.md"), file_uri("/srv/a.md")
    ('docs/a%20b.md', 'file:///srv/a.md')
    """
    # A name that is not UTF-8 holds lone surrogates; their bytes are kept, so that no two names share a URI.
    uri = quote(PurePosixPath(path).as_posix(), safe="/", errors="surrogatepass")
    return f"file://{uri}" if uri.startswith("/") else uri


def message_text(text: str) -> str:
    r"""`text` as a SARIF message that shows it: neither a placeholder nor a link.

    >>> message_text("{0} and [here](http://a.example)")
    '{{0}} and \\[here\\](http://a.example)'
    """
    # The standard has braces and brackets escaped always; but readers that do not know that show the escapes, so only a
    # text that could be taken for more than text gets them.
    if _PLACEHOLDER.search(text):
        text = text.replace("{", "{{").replace("}", "}}")
    return re.sub(r"[\\\[\]]", r"\\\g<0>", text) if "](" in text else text
