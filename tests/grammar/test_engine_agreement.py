"""llama.cpp's own grammar engine and our matcher read the same grammar and say the same of every text.

The engine is asked one token at a time, as sampling does; only a vocabulary is loaded. A token is offered before it is
accepted, because accepting a forbidden one ends the process.
"""

import ctypes
import json
from random import Random

import pytest

from grammar.derivations import Deriver, derive
from grammar.zoo import ZOO
from judge_local.errors import GrammarTextError
from judge_local.grammar import Matcher, compile_schema, compile_verdict
from judge_local.verdict import VERDICT_SCHEMA

llama_cpp = pytest.importorskip("llama_cpp")
# llama.cpp keeps the address of its logger for good, so the logger must stay as well.
QUIET = llama_cpp.llama_log_callback(lambda *_: None)


class Engine:
    """llama.cpp's grammar sampler over the vocabulary of one model."""

    def __init__(self, path):
        parameters = llama_cpp.llama_model_default_params()
        parameters.vocab_only = True
        self._model = llama_cpp.llama_model_load_from_file(str(path).encode(), parameters)
        assert self._model, path
        self._vocab = llama_cpp.llama_model_get_vocab(self._model)
        self._sampler = None

    def close(self):
        llama_cpp.llama_model_free(self._model)

    def read(self, gbnf):
        """A sampler for `gbnf`, or None when the engine cannot read it."""
        return llama_cpp.llama_sampler_init_grammar(self._vocab, gbnf.encode(), b"root") or None

    def accepts(self, sampler, text):
        """Whether the engine accepts `text` whole. Leaves the sampler where it began."""
        llama_cpp.llama_sampler_reset(sampler)
        for token in self._tokens(text):
            if not self._allows(sampler, token):
                return False
            llama_cpp.llama_sampler_accept(sampler, token)
        return self._allows(sampler, llama_cpp.llama_vocab_eos(self._vocab))

    def _tokens(self, text):
        data = text.encode()
        room = (llama_cpp.llama_token * (len(data) + 8))()
        count = llama_cpp.llama_tokenize(self._vocab, data, len(data), room, len(room), False, False)
        return list(room[:count])

    def _allows(self, sampler, token):
        one = (llama_cpp.llama_token_data * 1)()
        one[0].id, one[0].logit, one[0].p = token, 1.0, 0.0
        array = llama_cpp.llama_token_data_array(one, 1, -1, False)
        llama_cpp.llama_sampler_apply(sampler, ctypes.byref(array))
        return one[0].logit > -1e30


@pytest.fixture(scope="module")
def engine(tiny_model):
    llama_cpp.llama_log_set(QUIET, ctypes.c_void_p(0))
    llama_cpp.llama_backend_init()
    engine = Engine(tiny_model)
    yield engine
    engine.close()


HOSTILE = [
    "]x",
    "^",
    "-a",
    "\\b",
    '"',
    " ",
    "a/b",
    "a~b",
    "%25",
    "number",
    "space",
    "root",
    "é",
    "😀",
    "a_b",
    "a-b",
    "\n",
    "\x00",
]
SCHEMAS = {
    "verdict": VERDICT_SCHEMA,
    "names": {
        "type": "object",
        "properties": {name: {"type": "boolean"} for name in HOSTILE},
        "required": HOSTILE[::3],
        "additionalProperties": False,
    },
    "values": {
        "enum": [*HOSTILE, "", None, True, 1.5, -0.0, 1e20, [1, {"a": []}], {"b": 1, "a": "\x7f"}, "^-[]"]
    },
    "numbers": {"type": "number", "minimum": -5.25, "exclusiveMaximum": 17.031},
    "integers": {"type": "integer", "minimum": 105, "maximum": 20010},
    "lengths": {"type": "string", "minLength": 3, "maxLength": 205},
    "optional": {
        "type": "object",
        "properties": {name: {"type": ["integer", "null"]} for name in "abcdef"},
        "required": ["c", "f"],
        "additionalProperties": False,
    },
    "nested": {
        "type": ["object", "string"],
        "maxLength": 2,
        "properties": {"a": {"type": "object", "properties": {}, "additionalProperties": False}},
        "additionalProperties": False,
    },
}
ALPHABET = [
    *'{}[]",:\\ -+.0159abcetfux/^~\n\t',
    "\x7f",
    "\x80",
    "é",
    "\u2028",
    "\ud7ff",
    "\ue000",
    "\uffff",
    "😀",
    "\U0010ffff",
]


def mutated(text, random):
    """`text` with one character changed, put in, taken out, doubled or swapped; or cut off."""
    at = random.randrange(len(text) + 1)
    return random.choice(
        (
            text[:at] + random.choice(ALPHABET) + text[at + 1 :],
            text[:at] + random.choice(ALPHABET) + text[at:],
            text[:at] + text[at + 1 :],
            text[:at] + text[at : at + 1] * 2 + text[at + 1 :],
            text[:at] + text[at + 1 : at + 2] + text[at : at + 1] + text[at + 2 :],
            text[:at],
        )
    )


@pytest.mark.parametrize("name", SCHEMAS)
def test_both_say_the_same_of_texts_and_of_their_mutants(engine, name):
    random = Random(20)
    grammar = compile_schema(SCHEMAS[name])
    sampler = engine.read(grammar.gbnf)
    assert sampler is not None
    verdicts = {True: 0, False: 0}
    for _ in range(15 if name == "verdict" else 60):
        text = derive(grammar.gbnf, random)
        for candidate in (text, *(mutated(text, random) for _ in range(4))):
            accepted = grammar.accepts(candidate)
            verdicts[accepted] += 1

            assert accepted == engine.accepts(sampler, candidate), candidate
    llama_cpp.llama_sampler_free(sampler)

    assert min(verdicts.values()) > 10


@pytest.mark.parametrize("name", ZOO)
def test_both_say_the_same_of_the_zoo(engine, name):
    case, random = ZOO[name], Random(name)
    grammar = compile_schema(json.dumps(case.schema))
    sampler = engine.read(grammar.gbnf)
    assert sampler is not None
    deriver = Deriver(grammar.gbnf, 60)
    drawn = [text for text in (deriver.draw(random) for _ in range(6)) if len(text) < 400]
    for text in (*case.accepted, *case.refused, *drawn, *(mutated(text, random) for text in drawn)):
        assert grammar.accepts(text) == engine.accepts(sampler, text), text
    llama_cpp.llama_sampler_free(sampler)


def test_five_hundred_properties_are_read_by_the_engine(engine):
    names = [f"property_{number}" for number in range(500)]
    schema = {"type": "object", "properties": {n: {"type": "string"} for n in names}, "required": names[::2]}
    grammar = compile_schema(json.dumps(schema))
    sampler = engine.read(grammar.gbnf)
    text = json.dumps(dict.fromkeys(names[::2], "x"), separators=(",", ":"))[:400]
    after = grammar.start().advance(text.encode())

    assert sampler is not None
    assert after is not None
    llama_cpp.llama_sampler_free(sampler)


def test_the_verdict_grammar_is_read_and_followed(engine):
    grammar = compile_verdict(VERDICT_SCHEMA, pin={"claim": 'It says "no" \\ 😀\n'})
    answer = {
        "claim": 'It says "no" \\ 😀\n',
        "observed": "x" * 400,
        "reasoning": "日本" * 300,
        "match": "pass",
        "confidence": 0.95,
    }
    text = json.dumps(answer, ensure_ascii=False, separators=(",", ":"))
    sampler = engine.read(grammar.gbnf)
    longer = text.replace("x" * 400, "x" * 401)

    assert [grammar.accepts(text), engine.accepts(sampler, text)] == [True, True]
    assert [grammar.accepts(longer), engine.accepts(sampler, longer)] == [False, False]
    llama_cpp.llama_sampler_free(sampler)


@pytest.mark.parametrize("high", [1999, 2000, 2001, 50000])
def test_long_strings_are_bounded_in_the_engine_too(engine, high):
    sampler = engine.read(compile_schema({"type": "string", "maxLength": high}, max_string=50000).gbnf)

    assert engine.accepts(sampler, '"' + "x" * high + '"')
    assert not engine.accepts(sampler, '"' + "x" * (high + 1) + '"')
    llama_cpp.llama_sampler_free(sampler)


@pytest.mark.parametrize(
    ("gbnf", "accepted", "refused"),
    [
        ('root ::= "a" | "b" c\nc ::= [^x-z"] # a comment\n', ["a", "bc", "b😀"], ["b", "bx", 'b"', "ab"]),
        ('root ::= ("ab" | [0-9]+)* "."', [".", "ab12ab."], ["a.", "12"]),
        ('root ::= (\n  "a"\n  | "b"\n) "c"?\n', ["a", "bc"], ["c", "ab"]),
        ("root ::= .{2,3}", ["xy", "é😀é"], ["x", "wxyz"]),
        ('root ::= "x"{3} "y"{2,}', ["xxxyy", "xxxyyyy"], ["xxyy", "xxxy"]),
        (r'root ::= "\x41\u00e9\U0001F600\t\r\n\\\"\[\]\-"', ['Aé😀\t\r\n\\"[]-'], ["Aé😀"]),
        (r"root ::= [\]a\-\\^]+", ["]a-\\^"], ["["]),
        ("root ::= [a-]+", ["a-a"], ["b"]),
        ('root ::= "" | "a" root', ["", "aaa"], ["b"]),
        ('root ::= n "z"\nn ::= "" | "a"', ["z", "az"], ["a"]),
        ('root ::= a-B-1\na-B-1 ::= "x"', ["x"], ["y"]),
    ],
)
def test_both_read_a_grammar_alike(engine, gbnf, accepted, refused):
    sampler, matcher = engine.read(gbnf), Matcher.from_gbnf(gbnf)
    for text in accepted + refused:
        after = matcher.advance(text.encode())

        assert (
            (text in accepted) == (after is not None and after.complete) == engine.accepts(sampler, text)
        ), text
    llama_cpp.llama_sampler_free(sampler)


REFUSED = [
    *(
        'root ::= "a',
        "root ::= [a",
        'root ::= ("a"',
        "root ::= a_b",
        "root ::= missing",
        'root = "a"',
        "root ::= *",
    ),
    *(
        'root ::= "\\q"',
        'root ::= "\\u12"',
        'root ::= "a"{2001}',
        'root ::= "a"{x}',
        'root ::= "a" )',
        'x ::= "a"',
    ),
    *('root ::= root "a" | "b"', 'root ::= (("a"{0,50}) "b"){0,60}', 'root ::= ""*'),
]


@pytest.mark.parametrize("gbnf", REFUSED)
def test_what_the_engine_refuses_we_refuse(engine, gbnf):
    assert engine.read(gbnf) is None
    with pytest.raises(GrammarTextError):
        Matcher.from_gbnf(gbnf)
