"""Random walks over vocabularies: whatever tokens were taken so far, another is allowed, or the text is complete."""

import pytest

from conftest import find_live_model, load_script

WALKS = 24


@pytest.fixture(scope="module")
def proofs():
    return load_script("prove_grammar")


def test_no_state_is_without_an_allowed_token(proofs, capfd):
    """Over a byte-level vocabulary, a SentencePiece one, and that of the real model where it is on the disk."""
    real = find_live_model()

    assert proofs.walk(WALKS, 3, [real] if real else []) == 0
    assert "without an allowed token: 0" in capfd.readouterr().out


def test_a_state_without_an_allowed_token_would_be_seen(proofs):
    from random import Random

    from judge_local.grammar import Matcher

    assert proofs._step(Matcher.from_gbnf('root ::= "a"'), [b"b", b"ab"], Random(0)) is None
