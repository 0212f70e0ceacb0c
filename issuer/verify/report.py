"""The report on one entry (contract section 6): numbered checks, a verdict, and their JSON form. Pure.

`issuer.verify` returns these values, the command line prints them and `POST /verify` answers with them. The rules of
the checks are elsewhere. A new meaning of a member needs a new REPORT_VERSION; members may be added without one.
"""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal, get_args

import msgspec
from msgspec import UNSET, Struct, UnsetType, field

from issuer.results.claims import RunClaims
from issuer.results.entry import Dataset, Entry, EntryFramework, EntryMetric
from issuer.token.verify_token import Attempt

REPORT_VERSION: Final = 1


class Status(enum.StrEnum):
    """The outcome of a check. `unknown`: due, but something that it needs was unavailable. `skip`: not required, or it
    depends on a check that did not pass."""

    PASS = "pass"  # noqa: S105
    FAIL = "fail"
    UNKNOWN = "unknown"
    SKIP = "skip"


NAMES = {
    1: "well-formed token", 2: "key", 3: "signature", 4: "issuer and audience", 5: "fresh",
    6: "repository and file name", 7: "bound fields", 8: "metrics", 9: "digests",
    10: "benchmark definition", 11: "transparency log",
}  # fmt: skip
ALWAYS_DUE = frozenset(range(1, 10))


class Check(Struct, frozen=True):
    """One numbered check. If two values differ, `token` has the token's value and `file` the file's."""

    number: int
    name: str
    status: Status
    evidence: str
    token: str
    file: str


# `good_when_issued`: only the time of receipt is missing, and no receipt or log could supply it. `undecided`: a
# receipt, a log or an unavailable source could still decide.
Verdict = Literal["verified", "failed", "undecided", "good_when_issued", "unverified"]
# Source of the time: this party's own clock or records, a claim, the receipt that it wrote then, the witnesses of the
# issuer's log (who saw the token, not the file), or none.
AtFrom = Literal["clock", "stated", "receipt", "log", "unknown"]
# From the best evidence to the weakest. `undecided` ranks as `self-reported`; `refuted` has no rank.
Tier = Literal["reproduced", "logged", "verified", "signed", "self-reported", "undecided", "refuted"]
TIERS: tuple[Tier, ...] = get_args(Tier)
Badge = Literal["yes", "no", "unknown"]


class Badges(Struct, frozen=True):
    """The four badges of the Hub. An entry without `verified` stays visible."""

    verified: Badge
    community: Badge
    leaderboard: Badge
    source: Badge


class Said(Struct, frozen=True):
    """The run as the file describes it. Only the file vouches for this; the token's version is in the `claims` of a
    report.

    `selection` says for each metric (id and slice) which of a run's numbers it is (`run.selection`). `completeness`
    says whether the whole benchmark was run (`run.completeness`). `reproduces` is the content digest of the result that
    this one claims to reproduce (`run.reproduces`). Each is "" if the file does not say. `value` is the lone value of
    an entry of the live Hub, which does not name its metric. `arguments` has the run's arguments (`run.arguments`).
    """

    dataset: Dataset
    metrics: tuple[EntryMetric, ...]
    framework: EntryFramework
    model_revision: str | UnsetType = UNSET
    selection: Mapping[str, str] = {}
    completeness: str = ""
    value: float | UnsetType = UNSET
    reproduces: str = ""
    benchmark_subset: str = ""
    normalization: Mapping[str, Any] = {}
    date: str = ""
    arguments: Mapping[str, str | bool | int | float] = {}

    @classmethod
    def of(cls, entry: Entry) -> Said:
        """Return an entry's description of its run."""
        run = {} if entry.details.run is UNSET else entry.details.run
        named, details = run.get("selection"), entry.details
        items = named.items() if isinstance(named, dict) else ()
        selection = {name: text for name, text in items if isinstance(text, str)}
        return cls(
            entry.dataset, entry.metrics or (), entry.framework, entry.model_revision, selection,
            _text(run.get("completeness")), entry.value, _text(run.get("reproduces")), details.benchmark_subset or "",
            details.normalization or {}, details.date or "", _scalars(run.get("arguments")),
        )  # fmt: skip


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _scalars(value: object) -> dict[str, str | bool | int | float]:
    items = value.items() if isinstance(value, dict) else ()
    return {name: item for name, item in items if isinstance(item, str | bool | int | float)}


class Report(Struct, frozen=True):
    """The judgement of one entry, with all eleven checks in order.

    `said` is the file's description of the run, and `line` the entry's line in the file (0 if unknown). The token's
    statements are `claims`, `caller` (the identity that requested the token, verified by the issuer), `run_url` (a page
    about that run, or ""), `issued_at` and `expires_at` (Unix seconds), `attempt` (None if it states none), `issuer`,
    `integration`, `framework`, `jti`, `kid` and `content_digest`. All of them are None, empty or "" unless its
    signature is good.

    `reason` says why an entry is `unverified`, or that only the time of receipt is missing. `at` (Unix seconds) is when
    the file counts as received. If that is unknown (see `at_from`), it is now, or for an expired token a time at which
    it existed (`log`). `witnessed_at` (Unix seconds) is a time by which witnesses of the issuer's log had seen the
    token, from a minute before its issue to its expiry; None if this is not shown. `revoked`: the issuer has revoked
    this token, or its integration's tokens of that time. `token_digest` is the SHA-256 of the token's text, "" without
    a token. `shared_jti`: the entry failed only because another good token has its jti. `wants_keys_of` names the
    trusted issuer whose keys, fetched after the token's issue, would decide check 2. `tier` ranks the evidence for the
    result, and `tier_reason` explains the tier in words (see `tiers`). `badges` are the Hub's; None if the caller did
    not ask for them.
    """

    version: Literal[1]
    repo: str
    path: str
    pointer: str
    verdict: Verdict
    reason: str
    at: int
    at_from: AtFrom
    issuer: str
    framework: str
    jti: str
    kid: str
    content_digest: str
    token_digest: str
    checks: tuple[Check, ...]
    said: Said
    claims: RunClaims | None = None
    caller: Mapping[str, str | int | bool] = field(default_factory=dict)
    run_url: str = ""
    integration: str = ""
    issued_at: int | None = None
    expires_at: int | None = None
    attempt: Attempt | None = None
    line: int = 0
    shared_jti: bool = False
    witnessed_at: int | None = None
    revoked: bool = False
    tier: Tier = "self-reported"
    tier_reason: str = ""
    badges: Badges | None = None
    wants_keys_of: str = ""

    @property
    def failed(self) -> tuple[int, ...]:
        """The numbers of the checks that failed."""
        return tuple(check.number for check in self.checks if check.status is Status.FAIL)


class Reports(Struct, frozen=True):
    """The reports of all entries of a file, in the file's order."""

    version: Literal[1]
    reports: tuple[Report, ...]


def check(number: int, status: Status, evidence: str, *, token: str = "", file: str = "") -> Check:
    """Return the check of this number, with its name."""
    return Check(number, NAMES[number], status, evidence, token, file)


def rests_on(number: int, other: int) -> Check:
    """Return a check that is skipped because check `other` did not pass."""
    return check(number, Status.SKIP, f"rests on check {other}, which did not pass")


def verdict_of(checks: Iterable[Check], due: frozenset[int] = ALWAYS_DUE) -> Verdict:
    """Return `failed` if any check failed, else `undecided` if one that is due is unknown, else `verified`."""
    made = tuple(checks)
    if any(check.status is Status.FAIL for check in made):
        return "failed"
    statuses = {check.status for check in made if check.number in due}
    return "verified" if statuses == {Status.PASS} else "undecided"


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of `Reports`; `#/$defs/Report` describes one JSON line."""
    (top,), definitions = msgspec.json.schema_components([Reports], ref_template="#/$defs/{name}")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **top, "$defs": definitions}


# If two different tokens have one jti, the issuer is at fault, and both fail. A token is recorded only after all its
# checks have passed, so a copy in another place, or a token that a thief signs with a revoked key, spends no jti.
KEY_BYTES = 16  # of SHA-256: two different keys collide with a chance of 2^-128


def replay_key(report: Report) -> bytes:
    """Return 16 bytes for issuer and jti, which two tokens must not share."""
    return hashlib.sha256(f"{report.issuer}\0{report.jti}".encode()).digest()[:KEY_BYTES]


def token_key(report: Report) -> bytes:
    """Return 16 bytes that identify a token."""
    return bytes.fromhex(report.token_digest.removeprefix("sha256:")[: 2 * KEY_BYTES])


class ReplayIndex:
    """The first token of each issuer and jti, in a dict. Each takes 130 to 170 bytes, depending on the dict's size."""

    def __init__(self) -> None:
        # One value holds the token's key and the caller's number in 4 bytes: a tuple of two takes 80 bytes more.
        self._first: dict[bytes, bytes] = {}

    def __len__(self) -> int:
        return len(self._first)

    def add(self, report: Report, place: int) -> int | None:
        """Record a verified report under the caller's number for it, below 2^32. Returns the number of an earlier
        report that has another token with the same jti of the same issuer, or None. Ignores reports that are not
        verified."""
        return self.add_key(replay_key(report), token_key(report), place) if report.verdict == "verified" else None

    def add_key(self, key: bytes, token: bytes, place: int) -> int | None:
        """Do the same with the two keys of a verified report."""
        first = self._first.setdefault(key, token + place.to_bytes(4, "big"))
        return None if first[:KEY_BYTES] == token else int.from_bytes(first[KEY_BYTES:], "big")
