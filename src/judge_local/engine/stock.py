"""llama-cpp-python's own chat completion, called as its documentation shows: what judging is measured against.

    python -m judge_local.engine.stock        asked as `children` says; see `children.stock` for the question

The machine's lock is held while it answers, as a worker of ours does. Nothing here serves judging.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from llama_cpp import Llama

from judge_local.engine.childhood import Tell, answer
from judge_local.engine.lock import machine_lock


def complete(question: dict[str, Any], tell: Tell) -> dict[str, Any]:
    """Answer all requests, one after the other; loading does not count."""
    model = Llama(
        question["path"],
        n_ctx=question["n_ctx"],
        n_threads=question["n_threads"],
        n_threads_batch=question["n_threads"],
        n_gpu_layers=question["n_gpu_layers"],
        verbose=False,
    )
    answers = []
    with machine_lock(
        Path(question["lock_path"]),
        wait=question["wait"],
        say=lambda text: tell({"say": text}),
        given_up=lambda: False,
    ):
        started = time.monotonic()
        for system, user, schema in question["requests"]:
            done: Any = model.create_chat_completion(
                [{"role": "system", "content": system}, {"role": "user", "content": user}],
                response_format={"type": "json_object", "schema": schema},
                temperature=0.0,
                max_tokens=question["max_tokens"],
            )
            answers.append([done["choices"][0]["message"]["content"], done["usage"]["completion_tokens"]])
            tell({"done": len(answers), "total": len(question["requests"])})
        seconds = time.monotonic() - started
    model.close()
    return {"seconds": seconds, "answers": answers}


if __name__ == "__main__":
    answer(complete)
