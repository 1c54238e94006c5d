"""Probabilities of options are those of drawing token by token, whatever tokens spell them: held to an enumeration."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from judge_local.engine.options import LEFT, MOST_LOOKS, Walk, choices, common_beginning, decides, spell_lead
from judge_local.engine.spelling import Lexicon, Speller
from judge_local.grammar.recogniser import Matcher


class Words:
    """A vocabulary of byte strings, tokenised greedily by the longest match."""

    def __init__(self, *texts: bytes) -> None:
        self.texts = texts
        self.n_vocab = len(texts)

    def piece(self, token: int) -> bytes:
        return self.texts[token]

    def tokenize(self, text: str) -> list[int]:
        data, tokens = text.encode(), []
        while data:
            best = max((t for t in self.texts if t and data.startswith(t)), key=len)
            tokens.append(self.texts.index(best))
            data = data[len(best) :]
        return tokens


def language(size: int, seed: int, spread: float) -> Any:
    """A model without weights: logits that depend on all tokens before."""

    @cache
    def logits(tokens: tuple[int, ...]) -> np.ndarray[Any, Any]:
        source = np.random.default_rng([seed, *tokens])
        return (source.standard_normal(size) * spread).astype(np.float32)

    return logits


def texts_of(options: Sequence[str]) -> dict[str, bytes]:
    return {option: json.dumps(option, ensure_ascii=False).encode() for option in options}


def grammar_of(options: Sequence[str]) -> Matcher:
    ways = " | ".join(
        json.dumps(json.dumps(option, ensure_ascii=False), ensure_ascii=False) for option in options
    )
    return Matcher.from_gbnf(f'root ::= ({ways}) ",1"\n')


def enumerated(
    words: Words,
    logits: Any,
    options: Sequence[str],
    matcher: Matcher,
    written: bytes = b"",
    path: tuple[int, ...] = (),
) -> dict[str, float]:
    """By drawing every token there is until the option stands, its closing quote included."""
    texts = texts_of(options)
    for option, text in texts.items():
        if written.startswith(text):
            return {option: 1.0}
    values = logits(path).astype(np.float64)
    open_ = [
        (token, after)
        for token in range(words.n_vocab)
        if words.piece(token) and (after := matcher.advance(words.piece(token))) is not None
    ]
    weights = np.exp(values[[token for token, _ in open_]])
    found = dict.fromkeys(options, 0.0)
    for (token, after), weight in zip(open_, weights / weights.sum(), strict=True):
        inner = enumerated(words, logits, options, after, written + words.piece(token), (*path, token))
        for option, share in inner.items():
            found[option] += float(weight) * share
    return found


def walked(
    words: Words, logits: Any, options: Sequence[str], matcher: Matcher
) -> tuple[dict[str, float], Walk]:
    walk = Walk(Lexicon(words), matcher, texts_of(options))
    while (path := walk.next()) is not None:
        walk.see(logits(path))
    return walk.result(), walk


OPTIONS = [
    ("pass", "fail", "partial"),
    ("no", "none"),
    ("a", "ab", "abc"),
    ("é", "è", "ê\n"),
    ("", "x"),
    ("same one", "same two", "other"),
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("seed", range(4))
def test_it_is_what_drawing_would_give(options: Sequence[str], seed: int) -> None:
    """A vocabulary of all bytes and of random stretches of the options and what follows them."""
    source = random.Random(seed)
    whole = [text + b",1" for text in texts_of(options).values()]
    stretches = {
        text[start : start + source.randint(1, 6)]
        for text in whole
        for start in [source.randrange(len(text)) for _ in range(6)]
    }
    used = {bytes([byte]) for text in whole for byte in text}
    words = Words(b"", *sorted(used), *sorted(stretches), b"z", b"p", b'"')  # Some texts have two tokens.
    logits = language(words.n_vocab, seed, spread=4.0)
    expected = enumerated(words, logits, options, grammar_of(options))
    found, walk = walked(words, logits, options, grammar_of(options))

    assert found == pytest.approx(expected, abs=2 * LEFT + walk.left)
    assert list(found) == list(options)
    assert sum(found.values()) == pytest.approx(1.0, abs=1e-12)
    assert walk.left <= LEFT


@given(
    options=st.lists(st.text("ab", max_size=4), min_size=2, max_size=4, unique=True),
    pieces=st.lists(st.text('ab",1', min_size=1, max_size=4), max_size=12, unique=True),
    seed=st.integers(0, 2**32),
)
def test_any_vocabulary(options: list[str], pieces: list[str], seed: int) -> None:
    words = Words(*(text.encode() for text in (*'ab",1', *pieces)))
    logits = language(words.n_vocab, seed, spread=1.0)
    found, walk = walked(words, logits, options, grammar_of(options))
    expected = enumerated(words, logits, options, grammar_of(options))

    assert found == pytest.approx(expected, abs=2 * LEFT + walk.left)


def test_what_is_decided_by_one_token_takes_one_look() -> None:
    words = Words(b'"', b'"p', b'"f', b"ass", b"ail", b"l", b"a", b"s", b"i")
    only_words = np.array([-40, 2, 1, *[0] * 6], dtype=np.float32)
    found, walk = walked(words, lambda _: only_words, ("pass", "fail"), grammar_of(("pass", "fail")))

    assert walk.looks == 1
    assert found["pass"] == pytest.approx(1 / (1 + np.exp(-1)), abs=1e-9)


def test_a_model_that_cannot_spell_is_not_followed_for_ever() -> None:
    """Twenty shared bytes of a byte vocabulary with all merges have half a million spellings."""
    options = ("x" * 20 + "a", "x" * 20 + "b")
    words = Words(b'"', b"a", b"b", b",", b"1", *(b"x" * n for n in range(1, 20)))
    found, walk = walked(words, language(words.n_vocab, 3, 0.1), options, grammar_of(options))

    assert walk.looks == MOST_LOOKS + 1
    assert 0 < walk.left < 1
    assert sum(found.values()) == pytest.approx(1.0)


def test_a_token_that_is_never_chosen_weighs_nothing() -> None:
    words = Words(b'"', b"a", b"b", b",", b"1")
    logits = np.array([0, -np.inf, 0, 0, 0], dtype=np.float32)
    found, _ = walked(words, lambda _: logits, ("a", "b"), grammar_of(("a", "b")))

    assert found == {"a": 0.0, "b": 1.0}


def test_a_token_that_the_grammar_refuses_is_no_choice() -> None:
    words = Words(b'"', b"a", b"b", b'a"', b'a",', b'a",1', b'a",2', b'a"}')
    rests: Mapping[str, bytes] = {"a": b'a"', "b": b'b"'}
    matcher = grammar_of(("a", "b")).advance(b'"')
    assert matcher is not None

    assert choices(Lexicon(words), matcher, rests) == {
        b"a": ("a",),
        b'a"': ("a",),
        b'a",': ("a",),
        b'a",1': ("a",),
        b"b": ("b",),
    }


def test_where_no_token_tells_options_apart_nothing_is_decided_yet() -> None:
    lexicon, matcher = Lexicon(Words(b'"', b"a", b"b")), grammar_of(("a", "b"))
    after = matcher.advance(b'"')
    assert after is not None

    assert not decides(lexicon, matcher, texts_of(("a", "b")))
    assert decides(lexicon, after, {"a": b'a"', "b": b'b"'})
    assert decides(Lexicon(Words(b'"', b'"a', b"a", b"b")), matcher, texts_of(("a", "b")))


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ((), [b"m", b":", b'"']),
        ((b'"a',), [b"m", b":"]),  # it could reach over the quote into an option
        ((b':"b',), [b"m"]),
        ((b':"c',), [b"m", b":", b'"']),  # that is no option
        ((b'"a"}',), [b"m", b":"]),
        ((b':"', b'"a'), [b"m"]),  # from inside `:"` on
    ],
)
def test_the_lead_ends_where_a_token_could_reach_into_an_option(
    more: tuple[bytes, ...], expected: list[bytes]
) -> None:
    words = Words(b"m", b":", b'"', b"a", b"b", *more)
    tokens = spell_lead(Speller(words, words.tokenize), b'm:"', {"a": b'a"', "b": b'b"'})

    assert [words.piece(token) for token in tokens] == expected


def test_common_beginnings_end_with_a_character() -> None:
    assert common_beginning([b"pass", b"partial"]) == b"pa"
    assert common_beginning(["aé".encode(), "aè".encode()]) == b"a"
