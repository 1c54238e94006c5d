"""GitHub: annotations as the runner reads them, and Markdown as a Markdown reader reads it."""

import random
import re
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from judge_local.counts import Counts
from judge_local.printable import clean, one_line
from judge_local.report.gate import FailOn, Gate, Outcome, decide
from judge_local.report.github import (
    CELL_CHARS,
    MESSAGE_CHARS,
    SUMMARY_BYTES,
    TITLE_CHARS,
    Annotations,
    Summary,
    command,
    markdown,
)
from made_results import HEADER, KINDS, result

ANY_TEXT = st.text(st.characters(), max_size=60)
PASSED = Outcome(code=0, reasons=("all is well",))
HOSTILE = "::error::x\n::add-mask::y\r\n%0A::stop-commands::z,title=w"


def read_command(line: str) -> tuple[str, dict[str, str], str]:
    """One line as the runner takes it apart: the name, the properties, the data, each with its escapes undone."""
    assert line.splitlines() == [line]
    found = re.fullmatch(r"::(?P<name>[a-z-]+)(?: (?P<properties>.*?))?::(?P<data>.*)", line)
    assert found

    def undo(text: str, escapes: Mapping[str, str]) -> str:
        return re.sub(r"%(?:0D|0A|3A|2C|25)", lambda escape: escapes.get(escape[0], escape[0]), text)

    of_data = {"%0D": "\r", "%0A": "\n", "%25": "%"}
    of_property = {**of_data, "%3A": ":", "%2C": ","}
    properties = dict(pair.split("=", 1) for pair in (found["properties"] or "").split(",") if pair)
    return (
        found["name"],
        {key: undo(value, of_property) for key, value in properties.items()},
        undo(found["data"], of_data),
    )


def annotated(results, fail_on=FailOn.FAIL, outcome=PASSED):
    annotations = Annotations(fail_on)
    for one in results:
        annotations.add(one)
    return [read_command(line) for line in annotations.lines(outcome)]


def test_each_kind_of_row():
    rows = [result(row, kind, subject_file="docs/a.md") for row, kind in enumerate(KINDS, 1)]

    assert annotated(rows) == [
        (
            "error",
            {"file": "docs/a.md", "title": "auto-fail: r2"},
            "Claim 2.\n0 pass, 1 fail, 1 partial, 0 errored; mean confidence 0.9. fail: r",
        ),
        ("error", {"file": "docs/a.md", "title": "not judged: r4"}, "Claim 4.\nline 4: r"),
        (
            "warning",
            {"file": "docs/a.md", "title": "human-review: r3"},
            "Claim 3.\n1 pass, 1 fail, 0 partial, 0 errored; mean confidence 0.9. fail: r",
        ),
        ("notice", {"title": "judge-local"}, "gate passed: all is well"),
    ]


@pytest.mark.parametrize(
    ("fail_on", "errors"),
    [
        ("never", set()),
        ("error", {"not judged"}),
        ("fail", {"not judged", "auto-fail"}),
        ("review", {"not judged", "auto-fail", "human-review"}),
    ],
)
def test_what_stops_the_gate_is_an_error_and_the_rest_a_warning(fail_on, errors):
    rows = [result(row, kind) for row, kind in enumerate(KINDS, 1)]
    found = annotated(rows, FailOn(fail_on))
    kinds = {properties["title"].partition(":")[0]: name for name, properties, _ in found[:-1]}

    assert kinds == {
        kind: "error" if kind in errors else "warning" for kind in ("not judged", "auto-fail", "human-review")
    }


@pytest.mark.parametrize("rows", [0, 1, 9, 10, 11, 500])
def test_at_most_ten_of_a_kind(rows):
    """The first rows in their own order, whatever the order of the results; the tenth says how many more there are."""
    results = [result(row, "auto-fail") for row in range(1, rows + 1)]
    random.Random(7).shuffle(results)
    errors = [(properties, data) for name, properties, data in annotated(results) if name == "error"]

    assert len(errors) == min(rows, 10)
    shown = rows if rows <= 10 else 9
    assert [properties["title"] for properties, _ in errors[:shown]] == [
        f"auto-fail: r{row}" for row in range(1, shown + 1)
    ]
    if rows > 10:
        assert errors[-1][1].startswith(f"{rows - 9} more rows")


@settings(deadline=None)
@given(claim=ANY_TEXT, text=ANY_TEXT, name=ANY_TEXT, file=ANY_TEXT, kind=st.sampled_from(KINDS[1:]))
def test_any_text_survives_in_one_command(claim, text, name, file, kind):
    found = annotated([result(1, kind, text=text, id=name, claim=claim, subject_file=file)])
    (_, properties, data), _ = found
    first, _, why = data.partition("\n")

    assert first == one_line(claim, MESSAGE_CHARS)
    assert one_line(text, 500) in why
    # Which kind it is called is another test's; the title is cut as a whole, escapes counted as they are written.
    assert properties["title"] == one_line(f"{properties['title'].partition(':')[0]}: {name}", TITLE_CHARS)
    assert properties.get("file", "") == clean(file.replace("\r\n", "\n"))


def test_a_claim_cannot_give_the_runner_orders():
    (line, *_) = list(_lines(result(1, "auto-fail", claim=HOSTILE, id=HOSTILE, subject_file=HOSTILE)))

    assert line.count("\n") == line.count("\r") == 0
    name, properties, data = read_command(line)
    assert name == "error"
    assert set(properties) == {"file", "title"}
    assert data.startswith(one_line(HOSTILE, MESSAGE_CHARS))


def _lines(one):
    annotations = Annotations(FailOn.FAIL)
    annotations.add(one)
    return annotations.lines(PASSED)


@settings(deadline=None)
@given(ANY_TEXT)
def test_messages_keep_their_line_ends(text):
    assert read_command(command("notice", text, {}))[2] == clean(text.replace("\r\n", "\n"))


# --- the summary ------------------------------------------------------------------------------------------------------


def summed(results, *, fail_on=FailOn.FAIL, room=SUMMARY_BYTES) -> str:
    counts = Counts.of(results)
    summary = Summary(HEADER, counts, decide(Gate(fail_on=fail_on), counts), room=room)
    for one in results:
        summary.add(one)
    return summary.text()


def tables(text: str) -> list[list[list[str]]]:
    """The tables of `text` as a Markdown reader sees them: rows of cells, each cell as plain text."""
    found: list[list[list[str]]] = []
    cell = False
    for token in MarkdownIt("commonmark", {"linkify": False}).enable(["table", "strikethrough"]).parse(text):
        if token.type == "table_open":
            found.append([])
        elif token.type == "tr_open":
            found[-1].append([])
        elif token.type in ("th_open", "td_open"):
            cell = True
        elif token.type == "inline" and cell:
            assert {child.type for child in token.children} <= {"text", "text_special"}, token.content
            found[-1][-1].append("".join(child.content for child in token.children))
            cell = False
    return found


def test_the_tables():
    rows = [result(row, kind, label="pass" if row < 4 else None) for row, kind in enumerate(KINDS, 1)]
    text = summed(rows)
    kinds, labels, listed = tables(text)

    assert text.startswith("### judge-local: failed\n\n* 1 of 4 rows could not be judged (--fail-on fail)\n")
    assert kinds[1:] == [
        ["auto-pass", "1", "25.0 %"],
        ["auto-fail", "1", "25.0 %"],
        ["human-review", "1", "25.0 %"],
        ["not judged", "1", "25.0 %"],
        ["all", "4", ""],
    ]
    assert labels[1:] == [["pass", "1", "2", "0", "1", "1", "1"]]
    assert [row[:4] for row in listed[1:]] == [
        ["4", "r4", "not judged", "Claim 4."],
        ["2", "r2", "auto-fail", "Claim 2."],
        ["3", "r3", "human-review", "Claim 3."],
    ]


@settings(deadline=None)
@given(claim=ANY_TEXT, text=ANY_TEXT, name=ANY_TEXT, label=ANY_TEXT)
def test_any_text_stays_in_its_cell(claim, text, name, label):
    _, labels, listed = tables(summed([result(1, "auto-fail", text=text, id=name, claim=claim, label=label)]))

    assert len(listed) == 2
    assert listed[1][:4] == ["1", one_line(name, CELL_CHARS), "auto-fail", one_line(claim, CELL_CHARS)]
    assert labels[1][0] == one_line(label, CELL_CHARS)


@pytest.mark.parametrize(
    "text",
    [
        "[here](http://evil.example)",
        "<img src=x>",
        "@everyone #12 :tada:",
        "a|b",
        "`code` **bold** ~~no~~",
        "www.evil.example $x$ \\",
    ],
)
def test_no_markup_gets_through(text):
    cell = markdown(text)

    assert not re.search(r"[\[\]<>@:|`*~$\\]|#(?!\d+;)|&(?!#\d+;)|www\.", cell)
    assert tables(f"| a |\n| --- |\n| {cell} |\n") == [[["a"], [text]]]


@pytest.mark.parametrize("claim", ["x" * 60, "|" * 5000, "漢" * 5000])
def test_a_huge_summary_stays_below_1_mib(claim):
    """And says how much it leaves out; what was not judged and what failed comes before what needs a reader."""
    rows = [result(row, KINDS[1 + row % 3], claim=claim, text=claim) for row in range(1, 9001)]
    text = summed(rows)
    shown = tables(text)[-1][1:]

    assert len(text.encode()) < 1024 * 1024
    assert len(text.encode()) > 1024 * 1024 - 20_000
    assert text.endswith(
        f"\n{len(shown):,} of 9,000 rows are shown: a summary may hold no more than 1 MiB.\n"
    )
    order = ["not judged", "auto-fail", "human-review"]
    assert [row[2] for row in shown] == sorted((row[2] for row in shown), key=order.index)


def test_what_is_there_already_counts():
    rows = [result(row, "auto-fail") for row in range(1, 200)]
    whole = summed(rows)

    for room in (0, 100, 500, 1000, 2000, len(whole.encode()) + 200):
        assert len(summed(rows, room=room).encode()) <= room
    assert summed(rows, room=len(whole.encode()) + 200) == whole


def test_many_labels_fit_too():
    rows = [result(row, "auto-fail", label="漢" * 400 + str(row)) for row in range(1, 200)]

    assert len(summed(rows).encode()) < 1024 * 1024
