"""The pytest plugin: judgements as tests, and nothing at all for a project that asks for none.

* It is loaded with every pytest of its environment, so it imports nothing heavy until a test asks for `judge`.
* A model is loaded once a session. Under xdist each process loads its own, and their requests take turns by the engine's
  machine-wide lock.
* The nearest setting wins: the call's, the marker's, the command line's, the environment's, the configuration file's.
* What no run answered passes no test and skips none, whatever is done with reviews: a judge that is broken must not look
  like a gate that is open.
* What a model wrote is quoted, with control characters escaped.
"""

from __future__ import annotations

import difflib
import logging
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn, TypedDict, Unpack, cast

import pytest

from judge_local.errors import JudgeLocalError, ModelMissingError, UsageError, excerpt

if TYPE_CHECKING:
    from judge_local.cache import JsonCache
    from judge_local.providers.base import InferenceProvider
    from judge_local.providers.local import LocalProvider
    from judge_local.run import JudgeRun
    from judge_local.zones import ConsensusResult, ZoneThresholds

__all__ = ["Judge", "Options", "assert_verdict", "judge", "judge_provider"]

OnReview = Literal["fail", "skip", "pass"]
QUOTED_CHARS: Final = 600
"""The longest text of a verdict that our own grammar admits; a longer one is cut in messages."""

_log: Final = logging.getLogger(__name__)


class Options(TypedDict, total=False):
    """What a judgement may be given besides subject and claim; see `judge_local.judge_claim`."""

    reference: str | None
    runs: int
    temperature: float
    schema: Mapping[str, Any]
    vary: str | None
    zones: ZoneThresholds
    cache: JsonCache | None
    seed: int
    order: Sequence[str] | None
    checked: Sequence[str]
    timeout: float | None
    """Seconds for the whole judgement, waiting for other processes included; None is no limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """What the fixture `judge` gives: a function that judges, with the settings of its test."""

    provider: InferenceProvider
    defaults: Options
    properties: list[tuple[str, object]]
    """Of the test: they end up in reports."""

    def __call__(self, subject: str, claim: str, **options: Unpack[Options]) -> ConsensusResult:
        """Judge whether `subject` satisfies `claim`, and put the result among the test's properties.

        Args:
            subject: the material; untrusted text.
            claim: what must hold for the subject to pass.
            options: each in place of the marker's and the session's.

        Raises:
            EmptySubjectError: there is nothing to judge.
            UsageError, SchemaError: an argument cannot be meant.
            JudgeLocalError: another fault of the set-up, such as a file that is no model.
        """
        __tracebackhide__ = True
        from judge_local.resilience import check_seconds
        from judge_local.sync import judge_claim

        chosen: dict[str, Any] = {**self.defaults, **options}
        seconds = chosen.pop("timeout", None)
        try:
            deadline = None if seconds is None else time.monotonic() + check_seconds("timeout", seconds)
            decision = judge_claim(self.provider, subject, claim, deadline=deadline, **chosen)
        except JudgeLocalError as error:
            # The fault is in what was asked: the line of the test says more than twenty of ours.
            raise error.with_traceback(None) from error.__cause__
        models = dict.fromkeys(f"{run.provider}:{run.model}" for run in decision.runs)
        self.properties.extend(
            [
                ("judge_claim", claim),
                ("judge_zone", decision.zone.value),
                ("judge_agreement", decision.agreement),
                ("judge_confidence", decision.mean_confidence),
                ("judge_model", ", ".join(models)),
            ]
        )
        return decision


def assert_verdict(decision: ConsensusResult, *, on_review: OnReview = "fail") -> None:
    """Pass on an auto-pass and fail on an auto-fail, with the votes and what each run quoted.

    Args:
        decision: what `judge` returned.
        on_review: what a human review does to the test: `fail` it, `skip` it, or let it `pass`. Where no run answered at
            all it fails in any case.

    Raises:
        AssertionError: the decision does not let the test pass.
        UsageError: `on_review` is none of the three.
    """
    __tracebackhide__ = True
    from judge_local.zones import Zone

    if on_review not in ("fail", "skip", "pass"):
        raise UsageError(
            "on_review", f"{excerpt(on_review)} is no way to treat a review", "Use fail, skip or pass."
        )
    if decision.zone is Zone.AUTO_PASS:
        return
    lines = list(_lines(decision))
    if decision.zone is Zone.HUMAN_REVIEW and decision.votes.graded:
        if on_review == "pass":
            return
        if on_review == "skip":
            pytest.skip(f"{lines[0]} ({lines[1].strip()})")
    raise AssertionError("\n".join(lines))


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options and settings, all of which begin with `judge`."""
    group = parser.getgroup("judge-local", "judging with judge-local")
    group.addoption(
        "--judge-model",
        metavar="M",
        help="The model of the fixture judge: an alias, a selector such as auto, or a .gguf file. Default: the only one "
        "on this disk.",
    )
    group.addoption("--judge-runs", metavar="N", help="How many times the fixture judge asks. Default: 3.")
    parser.addini("judge_model", "The same as --judge-model.")
    parser.addini("judge_runs", "The same as --judge-runs.")
    parser.addini("judge_auto_pass", "Least mean confidence of an auto-pass. Default: 0.8.")
    parser.addini("judge_auto_fail", "Least mean confidence of an auto-fail. Default: 0.8.")
    parser.addini("judge_cache", "A folder for answers, so that they are not asked for twice.")
    parser.addini(
        "judge_no_model", "What a test does when its model is not on this disk: fail or skip.", default="fail"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker, which `--strict-markers` asks for."""
    config.addinivalue_line(
        "markers",
        "judge(model=None, runs=None, reference=None, zones=None, ...): settings of the fixture judge for this test.",
    )


@pytest.fixture(scope="session")
def _judge_models() -> Iterator[dict[str | None, LocalProvider]]:
    """The models of this session, each opened when it is first asked for."""
    opened: dict[str | None, LocalProvider] = {}
    yield opened
    for provider in opened.values():
        provider.close()


@pytest.fixture
def judge_provider(
    request: pytest.FixtureRequest, _judge_models: dict[str | None, LocalProvider]
) -> InferenceProvider:
    """Who judges. Define a fixture of this name, of any scope, to judge with something else."""
    config, node = request.config, request.node
    model = _marked(node).get("model") or _setting(config, "model")
    if model not in _judge_models:
        from judge_local.providers.local import LocalProvider

        absent = config.getini("judge_no_model")
        if absent not in ("fail", "skip"):
            _refuse(f"judge_no_model: {excerpt(absent)} is neither fail nor skip.")
        try:
            _judge_models[model] = LocalProvider(model, on_event=_log.info)
        except ModelMissingError as error:
            if absent == "skip":
                pytest.skip(str(error))
            _refuse(str(error))
        except UsageError as error:
            if model is not None:
                _refuse(str(error))
            _refuse(f"{error.where}: {error.problem}. Choose with --judge-model or judge_model.")
        except JudgeLocalError as error:
            _refuse(str(error))
    return _judge_models[model]


@pytest.fixture
def judge(request: pytest.FixtureRequest, judge_provider: InferenceProvider) -> Judge:
    """A function that judges a text: `judge(subject, claim="…")` gives what `assert_verdict` takes."""
    settings = {**_defaults(request.config), **_marked(request.node)}
    settings.pop("model", None)  # `judge_provider` has read it.
    # What `record_property` adds to, without its warning: the default kind of pytest's XML has no properties in its
    # schema, although pytest writes them and readers take them.
    properties = request.node.user_properties
    return Judge(provider=judge_provider, defaults=cast("Options", settings), properties=properties)


def _lines(decision: ConsensusResult) -> Iterator[str]:
    """What a person needs to see of `decision`: the zone and the claim, the votes, and every run."""
    claim = next((excerpt(run.verdict.claim) for run in decision.runs if run.verdict is not None), "")
    yield f"{decision.zone.value}: {claim or 'no run answered'}"
    graded = f"; agreement {decision.agreement:.2f}, mean confidence {decision.mean_confidence:g}"
    yield f"  votes: {decision.votes}{graded if decision.votes.graded else ''}"
    for number, run in enumerate(decision.runs, 1):
        yield from _run_lines(number, run)


def _run_lines(number: int, run: JudgeRun) -> Iterator[str]:
    who = f"{run.provider}:{run.model}"
    if run.verdict is None:
        yield f"  run {number} ({who}): errored: {excerpt(str(run.error), QUOTED_CHARS)}"
    else:
        verdict = run.verdict
        yield f"  run {number} ({who}): {verdict.match.value}, confidence {verdict.confidence}"
        yield f"    observed: {excerpt(verdict.observed, QUOTED_CHARS)}"
        yield f"    reasoning: {excerpt(verdict.reasoning, QUOTED_CHARS)}"
    for note in run.notes:
        yield f"    note: {note.kind}: {excerpt(note.detail)}"


def _defaults(config: pytest.Config) -> dict[str, Any]:
    """What the session says, for those settings that it names."""
    from judge_local.cache import JsonCache
    from judge_local.zones import ZoneThresholds

    defaults: dict[str, Any] = {}
    runs = _setting(config, "runs")
    if runs is not None:
        defaults["runs"] = _number("judge runs", int, runs)
    sides = {name: config.getini(f"judge_{name}") for name in ("auto_pass", "auto_fail")}
    try:
        defaults["zones"] = ZoneThresholds(
            **{name: _number(f"judge_{name}", float, text) for name, text in sides.items() if text}
        )
    except UsageError as error:
        _refuse(f"judge_{error}")
    folder = config.getini("judge_cache")
    if folder:
        defaults["cache"] = JsonCache(config.rootpath / folder)
    return defaults


def _marked(node: pytest.Item) -> dict[str, Any]:
    """What the markers of a test say, the nearest one first."""
    found: dict[str, Any] = {}
    known = ("model", *Options.__annotations__)
    for marker in node.iter_markers("judge"):
        if marker.args:
            _refuse(f"marker judge: {excerpt(marker.args[0])} has no name. Write judge(runs=5).")
        for key, value in marker.kwargs.items():
            if key not in known:
                near = difflib.get_close_matches(key, known) or known
                _refuse(f"marker judge: {key!r} is no setting. Known: {', '.join(near)}.")
            found.setdefault(key, value)
    return found


def _setting(config: pytest.Config, name: str) -> str | None:
    """The session's `model` or `runs`."""
    said = (
        config.getoption(f"judge_{name}"),
        os.environ.get(f"JUDGE_LOCAL_{name.upper()}"),
        config.getini(f"judge_{name}"),
    )
    return next((str(value) for value in said if value), None)


def _number(name: str, kind: type[int] | type[float], text: str) -> Any:
    try:
        return kind(text)
    except ValueError:
        _refuse(f"{name}: {excerpt(text)} is not a {'whole ' if kind is int else ''}number.")


def _refuse(message: str) -> NoReturn:
    """Fail the test with one line."""
    raise pytest.fail.Exception(message, pytrace=False) from None
