"""Hold the schema compiler against llguidance and outlines-core, on a folder of schemas with labelled instances.

    python scripts/compare_grammar.py DIR [--engine NAME ...] [--examples 1] [--seconds 20] [--json FILE]

`DIR` is a folder as for `score_grammar.py`. Each engine compiles each schema as it does by default and reads each
instance as the one compact text that our grammar has for it, byte by byte. Printed are the outcomes of every engine,
and then each kind of difference to ours, with its number and examples:

* refused there: the schema is not compiled, by the reason that the engine gives; refused here: the same of ours;
* admits what is invalid: by the keywords that the validator says are broken;
* refuses what is valid: by the keywords that stand where the engine departs, or by what our report says is narrowed.

The engines are no dependencies of the project. Without them the script says what to install, and ends with 2. It ends
with 1 when our compiler admits an instance that is labelled invalid.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent))

import score_grammar as scores

OURS: Final = "judge-local"
PACKAGES: Final = {"llguidance": "llguidance", "outlines-core": "outlines_core"}
"""Engines by the name under which each is installed, and the name under which it is imported."""
_END: Final = 256
"""The token that ends a text, where bytes are the tokens."""
_SAYS_NOTHING: Final = frozenset(
    [
        "type",
        "title",
        "description",
        "default",
        "examples",
        "$comment",
        "$schema",
        "$id",
        "id",
        "definitions",
        "$defs",
        "deprecated",
        "readOnly",
        "writeOnly",
    ]
)


class Reading(NamedTuple):
    """What an engine makes of one case."""

    outcome: str
    """`compiled`, `refused` or `crashed`."""
    reason: str
    """Why it was not compiled."""
    read: tuple[int | None, ...]
    """For each instance, None when it is accepted, else the bytes read before it was not."""
    rekeyed: tuple[bool, ...]
    """For each instance, whether it is accepted with its keys in the order of the schema."""
    narrowed: tuple[str, ...] = ()


class RefusedError(Exception):
    """An engine does not compile a schema."""


def _ours(source: str) -> tuple[Callable[[bytes], int | None], tuple[str, ...]]:
    from judge_local.errors import SchemaError
    from judge_local.grammar import compile_schema

    try:
        grammar = compile_schema(source)
    except SchemaError as error:
        raise RefusedError(str(error)) from None

    def reads(text: bytes) -> int | None:
        matcher = grammar.start()
        for at in range(len(text)):
            after = matcher.advance(text[at : at + 1])
            if after is None:
                return at
            matcher = after
        return None if matcher.complete else len(text)

    return reads, tuple(row.keyword for row in grammar.report.narrowed)


def _llguidance(source: str) -> tuple[Callable[[bytes], int | None], tuple[str, ...]]:
    # No dependency of the project, so nothing is known of its types.
    llguidance: Any = importlib.import_module("llguidance")
    matcher = llguidance.LLMatcher
    tokenizer = llguidance.LLTokenizer("byte")
    grammar = matcher.grammar_from_json_schema(source)
    trial = matcher(tokenizer, grammar)
    if trial.is_error():
        raise RefusedError(trial.get_error())

    def reads(text: bytes) -> int | None:
        one = matcher(tokenizer, grammar)
        count: int = one.try_consume_tokens(list(text))
        return None if count == len(text) and one.is_accepting() else count

    return reads, ()


def _outlines_core(source: str) -> tuple[Callable[[bytes], int | None], tuple[str, ...]]:
    core: Any = importlib.import_module("outlines_core")
    schemas: Any = importlib.import_module("outlines_core.json_schema")
    try:
        regex = schemas.build_regex_from_schema(source)
        index = core.Index(regex, core.Vocabulary(_END, {bytes([byte]): [byte] for byte in range(256)}))
    except (ValueError, TypeError, OverflowError) as error:
        raise RefusedError(str(error)) from None

    def reads(text: bytes) -> int | None:
        guide = core.Guide(index)
        for at, byte in enumerate(text):
            if not guide.accepts_tokens([byte]):
                return at
            guide.advance(byte)
        return None if _END in guide.get_tokens() else len(text)

    return reads, ()


ENGINES: Final = {OURS: _ours, "llguidance": _llguidance, "outlines-core": _outlines_core}


def read(engine: str, schema: Any, tests: list[dict[str, Any]]) -> Reading:
    """Compile a schema with one engine and read its instances."""
    try:
        reads, narrowed = ENGINES[engine](json.dumps(schema, default=scores.plain_number))
    except RefusedError as error:
        return Reading("refused", str(error), (), ())
    found = [reads(text_of(test["data"]).encode("utf-8", "surrogatepass")) for test in tests]
    rekeyed = [
        reads(text_of(scores.in_order(test["data"], [schema], schema)).encode("utf-8", "surrogatepass"))
        is None
        for test in tests
    ]
    return Reading("compiled", "", tuple(found), tuple(rekeyed), narrowed)


def _crashed(reason: str, _: float) -> Reading:
    return Reading("crashed", reason, (), ())


def text_of(data: Any) -> str:
    """The one compact text of an instance."""
    from judge_local.grammar.parse import canonical

    return canonical(scores.exact(data))


def outcome_of(reading: Reading, tests: list[dict[str, Any]]) -> str:
    """The outcome of a case, in the words of `score_grammar.py`."""
    if reading.outcome != "compiled":
        return reading.outcome
    wrong = {
        test["valid"] for test, at in zip(tests, reading.read, strict=True) if (at is None) != test["valid"]
    }
    return scores.UNSOUND if False in wrong else scores.OVER if wrong else scores.RIGHT


class Difference(NamedTuple):
    """One difference between an engine and ours."""

    kind: str
    example: str


def differences(
    name: str, schema: Any, tests: list[dict[str, Any]], ours: Reading, theirs: Reading
) -> Iterator[Difference]:
    """How an engine differs from ours on one case."""
    if theirs.outcome != "compiled" or ours.outcome != "compiled":
        if theirs.outcome == ours.outcome:
            return
        for side, reading in (("there", theirs), ("here", ours)):
            if reading.outcome != "compiled":
                yield Difference(f"{reading.outcome} {side}: {_reason(reading.reason)}", name)
        return
    for number, test in enumerate(tests):
        here, there = ours.read[number] is None, theirs.read[number] is None
        if here == there:
            continue
        where = f"{name}, test {number}"
        text = text_of(test["data"])
        right_here = here == test["valid"]
        side = "there" if right_here else "here"
        if not test["valid"]:
            keywords = ", ".join(_broken(schema, test["data"])) or "nothing that the validator knows"
            yield Difference(f"admits what is invalid {side}: breaks {keywords}", f"{where}: {_cut(text)}")
            continue
        reading = ours if side == "here" else theirs
        at = reading.read[number]
        assert at is not None
        why = (
            "keys in another order than the schema's"
            if reading.rekeyed[number]
            else f"departs at {_place(schema, test['data'], at)}"
        )
        shown = text.encode("utf-8", "surrogatepass")
        before, after = (part.decode("utf-8", "replace") for part in (shown[:at], shown[at:]))
        yield Difference(f"refuses what is valid {side}: {why}", f"{where}: {before[-60:]} ▸ {_cut(after)}")


def _cut(text: str) -> str:
    return text if len(text) <= 100 else f"{text[:100]}…"


def _reason(text: str) -> str:
    """A reason without what differs from schema to schema."""
    first = text.strip().splitlines()[0] if text.strip() else "no reason given"
    keys = re.search(r"Unimplemented keys: (\[.*\])", text)
    if keys:
        return f"unimplemented: {', '.join(sorted(json.loads(keys[1])))}"
    return re.sub(r"\d+", "N", re.sub(r"""(["'`]).*\1""", "…", first))[:110]


def _broken(schema: Any, data: Any) -> list[str]:
    from jsonschema import Draft202012Validator
    from jsonschema.validators import validator_for
    from referencing import Registry
    from referencing.exceptions import Unresolvable

    plain = json.loads(json.dumps(schema, default=scores.plain_number))
    value = json.loads(json.dumps(data, default=scores.plain_number))
    kind = validator_for(plain, default=Draft202012Validator)
    # A registry of its own, so that nothing is fetched.
    validator = kind(plain, format_checker=kind.FORMAT_CHECKER, registry=Registry())
    try:
        return sorted({str(error.validator) for error in validator.iter_errors(value)})
    except Unresolvable:
        return ["what a reference out of the document asks for"]


def _place(schema: Any, data: Any, at: int) -> str:
    """The keywords that stand where the text of `data` departs at byte `at`, and the type of what stands there."""
    path, value = _innermost(data, at)
    places = [schema]
    around = places
    for step in path:
        around = places
        inner = list(scores.in_place(places, schema))
        places = [
            one
            for place in inner
            for one in (scores.of_items(place) if isinstance(step, int) else scores.of_values(place, step))
        ]
    kinds = {str: "string", bool: "boolean", dict: "object", list: "array", type(None): "null"}
    kind = kinds.get(type(value), "number")
    for some in (places, around):
        keywords = {key for place in scores.in_place(some, schema) for key in place} - _SAYS_NOTHING
        if keywords:
            return f"a value of type {kind}, under {', '.join(sorted(keywords)[:6])}"
    return f"a value of type {kind}, under no keyword"


def _innermost(data: Any, at: int) -> tuple[list[int | str], Any]:
    """The path of the innermost value whose text holds byte `at`, and the value."""
    path: list[int | str] = []
    start = 0
    while isinstance(data, dict | list) and data:
        pairs: list[tuple[int | str, Any]] = list(data.items() if isinstance(data, dict) else enumerate(data))
        begins, chosen = start + 1, None
        for step, value in pairs:
            begins += len(text_of(step).encode("utf-8", "surrogatepass")) + 1 if isinstance(data, dict) else 0
            size = len(text_of(value).encode("utf-8", "surrogatepass"))
            if begins <= at < begins + size:
                chosen = (step, value, begins)
            begins += size + 1
        if chosen is None:
            break
        step, data, start = chosen
        path.append(step)
    return path, data


def main() -> None:
    """Read the command line, run every engine on every case, print the table and the differences."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--engine", nargs="*", choices=list(PACKAGES), default=list(PACKAGES))
    parser.add_argument("--examples", type=int, default=1, help="of each kind of difference")
    parser.add_argument("--seconds", type=float, default=20.0, help="for one case and engine, at most")
    parser.add_argument("--json", type=Path, help="write every difference to this file, too")
    options = parser.parse_args()
    missing = [name for name in options.engine if importlib.util.find_spec(PACKAGES[name]) is None]
    if missing:
        print(
            f"{' and '.join(missing)}: not installed. They are no dependencies of this project; install them into an "
            f"environment of their own:\n    python -m pip install {' '.join(missing)} jsonschema\nand run the script "
            "there with src in PYTHONPATH. Or name the engines that are there with --engine.",
            file=sys.stderr,
        )
        sys.exit(2)
    names = [OURS, *options.engine]
    workers = {name: scores.Worker(partial(read, name), _crashed, options.seconds) for name in names}
    outcomes: dict[str, Counter[str]] = defaultdict(Counter)
    found: dict[str, dict[str, list[str]]] = {name: defaultdict(list) for name in options.engine}
    for case, schema, tests in scores.cases(options.folder):
        readings = {name: worker.judge(schema, tests) for name, worker in workers.items()}
        for name, reading in readings.items():
            outcomes[name][outcome_of(reading, tests)] += 1
        for name in options.engine:
            for each in differences(case, schema, tests, readings[OURS], readings[name]):
                found[name][each.kind].append(each.example)
    if not outcomes:
        sys.exit(f"{options.folder}: no case was found. Name a folder of files with `schema` and `tests`.")
    print(f"{sum(outcomes[OURS].values())} cases{'':9}" + "".join(f"{name:>16}" for name in names))
    for outcome in scores.OUTCOMES:
        print(f"{outcome:18}" + "".join(f"{outcomes[name][outcome]:16}" for name in names))
    for name in options.engine:
        print(f"\n{name} against {OURS}: {sum(map(len, found[name].values()))} differences")
        for kind, examples in sorted(
            found[name].items(), key=lambda item: (item[0].split(":")[0], -len(item[1]))
        ):
            print(f"{len(examples):6}  {kind}")
            for example in examples[: options.examples]:
                print(f"            {example}")
    if options.json:
        options.json.write_text(json.dumps(found, ensure_ascii=False, indent=1), encoding="utf-8")
    sys.exit(1 if outcomes[OURS][scores.UNSOUND] or outcomes[OURS][scores.CRASHED] else 0)


if __name__ == "__main__":
    main()
