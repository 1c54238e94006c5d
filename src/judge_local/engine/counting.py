"""Counting tokens without weights: a child process that holds a model's vocabulary and nothing else of it.

It starts in a moment, takes little memory, needs no turn at the machine, and assembles prompts as the worker does.

    python -m judge_local.engine.counting PATH     one JSON object a line: {"template"} first, then {"system", "user"}
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from judge_local.engine import protocol
from judge_local.errors import EngineError, JudgeLocalError


class TokenCounter:
    """Counts the tokens of prompts for one model. Not for several threads at once; to be closed.

    Args:
        path: the model's file; of a split model, the first.
        chat_template: Jinja source to use in place of the file's own.
    """

    def __init__(self, path: str | Path, *, chat_template: str | None = None) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "judge_local.engine.counting", str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            process_group=0,  # Out of the terminal's reach, as the worker is.
        )
        try:
            self._ask({"template": chat_template})
        except BaseException:
            self.close()
            raise

    def count(self, system: str, user: str) -> int:
        """Tokens of the whole prompt.

        Raises:
            IsolationError: a text would not reach the model byte for byte.
            ModelFileError, ChatTemplateError: the model cannot be used.
            EngineError: the process is gone.
        """
        return int(self._ask({"system": system, "user": user})["tokens"])

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _ask(self, message: dict[str, Any]) -> dict[str, Any]:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None  # Pipes were asked for.
        assert stdout is not None
        try:
            stdin.write(json.dumps(message).encode() + b"\n")
            stdin.flush()
            line = stdout.readline()
        except OSError:
            line = b""
        if not line:
            raise EngineError("counting", "the process that counts tokens ended", "Try again.")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise protocol.error_from_json(answer["error"])
        return answer


def main() -> None:
    """Entry point of the process."""
    from judge_local.engine.assembly import PromptAssembler
    from judge_local.engine.binding import Model, start_backend

    os.environ["GGML_NO_BACKTRACE"] = "1"
    # Whatever native code prints to stdout must not stand between two answers.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8", newline="\n")
    os.dup2(2, 1)
    path = Path(sys.argv[1])
    assembler: PromptAssembler | None = None
    for line in sys.stdin.buffer:
        message = json.loads(line)
        answer: dict[str, Any] = {}
        try:
            if assembler is None:
                start_backend()
                model = Model(path, vocab_only=True)
                template = message["template"] or model.chat_template
                assembler = PromptAssembler(model, template, where=path.name)
            else:
                answer["tokens"] = len(assembler.tokens(message["system"], message["user"]))
        except JudgeLocalError as error:
            answer["error"] = protocol.error_to_json(error)
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
