"""An entry as a leaderboard lists it: what its file says, and what the judgement says of that. Pure.

Of a report it keeps what a table shows, so that hundreds of thousands fit into memory. Everything that the file says is
a stranger's text, whatever the tier: who writes it somewhere escapes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType

from issuer.errors import InputError
from issuer.results.claims import REVISION, is_repo
from issuer.verify.report import AtFrom, Report, Said, Tier
from issuer.verify.tiers import RANKS

FRESH = 5  # the check that says how it is known when the result was received


class Score(Struct, frozen=True):
    """One number of an entry. `metric` is "" for the lone value of the live Hub's entries, which names none."""

    metric: str
    slice: str
    value: float
    selection: str


class Listed(Struct, frozen=True, tag="entry"):
    """A judged entry. `file` and `pointer` say where it stands; `repo` is the model's repository.

    `when` (Unix seconds) is the token's `iat`, which its issuer vouches for; of an entry that nobody has signed, the
    date that the file says, or None. `received` and `freshness` are how it is known when the file was received, and the
    evidence of check 5. `issuer`, `integration`, `run_url`, `issued_at` and `attempt` are the token's; empty or None
    where no good signature is over what the file says.
    """

    file: str
    pointer: str
    repo: str
    model_revision: str
    benchmark: str
    benchmark_revision: str
    task: str
    scores: tuple[Score, ...]
    framework: str
    framework_version: str
    completeness: str
    subset: str
    normalization: str
    tier: Tier
    tier_reason: str
    received: AtFrom
    freshness: str
    when: int | None = None
    issuer: str = ""
    integration: str = ""
    run_url: str = ""
    issued_at: int | None = None
    attempt: int | None = None
    attempts_since: int | None = None
    token_digest: str = ""

    @property
    def standing(self) -> int:
        """How much stands behind it, as a number: the higher, the more (`verify.tiers.RANKS`)."""
        return RANKS[self.tier]


class Unread(Struct, frozen=True, tag="finding"):
    """What could not be read: the file, line and column (0: the whole), the code and the reason."""

    file: str
    line: int
    column: int
    code: str
    reason: str


Item = Listed | Unread


def listed(file: str, report: Report) -> Listed:
    """List the entry of a report. What its token says is left out where that is not what the file says."""
    said, signed = report.said, report.verdict != "failed" and report.issued_at is not None
    normalization = normalization_text(said.normalization)
    entry = Listed(
        file, report.pointer, report.repo, _text(said.model_revision), said.dataset.id, _text(said.dataset.revision),
        _text(said.dataset.task_id), scores_of(said), _text(said.framework.name), _text(said.framework.version),
        said.completeness, said.benchmark_subset, normalization, report.tier, report.tier_reason, report.at_from,
        report.checks[FRESH - 1].evidence, moment_of(said.date), token_digest=report.token_digest,
    )  # fmt: skip
    return _with_token(entry, report) if signed else entry


def _with_token(entry: Listed, report: Report) -> Listed:
    attempt = report.attempt
    return msgspec.structs.replace(
        entry, when=report.issued_at, issuer=report.issuer, integration=report.integration, run_url=report.run_url,
        issued_at=report.issued_at, attempt=None if attempt is None else attempt.number,
        attempts_since=None if attempt is None else attempt.since,
    )  # fmt: skip


def unread(error: InputError) -> Unread:
    """List what could not be read."""
    return Unread(error.place.file, error.place.line, error.place.column, str(error.code), error.detail)


def scores_of(said: Said) -> tuple[Score, ...]:
    """Return the numbers that an entry says, each with what was chosen of the run for it."""
    if not said.metrics:
        return () if said.value is UNSET else (lone_score(said.value),)
    return tuple(score_of(one.metric_id, _text(one.slice), one.value, said.selection) for one in said.metrics)


def score_of(metric: str, of_slice: str, value: float, selection: Mapping[str, str]) -> Score:
    """Return a number of a run, with what the run's `selection` says of it."""
    pair = f"{metric} ({of_slice})" if of_slice else metric
    return Score(metric, of_slice, value, selection.get(pair, ""))


def lone_score(value: float) -> Score:
    """Return the `value` of an entry that names no metric."""
    return Score("", "", value, "")


def normalization_text(normalization: Mapping[str, Any]) -> str:
    """Return `normalization` as one text, equal where it says the same; "" where it is not there."""
    return msgspec.json.encode(normalization, order="deterministic").decode() if normalization else ""


def moment_of(date: str) -> int | None:
    """Read an ISO date or time as Unix seconds; without an offset it is UTC. None where it is no date."""
    try:
        moment = datetime.fromisoformat(date)
    except ValueError:
        return None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())


def commit_path(entry: Listed) -> str:
    """Return the path of the model's commit on a Hub, or "" where the file does not say a full one."""
    known = is_repo(entry.repo) and REVISION.fullmatch(entry.model_revision)
    return f"{entry.repo}/commit/{entry.model_revision}" if known else ""


def _text(value: str | UnsetType) -> str:
    return "" if value is UNSET else value
