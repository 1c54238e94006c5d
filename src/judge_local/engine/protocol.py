"""What the worker and its client say to each other: one JSON object a line, on the worker's stdin and stdout.

::

    client → worker   {"op": "load", "settings": {…}}          once, first
                      {"op": "submit", "requests": [{…}, …]}   requests that share what their prompts have in common
                      {"op": "cancel", "ids": ["…"]}
                      {"op": "stats"}
                      {"op": "shutdown"}                       end of stdin means the same
    worker → client   {"event": "hello", "protocol": 1, "pid": …}
                      {"event": "loaded", "facts": {…}}
                      {"event": "begun", "ids": ["…"]}         about to be decoded for the first time
                      {"event": "beat", "steps": n, "working": true}   about every second while there is something to do
                      {"event": "result", "id": "…", …}
                      {"event": "error", "id": "…" | null, "error": {…}}   null: the load failed
                      {"event": "stats", "stats": {…}}
                      {"event": "log", "text": "…"}            a line for a person

Pure: no process, no llama.cpp. Times are seconds, and relative, because two processes share no clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from judge_local import errors
from judge_local.errors import EngineProtocolError, JudgeLocalError, excerpt

PROTOCOL: Final = 1

LOCK_PATH: Final = "/tmp/judge-local-engine.lock"
"""The machine's lock."""

BATCH_TOKENS: Final = 512
"""The most tokens in one call of `llama_decode`; prompts are read in pieces of this size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How a worker loads its model and runs. All but `path` may be left alone."""

    path: str
    n_gpu_layers: int | None = None
    """Layers on the GPU; -1 is all of them, None as many as its free memory carries."""
    n_threads: int = 1
    n_ctx: int | None = None
    """Upper limit of one run's prompt and answer, in tokens; None is what the model was trained for."""
    memory_bytes: int | None = None
    """Main memory that may be taken for weights and context; None sets no limit."""
    most_cells: int | None = None
    """Context for the sake of running many at once, in tokens; None is as much as serves. The worker sets it."""
    slots: int | None = None
    """Runs decoded at once; None is what this machine is measured to do well with."""
    deterministic: bool = False
    """The same inputs give the same bytes: nothing is carried over from one submission to the next."""
    chat_template: str | None = None
    """Jinja source to use in place of the file's own."""
    thinking: int = 0
    """Tokens a thinking model may think before it answers; 0 closes its think block at once."""
    weights: str = ""
    """What names the weights in what is kept on disk, such as their sha256."""
    cache_path: str | None = None
    """Folder of what is quicker to read again than to compute again; None keeps nothing between processes."""
    lock_path: str = LOCK_PATH
    """Held while decoding, so that one worker computes on a machine at a time: llama.cpp's threads spin."""
    wait: bool = True
    """Wait for another process that holds the lock, rather than fail."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """An enum property whose options' probabilities are asked for."""

    pointer: str
    """JSON pointer to it."""
    options: tuple[str, ...]
    """Its options, strings all of them."""
    here: bool = True
    """Whether to read them where the answer writes the property."""
    grammar: str = ""
    """GBNF of an answer that begins with the property, to read them before anything is written; empty: do not."""
    lead: str = ""
    """What such an answer begins with, up to the property's value."""
    bias: Mapping[str, float] = field(default_factory=dict)
    """By option: added to the logarithm of its probability before one is drawn; options that are not named have 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Generate:
    """One answer that is asked for."""

    id: str
    system: str
    user: str
    grammar: str
    """GBNF; the answer is one text of its language."""
    max_tokens: int
    """The answer is errored when it is not complete by then."""
    typical_tokens: int
    """Room that is set aside per run at first; a longer answer gets more."""
    temperature: float = 0.0
    top_k: int = 0
    """Filters of what is drawn from, as `sampling.Filters` has them; these are off."""
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 0
    seconds: float | None = None
    """Time left, counted from the worker's reading of the request."""
    slot: Slot | None = None
    score_only: bool = False
    """Write nothing: read the probabilities of the slot's options before an answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Generated:
    """One complete answer."""

    id: str
    text: str
    prompt_tokens: int
    """Tokens of the whole prompt; all of them were evaluated, none was cut."""
    output_tokens: int
    """Of the answer, and of what was thought before it."""
    forced_tokens: int
    """Of the output, how many the grammar left no choice about."""
    stats: Mapping[str, float] = field(default_factory=dict)
    """`queued`: seconds from the submission to the run's start; `running`: from there to its end; `scored`: tokens that
    were evaluated for `probabilities` alone; `thought`: tokens the model thought before it answered; `fell_back`: draws at which the filters left nothing that was allowed."""
    probabilities: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """`before` and `slot`, where they were asked for and could be read: option → probability, without the bias."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What a worker says of the model it loaded."""

    description: str
    template: str
    """The chat template in use."""
    n_ctx: int
    """The most tokens of one prompt with its answer."""
    n_vocab: int
    engine: str
    """llama-cpp-python's version and the features llama.cpp was built with: part of every fingerprint."""
    recurrent: bool
    gpu_offload: bool
    n_gpu_layers: int
    load_seconds: float
    thinks: bool = False
    """Whether the template is one of a model that thinks before it answers."""
    notes: tuple[str, ...] = ()
    """What a person should know: a template without a system role, …"""


def to_json(value: Settings | Generate | Generated | Facts) -> dict[str, Any]:
    """A message's fields."""
    return asdict(value)


def generate_from_json(data: Mapping[str, Any]) -> Generate:
    """A request again."""
    slot = data.get("slot")
    if slot is None:
        return Generate(**data)
    return Generate(**{**data, "slot": Slot(**{**slot, "options": tuple(slot["options"])})})


def error_to_json(error: JudgeLocalError) -> dict[str, Any]:
    """An error as data: its class by name, its three parts, and what the model wrote."""
    return {
        "kind": type(error).__name__,
        "where": error.where,
        "problem": error.problem,
        "remedy": error.remedy,
        "raw": error.raw,
    }


def error_from_json(data: Mapping[str, Any]) -> JudgeLocalError:
    """The error again, of its own class. A class this version does not know becomes `EngineProtocolError`."""
    kind = getattr(errors, str(data.get("kind")), None)
    where, problem, remedy = (str(data.get(key, "")) for key in ("where", "problem", "remedy"))
    if isinstance(kind, type) and issubclass(kind, JudgeLocalError):
        error = kind(where, problem, remedy)
        error.raw = data.get("raw")
        return error
    return EngineProtocolError(
        "worker", f"an error of the unknown kind {excerpt(data.get('kind'))}: {problem}"
    )
