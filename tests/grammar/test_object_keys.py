"""Keys of objects: which of them are owed, how they are counted, in which classes and in how many ways they may stand."""

import itertools
import json

import pytest
from jsonschema import Draft202012Validator

from judge_local.errors import UnsatisfiableSchemaError, UnsupportedSchemaError
from judge_local.grammar import compile_schema


def text_of(value):
    return json.dumps(value, separators=(",", ":"))


def closed(names, required=()):
    return {
        "type": "object",
        "properties": {name: {"const": 1} for name in names},
        "required": list(required),
        "additionalProperties": False,
    }


def many(count):
    return [f"n{at}" for at in range(count)]


def extras(count, before=(), after=()):
    """An object of so many undeclared keys, between declared ones."""
    names = [*before, *(f"x{at}" for at in range(count)), *after]
    return text_of(dict.fromkeys(names, 1))


def rows(grammar, keyword):
    return [row.detail for row in grammar.report.narrowed if row.keyword == keyword]


# What some key has to be.


def bits(names, count):
    """Each bit must be set in some value: so many keys are owed, and one may be several of them at once."""
    values = range(1 << count)
    unset = [[value for value in values if not value >> bit & 1] for bit in range(count)]
    return {
        "type": "object",
        "properties": {name: {"enum": list(values)} for name in names},
        "additionalProperties": False,
        "allOf": [{"not": {"additionalProperties": {"enum": each}}} for each in unset],
    }


def of_values(names, count, most):
    """Every object of at most so many of these keys, with the bits that are set in any of its values."""
    for size in range(most + 1):
        for chosen in itertools.combinations(names, size):
            for values in itertools.product(range(1 << count), repeat=size):
                met = 0
                for value in values:
                    met |= value
                yield text_of(dict(zip(chosen, values, strict=True))), met


@pytest.mark.parametrize("count", [1, 2, 3])
def test_up_to_three_that_are_owed_may_be_any_keys_in_any_combination(count):
    grammar = compile_schema(bits("xyz", count))
    for text, met in of_values("xyz", count, 3):
        assert grammar.accepts(text) == (met == (1 << count) - 1), text


def test_four_that_are_owed_may_be_one_key_or_four():
    grammar = compile_schema(bits("wxyz", 4))

    for values in itertools.permutations((1, 2, 4, 8)):
        assert grammar.accepts(text_of(dict(zip("wxyz", values, strict=True)))), values
    for text, met in of_values("wxyz", 4, 2):
        assert met == 15 or not grammar.accepts(text), text
    assert all(grammar.accepts(text_of({name: 15})) for name in "wxyz")


OWED = [
    {"propertyNames": {"pattern": "^a"}},
    {"propertyNames": {"maxLength": 1}},
    {"propertyNames": {"enum": ["a", "b"]}},
    {"additionalProperties": {"type": "null"}},
    {"additionalProperties": False},
    {"patternProperties": {"^a": {"type": "null"}}},
    {"patternProperties": {"b$": False}},
    {"properties": {"a": {}}, "additionalProperties": {"type": "null"}},
    {"properties": {"a": {}}, "additionalProperties": False},
    {"patternProperties": {"b$": {}}, "additionalProperties": False},
]
BESIDE = [
    {},
    {"additionalProperties": {"type": "integer"}},
    {"properties": {"ab": {"type": "null"}}},
    {"patternProperties": {"^a": {"type": "null"}}},
    {"propertyNames": {"maxLength": 1}},
    {"maxProperties": 1},
]
WORLD = [
    dict(zip(names, values, strict=True))
    for size in range(3)
    for names in itertools.permutations(("a", "ab", "b", "c"), size)
    for values in itertools.product((1, None), repeat=size)
]


@pytest.mark.parametrize("beside", BESIDE, ids=text_of)
def test_exactly_the_objects_in_which_some_key_is_what_is_owed(beside):
    owed = [[one] for one in OWED] + [[one, other] for one, other in itertools.combinations(OWED, 2)][::3]
    for each in owed:
        schema = {"type": "object", **beside, "allOf": [{"not": one} for one in each]}
        validator = Draft202012Validator(schema)
        valid = [value for value in WORLD if validator.is_valid(value)]
        try:
            grammar = compile_schema(schema)
        except UnsatisfiableSchemaError:
            assert not valid, schema
            continue

        assert [value for value in WORLD if grammar.accepts(text_of(value))] == valid, schema


# How many there are.


@pytest.mark.parametrize("low", range(4))
@pytest.mark.parametrize("declared", [{}, {"properties": {"x1": {"const": 1}}}, {"required": ["x0"]}])
def test_counts_are_exact(low, declared):
    for high in (None, *range(5)):
        schema = {"type": "object", "minProperties": low, **declared}
        schema |= {} if high is None else {"maxProperties": high}
        least = max(low, len(declared.get("required", ())))
        if high is not None and high < least:
            with pytest.raises(UnsatisfiableSchemaError):
                compile_schema(schema)
            continue
        grammar = compile_schema(schema)
        accepted = [count for count in range(7) if grammar.accepts(extras(count))]

        assert accepted == [count for count in range(7) if least <= count <= (6 if high is None else high)]


@pytest.mark.parametrize(
    ("low", "high", "first", "last"),
    [(0, None, 0, 64), (0, 64, 0, 64), (0, 65, 0, 64), (2, 100, 2, 64), (70, None, 70, 70), (70, 80, 70, 70)],
)
def test_of_undeclared_keys_alone_64_are_written_or_as_many_as_there_must_be(low, high, first, last):
    schema = {"type": "object", "minProperties": low} | ({} if high is None else {"maxProperties": high})
    grammar = compile_schema(schema)

    assert [count for count in range(90) if grammar.accepts(extras(count))] == list(range(first, last + 1))


def test_after_each_declared_key_stand_at_most_64_others():
    grammar = compile_schema({"type": "object", "properties": {"a": {"const": 1}, "b": {"const": 1}}})

    for before, after in (("a", ""), ("ab", ""), ("a", "b"), ("b", "")):
        accepted = [count for count in range(62, 68) if grammar.accepts(extras(count, before, after))]
        assert accepted == [62, 63, 64], (before, after)


@pytest.mark.parametrize(
    ("schema", "more"),
    [
        ({"type": "object", "properties": {"a": {"const": 1}}, "required": ["a"]}, {"minProperties": 1}),
        ({"type": "object", "properties": {"a": {"const": 1}}}, {"minProperties": 0}),
        (closed("abc"), {"maxProperties": 3}),
        (closed("abc"), {"maxProperties": 4}),
        (closed("abc", "ab"), {"minProperties": 2, "maxProperties": 3}),
    ],
)
def test_counts_that_hold_anyway_change_nothing(schema, more):
    assert compile_schema(schema | more).gbnf == compile_schema(schema).gbnf


@pytest.mark.parametrize(
    ("schema", "room"),
    [
        ({"properties": {"a": {"const": 1}}}, 1499),
        ({"required": ["a", "b", "c", "d"], "additionalProperties": {"const": 1}}, 186),
    ],
)
def test_a_maximum_that_would_take_too_many_states_is_narrowed(schema, room):
    schema |= {"type": "object"}
    fitting = compile_schema(schema | {"maxProperties": room})
    narrowed = compile_schema(schema | {"maxProperties": room + 1})

    assert (rows(fitting, "maxProperties"), rows(narrowed, "maxProperties")) == ([], [f"at most {room} keys"])
    assert fitting.gbnf == narrowed.gbnf


# In how many ways they may stand.


@pytest.mark.parametrize("count", range(1, 6))
def test_up_to_four_required_names_that_are_not_declared_stand_in_any_order(count):
    names = "abcde"[:count]
    grammar = compile_schema({"type": "object", "required": list(names)})

    for each in itertools.permutations(names):
        assert grammar.accepts(text_of(dict.fromkeys(each, 1))) == (count < 5 or "".join(each) == names), each
    assert rows(grammar, "properties") == (["keys in the order a, b, c, d, e"] if count == 5 else [])


def test_two_keys_have_an_order_and_one_has_none():
    assert rows(compile_schema(closed("ab")), "properties") == ["keys in the order a, b"]
    assert rows(compile_schema(closed("a")), "properties") == []


def fault_of(schema):
    with pytest.raises(UnsupportedSchemaError) as caught:
        compile_schema(schema)
    (fault,) = caught.value.faults
    assert "its keys may stand in too many ways" in fault.reason
    return fault.pointer, fault.keyword


def test_six_thousand_states_are_written_and_no_more():
    names = many(3000)
    first, *others = names[:2999]

    assert compile_schema(closed(names[:2999], names[:2999])).accepts(text_of(dict.fromkeys(names[:2999], 1)))
    assert fault_of(closed(names, names)) == ("", "properties")
    assert fault_of(closed([first, *others], others)) == ("", "properties")


def test_three_thousand_declarations_are_read_and_no_more():
    layers = [{"properties": {name: {"const": 1} for name in many(100)}} for _ in range(30)]
    schema = {"type": "object", "allOf": layers}

    assert compile_schema(schema, additional="deny").accepts("{}")
    assert fault_of(schema | {"properties": {"n0": {"const": 1}}})[1] == "properties"


def test_the_keyword_that_asks_for_too_much_is_named():
    declared = {"type": "object", "properties": {"a": {"const": 1}}}

    assert fault_of(declared | {"minProperties": 3000}) == ("", "minProperties")
    assert fault_of({"type": "object", "allOf": [declared, {"minProperties": 3000}]})[1] == "minProperties"
    assert fault_of({"type": "object", "required": many(3000)}) == ("", "required")


# Which classes they fall into.


def prefixed(count, schema):
    return {"type": "object", "patternProperties": {f"^{chr(0x4E00 + at)}": schema for at in range(count)}}


def test_sixty_four_classes_are_told_apart_and_no_more():
    grammar = compile_schema(prefixed(63, {"const": 1}))

    assert [grammar.accepts(text_of({chr(0x4E00 + 62): value})) for value in (1, 2)] == [False, False]
    assert [grammar.accepts(f'{{"{chr(0x4E00 + 62)}":{value}}}') for value in (1, 2)] == [True, False]
    assert grammar.accepts('{"z":2}')
    with pytest.raises(UnsupportedSchemaError, match="more than 64 classes"):
        compile_schema(prefixed(64, {"const": 1}))


def test_keys_that_may_have_no_value_are_no_class():
    grammar = compile_schema(prefixed(70, False))

    assert [grammar.accepts(text) for text in ('{"z":2}', '{"一":2}', '{"丂z":2}')] == [True, False, False]


@pytest.mark.parametrize(
    "schema",
    [
        {"patternProperties": {"^a": False}, "additionalProperties": False},
        {"propertyNames": False},
        {"propertyNames": False, "patternProperties": {"^a": {"const": 1}}},
        {"additionalProperties": False},
    ],
)
def test_where_no_key_may_stand_the_object_is_empty_and_nothing_is_narrowed(schema):
    grammar = compile_schema({"type": "object", **schema})

    assert [grammar.accepts(text) for text in ("{}", '{"a":1}', '{"b":1}')] == [True, False, False]
    assert grammar.report.narrowed == ()


# What a caller leaves out.


@pytest.mark.parametrize(
    ("schema", "narrowed"),
    [
        ({"type": "object"}, True),
        ({"type": "object", "properties": {"a": {"const": 1}}}, True),
        (closed("a"), False),
        (closed("a") | {"properties": {"a": False}}, False),
        ({"type": "object", "allOf": [closed("a"), {"properties": {"a": {}}}]}, True),
    ],
)
def test_no_keys_but_the_declared_ones(schema, narrowed):
    grammar = compile_schema(schema, additional="deny")

    assert rows(grammar, "additionalProperties") == (["no keys but the declared ones"] if narrowed else [])
    assert not grammar.accepts('{"b":1}')


def test_a_required_name_that_is_left_out_is_named():
    with pytest.raises(UnsatisfiableSchemaError, match="the required name 'b' is not among its properties"):
        compile_schema({"type": "object", "required": ["b", "c"]}, additional="deny")


def test_the_rule_of_a_key_says_where_it_stands():
    schema = closed("ab") | {"properties": {"a": {"const": 1}, "b": closed("cd")}}
    comments = [line for line in compile_schema(schema).gbnf.splitlines() if line.startswith("#")]

    assert {comment for comment in comments if "from" in comment} == {
        '# (root), from "a" on',
        '# (root), from "b" on',
        '# /b, from "c" on',
        '# /b, from "d" on',
    }


def test_patterns_may_part_the_keys_into_64_classes_and_no_more():
    parted = {letter: {} for letter in "abcdef"}  # Each is there or is not: 64 classes.
    grammar = compile_schema({"type": "object", "patternProperties": parted})

    assert grammar.accepts('{"fad":1}')
    with pytest.raises(UnsupportedSchemaError, match="into more than 64 classes"):
        compile_schema({"type": "object", "patternProperties": {**parted, "^abcdef$": {}}})


@pytest.mark.parametrize("count", [4, 5])
def test_up_to_four_required_keys_that_are_not_declared_stand_in_any_order(count):
    names = "abcde"[:count]
    grammar = compile_schema({"type": "object", "required": list(names)})

    assert grammar.accepts("{" + ",".join(f'"{name}":1' for name in names) + "}")
    assert grammar.accepts("{" + ",".join(f'"{name}":1' for name in names[::-1]) + "}") == (count == 4)
