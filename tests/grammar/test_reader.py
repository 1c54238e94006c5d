"""Reading a schema: every keyword is enforced, noted or refused, and all faults are found at once."""

import json

import pytest

from judge_local.errors import (
    InvalidSchemaError,
    UnsatisfiableSchemaError,
    UnsupportedSchemaError,
    UsageError,
)
from judge_local.grammar import compile_schema


def closed(**properties):
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def faults_of(schema, **options):
    with pytest.raises(UnsupportedSchemaError) as caught:
        compile_schema(schema, **options)
    for fault in caught.value.faults:
        assert fault.keyword
        assert fault.reason
    return [(fault.pointer, fault.keyword) for fault in caught.value.faults]


# One schema for each keyword that cannot always be enforced, and the keyword that is named.
UNENFORCEABLE = [
    ("string", {"pattern": "^(?=a)"}, "pattern"),
    ("string", {"pattern": "^(a)\\1$"}, "pattern"),
    ("number", {"multipleOf": 2001}, "multipleOf"),
    ("array", {"uniqueItems": True}, "uniqueItems"),
    ("array", {"items": {"enum": list(range(9))}, "uniqueItems": True}, "uniqueItems"),
    ("object", {"patternProperties": {"(?!a)": {}}}, "patternProperties"),
    ("object", {"not": {"unevaluatedProperties": False}}, "unevaluatedProperties"),
    ("object", {"$ref": "https://example.invalid/s.json"}, "$ref"),
]


@pytest.mark.parametrize(("kind", "keywords", "named"), UNENFORCEABLE)
def test_what_cannot_be_enforced_is_named_with_its_place(kind, keywords, named):
    with pytest.raises(UnsupportedSchemaError) as caught:
        compile_schema(closed(a={"type": [kind, "null"], **keywords}))
    (fault,) = caught.value.faults

    assert fault.pointer.startswith("/properties/a")
    assert named == fault.keyword
    assert fault.value == json.dumps(keywords.get(named, False), separators=(",", ":"))[:80]
    assert fault.reason
    assert fault.hint


@pytest.mark.parametrize(("kind", "keywords", "named"), UNENFORCEABLE)
def test_what_cannot_be_enforced_may_be_left_to_the_validator(kind, keywords, named):
    schema = closed(a={"type": kind, **keywords})
    grammar = compile_schema(schema, checked=[*keywords, named])
    rows = [(row.pointer, row.keyword, row.place) for row in grammar.report.checked]

    assert set(keywords) - {"items"} <= {keyword for _, keyword, _ in rows}
    assert ("/properties/a", next(reversed(keywords)), "/a") in rows
    assert "validator" in {row.enforced_by for row in grammar.report.rows() if row.keyword in keywords}


@pytest.mark.parametrize(
    "keywords",
    [
        {"pattern": "(?=a)"},
        {"multipleOf": 2001},
        {"uniqueItems": True},
        {"patternProperties": {"(?!a)": {}}},
        {"minItems": 3},
        {"dependentRequired": {"a": ["b"]}},
    ],
)
def test_a_keyword_that_says_nothing_about_the_types_here_is_no_fault(keywords):
    grammar = compile_schema({"type": "boolean", **keywords})

    assert list(keywords) == [row.keyword for row in grammar.report.enforced if "says nothing" in row.detail]


def test_all_faults_are_found_at_once():
    schema = {
        "type": "object",
        "properties": {
            "a/b": {"type": "string", "pattern": "(?=x)"},
            "c": {"type": "object", "properties": {"d": {"type": "array", "uniqueItems": True}, "e": {}}},
            "f": True,
            "g": {"properties": {"h": {"type": "number", "multipleOf": 2001}}},
            "ok": {"type": "string"},
        },
    }

    assert faults_of(schema) == [
        ("/properties/a~1b", "pattern"),
        ("/properties/c/properties/d", "uniqueItems"),
        ("/properties/g/properties/h", "multipleOf"),
    ]


def test_a_fault_where_no_value_can_get_is_none():
    schema = {"allOf": [{"type": "string"}, {"type": "array", "uniqueItems": True}], "title": "nothing"}
    either = {"anyOf": [{"type": "null"}, schema]}

    assert compile_schema(either).accepts("null")


# Places with a list of values.


@pytest.mark.parametrize(
    ("schema", "texts"),
    [
        ({"enum": ["a", 1, None, True]}, ['"a"', "1", "null", "true"]),
        ({"type": "string", "enum": ["a", 1]}, ['"a"']),
        ({"type": ["string", "null"], "enum": ["a", None]}, ['"a"', "null"]),
        ({"type": "integer", "enum": [1.0, 1.5, 2]}, ["1", "2"]),
        ({"enum": [1, 1.0, 1e0]}, ["1"]),
        ({"enum": [-0.0, 1e3, 0.10]}, ["0", "1000", "0.1"]),
        ({"minimum": 2, "enum": [1, 2, "a"]}, ["2", '"a"']),
        ({"const": "a", "enum": ["a", "b"]}, ['"a"']),
        ({"enum": ["ab", "b"], "pattern": "^a"}, ['"ab"']),
        ({"enum": [1, 2, 3], "not": {"const": 2}}, ["1", "3"]),
        ({"enum": [4, 6], "oneOf": [{"multipleOf": 2}, {"multipleOf": 3}]}, ["4"]),
        ({"enum": [[1, 1], [1, 2]], "uniqueItems": True}, ["[1,2]"]),
        ({"enum": [0.3, 0.4, 0.75], "multipleOf": 0.25}, ["0.75"]),
        ({"$ref": "#/$defs/s", "enum": ["a", 1], "$defs": {"s": {"type": "string"}}}, ['"a"']),
        ({"const": {"b": [1.50, {"é": "😀\n\x01"}], "a": ""}}, ['{"b":[1.5,{"é":"😀\\n\\u0001"}],"a":""}']),
        ({"const": False}, ["false"]),
        ({"enum": [0, False]}, ["0", "false"]),
        ({"enum": ["http://x", 'say "\\"', "\x7f"]}, ['"http://x"', '"say \\"\\\\\\""', '"\x7f"']),
    ],
)
def test_listed_values_are_those_that_satisfy_every_keyword(schema, texts):
    grammar = compile_schema(schema)

    assert texts == [text for text in texts if grammar.accepts(text)]
    assert len(texts) == grammar.gbnf.count(" | ") + 1
    for text in ("", "2.5", '"zzz"', "[]", "{}", '"\\ud83d\\ude00"', "1.0"):
        assert not grammar.accepts(text)


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ({"enum": [1], "type": "string"}, "no listed value satisfies"),
        ({"const": "abc", "maxLength": 2}, "no listed value satisfies"),
        ({"const": 1, "enum": [2]}, "no listed value satisfies"),
        ({"$schema": "http://json-schema.org/draft-06/schema#", "enum": []}, "nothing is listed"),
    ],
)
def test_a_list_that_leaves_nothing_is_an_error(schema, says):
    with pytest.raises(UnsatisfiableSchemaError, match=says):
        compile_schema(schema)


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ({"enum": [1], "$ref": "#/nowhere"}, "leads nowhere"),
        ({"enum": [1], "$ref": "https://example.invalid/s.json"}, "leads nowhere"),
        ({"enum": ["a"], "pattern": "(?<a"}, "a pattern cannot be read"),
        ({"enum": [1], "$ref": "#"}, "never end"),
        ({"$ref": "#"}, "it refers to itself without end"),
        ({"allOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"anyOf": [{"$ref": "#"}]}}}, "without end"),
    ],
)
def test_a_list_that_cannot_be_checked_is_a_fault(schema, says):
    with pytest.raises(UnsupportedSchemaError, match=says):
        compile_schema(schema)


def test_dropped_values_are_reported():
    grammar = compile_schema({"enum": ["a", 1, 2], "type": "string"})

    assert [row.detail for row in grammar.report.pruned] == ["2 of 3 values break another keyword here"]


# What admits nothing.


def test_an_optional_property_without_values_is_left_out_and_reported():
    schema = closed(a={"type": "string"}) | {"required": ["a"]}
    schema["properties"]["b"] = {"type": "integer", "minimum": 2, "maximum": 1, "multipleOf": 7}
    schema["properties"]["c"] = False
    grammar = compile_schema(schema, checked=["multipleOf"], optional="emit")

    assert grammar.accepts('{"a":""}')
    assert {row.pointer for row in grammar.report.pruned} == {"/properties/b", "/properties/c"}


@pytest.mark.parametrize(
    ("schema", "where"),
    [
        (False, "/"),
        (closed(a=False), "/properties/a"),
        (
            closed(a=closed(b={"type": "string", "minLength": 1, "maxLength": 0})),
            "/properties/a/properties/b",
        ),
        (closed(a={"type": "null"}) | {"required": ["z"]}, "/"),
    ],
)
def test_a_schema_that_nothing_satisfies_names_the_place(schema, where):
    with pytest.raises(UnsatisfiableSchemaError) as caught:
        compile_schema(schema)

    assert where == caught.value.where


def test_what_admits_nothing_hides_its_own_faults_only():
    """`pattern` takes nothing from a place that is empty already; the fault beside it stands."""
    schema = closed(a={"type": "null"}) | {"required": []}
    schema["properties"]["b"] = {"type": "string", "minLength": 3, "maxLength": 2, "pattern": "(?=x)"}
    schema["properties"]["c"] = {"type": "string", "pattern": "(?=x)"}

    assert faults_of(schema) == [("/properties/c", "pattern")]


def test_one_type_without_values_leaves_the_others():
    grammar = compile_schema(
        {"type": ["string", "integer", "null"], "minimum": 2, "maximum": 1, "maxLength": 1}
    )

    assert [grammar.accepts(text) for text in ('"a"', "null", "2")] == [True, True, False]
    assert [row.detail for row in grammar.report.pruned] == ["no number lies between its bounds"]


# Keywords of no vocabulary, formats, drafts.


def test_an_unknown_keyword_is_an_annotation_and_a_slip_is_warned_of():
    grammar = compile_schema({"type": "number", "maxmimum": 1, "x-unit": "km"})

    assert {row.keyword: row.detail for row in grammar.report.annotations} == {
        "maxmimum": "did you mean 'maximum'?",
        "x-unit": "belongs to no vocabulary",
    }
    assert grammar.report.warnings == ("/: 'maxmimum' belongs to no vocabulary; did you mean 'maximum'?",)


def test_unknown_keywords_can_be_refused():
    assert faults_of({"type": "number", "maxmimum": 1}, unknown="refuse") == [("", "maxmimum")]


def test_a_format_that_nobody_checks_is_an_annotation_unless_strict():
    schema = {"type": "string", "format": "slug"}

    assert [row.keyword for row in compile_schema(schema).report.annotations] == ["format"]
    assert faults_of(schema, formats="strict") == [("", "format")]
    assert compile_schema({"type": "string", "format": "date"}, formats="strict").report.annotations == ()


def test_definitions_are_not_enforced_where_they_are_kept():
    grammar = compile_schema(
        {"type": "null", "$defs": {"a": {"pattern": "x"}}, "definitions": {"b": {"not": {}}}}
    )

    assert grammar.accepts("null")


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ({"type": "strin"}, "not a JSON Schema"),
        ({"type": "string", "maxLength": -1}, "-1 is less than the minimum"),
        ({"type": "string", "maxLength": 1.5}, "not a JSON Schema"),
        ({"type": "object", "required": ["a", "a"]}, "/required: not a JSON Schema"),
        ({"type": "number", "exclusiveMinimum": True}, "must be named in `\\$schema`"),
        ({"$schema": "http://json-schema.org/draft-03/schema#"}, "older than draft 4"),
        ([], "not a JSON Schema|neither JSON"),
        ("[]", "not a JSON Schema"),
        ("7", "not a JSON Schema"),
    ],
)
def test_what_is_not_a_schema_is_refused(schema, says):
    with pytest.raises(InvalidSchemaError, match=says):
        compile_schema(schema)


@pytest.mark.parametrize(
    ("uri", "dialect"),
    [
        ("http://json-schema.org/draft-04/schema#", "draft-04"),
        ("http://json-schema.org/draft-06/schema", "draft-06"),
        ("https://json-schema.org/draft-07/schema#", "draft-07"),
        ("https://json-schema.org/draft/2019-09/schema", "2019-09"),
        ("https://json-schema.org/draft/2020-12/schema", "2020-12"),
        ("https://example.org/mine", "2020-12"),
    ],
)
def test_the_draft_is_the_one_named(uri, dialect):
    report = compile_schema({"$schema": uri, "enum": ["a"]}).report

    assert dialect == report.dialect
    assert ("example" in uri) == bool(report.warnings)


# Options that cannot be meant.


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"order": ["z"]}, "order: 'z' is not a top-level property. There are: a."),
        ({"order": ["a", "a"]}, "names a property twice"),
        ({"pin": {"z": "x"}}, "pin: 'z' is not a top-level property"),
        ({"pin": {"a": 7}}, "'7' is not a text"),
        ({"pin": {"a": "\ud800"}}, "is not a text"),
        ({"pin": {"a": "too long"}}, "'too long' is not valid under its schema"),
        ({"checked": ["patern"]}, "'patern' is no keyword"),
        ({"checked": ["title"]}, "'title' is no keyword"),
        ({"separators": (" , ", ":")}, "separators"),
        ({"separators": (",", " : ")}, "separators"),
        ({"optional": "always"}, "optional"),
        ({"additional": False}, "additional"),
        ({"unknown": "ignore"}, "unknown"),
        ({"formats": "lenient"}, "formats"),
        ({"max_string": -1}, "max_string: -1 is below 0"),
        ({"decimals": -1}, "decimals: -1 is below 0"),
    ],
)
def test_options_that_cannot_be_meant_are_refused(options, says):
    with pytest.raises(UsageError) as caught:
        compile_schema(closed(a={"type": "string", "maxLength": 3}), **options)

    assert says in str(caught.value)
