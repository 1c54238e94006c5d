"""Score the schema compiler on a folder of JSON Schemas with labelled instances.

    python scripts/score_grammar.py DIR [--checked KEYWORD ...] [--any-order] [--unique-one] [--list] [--seconds 20]

A file holds one case `{"schema", "tests": [{"data", "valid"}]}` or a list of them. Each instance is written as the one
compact text that the grammar has for it. A case is

* right: every valid instance is accepted, every invalid one refused;
* unsound: an invalid instance is accepted (with `--checked`: by the grammar, and then by the validator too);
* over-constrained: a valid instance is refused, none that is invalid accepted;
* refused: the schema is not compiled, with the place and the keyword;
* crashed: any other error, or no end within the time.

A second column counts the same with the keys of each instance written in the order of the schema. The cases
run in a process that is replaced when one of them kills it or does not end. Nothing is shipped: the folder is the caller's. Exits with 1 when a case is unsound or crashed.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from decimal import Decimal
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final, Generic, NamedTuple, TypeVar

RIGHT, UNSOUND, OVER, REFUSED, CRASHED = "right", "unsound", "over-constrained", "refused", "crashed"
OUTCOMES: Final = (RIGHT, UNSOUND, OVER, REFUSED, CRASHED)
HANDED_OVER: Final = (
    "uniqueItems",
    "contains",
    "not",
    "oneOf",
    "pattern",
    "if",
    "patternProperties",
    "unevaluatedProperties",
)
"""What `--checked` alone leaves to the validator where the schema is refused otherwise."""


Result = TypeVar("Result")


class Score(NamedTuple):
    """What became of one case."""

    outcome: str
    rekeyed: str
    """The same with the keys of each instance in the order of the schema."""
    detail: str
    seconds: float
    """Of compiling."""
    size: int
    """Bytes of GBNF."""
    narrowed: bool = False


def cases(folder: Path) -> Iterator[tuple[str, Any, list[dict[str, Any]]]]:
    """Name, schema and tests of every case under `folder`, in the order of the names."""
    for path in sorted(folder.rglob("*.json")):
        groups = json.loads(path.read_text(encoding="utf-8"), parse_float=Decimal)
        many = isinstance(groups, list)
        for number, group in enumerate(groups if many else [groups]):
            if isinstance(group, dict) and "schema" in group and "tests" in group:
                name = str(path.relative_to(folder)) + (
                    f"#{number} {group.get('description', '')}" if many else ""
                )
                yield name, group["schema"], group["tests"]


def in_order(value: Any, schemas: list[Any], root: Any) -> Any:
    """`value` with the keys of its objects in the order in which `schemas` declare them."""
    places = list(in_place(schemas, root))
    if isinstance(value, list):
        inside = [item for place in places for item in of_items(place)]
        return [in_order(item, inside, root) for item in value]
    if not isinstance(value, dict):
        return value
    rank: dict[str, int] = {}
    for place in places:
        for name in place.get("properties", {}):
            rank.setdefault(name, len(rank))
    return {
        key: in_order(value[key], [s for place in places for s in of_values(place, key)], root)
        for key in sorted(value, key=lambda name: rank.get(name, len(rank)))
    }


def in_place(schemas: list[Any], root: Any) -> Iterator[dict[str, Any]]:
    """The objects among `schemas`, and what they say of the same place through references and combinations."""
    pending, seen = list(schemas), set()
    while pending:
        schema = pending.pop(0)
        if not isinstance(schema, dict) or id(schema) in seen:
            continue
        seen.add(id(schema))
        yield schema
        for keyword in ("allOf", "anyOf", "oneOf"):
            pending += schema.get(keyword) or []
        pending += [schema[keyword] for keyword in ("if", "then", "else") if keyword in schema]
        target = schema.get("$ref")
        if isinstance(target, str) and target.startswith("#"):
            found: Any = root
            for escaped in target[1:].split("/")[1:]:
                step = escaped.replace("~1", "/").replace("~0", "~")
                found = found.get(step) if isinstance(found, dict) else None
            pending.append(found)


def of_items(schema: dict[str, Any]) -> list[Any]:
    """The schemas of the items of an array."""
    items = schema.get("items", [])
    return (items if isinstance(items, list) else [items]) + list(schema.get("prefixItems", []))


def of_values(schema: dict[str, Any], key: str) -> list[Any]:
    """The schemas of the value of a key."""
    named = [schema["properties"][key]] if key in schema.get("properties", {}) else []
    return [*named, *schema.get("patternProperties", {}).values(), schema.get("additionalProperties")]


def score(
    schema: Any,
    tests: list[dict[str, Any]],
    checked: tuple[str, ...] | None,
    asked: dict[str, Any] | None = None,
) -> Score:
    """Compile `schema` under the options `asked` and hold its grammar to the labels."""
    asked = asked or {}
    from judge_local.errors import SchemaError, UnsupportedSchemaError
    from judge_local.grammar import compile_schema
    from judge_local.grammar.parse import canonical, read_schema, to_plain

    source = json.dumps(
        to_plain(read_schema(schema)) if isinstance(schema, bool) else schema, default=plain_number
    )
    given: tuple[str, ...] = checked or ()
    started = time.perf_counter()
    try:
        try:
            grammar = compile_schema(source, checked=given, **asked)
        except UnsupportedSchemaError:
            if checked != ():
                raise
            given = HANDED_OVER
            grammar = compile_schema(source, checked=given, **asked)
    except SchemaError as error:
        return Score(REFUSED, REFUSED, str(error), time.perf_counter() - started, 0)
    seconds = time.perf_counter() - started
    validator = _validator(schema) if given else None
    outcomes, detail = [], ""
    for rekey in (False, True):
        wrong: set[str] = set()
        for number, test in enumerate(tests):
            data = in_order(test["data"], [schema], schema) if rekey else test["data"]
            text = canonical(exact(data))
            accepted = grammar.accepts(text)
            if accepted and validator is not None:
                accepted = validator.is_valid(json.loads(text))
            if accepted != test["valid"]:
                wrong.add(OVER if test["valid"] else UNSOUND)
                if not rekey and not (detail and test["valid"]):
                    detail = f"test {number}: {_departure(grammar, text) if test['valid'] else text[:300]}"
        outcomes.append(UNSOUND if UNSOUND in wrong else OVER if wrong else RIGHT)
    size = len(grammar.gbnf.encode())
    return Score(outcomes[0], outcomes[1], detail, seconds, size, bool(grammar.report.narrowed))


def _departure(grammar: Any, text: str) -> str:
    matcher = grammar.start()
    for at, character in enumerate(text):
        after = matcher.advance(character.encode("utf-8", "surrogatepass"))
        if after is None:
            return f"refused at {text[max(0, at - 60) : at]!r} ▸ {text[at : at + 40]!r}; expected {matcher.expected()[:200]}"
        matcher = after
    return f"refused at the end of {text[-60:]!r}; expected {matcher.expected()[:200]}"


def _validator(schema: Any) -> Any:
    from jsonschema import Draft202012Validator
    from jsonschema.validators import validator_for

    plain = json.loads(json.dumps(schema, default=plain_number))
    kind = validator_for(plain, default=Draft202012Validator)
    return kind(plain, format_checker=kind.FORMAT_CHECKER)


def exact(value: Any) -> Any:
    """A value with every number as a decimal, as the compiler reads them."""
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return value
    if isinstance(value, int | Decimal):
        return Decimal(value)
    if isinstance(value, list):
        return [exact(item) for item in value]
    return {key: exact(item) for key, item in value.items()}


def plain_number(value: object) -> object:
    """A decimal as `json.dumps` is to write it."""
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() and abs(value) < 10**300 else float(value)
    raise TypeError(type(value).__name__)


def _work(
    calls: Connection, judge: Callable[[Any, list[dict[str, Any]]], Any], crashed: Callable[[str, float], Any]
) -> None:
    from judge_local.grammar import compile_schema

    # What is imported and made once in a process is not the compile time of a schema.
    compile_schema({"properties": {"a": {"type": "string"}}})
    while True:
        schema, tests = calls.recv()
        try:
            calls.send(judge(schema, tests))
        except Exception as error:  # noqa: BLE001 # whatever it is, it is this case's outcome
            calls.send(crashed(f"{type(error).__name__}: {error}", 0.0))


class Worker(Generic[Result]):
    """A process that judges one case after another, and is replaced when one kills it or does not end."""

    def __init__(
        self,
        judge: Callable[[Any, list[dict[str, Any]]], Result],
        crashed: Callable[[str, float], Result],
        seconds: float,
    ) -> None:
        self._judge, self._crashed, self._seconds = judge, crashed, seconds
        self._start()

    def _start(self) -> None:
        context = multiprocessing.get_context("fork")
        self._calls, theirs = context.Pipe()
        self._process = context.Process(target=_work, args=(theirs, self._judge, self._crashed), daemon=True)
        self._process.start()
        theirs.close()

    def judge(self, schema: Any, tests: list[dict[str, Any]]) -> Result:
        """What becomes of one case."""
        self._calls.send((schema, tests))
        try:
            if self._calls.poll(self._seconds):
                result: Result = self._calls.recv()
                return result
            failure = self._crashed("no end", self._seconds)
        except EOFError:
            failure = self._crashed("the process died", 0.0)
        self._process.kill()
        self._process.join()
        self._start()
        return failure


def _crashed(reason: str, seconds: float) -> Score:
    return Score(CRASHED, CRASHED, reason, seconds, 0)


def main() -> None:
    """Read the command line, score every case, print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--checked",
        nargs="*",
        help="keywords left to the validator; alone: what cannot be enforced, only where needed",
    )
    parser.add_argument(
        "--any-order", action="store_true", help="declared keys in any order, up to six an object"
    )
    parser.add_argument("--unique-one", action="store_true", help="one item where items must differ")
    parser.add_argument("--list", action="store_true", help="every case that is not right")
    parser.add_argument("--seconds", type=float, default=20.0, help="for one case, at most")
    options = parser.parse_args()
    checked = None if options.checked is None else tuple(options.checked)
    asked: dict[str, Any] = {"property_order": "any"} if options.any_order else {}
    asked |= {"unique": "one"} if options.unique_one else {}
    worker = Worker(partial(score, checked=checked, asked=asked), _crashed, options.seconds)
    scores: dict[str, Score] = {}
    for name, schema, tests in cases(options.folder):
        scores[name] = worker.judge(schema, tests)
        if options.list and scores[name].outcome != RIGHT:
            print(f"{scores[name].outcome:16} {name}\n    {scores[name].detail[:600]}")
    if not scores:
        sys.exit(f"{options.folder}: no case was found. Name a folder of files with `schema` and `tests`.")
    first = Counter(one.outcome for one in scores.values())
    second = Counter(one.rekeyed for one in scores.values())
    print(f"{len(scores)} cases       as written  in schema order")
    for outcome in OUTCOMES:
        print(f"{outcome:18}{first[outcome]:8}{second[outcome]:17}")
    times = sorted(one.seconds * 1000 for one in scores.values() if one.outcome != CRASHED)
    sizes = sorted(one.size for one in scores.values() if one.size)
    print(
        f"compile, ms: median {statistics.median(times):.1f}, p99 {times[int(len(times) * 0.99)]:.0f}, "
        f"worst {times[-1]:.0f}; grammar, bytes: median {statistics.median(sizes or [0]):.0f}, "
        f"largest {sizes[-1] if sizes else 0}"
    )
    sys.exit(1 if first[UNSOUND] or first[CRASHED] else 0)


if __name__ == "__main__":
    main()
