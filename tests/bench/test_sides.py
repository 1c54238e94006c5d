"""The others in a comparison: what they are asked, and which of their answers count."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from judge_local.bench.rows import Row
from judge_local.bench.sides import bounded_schema, requests_of, score_answers, server
from judge_local.errors import RemoteError

ROWS = [Row("The sky is blue.", "It is blue."), Row("The sea is wide.", "It is narrow.")]


def verdict(claim: str = "It is blue.", **changes: Any) -> str:
    answer = {
        "claim": claim,
        "observed": "o",
        "match": "pass",
        "confidence": 0.9,
        "reasoning": "r",
        **changes,
    }
    return json.dumps(answer)


class Server(BaseHTTPRequestHandler):
    """Answers with the claim that the schema fixes, as often as `n` says."""

    asked: list[dict[str, Any]]
    reply: bytes | None

    def do_POST(self) -> None:  # The standard library's name.
        data = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.asked.append({**data, "path": self.path})
        claim = data["response_format"]["json_schema"]["schema"]["properties"]["claim"]["const"]
        choices = [{"message": {"content": verdict(claim)}}] * data.get("n", 1)
        body = (
            self.reply
            or json.dumps({"choices": choices, "usage": {"completion_tokens": 50 * len(choices)}}).encode()
        )
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def served() -> Iterator[tuple[str, type[Server]]]:
    handler = type("Handler", (Server,), {"asked": [], "reply": None})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{running.server_port}", handler
        running.shutdown()


@pytest.mark.parametrize("suffix", ["", "/", "/v1"])
@pytest.mark.parametrize(("together", "asked"), [(True, 2), (False, 6)])
async def test_a_server_is_asked_for_every_run_once(
    served: tuple[str, type[Server]], suffix: str, together: bool, asked: int
) -> None:
    url, handler = served
    score = await server(url + suffix, ROWS, 3, together=together, max_tokens=77, on_progress=lambda *_: None)

    assert (score.asked, score.verdicts, score.tokens) == (6, 6, 50)
    assert len(handler.asked) == asked
    assert {data["path"] for data in handler.asked} == {"/v1/chat/completions"}
    assert {data.get("n", 1) for data in handler.asked} == {6 // asked}
    assert {(data["max_tokens"], data["temperature"]) for data in handler.asked} == {(77, 0.0)}


@pytest.mark.parametrize(
    "reply", [b"moo", b'{"error": "no such model"}', b'{"choices": [], "usage": {"completion_tokens": 0}}']
)
async def test_a_server_that_gives_no_answers_is_named(
    served: tuple[str, type[Server]], reply: bytes
) -> None:
    url, handler = served
    handler.reply = reply

    with pytest.raises(RemoteError, match="127"):
        await server(url, ROWS, 3, together=True, max_tokens=77, on_progress=lambda *_: None)


def test_only_whole_and_valid_answers_count() -> None:
    requests = requests_of(ROWS[:1], 6)
    answers = [
        verdict(),
        verdict()[:-5],
        verdict("Another claim."),
        verdict(observed="x" * 401),
        verdict(reasoning="x" * 601),
        verdict(match="maybe"),
    ]
    score = score_answers(30.0, requests, [(text, 10) for text in answers])

    assert (score.verdicts, score.asked, score.rate) == (1, 6, 2.0)


def test_runs_of_a_row_differ_at_their_end_alone() -> None:
    requests = requests_of(ROWS, 3)
    users = [user for _, user, _ in requests]

    assert len(set(users)) == 6
    assert len({system for system, _, _ in requests}) == 1
    assert len({user.rpartition("\n\n")[0] for user in users}) == 2


def test_limits_stand_in_the_schema() -> None:
    properties = bounded_schema("c")["properties"]

    assert properties["claim"] == {"const": "c"}
    assert (properties["observed"]["maxLength"], properties["reasoning"]["maxLength"]) == (400, 600)
