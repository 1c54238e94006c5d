"""The sides of a comparison: the same rows, prompts, limits and counting for each.

* Each side gets the canonical schema with the judge's own limits as keywords and the claim as a constant, temperature 0
  and the same greatest number of tokens. Our side has them in its grammar already.
* An answer counts when it is whole and valid under that schema, whoever wrote it.
* Loading does not count. The machine is held while a side works.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from judge_local.bench.rows import Row
from judge_local.ensemble import judge_claim
from judge_local.errors import JudgeLocalError, RemoteError, excerpt
from judge_local.grammar.profile import REASONING_CHARS, STRING_CHARS
from judge_local.prompt import OPTION_ORDERS, build_prompt, restate_schema, variation_text
from judge_local.providers.base import CompletionRequest, CompletionResponse
from judge_local.providers.local import LocalProvider
from judge_local.verdict import VERDICT_SCHEMA

LIMITS: Final = {"observed": STRING_CHARS, "reasoning": REASONING_CHARS}

Request = tuple[str, str, dict[str, Any]]
"""System, user, schema."""
Answer = tuple[str, int]
"""Text, and how many tokens it took."""
OnProgress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Score:
    """What one side did."""

    seconds: float
    verdicts: int
    """Valid answers."""
    asked: int
    tokens: float
    """Mean tokens of an answer, valid or not."""

    @property
    def rate(self) -> float:
        """Verdicts a minute."""
        return 60 * self.verdicts / self.seconds

    def __str__(self) -> str:
        return (
            f"{self.rate:.1f} verdicts a minute ({self.verdicts} of {self.asked} valid in {self.seconds:.1f} s, "
            f"{self.tokens:.0f} tokens each)"
        )

    def to_json(self) -> dict[str, float]:
        """The score as a JSON object."""
        return {
            "verdictsPerMinute": round(self.rate, 2),
            "answersPerMinute": round(60 * self.asked / self.seconds, 2),
            "seconds": round(self.seconds, 3),
            "valid": self.verdicts,
            "asked": self.asked,
            "meanTokens": round(self.tokens, 1),
        }


def bounded_schema(claim: str) -> dict[str, Any]:
    """The canonical schema with the judge's own limits as keywords, for a side that has no profile."""
    properties: dict[str, Any] = {name: dict(value) for name, value in VERDICT_SCHEMA["properties"].items()}
    properties["claim"] = {"const": claim}
    for name, limit in LIMITS.items():
        properties[name]["maxLength"] = limit
    return {**VERDICT_SCHEMA, "properties": properties}


def requests_of(rows: Sequence[Row], runs: int) -> list[Request]:
    """What is asked: one request for each run, those of one row together."""
    requests: list[Request] = []
    for row in rows:
        prompt = build_prompt(row.subject, row.claim, reference=row.reference)
        schema = bounded_schema(row.claim)
        system = f"{prompt.system}\n\n{restate_schema(VERDICT_SCHEMA, pinned=('claim',))}"
        for run in range(runs):
            order = OPTION_ORDERS[run % len(OPTION_ORDERS)]
            paraphrase = run // len(OPTION_ORDERS)
            requests.append((system, f"{prompt.user}\n\n{variation_text(order, paraphrase)}", schema))
    return requests


def score_answers(seconds: float, requests: Sequence[Request], answers: Sequence[Answer]) -> Score:
    """Count the answers that are valid under the schema of their request."""
    from jsonschema import Draft202012Validator

    def valid(text: str, schema: dict[str, Any]) -> bool:
        try:
            return Draft202012Validator(schema).is_valid(json.loads(text))
        except ValueError:
            return False

    return Score(
        seconds,
        sum(valid(text, schema) for (text, _), (_, _, schema) in zip(answers, requests, strict=True)),
        len(answers),
        sum(tokens for _, tokens in answers) / max(1, len(answers)),
    )


class _Capped:
    """A provider whose answers have at most so many tokens."""

    def __init__(self, provider: LocalProvider, max_tokens: int) -> None:
        self._provider, self._max_tokens = provider, max_tokens

    def __getattr__(self, name: str) -> Any:
        return getattr(self._provider, name)

    async def complete_many(
        self, requests: Sequence[CompletionRequest]
    ) -> list[CompletionResponse | JudgeLocalError]:
        return await self._provider.complete_many(
            [replace(request, max_tokens=self._max_tokens) for request in requests]
        )


async def ours(
    provider: LocalProvider, rows: Sequence[Row], runs: int, *, max_tokens: int, on_progress: OnProgress
) -> Score:
    """All rows at once, judged as `judge` does."""
    capped: Any = _Capped(provider, max_tokens)
    done = 0

    async def one(row: Row) -> Any:
        nonlocal done
        result = await judge_claim(capped, row.subject, row.claim, reference=row.reference, runs=runs)
        done += 1
        on_progress(done, len(rows))
        return result

    started = time.monotonic()
    results = await asyncio.gather(*(one(row) for row in rows))
    seconds = time.monotonic() - started
    judged = [run for result in results for run in result.runs]
    tokens = [run.usage.output_tokens for run in judged if run.usage is not None]
    return Score(
        seconds,
        sum(run.verdict is not None for run in judged),
        len(judged),
        sum(tokens) / max(1, len(tokens)),
    )


async def server(
    url: str, rows: Sequence[Row], runs: int, *, together: bool, max_tokens: int, on_progress: OnProgress
) -> Score:
    """An OpenAI-compatible server that somebody has started: all requests at once, so that it can fill its own slots.

    Args:
        url: with or without `/v1`.
        rows: what is judged.
        runs: of each row.
        together: one request for a row with `n=runs`, which reads its prompt once; else one for each run.
        max_tokens: of each answer.
        on_progress: gets (requests answered, requests in all).

    Raises:
        RemoteError: the server failed.
    """
    requests = requests_of(rows, runs)
    asked = requests[::runs] if together else requests
    count = runs if together else 1
    done = 0

    async def one(request: Request) -> list[Answer]:
        nonlocal done
        answers = await _complete(url, request, count, max_tokens)
        done += 1
        on_progress(done, len(asked))
        return answers

    started = time.monotonic()
    answers = await asyncio.gather(*(one(request) for request in asked))
    seconds = time.monotonic() - started
    return score_answers(seconds, requests, [answer for group in answers for answer in group])


async def _complete(url: str, request: Request, count: int, max_tokens: int) -> list[Answer]:
    from judge_local.providers.servers import checked_url, exchange

    system, user, schema = request
    base = checked_url(url).removesuffix("/v1")
    reply = await exchange(
        f"{base}/v1/chat/completions",
        content=json.dumps(
            {
                "messages": [{"role": "system", "content": system}, {"role": "user", "content": user}],
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "verdict", "strict": True, "schema": schema},
                },
                "temperature": 0.0,
                "max_tokens": max_tokens,
                **({"n": count} if count > 1 else {}),
            }
        ).encode(),
        headers={"content-type": "application/json"},
    )
    try:
        data = json.loads(reply.body)
        choices = [choice["message"]["content"] or "" for choice in data["choices"]]
        tokens = int(data["usage"]["completion_tokens"])
        # With n above 1, llama-server counts the first answer's tokens alone; the standard is to count all of them.
        first_alone = data.get("timings", {}).get("predicted_n") == tokens
    except (ValueError, KeyError, TypeError) as error:
        said = excerpt(reply.body[:200].decode("utf-8", "replace"))
        raise RemoteError(url, f"answered {reply.status} with {said}", "Look at the server's log.") from error
    if len(choices) != count:
        raise RemoteError(
            url, f"gave {len(choices)} answers where n={count} was asked", "Use another server."
        )
    return [(text, tokens if first_alone else round(tokens / count)) for text in choices]
