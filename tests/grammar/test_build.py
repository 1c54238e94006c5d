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
from judge_local.grammar.keywords import REFUSED

# A value that each draft's meta-schema takes, and a type the keyword says something about.
USES = {
    "pattern": ("string", "^a"),
    "multipleOf": ("number", 2),
    "items": ("array", {}),
    "prefixItems": ("array", [{}]),
    "additionalItems": ("array", False),
    "unevaluatedItems": ("array", False),
    "minItems": ("array", 1),
    "maxItems": ("array", 1),
    "uniqueItems": ("array", True),
    "contains": ("array", {}),
    "minContains": ("array", 1),
    "maxContains": ("array", 1),
    "patternProperties": ("object", {}),
    "propertyNames": ("object", {}),
    "minProperties": ("object", 1),
    "maxProperties": ("object", 1),
    "dependencies": ("object", {}),
    "dependentRequired": ("object", {}),
    "dependentSchemas": ("object", {}),
    "unevaluatedProperties": ("object", False),
    "allOf": ("string", [{}]),
    "anyOf": ("string", [{}]),
    "oneOf": ("string", [{}]),
    "not": ("string", {}),
    "if": ("string", {}),
    "then": ("string", {}),
    "else": ("string", {}),
    "$ref": ("string", "#"),
    "$dynamicRef": ("string", "#"),
    "$recursiveRef": ("string", "#"),
}


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


def test_every_refused_keyword_is_tried_below():
    assert REFUSED.keys() == USES.keys()


@pytest.mark.parametrize("keyword", USES)
def test_a_refused_keyword_is_named_with_its_place(keyword):
    kind, value = USES[keyword]
    schema = closed(a={"type": [kind, "null"], keyword: value, "additionalProperties": False})
    with pytest.raises(UnsupportedSchemaError) as caught:
        compile_schema(schema)
    fault = next(fault for fault in caught.value.faults if fault.keyword == keyword)

    assert ("/properties/a", json.dumps(value, separators=(",", ":"))) == (fault.pointer, fault.value)
    assert "no grammar of ours" in fault.reason
    assert f"name {keyword!r} in `checked`" in fault.hint


@pytest.mark.parametrize("keyword", [name for name, (kind, _) in USES.items() if kind != "array"])
def test_a_refused_keyword_may_be_left_to_the_validator(keyword):
    kind, value = USES[keyword]
    schema = closed(a={"type": kind, keyword: value, "additionalProperties": False})
    grammar = compile_schema(schema, checked=[keyword])

    assert [("/properties/a", keyword, "/a")] == [
        (row.pointer, row.keyword, row.place) for row in grammar.report.checked
    ]
    assert "validator" in {row.enforced_by for row in grammar.report.rows() if row.keyword == keyword}


@pytest.mark.parametrize(
    "keyword", [name for name, (kind, _) in USES.items() if kind != "string" or name == "pattern"]
)
def test_a_keyword_that_says_nothing_about_the_types_here_is_no_fault(keyword):
    grammar = compile_schema({"type": "boolean", keyword: USES[keyword][1]})

    assert [keyword] == [row.keyword for row in grammar.report.enforced if "says nothing" in row.detail]


def test_all_faults_are_found_at_once():
    schema = {
        "type": "object",
        "properties": {
            "a/b": {"type": "string", "pattern": "x", "not": {}},
            "c": {"type": "object", "properties": {"d": {"type": "array"}, "e": {}}},
            "f": True,
            "g": {"properties": {"h": {"type": "number", "multipleOf": 2}}},
            "ok": {"type": "string"},
        },
    }

    assert faults_of(schema) == [
        ("", "additionalProperties"),
        ("/properties/a~1b", "pattern"),
        ("/properties/a~1b", "not"),
        ("/properties/c", "additionalProperties"),
        ("/properties/c/properties/d", "type"),
        ("/properties/c/properties/e", "type"),
        ("/properties/f", "true"),
        ("/properties/g", "type"),
        ("/properties/g", "additionalProperties"),
        ("/properties/g/properties/h", "multipleOf"),
    ]


def test_an_open_object_is_refused_with_the_way_out():
    with pytest.raises(
        UnsupportedSchemaError, match=r'/: additionalProperties \(absent\).*additional="deny"'
    ):
        compile_schema({"type": "object", "properties": {}})


@pytest.mark.parametrize("additional", [True, {"type": "string"}, {}])
def test_additional_keys_are_refused_or_denied(additional):
    schema = {"type": "object", "properties": {"a": {"type": "null"}}, "additionalProperties": additional}
    grammar = compile_schema(schema, additional="deny")

    assert faults_of(schema) == [("", "additionalProperties")]
    assert grammar.accepts('{"a":null}')
    assert not grammar.accepts('{"b":"c"}')
    assert "no keys but the declared ones" in {row.detail for row in grammar.report.narrowed}


@pytest.mark.parametrize("schema", [{}, {"description": "anything"}, {"minLength": 2}])
def test_a_place_without_types_is_refused(schema):
    assert faults_of(schema) == [("", "type")]


def test_a_place_without_types_is_refused_beside_its_other_faults():
    assert faults_of({"pattern": "x"}) == [("", "pattern"), ("", "type")]


def test_leaving_a_reference_to_the_validator_gives_no_types():
    assert faults_of({"$ref": "#/$defs/a", "$defs": {"a": {}}}, checked=["$ref"]) == [("", "type")]


def test_a_reference_without_a_type_is_one_fault():
    assert faults_of({"$ref": "#/$defs/a", "$defs": {"a": {}}}) == [("", "$ref")]


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
    assert [row.pointer for row in grammar.report.pruned] == ["/properties/b", "/properties/c"]


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
    schema["properties"]["b"] = {"type": "string", "minLength": 3, "maxLength": 2, "pattern": "x"}
    schema["properties"]["c"] = {"type": "string", "pattern": "x"}

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


def test_a_format_is_an_annotation_unless_strict():
    schema = {"type": "string", "format": "date"}

    assert [row.keyword for row in compile_schema(schema).report.annotations] == ["format"]
    assert faults_of(schema, formats="strict") == [("", "format")]


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
