"""Formats: what is written under one is taken by the validator, and the widest reading holds all that is."""

from random import Random

import jsonschema
import pytest

from grammar.derivations import Deriver
from judge_local.grammar import compile_schema
from judge_local.grammar.formats import FORMATS, lower_format, upper_format

CHECKER = jsonschema.Draft202012Validator.FORMAT_CHECKER
VALID = {
    "date": ["2024-02-29", "2000-02-29", "0001-01-01", "9999-12-31"],
    "time": ["00:00:00Z", "23:59:59.5+23:59", "12:00:00z"],
    "date-time": ["1990-12-31T23:59:59-08:00", "2024-02-29t00:00:00.123456789Z"],
    "duration": ["P1Y2M3DT4H5M6S", "P3W", "PT1M", "P1DT1S"],
    "email": ["a@b", "first.last+tag@mail.example.com"],
    "hostname": ["a", "example.com", "a-b.c9"],
    "ipv4": ["0.0.0.0", "255.255.255.255", "192.168.1.9"],
    "ipv6": ["::", "::1", "1:2:3:4:5:6:7:8", "fe80::a:b", "::ffff:1.2.3.4", "1::8"],
    "uri": ["a:", "https://u@h.example:8080/p/%20?q=1#f", "urn:isbn:0", "http://[::1]/", "mailto:a@b"],
    "uuid": ["2eb8aa08-aa98-11ea-b4aa-73b441d16380"],
    "uri-template": ["", "/a/{id}", "{?x,y*}{&z:3}", "http://e.example/{+path}"],
    "json-pointer": ["", "/a~0~1/0", "/"],
    "regex": ["", "^a+$", "[a-z]+\\d*"],
}
INVALID = {
    "date": ["2023-02-29", "1900-02-29", "2024-13-01", "2024-04-31", "0000-01-01", "2024-1-1", "2024-01-01 "],
    "time": ["24:00:00Z", "12:00:00", "12:60:00Z", "12:00:00+24:00"],
    "date-time": ["2024-01-01 00:00:00Z", "2024-02-30T00:00:00Z"],
    "duration": ["P", "PT", "1D", "P1W1D", "P1S"],
    "email": ["a", "@b", "a@", "a b@c"],
    "hostname": ["-a", "a-", "a..b", "a_b", "", "xn--a"],
    "ipv4": ["256.0.0.1", "01.2.3.4", "1.2.3"],
    "ipv6": ["1:2:3:4:5:6:7", "::1::", "12345::", "1:2:3:4:5:6:7:8:9"],
    "uri": ["//a", "a b:c", "http://h:x/", "http://a\\b", ":a"],
    "uuid": ["2eb8aa08aa9811eab4aa73b441d16380", "2eb8aa08-aa98-11ea-b4aa-73b441d1638g"],
    "uri-template": ["{", "{}", "{a", "a}"],
    "json-pointer": ["a", "/~", "/~2"],
    "regex": ["(", "["],
}


def test_every_format_of_the_list_is_tried():
    assert VALID.keys() == FORMATS == INVALID.keys()


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_vectors(name):
    for text in VALID[name]:
        assert CHECKER.conforms(text, name)
        assert lower_format(name).matches(text), text
    for text in INVALID[name]:
        assert not lower_format(name).matches(text), text


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_what_is_derived_keeps_the_format(name):
    import json

    deriver, random = Deriver(compile_schema({"type": "string", "format": name}).gbnf, 200), Random(name)
    for _ in range(300):
        text = json.loads(deriver.draw(random))

        assert CHECKER.conforms(text, name), text
        assert upper_format(name).matches(text), text


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_what_breaks_a_format_is_no_text_of_it(name):
    """The opposite of a format keeps clear of all that any validator may take for it."""
    import json

    schema = {"type": "string", "not": {"format": name}, "maxLength": 12}
    grammar = (
        compile_schema(schema) if name in ("date", "email", "ipv4", "uri", "ipv6", "uuid", "time") else None
    )
    if grammar is None:
        return
    deriver, random = Deriver(grammar.gbnf), Random(name)
    for _ in range(200):
        assert not CHECKER.conforms(json.loads(deriver.draw(random)), name)
