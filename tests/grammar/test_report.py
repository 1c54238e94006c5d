"""The report: a row for every keyword, and for everything that is narrowed."""

import json

from judge_local.grammar import Kind, compile_schema
from judge_local.grammar.report import Report, Row

SCHEMA = {
    "title": "a schema",
    "type": "object",
    "properties": {
        "n": {"type": "number", "minimum": 0, "maximum": 1, "x-unit": "km"},
        "s~/": {"type": "string", "pattern": "^a", "maxLength": 9000, "format": "slug"},
        "e": {"enum": ["a", "b"], "description": "one of two"},
        "gone": False,
    },
    "required": ["n"],
    "additionalProperties": False,
}


def test_every_keyword_has_a_row_and_what_is_narrowed_a_further_one():
    report = compile_schema(SCHEMA, checked=["pattern"]).report

    assert sorted(tuple(row) for row in report.rows()) == sorted(
        [
            ("", "title", "", "nobody", ""),
            ("", "type", "", "grammar", ""),
            ("", "properties", "", "grammar", ""),
            ("", "required", "", "grammar", ""),
            ("", "additionalProperties", "", "grammar", ""),
            ("", "properties", "", "grammar", "narrowed: keys in the order n, s~/, e"),
            ("/properties/n", "type", "/n", "grammar", ""),
            ("/properties/n", "minimum", "/n", "grammar", ""),
            ("/properties/n", "maximum", "/n", "grammar", ""),
            ("/properties/n", "x-unit", "/n", "nobody", "belongs to no vocabulary"),
            (
                *("/properties/n", "type", "/n", "grammar"),
                "narrowed: no exponent; digits before the point: at most 1; after it: at most 6",
            ),
            ("/properties/s~0~1", "type", "/s~0~1", "grammar", ""),
            (
                *("/properties/s~0~1", "pattern", "/s~0~1", "validator"),
                "left to the validator",
            ),
            ("/properties/s~0~1", "maxLength", "/s~0~1", "grammar", ""),
            ("/properties/s~0~1", "maxLength", "/s~0~1", "grammar", "narrowed: at most 4096 characters"),
            ("/properties/s~0~1", "format", "/s~0~1", "nobody", "a format that nobody checks"),
            (
                *("/properties/s~0~1", "type", "/s~0~1", "grammar"),
                "narrowed: each character has one spelling, and U+007F is left out",
            ),
            ("/properties/e", "enum", "/e", "grammar", "every value was checked when compiling"),
            ("/properties/e", "description", "/e", "nobody", ""),
            (
                "/properties/gone",
                "properties",
                "",
                "grammar",
                "pruned: 'gone' left out: `false` admits nothing",
            ),
        ]
    )


def test_the_lists_part_the_rows():
    report = compile_schema(SCHEMA, checked=["pattern"]).report
    lists = (report.enforced, report.annotations, report.narrowed, report.checked, report.pruned)

    assert all(lists)
    assert len(report.entries) == sum(map(len, lists)) == len(list(report.rows()))


def test_as_json():
    report = Report(
        "2020-12",
        (Row(Kind.ENFORCED, "", "type", ""), Row(Kind.CHECKED, "/properties/a", "pattern", "/a", "why")),
        ("a warning",),
    )

    assert json.loads(json.dumps(report.to_json())) == {
        "dialect": "2020-12",
        "enforced": [{"pointer": "", "keyword": "type", "place": ""}],
        "checked": [{"pointer": "/properties/a", "keyword": "pattern", "place": "/a", "detail": "why"}],
        "narrowed": [],
        "pruned": [],
        "annotations": [],
        "warnings": ["a warning"],
    }
