"""The ensemble: its design, its retries, its warnings, and what can make it settle itself."""

import copy
import json
import time
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from judge_local.cache import JsonCache, sha256
from judge_local.ensemble import (
    judge,
    judge_claim,
    reset_temperature_warning,
    run_ensemble,
)
from judge_local.errors import (
    ContextOverflowError,
    InvalidSchemaError,
    ModelMissingError,
    SchemaError,
    UsageError,
    VerdictSchemaError,
)
from judge_local.grammar.profile import DECODE_ORDER
from judge_local.prompt import OPTION_ORDERS, PARAPHRASES, PROMPT_VERSION, variation_text
from judge_local.providers.base import CompletionRequest, CompletionResponse
from judge_local.providers.mock import MockProvider, mock_verdict
from judge_local.run import Note, TokenUsage, Variation
from judge_local.verdict import VERDICT_SCHEMA, Match
from judge_local.zones import Zone, ZoneThresholds

VECTORS = json.loads((Path(__file__).parent / "data" / "decision-core.json").read_text())["ensembles"]
PASS = mock_verdict("pass", 0.9)
BAD = mock_verdict("pass", 4.2)
SUBJECT = "The gate opens at nine. Dogs stay outside."


@pytest.fixture(autouse=True)
def warnings_start_over():
    reset_temperature_warning()


class Replaying(MockProvider):
    """A provider whose equal requests have equal answers, as a local engine's do."""

    replays = True


class Varying(Replaying):
    """The same, varied unless told otherwise."""

    default_vary = "options"


class Batched(Varying):
    """The same, and it takes many requests at once."""

    async def complete_many(self, requests):
        outcomes = []
        for request in requests:
            try:
                outcomes.append(await self.complete_json(request))
            except Exception as error:  # noqa: BLE001 # The contract: a fault stands in the list.
                outcomes.append(error)
        return outcomes


async def ask(provider, **changes: Any):
    return await run_ensemble(**{"provider": provider, "system": "s", "user": "u", **changes})


@pytest.mark.parametrize("vector", VECTORS, ids=[f"{v['name']}, {v['runs']} runs" for v in VECTORS])
async def test_agrees_with_the_vectors(vector):
    provider = MockProvider(vector["responses"])

    result = await judge(provider=provider, system="s", user="u", runs=vector["runs"])

    expected = vector["expect"]
    assert result.votes.to_json() == expected["votes"]
    assert result.verdict == expected["verdict"]
    assert result.agreement == pytest.approx(expected["agreement"], abs=1e-12)
    assert result.mean_confidence == pytest.approx(expected["meanConfidence"], abs=1e-12)
    assert result.zone == expected["zone"]
    assert [run.error is not None for run in result.runs] == expected["errored"]
    assert len(provider.requests) == expected["calls"]


async def test_three_runs_at_0_95_reach_a_threshold_of_0_95():
    provider = MockProvider([mock_verdict("pass", 0.95)])

    result = await judge(provider=provider, system="s", user="u", zones=ZoneThresholds(auto_pass=0.95))

    assert result.zone is Zone.AUTO_PASS


async def test_one_errored_run_sends_two_confident_passes_to_a_person():
    provider = MockProvider([PASS, {"error": "429"}, {"error": "429"}, PASS])

    result = await judge(provider=provider, system="s", user="u")

    assert (result.votes.passes, result.votes.errors) == (2, 1)
    assert result.verdict is Match.PASS
    assert result.zone is Zone.HUMAN_REVIEW


async def test_a_run_carries_what_the_provider_reported():
    response = CompletionResponse(
        json=PASS["json"],
        usage=TokenUsage(10, 5),
        probabilities={"slot": {"pass": 1.0}},
        fingerprint="f",
        notes=(Note("template", "folded"),),
    )
    (run,) = await ask(MockProvider([response], provider="p", model="m"), runs=1)

    assert run.fingerprint == sha256(f"f|none|{PROMPT_VERSION}")
    assert run.verdict is not None
    assert run.verdict.to_json() == PASS["json"]
    assert (run.provider, run.model, run.cached) == ("p", "m", False)
    assert (run.usage, run.probabilities) == (TokenUsage(10, 5), {"slot": {"pass": 1.0}})
    assert run.notes == (Note("template", "folded"),)


async def test_without_variation_the_user_message_is_sent_as_it_is():
    provider = MockProvider([PASS])

    runs = await ask(provider, runs=4)

    assert [request.user for request in provider.requests] == ["u"] * 4
    assert [request.run for request in provider.requests] == [0, 1, 2, 3]
    assert [run.variation for run in runs] == [None] * 4


async def test_the_options_design_is_declared_and_stands_at_the_end():
    provider = MockProvider([PASS])

    runs = await ask(provider, runs=13, vary="options", seed=100)

    for k, (request, run) in enumerate(zip(provider.requests, runs, strict=True)):
        order, wording = OPTION_ORDERS[k % 6], k // 6
        assert request.user == f"u\n\n{variation_text(order, wording)}"
        assert request.system == "s"
        assert request.seed == 100 + k
        assert run.variation == Variation(index=k, options=order, paraphrase=wording, seed=100 + k)


async def test_the_seed_design_changes_the_seed_alone():
    provider = MockProvider([PASS])

    with pytest.warns(UserWarning, match="temperature"):
        runs = await ask(provider, vary="seed", temperature=0.5, seed=7)

    assert [request.user for request in provider.requests] == ["u"] * 3
    assert [request.seed for request in provider.requests] == [7, 8, 9]
    assert [run.variation for run in runs] == [
        Variation(index=k, options=(), paraphrase=0, seed=7 + k) for k in range(3)
    ]


async def test_a_provider_says_which_design_it_wants_unless_one_is_named():
    provider = Varying([PASS])

    await ask(provider, runs=1)
    with pytest.warns(UserWarning, match="repeat each other"):
        await ask(provider, runs=2, vary="none")

    assert [request.user == "u" for request in provider.requests] == [False, True, True]


async def test_a_schema_with_two_options_has_two_orders():
    schema = copy.deepcopy(dict(VERDICT_SCHEMA))
    schema["properties"]["match"]["enum"] = ["fail", "pass"]

    runs = await ask(MockProvider([PASS]), runs=5, vary="options", schema=schema)

    seen = [(run.variation.options, run.variation.paraphrase) for run in runs]
    assert seen == [
        (("pass", "fail"), 0),
        (("fail", "pass"), 0),
        (("pass", "fail"), 1),
        (("fail", "pass"), 1),
        (("pass", "fail"), 2),
    ]


@pytest.mark.parametrize("kind", [MockProvider, Batched])
async def test_a_retry_repeats_no_other_variation_and_says_what_was_wrong(kind):
    provider = kind([PASS, BAD, PASS] if kind is MockProvider else [PASS, BAD, PASS, PASS])

    runs = await ask(provider, vary="options", seed=5)

    (retry,) = [request for request in provider.requests if request.attempt == 1]
    assert (retry.run, retry.seed) == (1, 5 + 4)
    assert retry.user.startswith(f"u\n\n{variation_text(OPTION_ORDERS[4], 0)}\n\n")
    assert "4.2 is greater than the maximum of 1" in retry.user.splitlines()[-1]
    assert [run.variation.index for run in runs] == [0, 4, 2]
    assert len({request.user for request in provider.requests}) == 4


async def test_a_retry_after_a_providers_error_blames_no_one():
    provider = MockProvider([{"error": "503"}, PASS])

    await ask(provider, runs=1, vary="options")

    assert provider.requests[1].user == f"u\n\n{variation_text(OPTION_ORDERS[1], 0)}"


async def test_without_variation_a_retry_still_says_what_was_wrong():
    provider = MockProvider([BAD, PASS])

    await ask(provider, runs=1)

    assert provider.requests[1].user.startswith("u\n\nYour last answer was refused")


@pytest.mark.parametrize(
    ("provider", "changes", "distinct", "replays"),
    [
        (Replaying([PASS]), {}, 1, True),
        (Replaying([PASS]), {"vary": "seed"}, 1, True),
        (Replaying([PASS]), {"vary": "options"}, 3, False),
        (Replaying([PASS]), {"temperature": 0.5}, 3, False),
        (Replaying([PASS]), {"runs": 1}, 1, False),
        (MockProvider([PASS]), {}, 3, False),
        (MockProvider([PASS]), {"vary": "seed"}, 3, False),
    ],
)
@pytest.mark.filterwarnings("ignore:judge-local. ")
async def test_replays_are_counted_as_what_they_are(provider, changes, distinct, replays):
    """Votes always count runs; only a provider that replays is held to what its runs are worth."""
    result = await judge(**{"provider": provider, "system": "s", "user": "u", **changes})

    assert (result.distinct_runs, result.replays) == (distinct, replays)
    assert result.votes.passes == changes.get("runs", 3)


async def test_beyond_its_wordings_a_design_repeats_itself_and_says_so():
    result = await judge(provider=Varying([PASS]), system="s", user="u", runs=6 * PARAPHRASES + 1)

    assert (result.distinct_runs, result.replays) == (6 * PARAPHRASES, True)


@pytest.mark.parametrize(
    ("changes", "text"), [({"temperature": 0.5}, "temperature 0.5"), ({}, "repeat each other")]
)
async def test_each_warning_is_given_once_a_process(changes, text):
    async def twice():
        for _ in range(2):
            await ask(Replaying([PASS]), label="my-tool", **changes)

    with pytest.warns(UserWarning, match=f"^my-tool: .*{text}") as caught:
        await twice()
    reset_temperature_warning()
    with pytest.warns(UserWarning, match=text):
        await ask(Replaying([PASS]), **changes)

    assert len(caught) == 1


async def test_the_defaults_give_no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        await ask(MockProvider([PASS]))
        await ask(Varying([PASS]))
        await ask(Replaying([PASS]), runs=1)


UNUSABLE = [
    *({"runs": value} for value in (0, -1, True, 1.5, "3", None)),
    *({"temperature": value} for value in (-0.1, float("nan"), float("inf"), "0", None, True)),
    *({"seed": value} for value in (1.5, "1", None, True)),
    *({"vary": value} for value in ("order", "", 1)),
    *({"order": value} for value in (["claim", "claim"], ["verdict"], "claim")),
    {"pinned": {"claim": 1}},
]


@pytest.mark.parametrize("changes", UNUSABLE, ids=str)
async def test_a_call_that_cannot_be_meant_is_refused_before_the_first_run(changes, tmp_path):
    provider = MockProvider([PASS])
    with pytest.raises(UsageError):
        await ask(provider, **changes)
    if "pinned" not in changes:
        with pytest.raises(UsageError):
            await judge_claim(provider, SUBJECT, "c", cache=JsonCache(tmp_path), **changes)

    assert provider.requests == []


def without_confidence():
    schema = copy.deepcopy(dict(VERDICT_SCHEMA))
    del schema["properties"]["confidence"]
    schema["required"].remove("confidence")
    return schema


@pytest.mark.parametrize(
    ("schema", "kind"),
    [
        (without_confidence(), VerdictSchemaError),
        ({**VERDICT_SCHEMA, "minProperties": "5"}, InvalidSchemaError),
        ({**VERDICT_SCHEMA, "$schema": "https://example.com/x"}, InvalidSchemaError),
        ([], InvalidSchemaError),
    ],
)
async def test_a_schema_that_cannot_yield_a_verdict_is_refused_before_the_first_run(schema, kind, tmp_path):
    provider = MockProvider([PASS])
    for call in (
        ask(provider, schema=schema),
        judge(provider=provider, system="s", user="u", schema=schema),
        judge_claim(provider, SUBJECT, "c", schema=schema, cache=JsonCache(tmp_path)),
    ):
        with pytest.raises(SchemaError) as caught:
            await call
        assert type(caught.value) is kind

    assert provider.requests == []


async def test_a_claim_that_the_schema_forbids_is_refused_before_the_first_run():
    schema = copy.deepcopy(dict(VERDICT_SCHEMA))
    schema["$defs"] = {"short": {"type": "string", "maxLength": 5}}
    schema["properties"]["claim"] = {"$ref": "#/$defs/short"}
    provider = MockProvider([PASS])

    with pytest.raises(UsageError, match="claim"):
        await judge_claim(provider, SUBJECT, "too long", schema=schema)
    await judge_claim(provider, SUBJECT, "short", schema=schema, runs=1, vary="none")

    assert len(provider.requests) == 2


async def test_a_missing_model_is_raised_and_not_recorded():
    with pytest.raises(ModelMissingError):
        await ask(MockProvider([ModelMissingError("model", "it is not on this disk")]))


async def test_a_prompt_that_does_not_fit_errors_every_run_once():
    provider = MockProvider([ContextOverflowError("prompt", "9000 tokens, 8192 fit")])

    result = await judge(provider=provider, system="s", user="u")

    assert [run.error_kind for run in result.runs] == ["ContextOverflowError"] * 3
    assert len(provider.requests) == 3
    assert result.zone is Zone.HUMAN_REVIEW


async def test_runs_whose_time_is_over_are_errored():
    provider = MockProvider([PASS])

    result = await judge(provider=provider, system="s", user="u", deadline=time.monotonic() - 1)

    assert [run.error_kind for run in result.runs] == ["DeadlineExceededError"] * 3
    assert provider.requests == []


async def test_requests_carry_what_was_asked_for():
    provider = MockProvider([PASS])
    deadline = time.monotonic() + 3600

    await ask(provider, runs=1, pinned={"claim": "c"}, deadline=deadline, checked=["pattern"])

    (request,) = provider.requests
    assert (request.pinned, request.deadline, request.checked) == ({"claim": "c"}, deadline, ("pattern",))
    assert request.schema is VERDICT_SCHEMA
    assert request.order == DECODE_ORDER


async def test_what_a_schema_adds_is_written_before_the_decision():
    schema = copy.deepcopy(dict(VERDICT_SCHEMA))
    schema["properties"]["severity"] = {"type": "integer"}
    provider = MockProvider([PASS])

    await ask(provider, runs=1, schema=schema)
    await ask(provider, runs=1, schema=schema, order=["match", "claim"])

    assert [request.order for request in provider.requests] == [
        ("claim", "observed", "severity", "reasoning", "match", "confidence"),
        ("match", "claim"),
    ]


async def test_a_schema_behind_a_reference_keeps_its_own_order():
    schema = {"$ref": "#/$defs/v", "$defs": {"v": copy.deepcopy(dict(VERDICT_SCHEMA))}}
    del schema["$defs"]["v"]["$id"]
    provider = MockProvider([PASS])

    result = await judge_claim(provider, SUBJECT, "c", schema=schema, runs=1)

    assert result.zone is Zone.AUTO_PASS
    assert (provider.requests[0].order, provider.requests[0].pinned) == ((), None)


async def test_the_fingerprint_of_a_run_knows_the_design() -> None:
    """The same provider, prompt and grammar under another variation design are another judge."""

    class Printed(MockProvider):
        async def complete_json(self, request: CompletionRequest) -> CompletionResponse:
            return replace(await super().complete_json(request), fingerprint="f")

    async def prints(vary: str) -> set[str | None]:
        provider = Printed([mock_verdict("pass", 0.9)])
        return {
            run.fingerprint
            for run in await run_ensemble(provider=provider, system="s", user="u", runs=2, vary=vary)
        }

    found = [await prints(vary) for vary in ("options", "seed", "none")]

    assert all(len(one) == 1 and None not in one for one in found)
    assert len(set.union(*found)) == 3


async def test_a_bias_is_asked_for_and_recorded_on_every_run() -> None:
    provider = MockProvider([PASS])
    runs = await run_ensemble(
        provider=provider, system="s", user="u", option_bias={"pass": -0.5, "fail": 0.0}
    )

    assert [run.option_bias for run in runs] == [{"pass": -0.5}] * 3
    assert [request.option_bias for request in provider.requests] == [{"pass": -0.5}] * 3
    for none in (None, {}, {"pass": 0}):
        (run,) = await run_ensemble(provider=provider, system="s", user="u", runs=1, option_bias=none)
        assert run.option_bias is None
        assert "optionBias" not in run.to_json()


@pytest.mark.parametrize("bias", [{"maybe": 1.0}, {"pass": float("inf")}, {"pass": "1"}, {"pass": True}])
async def test_a_bias_that_cannot_be_meant(bias: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=r"option_bias: .*pass, fail, partial"):
        await run_ensemble(provider=MockProvider([PASS]), system="s", user="u", option_bias=bias)


async def test_a_biased_decision_is_kept_apart(tmp_path: Path) -> None:
    cache, provider = JsonCache(tmp_path), MockProvider([PASS])
    for bias in (None, {"pass": -0.5}, {"pass": 0.5}, {"pass": -0.5, "fail": 0.0}):
        await judge_claim(provider, SUBJECT, "It opens.", cache=cache, option_bias=bias)

    assert len(provider.requests) == 3 * 3
