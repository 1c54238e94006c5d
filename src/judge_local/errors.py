"""Every error judge-local raises on purpose, and the exit code each one means on the command line.

A message reads ``where: what is wrong, with the value. What to do.`` on one line. The fields are the exception's
``args``, so every class pickles and travels between processes unchanged.

::

    JudgeLocalError                  4
    ├── UsageError                   2   a call that cannot be meant (`runs=0`, an empty claim)
    │   ├── NumberError              2   a number that cannot be meant; also a `ValueError`
    │   ├── InputError               2   the subject, claims or schema file cannot be read as text
    │   └── EmptySubjectError        5   there is nothing to judge
    ├── ContextOverflowError         2   the prompt does not fit the model's context; nothing is ever cut
    ├── SchemaError                  2
    │   ├── InvalidSchemaError       2   not JSON, or not a JSON Schema
    │   ├── VerdictSchemaError       2   a schema that cannot yield a verdict
    │   ├── UnsupportedSchemaError   2   keywords that no grammar of ours enforces, each with pointer and reason
    │   └── UnsatisfiableSchemaError 2   a schema that no JSON text satisfies
    ├── GrammarTextError             2   GBNF text that our reader refuses
    ├── ModelError                   4
    │   ├── UnknownModelError        2   a word that names no model
    │   ├── ModelMissingError        2   a known model that is not on this disk
    │   ├── ModelFileError           4   not GGUF, truncated, or otherwise not loadable
    │   ├── ChatTemplateError        4   no chat template, or one that cannot be used safely
    │   ├── IsolationError           4   untrusted text would not reach the model byte for byte
    │   ├── ModelStoreError          4   the models folder cannot be read or written, or a file is held open
    │   └── PullError                4
    │       ├── SourceUnreachableError 4  no network, or the host does not answer
    │       ├── ModelNotFoundError   4   the source answers and has no such file
    │       ├── GatedModelError      4   the source wants accepted terms or a token
    │       ├── CorruptDownloadError 4   wrong hash, wrong size, or not weights at all
    │       └── DiskSpaceError       4   not enough room, asked before the first byte
    ├── EngineError                  4
    │   ├── EngineCrashedError       4   the worker process died; costs the runs in flight
    │   ├── EngineBusyError          4   another process holds the machine's one engine
    │   ├── EngineProtocolError      4   the worker said something that is not in the protocol
    │   ├── GrammarRejectedError     4   llama.cpp could not read the grammar
    │   ├── DeadlineExceededError    4   the time given ran out
    │   ├── TruncatedOutputError     4   the token budget ended before the answer did
    │   └── ClusterError             4   a Ray cluster cannot be used, or is gone
    ├── ResultsFileError             4   a results file cannot be read or written, or another process writes to it
    ├── BudgetExpiredError           4   the time budget of a panel ran out
    ├── CallTimeoutError             4   a call took longer than it was given; also a `TimeoutError`
    ├── CallCancelledError           4   a call ended as cancelled although nobody cancelled it
    └── CompletionError              4
        ├── ProviderError            4   a provider failed or was scripted to
        │   └── RemoteError          4   a server failed, or sent what is no answer
        │       └── RemoteRefusedError 4  a server refused the request, and would again
        ├── InvalidAnswerError       4   an answer that is not JSON, or not valid under the schema
        └── UnsoundGrammarError      4   a grammar-bound answer broke its schema: a bug of ours, never retried
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

EXCERPT_CHARS = 200
"""Quoted excerpts in messages are at most this many characters long."""


def excerpt(value: object, limit: int = EXCERPT_CHARS) -> str:
    r"""`value` in quotes for a message: on one line, and cut with a mark after `limit` characters.

    >>> excerpt("two\nlines")
    "'two\\nlines'"
    >>> excerpt("x" * 300, limit=5)
    "'xxxxx…'"
    """
    text = value if isinstance(value, str) else repr(value)
    return repr(text if len(text) <= limit else text[:limit] + "…")


class JudgeLocalError(Exception):
    """The root of the tree. Catch this to catch everything judge-local raises on purpose.

    Args:
        where: the place: an option, a file, a JSON pointer, a model.
        problem: what is wrong, with the value, without a full stop.
        remedy: what to do, as a sentence; empty where nothing can be done.
    """

    exit_code: ClassVar[int] = 4
    retryable: ClassVar[bool] = False
    """Whether the same call may succeed when it is made again."""
    raw: str | None = None
    """What the model wrote, where that is known. Set on the instance; travels when the error is pickled."""

    def __init__(self, where: str, problem: str, remedy: str = "") -> None:
        super().__init__(where, problem, remedy)
        self.where, self.problem, self.remedy = where, problem, remedy

    def __str__(self) -> str:
        end = f" {self.remedy}" if self.remedy else ""
        return " ".join(f"{self.where}: {self.problem}.{end}".split("\n"))


class UsageError(JudgeLocalError):
    """A call or a command line that cannot be meant: `runs=0`, an empty claim, a threshold of NaN."""

    exit_code = 2


class NumberError(UsageError, ValueError):
    """A number that cannot be meant: a budget of 0, a timeout of NaN. Also a `ValueError`."""


class InputError(UsageError):
    """A file that was named cannot be read as text: missing, unreadable, binary, or not UTF-8."""


class EmptySubjectError(UsageError):
    """There is nothing to judge: the subject is empty or only whitespace."""

    exit_code = 5


class ContextOverflowError(JudgeLocalError):
    """The prompt does not fit the model's context. Nothing is ever cut to make it fit; final for the run."""

    exit_code = 2


class SchemaError(JudgeLocalError):
    """A schema cannot be used. Raised before the first run."""

    exit_code = 2


class InvalidSchemaError(SchemaError):
    """The text is not JSON, repeats a key, or is not a JSON Schema."""


class VerdictSchemaError(SchemaError):
    """The schema is sound, but its instances are not verdicts: the message names the field."""


@dataclass(frozen=True, slots=True)
class SchemaFault:
    """One reason a schema is refused."""

    pointer: str
    """JSON pointer (RFC 6901) to the schema that holds the keyword; `""` is the root."""
    keyword: str
    value: str
    """The keyword's value as JSON text, cut to an excerpt."""
    reason: str
    hint: str = ""

    def __str__(self) -> str:
        end = f" {self.hint}" if self.hint else ""
        return f"{self.pointer or '/'}: {self.keyword} {self.value}: {self.reason}.{end}"


class UnsupportedSchemaError(SchemaError):
    """Keywords that no grammar of ours enforces. All faults of the schema are collected, not only the first."""

    def __init__(self, faults: tuple[SchemaFault, ...]) -> None:
        Exception.__init__(self, faults)
        self.faults = faults
        self.where, self.problem, self.remedy = "schema", "", ""

    def __str__(self) -> str:
        return "schema: " + " | ".join(str(fault) for fault in self.faults)


class UnsatisfiableSchemaError(SchemaError):
    """No JSON text satisfies the schema, so there is no grammar for it."""


class GrammarTextError(JudgeLocalError):
    """GBNF text that our reader refuses: a syntax fault, a missing rule, left recursion, or a repetition out of bounds."""

    exit_code = 2


class ModelError(JudgeLocalError):
    """A model cannot be found, fetched, or used."""


class UnknownModelError(ModelError):
    """A word that names no model. The message lists the near misses."""

    exit_code = 2


class ModelMissingError(ModelError):
    """The model is known but not on this disk. The message says which `pull` to run."""

    exit_code = 2


class ModelFileError(ModelError):
    """The file is not GGUF, is truncated, or llama.cpp cannot load it."""


class ChatTemplateError(ModelError):
    """The model has no chat template, or one that loses or repeats what it is given."""


class IsolationError(ModelError):
    """Untrusted text would not reach this model byte for byte as plain text, so nothing is sent."""


class ModelStoreError(ModelError):
    """The models folder cannot be read or written, or a file in it is held open."""


class PullError(ModelError):
    """A model could not be fetched."""


class SourceUnreachableError(PullError):
    """No network, or the source does not answer."""

    retryable = True


class ModelNotFoundError(PullError):
    """The source answers and has no such repository, revision or file."""


class GatedModelError(PullError):
    """The source wants accepted terms or a token (HTTP 401 or 403)."""


class CorruptDownloadError(PullError):
    """What arrived is not what was promised: wrong hash, wrong size, or not weights at all."""

    retryable = True


class DiskSpaceError(PullError):
    """Not enough room for the file; asked before the first byte."""


class EngineError(JudgeLocalError):
    """The engine could not do what it was asked."""


class EngineCrashedError(EngineError):
    """The worker process died. It costs the runs in flight, which are errored, and nothing else."""


class EngineBusyError(EngineError):
    """Another process is using the machine's one engine, and waiting was not wanted."""


class EngineProtocolError(EngineError):
    """The worker wrote something that is not in the protocol."""


class GrammarRejectedError(EngineError):
    """llama.cpp could not read the grammar, so no token was sampled."""


class DeadlineExceededError(EngineError):
    """The time given ran out before the answer was complete."""


class TruncatedOutputError(EngineError):
    """The token budget ended before the answer did. What was written is never read as an answer."""


class ClusterError(EngineError):
    """A Ray cluster cannot be reached, is not set up alike on all machines, or gave up."""


class ResultsFileError(JudgeLocalError):
    """A results file cannot be read or written, a full disk for one, or another process writes to it."""


class BudgetExpiredError(JudgeLocalError):
    """The time budget of a panel ran out. Seats without a result get a fallback."""


class CallTimeoutError(JudgeLocalError, TimeoutError):
    """A call took longer than it was given. Also a `TimeoutError`; another attempt may be quicker."""

    retryable = True

    def __init__(self, where: str, problem: str, remedy: str = "") -> None:
        Exception.__init__(
            self, where, problem, remedy
        )  # `OSError` would read them as number, text and file name.
        self.where, self.problem, self.remedy = where, problem, remedy


class CallCancelledError(JudgeLocalError):
    """A call ended as cancelled although nobody cancelled it: it failed, and must not look like our own cancellation."""


class CompletionError(JudgeLocalError):
    """A model did not give a usable answer."""


class ProviderError(CompletionError):
    """A provider failed, or was scripted to fail."""

    retryable = True


class RemoteError(ProviderError):
    """A server did not answer, failed, or sent what is no answer. Asking again may help.

    Args:
        where: the server and the model.
        problem: what is wrong.
        remedy: what to do.
        status_code: of the HTTP response, 100 to 599; None where there was none.
        retry_after_seconds: how long the server asks to be left alone; None where it does not say.
    """

    def __init__(
        self,
        where: str,
        problem: str,
        remedy: str = "",
        status_code: int | None = None,
        retry_after_seconds: float | None = None,
    ) -> None:
        Exception.__init__(self, where, problem, remedy, status_code, retry_after_seconds)
        self.where, self.problem, self.remedy = where, problem, remedy
        self.status_code, self.retry_after_seconds = status_code, retry_after_seconds


class RemoteRefusedError(RemoteError):
    """A server refused the request and would refuse it again: a wrong key, no quota left, a model it does not have."""

    retryable = False


class InvalidAnswerError(CompletionError):
    """The answer is not JSON, or not valid under the schema."""

    retryable = True


class UnsoundGrammarError(CompletionError):
    """A grammar-bound answer is not valid under its schema: a bug of ours, recorded and never retried."""
