"""What results files hold: a header that pins what they were made with, and the decision on each claim with its runs.

* Keys are absent rather than null; keys of a later version survive a round trip.
* What follows from the runs (votes, agreement, mean confidence) is computed from them again when a result is read, and a
  zone that the runs do not allow is refused: editing a file by hand cannot settle a claim.
* A row that could not be judged at all is a result without runs that says why; its zone is human review.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from judge_local.cache import sha256
from judge_local.consensus import compute_consensus
from judge_local.errors import UsageError, excerpt
from judge_local.zones import ConsensusResult, Zone, ZoneThresholds, in_zone, zone_for

_WRITTEN: Final = (
    *("row", "id", "claim", "subject", "subjectFile", "subjectSha256", "reference", "label", "meta"),
    *("zone", "verdict", "votes", "agreement", "meanConfidence", "distinctRuns", "replays", "runs"),
    *("certified", "error"),
)
RESULTS_VERSION: Final = 1
"""The version of the results file that this program writes, and the newest that it reads."""

_HEADER_KEYS: Final = (
    "judgeLocalResults",
    *("model", "modelSha256", "schemaSha256", "promptVersion", "settings", "shard"),
)
_ANY_CONFIDENCE: Final = ZoneThresholds(auto_pass=0.0, auto_fail=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultsHeader:
    """The first line of a results file: what all of its results were made with."""

    model: str
    """Provider and concrete model, such as `llama-cpp:smollm2-135m@0123456789ab`."""
    model_sha256: str | None
    """SHA-256 of the weights, 64 hex digits; None where nobody knows them (a server, a scripted provider)."""
    schema_sha256: str
    """SHA-256 of the verdict schema as compact JSON with sorted keys."""
    prompt_version: str
    settings: Mapping[str, Any]
    """Everything else that may change an answer or a zone, by name in camelCase: JSON's types only."""
    shard: str | None = None
    """`i/n` where the file holds one shard of the rows."""
    unknown: Mapping[str, Any] = field(default_factory=dict)
    """Keys of a later version, kept as they were."""

    def to_json(self) -> dict[str, Any]:
        """The file format."""
        facts: dict[str, Any] = {
            "judgeLocalResults": RESULTS_VERSION,
            "model": self.model,
            "modelSha256": self.model_sha256,
            "schemaSha256": self.schema_sha256,
            "promptVersion": self.prompt_version,
            "settings": dict(self.settings),
            "shard": self.shard,
        }
        return {**{key: value for key, value in facts.items() if value is not None}, **self.unknown}

    @classmethod
    def from_json(cls, data: Any) -> ResultsHeader:
        """Read the first line of a results file.

        Raises:
            UsageError: it is no header, or one of a later version than this program reads.
        """
        if not isinstance(data, Mapping) or "judgeLocalResults" not in data:
            raise UsageError("results", f"{excerpt(data)} is not the header of a results file")
        version = data["judgeLocalResults"]
        if isinstance(version, bool) or not isinstance(version, int) or not 1 <= version <= RESULTS_VERSION:
            raise UsageError(
                "results",
                f"version {excerpt(version)} is none that this program reads (up to {RESULTS_VERSION})",
                "Use the version of judge-local that wrote the file.",
            )
        for key in ("model", "schemaSha256", "promptVersion"):
            if not isinstance(data.get(key), str):
                raise UsageError("results", f"the header's {key} is {excerpt(data.get(key))}, not a string")
        for key in ("modelSha256", "shard"):
            if key in data and not isinstance(data[key], str):
                raise UsageError("results", f"the header's {key} is {excerpt(data[key])}, not a string")
        settings = data.get("settings")
        if not isinstance(settings, Mapping):
            raise UsageError("results", f"the header's settings are {excerpt(settings)}, not an object")
        return cls(
            model=data["model"],
            model_sha256=data.get("modelSha256"),
            schema_sha256=data["schemaSha256"],
            prompt_version=data["promptVersion"],
            settings=settings,
            shard=data.get("shard"),
            unknown={key: value for key, value in data.items() if key not in _HEADER_KEYS},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The decision on one claim about one subject.

    Raises:
        UsageError: `row` is below 1, or the zone is one that the runs or an error do not allow.
    """

    row: int
    """The row's number in what was judged, from 1."""
    id: str
    claim: str
    subject: str | None = None
    """The text that was judged; None where it was read from `subject_file`, or is not to be kept."""
    subject_file: str | None = None
    """The path the subject was read from, as it was given."""
    subject_sha256: str
    """SHA-256 of the subject's UTF-8 text, 64 hex digits; kept even where the text is not."""
    reference: str | None = None
    label: str | None = None
    """What a person said the verdict should be, where the row carried it."""
    meta: Mapping[str, Any] = field(default_factory=dict)
    """Whatever else the row carried."""
    decision: ConsensusResult
    certified: bool = False
    """Whether a certificate backs the zone for exactly this set-up."""
    error: str | None = None
    """Why the row could not be judged; None where it was."""
    unknown: Mapping[str, Any] = field(default_factory=dict)
    """Keys of a later version, kept as they were."""

    def __post_init__(self) -> None:
        if self.row < 1:
            raise UsageError("row", f"{self.row} is not a row's number", "Rows count from 1.")
        zone = self.decision.zone
        if zone is not Zone.HUMAN_REVIEW and zone_for(self.decision, _ANY_CONFIDENCE) is not zone:
            raise UsageError(
                f"row {self.row}",
                f"the zone {zone.value!r} contradicts the votes {self.decision.votes.to_json()}",
                "Only a unanimous ensemble without errors settles itself.",
            )
        if zone is not Zone.HUMAN_REVIEW and self.error is not None:
            raise UsageError(
                f"row {self.row}", f"the zone {zone.value!r} contradicts the error {excerpt(self.error)}"
            )

    @property
    def fault(self) -> str | None:
        """Why there is no verdict on this row at all; None where at least one run gave one."""
        if self.error is not None or self.decision.votes.graded:
            return self.error
        return next((run.error for run in self.decision.runs if run.error), "it has no runs")

    def to_json(self, *, text: bool = True) -> dict[str, Any]:
        """The file format.

        Args:
            text: `False` leaves out subject and reference; the hash stays.
        """
        decision = self.decision
        facts: dict[str, Any] = {
            "row": self.row,
            "id": self.id,
            "claim": self.claim,
            "subject": self.subject if text else None,
            "subjectFile": self.subject_file,
            "subjectSha256": self.subject_sha256,
            "reference": self.reference if text else None,
            "label": self.label,
            "meta": dict(self.meta) or None,
            "zone": decision.zone.value,
            "verdict": decision.verdict.value,
            "votes": decision.votes.to_json(),
            "agreement": decision.agreement,
            "meanConfidence": decision.mean_confidence,
            "distinctRuns": decision.distinct_runs,
            "replays": decision.replays,
            "runs": [run.to_json() for run in decision.runs],
            "certified": self.certified,
            "error": self.error,
        }
        return {**{key: value for key, value in facts.items() if value is not None}, **self.unknown}

    @classmethod
    def from_json(cls, data: Any) -> Result:
        """Read one result of the file format.

        Raises:
            UsageError: the shape is wrong, or the zone is one that the runs do not allow.
        """
        if not isinstance(data, Mapping):
            raise UsageError("result", f"{excerpt(data)} is not an object")
        for key in ("id", "claim", "subjectSha256"):
            if not isinstance(data.get(key), str):
                raise UsageError("result", f"{key} is {excerpt(data.get(key))}, not a string")
        for key in ("subject", "subjectFile", "reference", "label", "error"):
            if key in data and not isinstance(data[key], str):
                raise UsageError("result", f"{key} is {excerpt(data[key])}, not a string")
        row, certified, meta = data.get("row"), data.get("certified"), data.get("meta", {})
        if isinstance(row, bool) or not isinstance(row, int):
            raise UsageError("result", f"row is {excerpt(row)}, not a whole number")
        if not isinstance(certified, bool):
            raise UsageError("result", f"certified is {excerpt(certified)}, not true or false")
        if not isinstance(meta, Mapping):
            raise UsageError("result", f"meta is {excerpt(meta)}, not an object")
        return cls(
            row=row,
            id=data["id"],
            claim=data["claim"],
            subject=data.get("subject"),
            subject_file=data.get("subjectFile"),
            subject_sha256=data["subjectSha256"],
            reference=data.get("reference"),
            label=data.get("label"),
            meta=meta,
            decision=ConsensusResult.from_json(data),
            certified=certified,
            error=data.get("error"),
            unknown={key: value for key, value in data.items() if key not in _WRITTEN},
        )


def subject_sha256(subject: str) -> str:
    """The identity of a subject in results: SHA-256 of its UTF-8 text, 64 hex digits."""
    return sha256(subject)


def no_decision() -> ConsensusResult:
    """What stands in a result whose row could not be judged: no runs, so human review."""
    return in_zone(compute_consensus(()), Zone.HUMAN_REVIEW, distinct_runs=0, replays=False)
