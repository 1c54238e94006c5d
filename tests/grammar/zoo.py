"""Schemas for what each rule of the compiler says: texts that must be accepted, and texts that must be refused."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

D4: Final = "http://json-schema.org/draft-04/schema#"
D7: Final = "http://json-schema.org/draft-07/schema#"


def validator_of(schema: Any) -> Any:
    """A validator that checks the formats in the list of the compiler, and no others."""
    import jsonschema
    from jsonschema.validators import validator_for

    from judge_local.grammar.formats import FORMATS

    kind = validator_for(schema, default=jsonschema.Draft202012Validator)
    checker = jsonschema.FormatChecker(formats=())
    known = jsonschema.Draft202012Validator.FORMAT_CHECKER.checkers
    checker.checkers = {name: known[name] for name in FORMATS}
    return kind(schema, format_checker=checker)


class Case(NamedTuple):
    """A schema and texts of both kinds."""

    schema: Any
    accepted: list[str]
    refused: list[str]


def closed(**properties: Any) -> dict[str, Any]:
    """An object with these properties, all required, and no others."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


ZOO: Final[dict[str, Case]] = {
    "anything": Case({}, ["1", '"a"', "[[[]]]", '{"a":{"b":[null]}}', "true"], ["", "{", '{"a"}', "[1,]"]),
    "true": Case(True, ["null", "{}"], ["nul"]),
    "annotations only": Case({"title": "t", "x-y": 1}, ["[]", "-0.5"], ["-0"]),
    "open object": Case(
        {"type": "object", "properties": {"a": {"type": "integer"}, "ab": {"type": "null"}}},
        ["{}", '{"a":1}', '{"b":2}', '{"b":2,"a":1,"c":3,"ab":null,"":0}', '{"aa":"x"}', '{"a\\"":1}'],
        ['{"a":"x"}', '{"ab":1}', '{"\\u0061":"x"}', "[]", '{"a":1,}', '{,"a":1}'],
    ),
    "additional schema": Case(
        {"type": "object", "properties": {"a": {}}, "additionalProperties": {"type": "integer"}},
        ['{"a":"x","b":1}', '{"z":0}'],
        ['{"b":"x"}', '{"a":1,"b":null}'],
    ),
    "required undeclared": Case(
        {"type": "object", "required": ["x", "y"]},
        ['{"x":1,"y":2}', '{"y":2,"x":1}', '{"a":0,"y":{},"b":1,"x":[]}'],
        ["{}", '{"x":1}', '{"x":1,"z":2}'],
    ),
    "pattern properties": Case(
        {
            "type": "object",
            "patternProperties": {"^x-": {"type": "string"}, "n$": {"minLength": 2}},
            "additionalProperties": False,
        },
        ["{}", '{"x-a":"s"}', '{"x-n":"ab"}', '{"on":1}'],
        ['{"x-a":1}', '{"x-n":"a"}', '{"b":1}', '{"x-n":7}'],
    ),
    "declared and matched": Case(
        {
            "properties": {"ab": {"minimum": 1}},
            "patternProperties": {"^a": {"type": "integer", "maximum": 3}},
        },
        ['{"ab":2}', '{"a":-5}', '{"ab":3,"x":"y"}'],
        ['{"ab":0}', '{"ab":4}', '{"ab":1.5}', '{"aa":"s"}'],
    ),
    "property names": Case(
        {"type": "object", "properties": {"abc": {}}, "propertyNames": {"maxLength": 2}},
        ["{}", '{"ab":1,"c":2}'],
        ['{"abc":1}', '{"abd":1}'],
    ),
    "property counts": Case(
        {"type": "object", "properties": {"a": {}, "b": {}}, "minProperties": 1, "maxProperties": 2},
        ['{"a":1}', '{"x":1}', '{"a":1,"x":2}', '{"a":1,"b":2}'],
        ["{}", '{"a":1,"b":2,"c":3}', '{"x":1,"y":2,"z":3}'],
    ),
    "dependencies": Case(
        {"$schema": D7, "dependencies": {"a": ["b"], "c": {"required": ["d"]}}, "type": "object"},
        ["{}", '{"b":1}', '{"a":1,"b":2}', '{"b":2,"a":1}', '{"c":1,"d":2}', '{"a":1,"b":2,"c":3,"d":4}'],
        ['{"a":1}', '{"c":1}', '{"a":1,"d":2}'],
    ),
    "dependent": Case(
        {
            "properties": {"card": {"type": "integer"}, "address": {"type": "string"}},
            "dependentRequired": {"card": ["address"]},
            "dependentSchemas": {"address": {"properties": {"address": {"minLength": 2}}}},
        },
        ['{"card":1,"address":"ab"}', '{"address":"ab"}', "{}", "7"],
        ['{"card":1}', '{"address":"a"}'],
    ),
    "recursion": Case(
        {
            "$ref": "#/$defs/n",
            "$defs": {
                "n": closed(v={"type": "integer"})
                | {"properties": {"v": {"type": "integer"}, "next": {"$ref": "#/$defs/n"}}}
            },
        },
        ['{"v":1}', '{"v":1,"next":{"v":2,"next":{"v":3}}}'],
        ['{"next":{"v":1}}', '{"v":1,"next":{}}', '{"v":1,"next":null}'],
    ),
    "recursion through allOf": Case(
        {
            "allOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}],
            "$defs": {
                "a": {"type": "object", "properties": {"x": {"$ref": "#/$defs/a"}}},
                "b": {"properties": {"x": {"$ref": "#/$defs/b"}}, "maxProperties": 1},
            },
        },
        ["{}", '{"x":{"x":{}}}', '{"y":1}'],
        ['{"x":1}', '{"x":{},"y":1}', '{"x":{"x":{"x":{},"y":1}}}'],
    ),
    "anchors": Case(
        {
            "items": {"$ref": "#here"},
            "$defs": {"a": {"$anchor": "here", "const": 1}, "a~b/c%d": {"const": 2}},
            "prefixItems": [{"$ref": "#/$defs/a~0b~1c%25d"}],
        },
        ["[2,1,1]", "[]", '"s"'],
        ["[1]", "[2,2]"],
    ),
    "embedded id": Case(
        {
            "$id": "http://x.test/root",
            "$defs": {
                "s": {
                    "$id": "sub",
                    "$defs": {"t": {"type": "null"}},
                    "properties": {"a": {"$ref": "#/$defs/t"}},
                }
            },
            "$ref": "sub",
        },
        ['{"a":null}', "{}"],
        ['{"a":1}'],
    ),
    "reference with siblings": Case(
        {"$ref": "#/$defs/s", "maxLength": 2, "$defs": {"s": {"type": "string", "minLength": 1}}},
        ['"a"', '"ab"'],
        ['""', '"abc"', "1"],
    ),
    "names that collide": Case(
        {
            "properties": {
                "p": {"$ref": "#/$defs/a_b"},
                "q": {"$ref": "#/$defs/a-b"},
                "r": {"$ref": "#/$defs/number"},
            },
            "$defs": {"a_b": {"const": 1}, "a-b": {"const": 2}, "number": {"const": 3}},
        },
        ['{"p":1,"q":2,"r":3}'],
        ['{"p":2}', '{"q":1}', '{"r":1}'],
    ),
    "tuple": Case(
        {
            "type": "array",
            "prefixItems": [{"type": "string"}, {"type": "integer"}],
            "items": {"type": "null"},
        },
        ["[]", '["a"]', '["a",1]', '["a",1,null,null]'],
        ["[1]", '["a","b"]', '["a",1,2]'],
    ),
    "closed tuple": Case(
        {"$schema": D4, "type": "array", "items": [{}, {}], "additionalItems": False, "minItems": 1},
        ["[1]", "[1,2]"],
        ["[]", "[1,2,3]"],
    ),
    "counted items": Case(
        {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 4},
        ["[1,2]", "[1,2,3,4]"],
        ["[]", "[1]", "[1,2,3,4,5]", "[1,2,]"],
    ),
    "no items": Case({"type": "array", "items": {}, "maxItems": 0}, ["[]"], ["[1]"]),
    "contains": Case(
        {"type": "array", "contains": {"const": 7}, "items": {"type": "integer"}},
        ["[7]", "[1,7]", "[7,1,7]"],
        ["[]", "[1]", '["7"]'],
    ),
    "contains, counted": Case(
        {"type": "array", "contains": {"type": "string"}, "minContains": 2, "maxContains": 3, "maxItems": 5},
        ['["a","b"]', '[1,"a",2,"b","c"]'],
        ['["a"]', '["a","b","c","d"]', '["a","b",1,2,3,4]'],
    ),
    "unique": Case(
        {"type": "array", "items": {"enum": ["a", "b", "c"]}, "uniqueItems": True, "minItems": 1},
        ['["a"]', '["c","a","b"]'],
        ["[]", '["a","a"]', '["a","b","a"]'],
    ),
    "types": Case({"type": ["string", "null"], "minLength": 1}, ["null", '"a"'], ['""', "1"]),
    "enum with types": Case(
        {"type": ["string", "null"], "enum": ["a", None, 1]}, ["null", '"a"'], ["1", '"zzz"']
    ),
    "number bounds": Case(
        {"type": "number", "minimum": -0.5, "exclusiveMaximum": 100},
        ["-0.5", "0", "99.999999"],
        ["100", "-0.51", "-0", "1e1", "00", "1.", ".5", "+1"],
    ),
    "draft 4 bounds": Case(
        {"$schema": D4, "type": "integer", "minimum": 3, "exclusiveMinimum": True}, ["4"], ["3", "2"]
    ),
    "one hundred": Case(
        {"type": "integer", "minimum": 100}, ["100", "105", "999999"], ["99", "10", "15", "19"]
    ),
    "multiples": Case(
        {"type": "integer", "multipleOf": 7, "minimum": -14, "maximum": 1000},
        ["-14", "0", "7", "994"],
        ["-21", "6", "1001", "1", "07"],
    ),
    "fractions": Case(
        {"type": "number", "multipleOf": 0.25},
        ["0.25", "0.250", "1", "-0.75", "10.50"],
        ["0.3", "0.255", "-0"],
    ),
    "hundredths": Case(
        {"type": "number", "multipleOf": 0.01, "minimum": 0, "maximum": 1},
        ["0.5", "0.25", "1"],
        ["0.001", "1.01"],
    ),
    "not a multiple": Case(
        {"type": "integer", "not": {"multipleOf": 3}, "minimum": 0, "maximum": 10},
        ["1", "2", "10"],
        ["0", "3", "9"],
    ),
    "lengths in code points": Case(
        {"type": "string", "maxLength": 1},
        ['"😀"', '"\\n"', '"é"', '"\\""'],
        ['"ab"', '"\\ud83d\\ude00"', '"\\/"', '"\n"', '"\\\'"'],
    ),
    "pattern": Case(
        {"type": "string", "pattern": "^[a-c]+\\d$"}, ['"a1"', '"abc0"'], ['"a"', '"1"', '"a1 "', '"a\uff11"']
    ),
    "unanchored": Case(
        {"type": "string", "pattern": "\\d{2}"}, ['"12"', '"x12y"', '"\\"12"'], ['"1a2"', '""']
    ),
    "pattern on decoded text": Case(
        {"type": "string", "pattern": "^.$"}, ['"\\\\"', '"\\""', '"a"'], ['"\\"', '"ab"', '"\\n"']
    ),
    "negated class": Case({"type": "string", "pattern": "^[^a]$"}, ['"\\""', '"b"', '"\\n"'], ['"a"', '"""']),
    "slash": Case({"type": "string", "pattern": "^a\\/b$"}, ['"a/b"'], ['"a\\/b"', '"ab"']),
    "pattern and lengths": Case(
        {"type": "string", "pattern": "^a*$", "minLength": 2, "maxLength": 3},
        ['"aa"', '"aaa"'],
        ['"a"', '"aaaa"', '"ab"'],
    ),
    "annex b": Case({"type": "string", "pattern": "^[\\w-]+[\\-x]$"}, ['"a-"', '"--x"'], ['"+-"', '"a"']),
    "word edges": Case(
        {"type": "string", "pattern": "\\bcat\\b"}, ['"cat"', '"a cat!"'], ['"cats"', '"a_cat"']
    ),
    "date": Case(
        {"type": "string", "format": "date"},
        ['"2024-02-29"', '"1999-12-31"'],
        ['"2023-02-29"', '"2024-02-30"', '"0000-01-01"', '"24-01-01"'],
    ),
    "date-time": Case(
        {"type": "string", "format": "date-time"},
        ['"2024-02-29T23:59:59.123456Z"', '"2024-01-01T00:00:00+02:00"'],
        ['"2024-01-01"', '"2024-01-01T24:00:00Z"', '"2024-01-01T00:00:00"'],
    ),
    "uuid": Case(
        {"type": "string", "format": "uuid"}, ['"2eb8aa08-AA98-11ea-b4aa-73b441d16380"'], ['"2eb8aa08"']
    ),
    "uri, short": Case(
        {"type": "string", "format": "uri", "maxLength": 2083},
        ['"https://a.example/b?c=d#e"'],
        ['"//a"', '"a b:c"'],
    ),
    "allOf": Case(
        {"allOf": [{"type": "integer"}, {"minimum": 3}, {"maximum": 4}]}, ["3", "4"], ["2", "5", '"a"', "3.5"]
    ),
    "allOf with a pattern": Case({"type": "string", "allOf": [{"pattern": "^a+$"}]}, ['"aa"'], ['""', '"b"']),
    "anyOf with siblings": Case(
        {"type": "string", "anyOf": [{"maxLength": 1}, {"pattern": "^x"}]}, ['"a"', '"xyz"'], ['"ab"', "1"]
    ),
    "anyOf required": Case(
        {
            "type": "object",
            "properties": {"a": {}, "b": {}},
            "anyOf": [{"required": ["a"]}, {"required": ["b"]}],
        },
        ['{"a":1}', '{"b":1}', '{"a":1,"b":2,"c":3}'],
        ["{}", '{"c":1}'],
    ),
    "oneOf": Case(
        {"oneOf": [{"type": "integer"}, {"type": "number", "minimum": 5}]}, ["3", "5.5"], ["5", "6", "4.5"]
    ),
    "oneOf without types": Case(
        {"oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
        ['{"a":1}', '{"b":1}'],
        ["{}", '{"a":1,"b":2}', "7", '"s"'],
    ),
    "discriminator": Case(
        {
            "oneOf": [
                closed(kind={"const": "a"}, x={"type": "integer"}),
                closed(kind={"const": "b"}, x={"type": "string"}),
            ]
        },
        ['{"kind":"a","x":1}', '{"kind":"b","x":"s"}'],
        ['{"kind":"a","x":"s"}', '{"kind":"c","x":1}'],
    ),
    "not": Case(
        {"type": "object", "properties": {"a": {}}, "not": {"required": ["a", "b"]}},
        ["{}", '{"a":1}', '{"b":1}'],
        ['{"a":1,"b":2}', '{"b":1,"a":2}'],
    ),
    "not a string": Case({"not": {"type": ["string", "object"]}}, ["1", "null", "[]"], ['"a"', "{}"]),
    "not a pattern": Case({"type": "string", "not": {"pattern": "^x"}}, ['"a"', '""'], ['"x"', '"xy"']),
    "not listed": Case(
        {"type": ["string", "integer"], "not": {"enum": ["a", 10]}}, ['"b"', "1", "100"], ['"a"', "10"]
    ),
    "one key for two": Case(
        {
            "type": "object",
            "maxProperties": 2,
            "allOf": [{"not": {"patternProperties": {letter: {"type": "null"}}}} for letter in "abc"],
        },
        ['{"ab":1,"c":1}', '{"abc":1}', '{"bc":0,"a":0}'],
        ['{"a":1,"b":1}', '{"ab":null,"c":1}', "{}", '{"a":1,"b":1,"c":1}'],
    ),
    "if": Case(
        {
            "type": "object",
            "properties": {"k": {"enum": ["a", "b"]}, "n": {"type": "integer"}},
            "required": ["k"],
            "if": {"properties": {"k": {"const": "a"}}},
            "then": {"required": ["n"]},
            "else": {"properties": {"n": False}},
        },
        ['{"k":"a","n":1}', '{"k":"b"}'],
        ['{"k":"a"}', '{"k":"b","n":1}'],
    ),
    "unevaluated": Case(
        {
            "allOf": [{"properties": {"a": {"type": "integer"}}}],
            "properties": {"b": {}},
            "unevaluatedProperties": False,
        },
        ["{}", '{"b":1,"a":2}', '{"b":0}'],
        ['{"c":1}', '{"a":"x"}'],
    ),
    "pruned": Case(
        {
            "type": "object",
            "properties": {"a": False, "b": {"type": "integer", "minimum": 2, "maximum": 1}, "c": {}},
            "additionalProperties": False,
        },
        ["{}", '{"c":1}'],
        ['{"a":1}', '{"b":1}'],
    ),
    "hostile names": Case(
        {
            "type": "object",
            "properties": {name: {"const": 1} for name in ["]x", "^", "-a", "\b", '"', " ", "a/b", "~", "%"]},
        },
        ['{"]x":1,"^":1,"\\b":1,"\\"":1,"x":2}'],
        ['{"]x":2}', '{"^":2}', '{"\\b":2}', '{"%":0}'],
    ),
    "constant with escapes": Case(
        {"const": 'http://x\\y\n"é😀'}, ['"http://x\\\\y\\n\\"é😀"'], ['"http:\\/\\/x"']
    ),
}
