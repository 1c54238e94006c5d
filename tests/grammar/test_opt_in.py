"""What is written only when asked for: declared keys in any order, and one item where items must differ."""

import itertools
import json
from random import Random

import pytest
from jsonschema import Draft202012Validator

from grammar.derivations import Deriver, RepeatedKeyError, unique
from grammar.tiny_schemas import schemas, text_of, world
from grammar.zoo import ZOO, validator_of
from judge_local.errors import UnsatisfiableSchemaError, UnsupportedSchemaError, UsageError
from judge_local.grammar import compile_schema


def closed(names, required=()):
    return {
        "type": "object",
        "properties": {name: {"const": 1} for name in names},
        "required": list(required),
        "additionalProperties": False,
    }


def written(names):
    return text_of(dict.fromkeys(names, 1))


@pytest.mark.parametrize("required", [(), ("b",), ("a", "c"), ("a", "b", "c", "d", "e", "f")])
def test_every_arrangement_of_up_to_six_keys(required):
    grammar = compile_schema(closed("abcdef", required), property_order="any")
    for size in range(7):
        for names in itertools.permutations("abcdef", size):
            assert (set(required) <= set(names)) == grammar.accepts(written(names)), names
    assert not grammar.accepts('{"a":1,"b":1,"a":1}')
    assert not grammar.accepts('{"a":1,}')
    assert not any("order" in row.detail for row in grammar.report.narrowed)


def test_seven_keys_keep_the_order_of_the_schema_and_the_report_says_so():
    grammar = compile_schema(closed("abcdefg"), property_order="any")

    assert grammar.accepts(written("abcdefg"))
    assert not grammar.accepts(written("ba"))
    assert "keys in the order a, b, c, d, e, f, g" in {row.detail for row in grammar.report.narrowed}


def test_an_order_holds_at_every_depth_and_any_order_too():
    schema = {"properties": {"y": closed("ab"), "x": {"const": 1}}, "additionalProperties": False}

    assert compile_schema(schema, property_order="any").accepts('{"x":1,"y":{"b":1,"a":1}}')
    assert not compile_schema(schema).accepts('{"y":{"b":1,"a":1}}')


def test_every_key_is_written_in_any_order_when_all_are_asked_for():
    grammar = compile_schema(closed("abc"), property_order="any", optional="emit")

    assert grammar.accepts(written("cab"))
    assert not grammar.accepts(written("ca"))


def test_keys_that_are_counted_or_depend_on_each_other():
    schema = closed("abc") | {"minProperties": 1, "maxProperties": 2, "dependentRequired": {"c": ["a"]}}
    grammar = compile_schema(schema, property_order="any")
    validator = Draft202012Validator(schema)
    for size in range(4):
        for names in itertools.permutations("abc", size):
            assert grammar.accepts(written(names)) == validator.is_valid(dict.fromkeys(names, 1)), names


def in_every_order(value):
    """A value with the keys of its outermost object in every order."""
    if not isinstance(value, dict):
        return [value]
    return [dict(pairs) for pairs in itertools.permutations(value.items())]


WORLD = [(each, text_of(each)) for value in world() for each in in_every_order(value)]


@pytest.mark.parametrize("schema", [pytest.param(schema, id=str(at)) for at, schema in enumerate(schemas())])
def test_exactly_the_valid_values_in_any_order(schema):
    try:
        grammar = compile_schema(json.dumps(schema), property_order="any", unique="one")
    except (UnsatisfiableSchemaError, UnsupportedSchemaError):
        return  # The same under any order; what is refused is counted where the order is the schema's.
    validator = Draft202012Validator(schema)
    valid = {text for value, text in WORLD if validator.is_valid(value)}
    accepted = {text for _, text in WORLD if grammar.accepts(text)}
    details = [row.detail for row in grammar.report.narrowed]
    lossy = any(("left out" in each and "U+007F" not in each) or "one item" in each for each in details)

    assert accepted <= valid, sorted(accepted - valid)
    assert lossy or accepted == valid, sorted(valid - accepted)


@pytest.mark.parametrize("name", ZOO)
def test_whatever_is_derived_in_any_order_is_valid(name):
    schema = ZOO[name].schema
    grammar = compile_schema(json.dumps(schema), property_order="any", unique="one")
    deriver, validator, random = Deriver(grammar.gbnf, enough=200), validator_of(schema), Random(name)
    for _ in range(20):
        text = deriver.draw(random)
        try:
            value = json.loads(text, object_pairs_hook=unique, parse_constant=pytest.fail)
        except RepeatedKeyError:
            assert any(row.keyword == "additionalProperties" for row in grammar.report.checked), text
            continue

        assert list(validator.iter_errors(value)) == [], text


UNIQUE = {"type": "array", "items": {"type": "string"}, "uniqueItems": True}


def test_at_most_one_item_where_items_must_differ():
    grammar = compile_schema(UNIQUE, unique="one")

    assert [grammar.accepts(text) for text in ("[]", '["x"]', '["x","y"]', '["x","x"]')] == [
        True,
        True,
        False,
        False,
    ]
    assert [(row.pointer, row.detail) for row in grammar.report.narrowed if row.keyword == "uniqueItems"] == [
        ("", "at most one item")
    ]


def test_one_item_is_owed_or_none_is_possible():
    assert not compile_schema(UNIQUE | {"minItems": 1}, unique="one").accepts("[]")
    none = compile_schema(UNIQUE | {"maxItems": 0}, unique="one")

    assert [none.accepts(text) for text in ("[]", '["x"]')] == [True, False]


def test_few_values_are_still_written_one_by_one():
    few = {"items": {"enum": [1, 2, 3]}, "type": "array", "uniqueItems": True}
    grammar = compile_schema(few, unique="one")

    assert [grammar.accepts(text) for text in ("[3,1]", "[3,1,3]")] == [True, False]
    assert not any(row.keyword == "uniqueItems" for row in grammar.report.narrowed)


@pytest.mark.parametrize(
    ("schema", "options", "proposed"),
    [
        (UNIQUE, {}, True),
        (UNIQUE | {"minItems": 2}, {}, False),
        (UNIQUE | {"minItems": 2}, {"unique": "one"}, False),
    ],
)
def test_where_one_item_is_not_enough_it_is_refused_and_not_proposed(schema, options, proposed):
    with pytest.raises(UnsupportedSchemaError) as caught:
        compile_schema(schema, **options)
    (fault,) = caught.value.faults

    assert (fault.pointer, fault.keyword, fault.value) == ("", "uniqueItems", "true")
    assert ("set `unique` to 'one'" in fault.hint) == proposed
    assert "`checked`" in fault.hint


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"property_order": "alphabetical"}, "property_order: 'alphabetical' is not known"),
        ({"unique": "two"}, "unique: 'two' is not known"),
        ({"property_order": "any", "order": ["a"]}, "order: it asks for one order"),
    ],
)
def test_options_that_cannot_be_meant(options, message):
    with pytest.raises(UsageError, match=message):
        compile_schema(closed("ab"), **options)
