"""Objects: key order, required and optional members, nesting, hostile names."""

import itertools
import json

import pytest

from judge_local.grammar import compile_schema

HOSTILE = [
    *(
        "]x",
        "^",
        "-a",
        "\\b",
        '"',
        " ",
        "",
        "a/b",
        "a~b",
        "%25",
        "number",
        "space",
        "root",
        "char",
        "r1",
        "::=",
        "#",
    ),
    *(
        "é",
        "😀",
        "a_b",
        "a-b",
        "A-B",
        "\n",
        "\t",
        "\x00",
        "\x7f",
        "\u2028",
        "{",
        "}",
        "$ref",
        "properties",
        "__proto__",
    ),
]


def of(names, required=(), **more):
    properties = {name: {"const": 1} for name in names}
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    } | more


def text_of(names):
    return json.dumps(dict.fromkeys(names, 1), ensure_ascii=False, separators=(",", ":"))


@pytest.mark.parametrize("required", [(), ("a",), ("b",), ("c",), ("a", "c"), ("b", "c"), ("a", "b", "c")])
def test_every_subset_that_holds_the_required_names_is_accepted_in_order_only(required):
    grammar = compile_schema(of("abc", required))
    for size in range(4):
        for names in itertools.permutations("abc", size):
            meant = set(required) <= set(names) and list(names) == sorted(names)

            assert meant == grammar.accepts(text_of(names)), names


@pytest.mark.parametrize(
    "text",
    [
        '{"a":1,}',
        '{,"a":1}',
        '{"a":1"b":1}',
        '{"a":1,,"b":1}',
        '{"a":1,"a":1}',
        '{"a" :1}',
        '{ "a":1}',
        '{"a":1} ',
        '{"d":1}',
        '{"\\u0061":1}',
        "{",
    ],
)
def test_commas_spaces_and_repeated_keys(text):
    assert not compile_schema(of("abc")).accepts(text)


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_is_a_name_like_any_other(name):
    grammar = compile_schema(of([name, "z"], [name]))

    assert grammar.accepts(text_of([name]))
    assert grammar.accepts(text_of([name, "z"]))
    assert not grammar.accepts(text_of([name + "x"]))
    assert not grammar.accepts(text_of(["z"]))


def test_all_hostile_names_together():
    grammar = compile_schema(of(HOSTILE, HOSTILE))

    assert grammar.accepts(text_of(HOSTILE))
    assert not grammar.accepts(text_of(HOSTILE[::-1]))


def test_names_that_differ_in_case_or_punctuation_are_different():
    grammar = compile_schema(of(["a_b", "a-b", "A-b"], ["a-b"]))

    assert [grammar.accepts(text_of([name])) for name in ("a-b", "a_b", "A-b")] == [True, False, False]


def test_order_puts_names_first_and_keeps_the_others():
    grammar = compile_schema(of("abcd", "abcd"), order=["c", "a"])

    assert grammar.accepts(text_of("cabd"))
    assert not grammar.accepts(text_of("abcd"))
    assert "keys in the order c, a, b, d" in {row.detail for row in grammar.report.narrowed}


def test_order_is_for_the_top_level_only():
    inner = of("ab", "ab")
    schema = {
        "type": "object",
        "properties": {"b": inner, "a": inner},
        "required": ["a", "b"],
        "additionalProperties": False,
    }
    grammar = compile_schema(schema, order=["b", "a"])

    assert grammar.accepts('{"b":{"a":1,"b":1},"a":{"a":1,"b":1}}')


def test_emit_writes_every_property_at_every_depth():
    schema = of("ab", "a")
    schema["properties"]["c"] = of("xy")
    grammar = compile_schema(schema, optional="emit")

    assert grammar.accepts('{"a":1,"b":1,"c":{"x":1,"y":1}}')
    assert not grammar.accepts('{"a":1,"c":{"x":1,"y":1}}')
    assert not grammar.accepts('{"a":1,"b":1,"c":{"x":1}}')
    assert sorted(row.detail for row in grammar.report.narrowed if row.keyword == "required") == [
        "always written though optional: b, c",
        "always written though optional: x, y",
    ]


def test_separators_are_fixed():
    grammar = compile_schema(of("ab", "ab"), separators=(", ", ": "))

    assert grammar.accepts('{"a": 1, "b": 1}')
    assert not grammar.accepts('{"a":1,"b":1}')
    assert not grammar.accepts('{"a": 1,"b": 1}')


@pytest.mark.parametrize(
    "schema",
    [of(""), of("") | {"properties": {"a": False}}, {"type": "object", "additionalProperties": False}],
)
def test_an_object_without_properties_is_empty(schema):
    grammar = compile_schema(schema)

    assert [grammar.accepts("{}"), grammar.accepts('{"a":1}')] == [True, False]


def test_pins():
    schema = of("bc", "b")
    schema["properties"]["a"] = {"type": "string", "pattern": "^It", "maxLength": 20}
    grammar = compile_schema(schema, pin={"a": 'It\'s "so"\n'}, order=["a"])

    assert grammar.accepts('{"a":"It\'s \\"so\\"\\n","b":1}')
    assert not grammar.accepts('{"b":1}')
    assert not grammar.accepts('{"a":"It","b":1}')
    assert grammar.forced() == '{"a":"It\'s \\"so\\"\\n","b":1'
    assert {"/properties/a"} == {row.pointer for row in grammar.report.narrowed if row.keyword == "const"}


def test_many_optional_properties_stay_small():
    """Two rules a property, however many there are."""
    sizes = [len(compile_schema(of([f"name{n:03}" for n in range(count)])).gbnf) for count in (100, 200, 400)]

    assert sizes[2] - sizes[1] < 2.2 * (sizes[1] - sizes[0])


def test_sizes_of_the_language():
    grammar = compile_schema(of(["a", "é"], ["a"]))

    assert (len('{"a":1}'), len('{"a":1,"é":1}'.encode()), len('{"a":1,"é":1}')) == (
        grammar.min_bytes,
        grammar.max_bytes,
        grammar.max_chars,
    )


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"properties": {"abc": {}}}, "no key may be called so"),
        ({"properties": {"ab": False}}, "`false` admits nothing"),
    ],
)
def test_a_property_that_cannot_stand_is_left_out_and_the_report_says_why(schema, reason):
    (name,) = schema["properties"]
    grammar = compile_schema({"type": "object", "propertyNames": {"maxLength": 2}, **schema})

    assert not grammar.accepts(f'{{"{name}":1}}')
    assert f"{name!r} left out: {reason}" in {row.detail for row in grammar.report.entries}


@pytest.mark.parametrize("count", [1, 2, 4, 200])
def test_a_greatest_number_that_no_object_can_pass_costs_nothing(count):
    schema = of([f"name{n:03}" for n in range(count)])

    assert compile_schema({**schema, "maxProperties": count}).gbnf == compile_schema(schema).gbnf
