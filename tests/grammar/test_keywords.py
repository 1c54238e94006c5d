"""Every keyword of every vocabulary stands in exactly one list."""

import pytest
from jsonschema import (
    Draft4Validator,
    Draft6Validator,
    Draft7Validator,
    Draft201909Validator,
    Draft202012Validator,
)
from jsonschema_specifications import REGISTRY

from judge_local.grammar.keywords import (
    ANNOTATION,
    APPLIES_TO,
    ENFORCED,
    REFUSED,
    TYPES,
    VOCABULARY,
    near_miss,
)

DRAFTS = (Draft4Validator, Draft6Validator, Draft7Validator, Draft201909Validator, Draft202012Validator)
# What the meta-schemas describe, and what the validators act on.
PUBLISHED = sorted(
    {keyword for draft in DRAFTS for keyword in (*draft.META_SCHEMA["properties"], *draft.VALIDATORS)}
    | {
        keyword
        for uri in REGISTRY
        if "/draft/20" in uri and "/meta/" in uri
        for keyword in REGISTRY.contents(uri).get("properties", {})
    }
)


def test_the_published_vocabularies_were_found():
    assert {"$dynamicAnchor", "contentSchema", "dependencies", "prefixItems", "unevaluatedItems"} <= set(
        PUBLISHED
    )


@pytest.mark.parametrize("keyword", PUBLISHED)
def test_a_published_keyword_stands_in_exactly_one_list(keyword):
    assert sum(keyword in each for each in (ENFORCED, ANNOTATION, REFUSED)) == 1


def test_no_list_holds_a_keyword_that_nobody_published():
    assert set() == VOCABULARY - set(PUBLISHED)


def test_types_are_those_of_json_schema():
    for types in APPLIES_TO.values():
        assert types <= set(TYPES)
    assert APPLIES_TO.keys() <= VOCABULARY


@pytest.mark.parametrize(
    ("keyword", "meant"),
    [
        ("maxmimum", "maximum"),
        ("item", "items"),
        ("requried", "required"),
        ("readonly", "readOnly"),
        ("x-origin", None),
        ("name", None),
        ("minimum", None),
    ],
)
def test_slips_are_seen(keyword, meant):
    assert meant == near_miss(keyword)
