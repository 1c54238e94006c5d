"""The promise: whatever the grammar admits is valid, and whatever is valid and not narrowed away is admitted."""

import itertools
import json
import re
from decimal import Decimal
from functools import cache
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from grammar.derivations import derive, unique
from grammar.flat_schemas import PAIRS, text_of
from judge_local.errors import UsageError
from judge_local.grammar import compile_schema


def strict(text):
    return json.loads(text, object_pairs_hook=unique, parse_constant=pytest.fail)


@given(pair=PAIRS, seed=st.integers(0, 2**32))
@settings(max_examples=400)
def test_whatever_is_derived_is_valid(pair, seed):
    schema, _ = pair
    grammar = compile_schema(schema, max_string=40)
    random = Random(seed)
    validator = Draft202012Validator(schema)
    for _ in range(5):
        text = derive(grammar.gbnf, random)
        value = strict(text)

        assert list(validator.iter_errors(value)) == [], text
        assert grammar.accepts(text)
        assert grammar.min_bytes <= len(text.encode()) <= grammar.max_bytes
        assert len(text) <= grammar.max_chars


@given(PAIRS)
@settings(max_examples=400)
def test_whatever_is_valid_is_accepted(pair):
    schema, instance = pair
    text = text_of(instance)

    assert Draft202012Validator(schema).is_valid(strict(text))
    assert compile_schema(schema, max_string=40).accepts(text)


@given(pair=PAIRS, seed=st.integers(0, 2**32))
@settings(max_examples=300)
def test_whatever_a_slip_makes_invalid_is_refused(pair, seed):
    """One character changed, put in or taken out: if the grammar still accepts it, it is still valid."""
    schema, instance = pair
    grammar, random, text = compile_schema(schema, max_string=40), Random(seed), text_of(instance)
    for _ in range(10):
        at = random.randrange(len(text) + 1)
        slip = text[:at] + random.choice(["", *'{}[]",:\\-.019eatn ']) + text[at + random.choice((0, 1)) :]
        if grammar.accepts(slip):
            assert Draft202012Validator(schema).is_valid(strict(slip)), slip


NUMERAL = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?")


class Spelled(str):
    """A number of a parsed text, as it was spelled."""

    __slots__ = ()


def respelled(value):
    if isinstance(value, Spelled):
        return str(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(key)}:{respelled(item)}" for key, item in value.items()) + "}"
    return json.dumps(value)


def numerals(value):
    if isinstance(value, dict):
        return [numeral for item in value.values() for numeral in numerals(item)]
    return [value] if isinstance(value, Spelled) else []


def belongs(text, schema):
    """Whether `text` is a canonical text of a valid instance, worked out without any grammar."""
    try:
        spelled = json.loads(text, parse_int=Spelled, parse_float=Spelled, parse_constant=pytest.fail)
    except json.JSONDecodeError:
        return False
    if respelled(spelled) != text:
        return False
    for numeral in numerals(spelled):
        if not NUMERAL.fullmatch(numeral) or (Decimal(numeral) == 0 and numeral.startswith("-")):
            return False
        if "integer" in schema.get("type", ()) and "." in numeral:
            return False  # narrowed: an integer is written without a fraction
    return Draft202012Validator(schema).is_valid(json.loads(text))


CLOSED = {"type": "object", "additionalProperties": False}
EXHAUSTIVE = [
    ({"type": "number", "minimum": -1, "maximum": 10}, "-.019", 5),
    ({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}, "-.019", 5),
    ({"type": "number", "exclusiveMinimum": -0.1, "maximum": 0.9}, "-.019", 5),
    ({"type": "integer", "minimum": 10, "maximum": 109}, "-.019", 5),
    ({"type": "integer", "maximum": -10}, "-.019", 5),
    ({"type": "string", "minLength": 1, "maxLength": 2}, '"\\nua', 6),
    ({"type": "string", "maxLength": 1}, '"\\n"\n/', 5),
    ({"type": ["string", "integer"], "maxLength": 1, "minimum": 5}, '"a15', 4),
    ({"enum": ["", "a", "aa", 1, 11]}, '"a1', 5),
    ({"const": {"a": 1}}, '{}"a:1', 7),
    (CLOSED | {"properties": {"a": {"const": 1}}}, '{}"a:1', 7),
    (CLOSED | {"properties": {"a": {"type": "integer", "minimum": 1}}, "required": ["a"]}, '{}"a:1', 7),
    (CLOSED | {"properties": {"a": {**CLOSED, "properties": {}}}}, '{}"a:', 8),
]


@pytest.mark.parametrize(("schema", "alphabet", "longest"), EXHAUSTIVE)
def test_the_language_is_exactly_the_canonical_texts_of_the_valid_instances(schema, alphabet, longest):
    """Every text over a small alphabet, up to a length."""
    grammar = compile_schema(schema)
    letters = sorted(set(alphabet))
    accepted = 0
    for first in letters:
        if first not in '{"-0123456789':  # begins no value that the schemas above admit
            assert grammar.start().advance(first.encode()) is None
            continue
        for length in range(longest):
            for rest in itertools.product(letters, repeat=length):
                text = first + "".join(rest)
                accepted += grammar.accepts(text)

                assert belongs(text, schema) == grammar.accepts(text), text
    assert accepted > 0


# The conveniences.


@cache
def of_two_words():
    return compile_schema({"enum": ["pass", "partial"]})


def test_accepts_whole_texts_only():
    assert [of_two_words().accepts(text) for text in ('"pass"', '"pas', '"pass" ')] == [True, False, False]


def test_forced_follows_a_prefix():
    assert [of_two_words().forced(prefix) for prefix in ("", '"pas', '"pa', '"pass"')] == [
        '"pa',
        's"',
        "",
        "",
    ]


def test_forced_after_what_cannot_be_a_prefix():
    with pytest.raises(
        UsageError, match="prefix: after '\"p', 'x' is refused; expected 'artial\"' or 'ass\"'"
    ):
        of_two_words().forced('"px')


def test_expected_in_words():
    assert of_two_words().expected('"pa') == "'rtial\"' or 'ss\"'"
    assert of_two_words().expected('"pass"') == "the end"
    assert of_two_words().expected('"pass"!') == "after '\"pass\"', '!' is refused; expected the end"


def test_rule_names_and_comments_come_from_no_user_text():
    schema = {
        "type": "object",
        "properties": {'evil"\nroot ::= "x': {"enum": [1, 2]}},
        "additionalProperties": False,
    }
    gbnf = compile_schema(schema).gbnf

    for line in gbnf.splitlines():
        assert re.match(r"(root|r[0-9]+) ::= |# ", line)
    assert '# /properties/evil"\\u000aroot ::= "x' in gbnf


def test_the_grammar_stands_for_itself():
    assert compile_schema({"type": "null"}) == compile_schema('{"type": "null"}')
