"""Kinds of faults that other schema compilers had in public, each as the behaviour that is right."""

import json

import pytest

from judge_local.errors import GrammarTextError, UnsatisfiableSchemaError, UnsupportedSchemaError
from judge_local.grammar import Matcher, compile_schema

RIGHT = [
    (
        "an exact count of items",
        {"type": "array", "items": {"type": "integer"}, "minItems": 3, "maxItems": 3},
        ["[1,2,3]"],
        ["[1,2]", "[1,2,3,4]"],
    ),
    (
        "many items",
        {"items": {"type": "number"}, "minItems": 10, "maxItems": 1000},
        ["[" + ",".join("1" * 10) + "]"],
        ["[1]"],
    ),
    (
        "exactly 2000 characters",
        {"type": "string", "maxLength": 2000},
        ['"' + "x" * 2000 + '"'],
        ['"' + "x" * 2001 + '"'],
    ),
    (
        "an object without properties",
        {"type": "object", "properties": {}, "additionalProperties": False},
        ["{}"],
        ['{"a":1}'],
    ),
    ("no item at all", {"type": "array", "items": {}, "maxItems": 0}, ["[]"], ["[0]"]),
    ("an escaped slash in a pattern", {"type": "string", "pattern": "^a\\/b$"}, ['"a/b"'], ['"anything"']),
    ("a backslash in a constant", {"const": "a\\b"}, ['"a\\\\b"'], ['"a\\b"']),
    (
        "an enum behind a reference",
        {"$ref": "#/$defs/E", "$defs": {"E": {"enum": ["x", "y"]}}},
        ['"x"'],
        ["{}", '"z"'],
    ),
    (
        "a reference into a list",
        {"properties": {"x": {"anyOf": [{"type": "null"}]}, "y": {"$ref": "#/properties/x/anyOf/0"}}},
        ['{"y":null}'],
        ['{"y":1}'],
    ),
    (
        "optional before required",
        {"type": "object", "properties": {"a": {}, "b": {}}, "required": ["b"]},
        ['{"a":1,"b":2}', '{"b":2}'],
        ['{"a":1}'],
    ),
    ("constants inside anyOf", {"anyOf": [{"const": "a"}, {"const": "b"}]}, ['"a"'], ['"\\"a\\""', "a"]),
    (
        "large bounds",
        {"type": "integer", "maximum": 9007199254740991},
        ["9007199254740991"],
        ["9007199254740992"],
    ),
    ("nothing after the end", {"type": "object"}, ["{}"], ["{} ", "{}\n", "{}}"]),
    ("emoji", {"enum": ["😀", "开心"]}, ['"😀"', '"开心"'], ['"\\ud83d\\ude00"', '"\\u5f00\\u5fc3"']),
    ("raw controls", {"type": "string"}, ['"\\t"'], ['"\t"', '"\x00"', '"\\x"', '"\\\'"']),
    (
        "two definitions",
        {
            "properties": {"p": {"$ref": "#/$defs/A"}, "q": {"$ref": "#/$defs/B"}},
            "$defs": {"A": {"$ref": "#/$defs/B"}, "B": {"type": "null"}},
        },
        ['{"p":null,"q":null}'],
        ['{"p":1}'],
    ),
    (
        "bounds of a number",
        {"type": "number", "minimum": 1, "maximum": 5},
        ["1", "4.999", "5"],
        ["5.7", "0.9", "0"],
    ),
    (
        "an open interval",
        {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
        ["0.5", "0.000001"],
        ["0", "1"],
    ),
    ("integers from two", {"type": "integer", "minimum": 2}, ["2", "10"], ["1", "0"]),
    ("escapes under a length", {"type": "string", "maxLength": 2}, ['"\\"\\n"'], ['"\\"\\n."']),
    ("fewer items than a tuple", {"prefixItems": [{}, {}]}, ["[]", "[1]"], ["[1,]"]),
    (
        "a declared name, late",
        {"properties": {"a": {"type": "integer"}}, "additionalProperties": {"type": "string"}},
        ['{"z":"s","a":1}'],
        ['{"z":"s","a":"s"}'],
    ),
    ("a scalar constant", {"const": 42}, ["42"], ['"42"', "42.0"]),
    ("truth by its JSON name", {"const": True}, ["true"], ["True"]),
    ("text after a constant", {"const": "http://x"}, ['"http://x"'], ['"http:\\/\\/x"']),
    ("digits without end", {}, ["123456789012345"], ["1" * 40]),
    (
        "keys in the schema's order",
        {
            "type": "object",
            "properties": {"reasoning": {}, "answer": {}},
            "required": ["reasoning", "answer"],
        },
        ['{"reasoning":1,"answer":2}'],
        ['{"answer":2,"reasoning":1}'],
    ),
    (
        "siblings of a reference",
        {"properties": {"a": {"$ref": "#/$defs/s", "maxLength": 1}}, "$defs": {"s": {"type": "string"}}},
        ['{"a":"x"}'],
        ['{"a":"xx"}'],
    ),
    (
        "a type list with siblings",
        {"type": ["string", "null"], "enum": ["a", None]},
        ['"a"', "null"],
        ['"zzz"'],
    ),
    (
        "required but not declared",
        {"type": "object", "properties": {}, "required": ["z"]},
        ['{"z":1}'],
        ["{}"],
    ),
    (
        "hostile names",
        {"properties": {"]x": {"const": 1}, "-a": {"const": 2}}, "type": "object"},
        ['{"]x":1,"-a":2}'],
        ['{"]x":2}'],
    ),
    (
        "an escape of its own in a pattern",
        {"type": "string", "pattern": "^x\\!$"},
        ['"x!"'],
        ['"x\\\\!"', '"y"'],
    ),
    (
        "an emoji is one character",
        {"type": "string", "maxLength": 1},
        ['"😀"', '"\\n"'],
        ['"😀a"', '"\\ud83d"'],
    ),
    (
        "an optional model within a model",
        {
            "type": "object",
            "properties": {
                "inner": {"anyOf": [{"$ref": "#/$defs/Inner"}, {"type": "null"}], "default": None}
            },
            "$defs": {
                "Inner": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
            },
        },
        ['{"inner":{"n":1}}', '{"inner":null}', "{}"],
        ['{"inner":{}}', '{"inner":1}'],
    ),
    (
        "an optional key out of order, where others are typed",
        {"properties": {"a": {"type": "integer"}, "b": {}}, "additionalProperties": {"type": "string"}},
        ['{"a":1,"b":2,"c":"s"}'],
        ['{"b":2,"a":"BAD"}', '{"a":"BAD"}'],
    ),
    ("a key ends with the quote it began with", {"type": "object"}, ['{"k":1}'], ["{\"k':1}", "{'k':1}"]),
    (
        "keywords that others leave out",
        {
            "type": "object",
            "properties": {"n": {"type": "integer", "minimum": 0, "multipleOf": 5}},
            "minProperties": 1,
            "dependentRequired": {"n": ["m"]},
        },
        ['{"n":5,"m":0}'],
        ["{}", '{"n":5}', '{"n":4,"m":0}', '{"n":-5,"m":0}'],
    ),
    (
        "a reference into a group of definitions",
        {"$ref": "#/$defs/g2/T", "$defs": {"g1": {"T": True}, "g2": {"T": {"const": 2}}}},
        ["2"],
        ["1"],
    ),
    (
        "definitions named like rules",
        {"$ref": "#/$defs/number", "$defs": {"number": {"type": "null"}, "a_b": {}, "a-b": {}}},
        ["null"],
        ["1"],
    ),
    (
        "siblings of anyOf",
        {"type": "integer", "anyOf": [{"minimum": 3}, {"maximum": 1}]},
        ["3", "1"],
        ["2", '"a"'],
    ),
    ("a member of allOf that is no object", {"allOf": [{"type": "integer"}]}, ["1"], ["{}", '"a"']),
    (
        "a class that negates reads decoded text",
        {"type": "string", "pattern": "^[^a]$"},
        ['"\\""', '"b"'],
        ['"""', '"a"'],
    ),
]


@pytest.mark.parametrize(
    ("schema", "accepted", "refused"), [row[1:] for row in RIGHT], ids=[row[0] for row in RIGHT]
)
def test_it_is_right_here(schema, accepted, refused):
    grammar = compile_schema(json.dumps(schema))

    assert accepted == [text for text in accepted if grammar.accepts(text)]
    assert [text for text in refused if grammar.accepts(text)] == []


@pytest.mark.parametrize(
    ("schema", "error"),
    [
        ({"type": "string", "pattern": "(?=a)b"}, UnsupportedSchemaError),
        ({"type": "array", "minItems": 5, "maxItems": 2}, UnsatisfiableSchemaError),
        ({"type": "string", "minLength": 5, "maxLength": 2}, UnsatisfiableSchemaError),
        ({"type": "array", "uniqueItems": True}, UnsupportedSchemaError),
        ({"$ref": "https://elsewhere.example/s"}, UnsupportedSchemaError),
    ],
)
def test_it_is_refused_here_never_widened(schema, error):
    with pytest.raises(error):
        compile_schema(schema)


def test_a_long_string_deep_inside_is_exact():
    schema = {"properties": {"a": {"properties": {"b": {"type": "string", "maxLength": 65536}}}}}
    grammar = compile_schema(schema, max_string=65536)

    assert grammar.accepts('{"a":{"b":"' + "x" * 65536 + '"}}')
    assert not grammar.accepts('{"a":{"b":"' + "x" * 65537 + '"}}')
    assert len(grammar.gbnf) < 30_000


def test_many_large_bounds_stay_small():
    one = {"type": "integer", "maximum": 9007199254740991}
    schema = {
        "type": "object",
        "properties": {f"tool{n}": one for n in range(22)},
        "additionalProperties": False,
    }

    assert len(compile_schema(schema).gbnf) < 8 * len(compile_schema(one).gbnf)


def test_keys_may_come_in_any_order_where_that_is_asked_for():
    schema = {"properties": {"end": {"type": "integer"}, "start": {"type": "integer"}}}

    assert compile_schema(schema, property_order="any").accepts('{"start":1,"end":2}')
    assert compile_schema(schema).accepts('{"end":2,"start":1}')


def test_a_token_that_goes_on_after_the_end_is_refused_whole():
    matcher = compile_schema({"type": "object", "additionalProperties": False}).start().advance(b"{")

    assert matcher is not None
    assert matcher.advance(b"}\n") is None
    assert matcher.advance(b"}").finished


def test_the_end_is_allowed_only_where_the_text_is_complete():
    matcher = compile_schema({"type": "string"}).start()
    for character in b'"ab':
        matcher = matcher.advance(bytes([character]))
        assert not matcher.complete

    assert matcher.advance(b'"').finished


@pytest.mark.parametrize(
    ("gbnf", "accepted", "refused"),
    [
        ("root ::= [😀-🙏]+", ["😀🙏"], ["a", "😀a"]),
        ('root ::= "a" ("" | "b")*', ["a", "abb"], ["b"]),
        ('root ::= [^\\n]* "x" ("one" | "two")', ["any text xone", "xxtwo"], ["x", "\nxone"]),
    ],
)
def test_a_grammar_that_engines_stumble_over_is_read(gbnf, accepted, refused):
    def accepts(text):
        matcher = Matcher.from_gbnf(gbnf)
        for byte in text.encode():  # a character in parts
            matcher = matcher.advance(bytes([byte]))
            if matcher is None:
                return False
        return matcher.complete

    assert [text for text in [*accepted, *refused] if accepts(text)] == accepted


@pytest.mark.parametrize(
    "gbnf",
    [
        'root ::= root "a" | "b"',
        'root ::= e\ne ::= e "x" | "y"',
        'root :== "a"',
        'root ::= e root "a" | "b"\ne ::= "x"?',
        "root ::= []",
        'root ::= "a"{5,2}',
        "root ::= " + "(" * 200 + '"a"' + ")" * 200,
    ],
)
def test_a_grammar_that_would_hang_or_crash_an_engine_is_refused(gbnf):
    with pytest.raises(GrammarTextError):
        Matcher.from_gbnf(gbnf)


def test_inner_zeros_of_a_bound():
    for low in (100, 105, 1005, 10203):
        grammar = compile_schema({"type": "integer", "minimum": low})
        for value in (*range(130), low - 1, low, low + 1, low * 10):
            assert (value >= low) == grammar.accepts(str(value)), (low, value)
    negative = compile_schema({"type": "integer", "maximum": -100})

    assert [negative.accepts(text) for text in ("-100", "-101", "-10", "-99")] == [True, True, False, False]
