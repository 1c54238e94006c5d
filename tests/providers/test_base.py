"""What is asked must be a provider: anything else is refused by every door, with what to pass instead."""

import pytest

from judge_local.completion import complete_validated_json
from judge_local.ensemble import judge, judge_claim, run_ensemble
from judge_local.errors import UsageError
from judge_local.providers.base import CompletionRequest
from judge_local.providers.mock import MockProvider
from judge_local.verdict import VERDICT_SCHEMA

REQUEST = CompletionRequest(system="s", user="u", schema=VERDICT_SCHEMA)
DOORS = {
    "judge_claim": lambda provider: judge_claim(provider, "The gate opens at nine.", "It names a time."),
    "judge": lambda provider: judge(provider=provider, system="s", user="u"),
    "run_ensemble": lambda provider: run_ensemble(provider=provider, system="s", user="u"),
    "complete_validated_json": lambda provider: complete_validated_json(provider, REQUEST),
}


@pytest.mark.parametrize("door", DOORS.values(), ids=DOORS)
@pytest.mark.parametrize(
    ("provider", "message"),
    [
        ("gpt-4", r"^provider: 'gpt-4' is a text\. Pass LocalProvider\(…\) .*OpenAIProvider"),
        (MockProvider, r"^provider: MockProvider is a class\. Pass MockProvider\(…\)\.$"),
        (None, r"^provider: 'None' is no provider\. It needs provider, model and complete_json"),
        (object(), "^provider: .* is no provider"),
    ],
    ids=["a text", "a class", "nothing", "something else"],
)
async def test_what_is_no_provider_is_refused(door, provider, message):
    with pytest.raises(UsageError, match=message):
        await door(provider)
