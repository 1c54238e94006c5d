"""Claims from options and files, and what is refused before anything is judged."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judge_local.cli.claims import Claim, read_claims, strict_json
from judge_local.errors import InputError, UsageError


def file_with(folder, text, name="claims.txt"):
    path = folder / name
    path.write_text(text, "utf-8", newline="")
    return str(path)


def test_options_come_first_and_rows_count_over_all(tmp_path):
    path = file_with(tmp_path, "third\n\n  fourth  \r\n")

    claims = read_claims(("first", "second"), path)

    assert [(c.row, c.id, c.text) for c in claims] == [
        (1, "claim:1", "first"),
        (2, "claim:2", "second"),
        (3, "line:1", "third"),
        (4, "line:3", "fourth"),
    ]


def test_json_lines_keep_what_they_carry(tmp_path):
    line = {"claim": "It rains.", "id": "r1", "reference": "Rain.", "label": "pass", "source": "diary"}
    path = file_with(tmp_path, json.dumps(line) + "\n\n" + '{"claim": "It snows."}')

    first, second = read_claims((), path)

    expected = Claim(
        row=1, id="r1", text="It rains.", reference="Rain.", label="pass", meta={"source": "diary"}
    )
    assert first == expected
    assert (second.row, second.id, second.text) == (2, "line:3", "It snows.")


def test_a_repeated_id_is_never_used_twice(tmp_path):
    path = file_with(
        tmp_path, '{"claim": "a", "id": "x"}\n{"claim": "b", "id": "x"}\n{"claim": "c", "id": 7}'
    )

    assert [claim.id for claim in read_claims((), path)] == ["x", "line:2", "line:3"]


def test_a_brace_alone_does_not_make_a_file_json_lines(tmp_path):
    path = file_with(tmp_path, "{x} is a set\nsecond")

    assert [claim.text for claim in read_claims((), path)] == ["{x} is a set", "second"]


def test_a_line_separator_inside_a_claim_does_not_break_it(tmp_path):
    path = file_with(tmp_path, "one\u2028still one\x0c!\ntwo")

    assert [claim.text for claim in read_claims((), path)] == ["one\u2028still one\x0c!", "two"]


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ((), "no claim was given"),
        (("",), "--claim 1: the claim '' is empty"),
        (("a", " \n"), "--claim 2"),
        (("a\udcff",), "not UTF-8"),
    ],
)
def test_a_claim_of_nothing_is_refused(texts, message):
    with pytest.raises(UsageError, match=message):
        read_claims(texts, None)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no claim"),
        ("\n \n", "holds no claim"),
        ('{"claim": "a"}\nnot json', "claims line 2: .*not JSON"),
        ('{"claim": "a"}\n["claim"]', "claims line 2: .*no text under 'claim'"),
        ('{"claim": 1}', "claims line 1: .*no text under 'claim'"),
        ('{"claim": "a", "claim": "b"}', "the key 'claim' stands twice"),
        ('{"claim": "a", "meta": NaN}', "NaN is not a JSON number"),
        ('{"claim": "a", "subject": "b"}', "brings its own 'subject'"),
        ('{"claim": "a", "reference": 1}', "reference is '1', not a string"),
        ('{"claim": "a", "label": true}', "label is 'True', not a string"),
        ('{"claim": " "}', "is empty"),
    ],
)
def test_a_file_that_is_not_claims_is_refused_with_the_line(tmp_path, text, message):
    with pytest.raises(UsageError, match=message) as caught:
        read_claims((), file_with(tmp_path, text))
    assert caught.value.exit_code == 2


def test_the_name_alone_says_that_a_file_is_json_lines(tmp_path):
    with pytest.raises(InputError, match="claims line 1"):
        read_claims((), file_with(tmp_path, "plain words", "claims.jsonl"))


def test_endless_nesting_is_a_fault_and_no_crash():
    with pytest.raises(ValueError, match="nested too deeply"):
        strict_json("[" * 200_000)


@given(st.lists(st.text(st.characters(exclude_characters="\n", codec="utf-8"), min_size=1), max_size=5))
def test_json_lines_give_back_every_claim_word_for_word(tmp_path_factory, texts):
    path = tmp_path_factory.getbasetemp() / "round.jsonl"
    meant = ["x" + text for text in texts]
    path.write_text("".join(json.dumps({"claim": text}) + "\n" for text in meant), "utf-8")

    claims = read_claims(("first",), str(path)) if meant else read_claims(("first",), None)

    assert [claim.text for claim in claims] == ["first", *meant]
