"""`judge-local grammar`: the grammar, the report, and where a text departs."""

import json
from dataclasses import replace

import pytest
from click.testing import CliRunner

from judge_local.cli import main
from judge_local.cli.grammar import departure, explanation
from judge_local.grammar import compile_schema
from judge_local.grammar.profile import compile_verdict
from judge_local.verdict import VERDICT_SCHEMA

SCHEMA = {
    "title": "A reading",
    "type": "object",
    "properties": {"n": {"type": "integer", "minimum": 3, "maximum": 12}, "unit": {"enum": ["°C", "K"]}},
    "required": ["n"],
    "additionalProperties": False,
}


@pytest.fixture
def schema(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.json").write_text(json.dumps(SCHEMA))
    return "s.json"


def grammar(*args, **kwargs):
    return CliRunner().invoke(main, ["grammar", *args], **kwargs)


def test_the_grammar_is_printed(schema):
    result = grammar(schema)

    assert result.exit_code == 0
    assert result.stdout == compile_schema(json.dumps(SCHEMA)).gbnf.rstrip("\n") + "\n"


def test_a_schema_comes_from_standard_input_too(schema):
    assert grammar("-", input=json.dumps(SCHEMA)).stdout == grammar(schema).stdout


def test_the_judges_own_profile():
    assert grammar("--verdict").stdout == compile_verdict(VERDICT_SCHEMA).gbnf.rstrip("\n") + "\n"


def test_a_schema_that_is_no_verdict_is_refused_under_the_judges_profile(schema):
    result = grammar(schema, "--verdict")

    assert result.exit_code == 2
    assert result.stdout == ""
    assert "no property of that name is declared" in result.stderr


def test_every_keyword_is_explained(schema):
    """No keyword of the schema is missing from the table, and each says what enforces it."""
    shown = grammar(schema, "--explain").stdout
    rows = [line.split() for line in shown.splitlines()]

    assert ["(root)", "title", "(root)", "nobody"] in rows
    assert ["/properties/n", "minimum", "/n", "grammar"] in rows
    assert ["/properties/n", "maximum", "/n", "grammar"] in rows
    assert {"type", "properties", "required", "additionalProperties", "enum"} <= {
        r[1] for r in rows if len(r) > 3
    }
    compiled = compile_schema(json.dumps(SCHEMA))
    assert (
        f"{compiled.min_bytes} bytes at least, {compiled.max_chars} characters, {compiled.max_bytes} bytes at most"
        in shown
    )


def test_an_answer_without_limit_is_said_to_have_none():
    endless = replace(compile_schema({"const": "a"}), max_chars=None, max_bytes=None)

    assert "3 bytes at least, no limit at most" in [line.text for line in explanation(endless)]


def test_an_answer_whose_length_nobody_would_read_is_said_to_be_long():
    shown = [line.text for line in explanation(compile_schema({}))]

    assert "1 bytes at least, more than a terabyte at most" in shown


@pytest.mark.parametrize(
    ("text", "code", "shown"),
    [
        ('{"n":7}', 0, "accepted"),
        ('{"n":7,"unit":"°C"}\n', 0, "accepted"),
        ('{"n":7}\r\n', 0, "accepted"),
        ('{"n":2}', 1, "not accepted: line 1, column 6 after '{\"n\":': found '2'; expected"),
        ('{"n":7,"unit":"°F"}', 1, 'column 17 after \'{"n":7,"unit":"°\': found \'F\'; expected'),
        ('{"n":7', 1, "column 7 after '{\"n\":7': found the end of the text; expected"),
        ("", 1, "column 1: found the end of the text; expected"),
        ('{"n":7}\n\n', 1, "found '\\n'; expected the end"),
    ],
)
def test_a_text_is_accepted_or_shown_where_it_departs(schema, text, code, shown):
    result = grammar(schema, "--check", "-", input=text)

    assert result.exit_code == code
    assert shown in result.stdout
    assert result.stdout.count("\n") == 1


def test_json_that_only_has_spaces_too_many_is_told_so(schema):
    result = grammar(schema, "--check", "-", input='{"n": 7}')

    assert result.exit_code == 1
    assert "found ' '" in result.stdout
    assert result.stderr == (
        "judge-local: the same JSON without spaces is accepted: the grammar writes it compactly\n"
    )


def test_a_departure_counts_lines_and_characters():
    found = departure(compile_schema({"const": "a"}), '"b"')

    assert (found.offset, found.line, found.column, found.found) == (1, 1, 2, "b")


def test_json_has_it_all(schema):
    data = json.loads(grammar(schema, "--json").stdout)
    checked = grammar(schema, "--json", "--check", "-", input='{"n":99}')

    assert data["gbnf"] == compile_schema(json.dumps(SCHEMA)).gbnf
    assert data["report"]["dialect"] == "2020-12"
    assert {"rules", "minBytes", "maxBytes", "maxChars"} <= set(data)
    assert "accepted" not in data
    assert checked.exit_code == 1
    assert json.loads(checked.stdout)["accepted"] is False
    assert json.loads(checked.stdout)["departure"]["column"] == 7


def test_a_slip_in_a_keyword_is_warned_of(tmp_path):
    path = tmp_path / "s.json"
    path.write_text(json.dumps({"type": "integer", "maxmimum": 3}))

    result = grammar(str(path))

    assert result.exit_code == 0
    assert "judge-local: warning: " in result.stderr
    assert "maxmimum" in result.stderr


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not JSON"),
        ('{"type": "object"', "not JSON"),
        ('{"type": "banana"}', "not a JSON Schema"),
        ('{"type": "string", "pattern": "(?=a)"}', "looking ahead or behind"),
        ('{"type": "string", "const": 3}', "schema"),
    ],
)
def test_a_schema_that_has_no_grammar_is_one_line_and_2(text, message):
    result = grammar("-", input=text)

    assert result.exit_code == 2
    assert result.stdout == ""
    assert message in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_refused_keyword_can_be_left_to_the_validator():
    text = '{"type": "string", "pattern": "(?=a)"}'

    assert grammar("-", input=text).exit_code == 2
    assert grammar("-", "--checked", "pattern", input=text).exit_code == 0


def test_what_the_refusal_proposes_can_be_said(tmp_path):
    text = '{"type": "object", "properties": {"a": {"type": "boolean"}}}'

    denied = grammar(
        "-", "--additional", "deny", "--optional", "emit", "--check", str(tmp_path / "t"), input=text
    )
    (tmp_path / "t").write_text('{"a":true}')
    accepted = grammar(
        "-", "--additional", "deny", "--optional", "emit", "--check", str(tmp_path / "t"), input=text
    )

    assert denied.exit_code == 2
    assert accepted.exit_code == 0


def test_any_order_and_one_item_are_options_too(tmp_path):
    schema = {"properties": {"a": {"const": 1}, "b": {"type": "array", "uniqueItems": True}}}
    text = json.dumps({**schema, "additionalProperties": False})
    (tmp_path / "t").write_text('{"b":[0],"a":1}')
    asked = ["--any-order", "--unique", "one", "--check", str(tmp_path / "t")]

    assert grammar("-", "--any-order", input=text).exit_code == 2
    assert grammar("-", "--unique", "one", *asked[3:], input=text).exit_code == 1
    assert grammar("-", *asked, input=text).exit_code == 0
    assert "narrowed: at most one item" in grammar("-", "--explain", *asked[:3], input=text).stdout


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([], "no schema was named"),
        (["-", "--check", "-"], "standard input is read once"),
        (["--verdict", "--optional", "emit"], "settles --optional"),
        (["--verdict", "--any-order"], "settles --optional"),
        (["--verdict", "--unique", "one"], "settles --optional"),
        (["none.json"], "there is no file 'none.json'"),
        (["--verdict", "--check", "none.json"], "check: there is no file"),
    ],
)
def test_a_call_that_cannot_be_meant_is_one_line_and_2(schema, args, message):
    result = grammar(*args)

    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stderr.count("\n") == 1
