"""Prove the schema compiler at length: derivations, walks over vocabularies, hostile schemas, small worlds, mutations.

    python scripts/prove_grammar.py derive [--texts 1000000] [--folder DIR]   every text of a grammar is valid
    python scripts/prove_grammar.py worlds [--schemas 3000]                   set equality on small worlds
    python scripts/prove_grammar.py walk [--walks 300] [--model FILE ...]     no state without an allowed token
    python scripts/prove_grammar.py hostile                                   time and memory of hostile schemas
    python scripts/prove_grammar.py mutate [--progress DIR] [--only MODULE]   each change to the code is noticed

Each prints its counts and exits with 1 when something was wrong. `--seed` makes another run of the same kind. The
schemas are those of the tests; `derive --folder` takes those of a folder too.
"""

from __future__ import annotations

import argparse
import importlib
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "scripts")]


def _tests(name: str) -> Any:
    """A module beside the tests of the grammar."""
    return importlib.import_module(f"grammar.{name}")


def derive(texts: int, seed: int, folder: Path | None) -> int:
    """Random texts of many grammars, each held to the validator."""
    derivations, tiny, zoo = (_tests(name) for name in ("derivations", "tiny_schemas", "zoo"))
    import jsonschema

    from judge_local.errors import SchemaError
    from judge_local.grammar import compile_schema

    sources = [json.dumps(case.schema) for case in zoo.ZOO.values()] + [
        json.dumps(each) for each in tiny.schemas()
    ]
    if folder is not None:
        score: Any = importlib.import_module("score_grammar")

        sources += [json.dumps(schema, default=score.plain_number) for _, schema, _ in score.cases(folder)]
    drawers = []
    for source in sources:
        try:
            drawers.append(
                (
                    source,
                    derivations.Deriver(compile_schema(source).gbnf, 300),
                    zoo.validator_of(json.loads(source)),
                )
            )
        except SchemaError:
            continue
    chance = random.Random(seed)
    drawn = repeated = wrong = unread = 0
    began = time.monotonic()
    each = max(1, texts // len(drawers))
    for source, deriver, validator in drawers:
        for _ in range(each):
            text = deriver.draw(chance)
            drawn += 1
            try:
                value = json.loads(text, object_pairs_hook=derivations.unique)
            except derivations.RepeatedKeyError:
                repeated += 1
                continue
            try:
                error = next(iter(validator.iter_errors(value)), None)
            except (jsonschema.exceptions.RefResolutionError, ValueError, LookupError, ArithmeticError):
                unread += 1
                continue
            except Exception as failure:  # noqa: BLE001 # a pattern that the validator cannot read
                print(f"not checked: {failure} in {source[:200]}")
                unread += 1
                break
            if error is not None:
                wrong += 1
                print(f"NOT VALID: {text[:300]}\n  under {source[:300]}\n  {error.message[:200]}")
                break
    print(
        f"grammars {len(drawers)}  texts {drawn}  invalid {wrong}  repeated undeclared keys {repeated}  "
        f"not checked {unread}  seconds {time.monotonic() - began:.0f}  seed {seed}"
    )
    return 1 if wrong else 0


def worlds(count: int, seed: int) -> int:
    """Set equality between a grammar and its schema on a small world of values."""
    from jsonschema import Draft202012Validator

    from judge_local.errors import UnsatisfiableSchemaError, UnsupportedSchemaError
    from judge_local.grammar import compile_schema

    tiny = _tests("tiny_schemas")
    values = [(value, tiny.text_of(value)) for value in tiny.world()]
    outcome = dict.fromkeys(("equal", "named losses", "refused", "unsatisfiable", "UNSOUND", "OVER"), 0)
    for schema in tiny.schemas(seed, count):
        validator = Draft202012Validator(schema)
        valid = {text for value, text in values if validator.is_valid(value)}
        try:
            grammar = compile_schema(json.dumps(schema))
        except UnsatisfiableSchemaError:
            outcome["OVER" if valid else "unsatisfiable"] += 1
            continue
        except UnsupportedSchemaError:
            outcome["refused"] += 1
            continue
        accepted = {text for _, text in values if grammar.accepts(text)}
        kind = (
            "UNSOUND"
            if accepted - valid
            else "equal"
            if accepted == valid
            else "named losses"
            if tiny.says_so(grammar.report)
            else "OVER"
        )
        outcome[kind] += 1
        if kind in ("UNSOUND", "OVER"):
            print(f"{kind}: {json.dumps(schema)}: {sorted(accepted ^ valid)[:4]}")
    print(f"values {len(values)}  " + "  ".join(f"{name} {number}" for name, number in outcome.items()))
    return 1 if outcome["UNSOUND"] or outcome["OVER"] else 0


def tokens_of(path: Path) -> list[bytes]:
    """The bytes of every token of a GGUF vocabulary that is text."""
    import ctypes

    import llama_cpp

    parameters = llama_cpp.llama_model_default_params()
    parameters.vocab_only = True
    model = llama_cpp.llama_model_load_from_file(str(path).encode(), parameters)
    vocabulary = llama_cpp.llama_model_get_vocab(model)
    found = []
    for token in range(llama_cpp.llama_vocab_n_tokens(vocabulary)):
        room = ctypes.create_string_buffer(512)
        size = llama_cpp.llama_token_to_piece(vocabulary, token, room, len(room), 0, False)
        if size > 0:
            found.append(room.raw[:size])
    llama_cpp.llama_model_free(model)
    return found


def walk(walks: int, seed: int, models: list[Path]) -> int:
    """Random allowed tokens until the text is complete; a state where none is allowed is a fault."""
    from judge_local.grammar import Matcher, compile_schema

    zoo = _tests("zoo")
    chance = random.Random(seed)
    stuck = steps = 0
    with tempfile.TemporaryDirectory() as folder:
        paths = [*_tiny_models(Path(folder)), *models]
        for path in paths:
            tokens = tokens_of(path)
            begun, ended = steps, 0
            for number in range(walks):
                case = list(zoo.ZOO.values())[number % len(zoo.ZOO)]
                matcher: Matcher | None = compile_schema(json.dumps(case.schema)).start()
                for _ in range(120):
                    assert matcher is not None
                    if matcher.finished or (matcher.complete and chance.random() < 0.3):
                        ended += 1
                        break
                    matcher = _step(matcher, tokens, chance)
                    steps += 1
                    if matcher is None:
                        stuck += 1
                        print(f"STUCK: {path.name}: {json.dumps(case.schema)[:200]}")
                        break
            print(f"{path.name}: {len(tokens)} tokens  walks {walks}  ended {ended}  steps {steps - begun}")
    print(f"states without an allowed token: {stuck}")
    return 1 if stuck else 0


def _tiny_models(folder: Path) -> Iterator[Path]:
    make_tiny_model: Any = importlib.import_module("make_tiny_model")

    for name, options in (("bytes.gguf", []), ("sentencepiece.gguf", ["--sentencepiece"])):
        make_tiny_model.main([str(folder / name), *options])
        yield folder / name


def _step(matcher: Any, tokens: list[bytes], chance: random.Random) -> Any:
    for _ in range(60):
        after = matcher.advance(chance.choice(tokens))
        if after is not None:
            return after
    allowed = [after for token in tokens if (after := matcher.advance(token)) is not None]
    return chance.choice(allowed) if allowed else None


def hostile() -> int:
    """Time and memory of each hostile schema, in one process each."""
    schemas = _tests("hostile").HOSTILE
    slow = 0
    for name in schemas:
        code = (
            "import sys, time, resource\n"
            f"sys.path.insert(0, {str(ROOT / 'tests')!r})\n"
            "from grammar.hostile import HOSTILE\n"
            "from judge_local.errors import SchemaError\n"
            "from judge_local.grammar import compile_schema\n"
            "compile_schema({})\n"
            "began = time.perf_counter()\n"
            f"source = HOSTILE[{name!r}]\n"
            "try:\n"
            "    outcome = f'compiled, {len(compile_schema(source).gbnf)} bytes'\n"
            "except SchemaError as error:\n"
            "    outcome = type(error).__name__\n"
            "memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024\n"
            "print(f'{(time.perf_counter() - began) * 1000:.0f} {memory} {outcome}')\n"
        )
        run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        if run.returncode:
            print(f"{name:28} CRASHED {run.stderr.strip().splitlines()[-1:]}")
            slow += 1
            continue
        milliseconds, memory, outcome = run.stdout.split(" ", 2)
        slow += int(milliseconds) > 1000 or int(memory) > 200
        print(f"{name:28}{milliseconds:>6} ms {memory:>5} MB  {outcome.strip()}")
    print(f"beyond a second or 200 MB, or crashed: {slow}")
    return 1 if slow else 0


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("proof", choices=("derive", "worlds", "walk", "hostile", "mutate"))
    parser.add_argument("--texts", type=int, default=1_000_000)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--schemas", type=int, default=3000)
    parser.add_argument("--walks", type=int, default=300)
    parser.add_argument("--model", type=Path, nargs="*", default=[])
    parser.add_argument("--progress", type=Path, help="mutate: keep what became of each in this folder")
    parser.add_argument("--only", nargs="*", default=[], help="mutate: these modules only")
    parser.add_argument(
        "--limit", type=float, default=120.0, help="mutate: seconds of processor time for one change, at most"
    )
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    mutations: Any = importlib.import_module("mutate_grammar")
    proofs: dict[str, Callable[[], int]] = {
        "derive": lambda: derive(options.texts, options.seed, options.folder),
        "worlds": lambda: worlds(options.schemas, options.seed),
        "walk": lambda: walk(options.walks, options.seed, options.model),
        "hostile": hostile,
        "mutate": lambda: mutations.mutate(options.progress, options.only, options.limit),
    }
    raise SystemExit(proofs[options.proof]())


if __name__ == "__main__":
    main()
