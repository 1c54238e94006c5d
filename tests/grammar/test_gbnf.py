"""Our reader of GBNF: what it takes, what it refuses, and where it says the fault is."""

import pytest

from judge_local.errors import GrammarTextError
from judge_local.grammar.gbnf import MAX_NESTING, read_gbnf
from judge_local.grammar.items import ANY, Chain, Choice, Loop, Name, Points, Word


def root_of(body):
    return read_gbnf(f'root ::= {body}\nx ::= "x"\n')["root"]


@pytest.mark.parametrize(
    ("body", "item"),
    [
        ('"ab"', Word("ab")),
        ('""', Chain(())),
        ('"a" "" "b"', Chain((Word("a"), Word("b")))),
        ('"a" | x', Choice((Word("a"), Name("x")))),
        ('("a" | x) "b"', Chain((Choice((Word("a"), Name("x"))), Word("b")))),
        ("x?", Loop(Name("x"), 0, 1)),
        ("x*", Loop(Name("x"), 0, None)),
        ("x+", Loop(Name("x"), 1, None)),
        ("x{3}", Loop(Name("x"), 3, 3)),
        ("x{3,}", Loop(Name("x"), 3, None)),
        ("x{ 3 , 5 }", Loop(Name("x"), 3, 5)),
        ('"ab"*', Loop(Word("ab"), 0, None)),
        (".", Points(ANY)),
        ("[a-cb-dx]", Points(((97, 100), (120, 120)))),
        ("[a-]", Points(((45, 45), (97, 97)))),
        (r"[\]\-\\]", Points(((45, 45), (92, 93)))),
        ("[^\\x00-\\uFFFF]", Points(((0x10000, 0x10FFFF),))),
        ("[\\uD700-\\uE000]", Points(((0xD700, 0xD7FF), (0xE000, 0xE000)))),
        (r'"\x41\u00e9\U0001F600\t\r\n\"\\\[\]\-"', Word('Aé😀\t\r\n"\\[]-')),
        ('"a" # the rest is a remark | "b"', Word("a")),
        ('"a" |\n  "b"', Choice((Word("a"), Word("b")))),
        ('(\n"a"\n)', Word("a")),
    ],
)
def test_reads(body, item):
    assert item == root_of(body)


def test_rules_keep_their_names_and_may_be_used_before_they_are_defined():
    rules = read_gbnf('# remark\n\nroot ::= a-1\r\na-1 ::= B\n\nB ::= "b"')

    assert {"root": Name("a-1"), "a-1": Name("B"), "B": Word("b")} == rules


@pytest.mark.parametrize(
    ("gbnf", "says"),
    [
        ("", "there is no rule 'root'"),
        ("root ::= y", "there is no rule 'y'"),
        ('root ::= "a"\nroot ::= "b"', "written twice"),
        ("root ::= []", "the class is empty"),
        ("root ::= [^]", "the class is empty"),
        ("root ::= [5-2]", "ends before it begins"),
        ("root ::= [\\uD800-\\uDFFF]", "admits nothing"),
        ('root ::= "a"{5,2}', "ends before it begins"),
        ('root ::= "a"{2001}', "2001 rules, more than 2000"),
        ('root ::= "a"{0,2001}', "2001 rules, more than 2000"),
        ('root ::= "a"{1000}{3}', "3000 rules"),
        ('root ::= ("a"? "b"?){1001}', "3003 rules"),
        ('root ::= "a"{99999999999999999999}', "no count"),
        ("root ::= x\nx ::= x", "begins with itself"),
        ('root ::= y "a" | "b"\ny ::= root', "begins with itself"),
        ('root ::= e root "a" | "b"\ne ::= "x"?', "begins with itself"),
        ('root ::= "x"* root "a" | "b"', "begins with itself"),
        ('root ::= ("a"?)*', "may be empty"),
        ('root ::= e+\ne ::= "" | "b"', "may be empty"),
        ('root ::= "a" root', "no finite text"),
        ('root ::= "a" | "b" x\nx ::= "c" x', "rule x: no finite text"),
        ("root ::= <[12]>", "token rules"),
        ("root ::= !<think>", "token rules"),
        ("root ::= " + "(" * (MAX_NESTING + 1) + '"a"' + ")" * (MAX_NESTING + 1), "nested deeper"),
        ('root ::= "\\U00110000"', "no code point"),
        ('root ::= "\\xG0"', "2 hexadecimal digits"),
        ('root ::= "a', "ends inside"),
        ('root ::= "a" ? ?)', "does not belong here"),
        ("root ::= é", "does not belong here"),
        ('root :== "a"', "`::=` is missing"),
        ('1 ::= "a"\n\n  root ::= "b" }', "line 3, column 16: '}' does not belong here"),
    ],
)
def test_refuses(gbnf, says):
    with pytest.raises(GrammarTextError) as caught:
        read_gbnf(gbnf)

    assert says in str(caught.value)


def test_a_rule_that_may_stop_is_finite():
    assert read_gbnf('root ::= "c" root?') == {"root": Chain((Word("c"), Loop(Name("root"), 0, 1)))}


def test_repeating_once_costs_nothing():
    assert Loop(Loop(Word("a"), 1, 1), 2000, 2000) == root_of('"a"{1}{2000}')


def test_the_deepest_nesting_allowed_is_read():
    assert Word("a") == root_of("(" * MAX_NESTING + '"a"' + ")" * MAX_NESTING)


def test_long_chains_of_rules_are_read():
    """Neither the check for left recursion nor the one for endless rules runs out of stack."""
    rules = [f'r{n} ::= r{n + 1} | "a"' for n in range(5000)]

    assert len(read_gbnf("\n".join(["root ::= r0", *rules, 'r5000 ::= "b"']))) == 5002
