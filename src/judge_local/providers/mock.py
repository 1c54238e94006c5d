"""A provider that answers from a script: for tests, and for code of one's own that judges.

Answers come in order and start over when they are used up. Requests are remembered. Nothing is validated or repaired
here, so a script can play every fault of a real model.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, Final

from judge_local.errors import ProviderError, UsageError, excerpt
from judge_local.providers.base import CompletionRequest, CompletionResponse
from judge_local.verdict import Match

Scripted = Mapping[str, Any] | CompletionResponse | Exception
"""One scripted answer: `{"json": value}`, `{"error": text}`, a whole response, or an exception to raise."""

_FORMS: Final = 'Give {"json": value}, {"error": text}, a CompletionResponse or an exception.'


def mock_verdict(match: Match | str, confidence: float) -> dict[str, Any]:
    """A scripted answer with a whole verdict, for `MockProvider`.

    >>> mock_verdict("pass", 0.9)["json"]["match"]
    'pass'
    """
    return {
        "json": {
            "claim": "The assertion under test",
            "observed": "Observed content",
            "match": str(match),
            "confidence": confidence,
            "reasoning": "Scripted mock reasoning",
        }
    }


class MockProvider:
    """Answers `responses` in order, over and over.

    Args:
        responses: at least one scripted answer. `{"error": text}` raises `ProviderError`, so the run is retried.
        provider: the engine's name to give.
        model: the model's name to give.
        remember: `False` forgets each request once it is answered, so that millions of them take no memory.

    Raises:
        UsageError: there are no responses, or one has no form that is known.
    """

    def __init__(
        self,
        responses: Sequence[Scripted],
        *,
        provider: str = "mock",
        model: str = "mock-model",
        remember: bool = True,
    ) -> None:
        if not responses:
            raise UsageError("MockProvider", "there are no responses", _FORMS)
        for response in responses:
            whole = isinstance(response, CompletionResponse | Exception)
            if not whole and not (isinstance(response, Mapping) and set(response) in ({"json"}, {"error"})):
                raise UsageError("MockProvider", f"{excerpt(response)} is no response", _FORMS)
        self.provider: Final = provider
        self.model: Final = model
        self.requests: Final[list[CompletionRequest]] = []
        """What was asked so far, in order; empty where nothing is remembered."""
        self._responses = tuple(responses)
        self._asked = 0
        self._remember = remember

    async def complete_json(self, request: CompletionRequest) -> CompletionResponse:
        """The next scripted answer.

        Raises:
            ProviderError: the script says `{"error": …}`.
        """
        response = self._responses[self._asked % len(self._responses)]
        self._asked += 1
        if self._remember:
            self.requests.append(request)
        if isinstance(response, Exception):
            raise response
        if isinstance(response, CompletionResponse):
            return response
        if "error" in response:
            raise ProviderError(f"{self.provider} {self.model}", str(response["error"]))
        return CompletionResponse(json=copy.deepcopy(response["json"]))
