"""What a judgement says (contract section 6): numbered checks, a verdict, and the JSON form of both. Pure.

The values that `issuer.verify` returns, that the command line prints and that `POST /verify` answers. Knows no rule:
how a check comes out is decided elsewhere. A new meaning of a member is a new REPORT_VERSION; members may be added.
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
    """`unknown`: due, but something it needs was unavailable. `skip`: not required, or it rests on one that failed."""

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
    """One numbered check. Where two values differ, `token` is the token's and `file` is the file's."""

    number: int
    name: str
    status: Status
    evidence: str
    token: str
    file: str


# `good_when_issued`: all that is missing is when the file was received, and nothing here could ever say. `undecided`:
# it could be found out, by a receipt, a log, or what was not to be had.
Verdict = Literal["verified", "failed", "undecided", "good_when_issued", "unverified"]
# Where the time came from: this party's own clock or records, a claim, the receipt that it wrote then, the witnesses of
# the issuer's log, who saw the token and not the file, or nowhere.
AtFrom = Literal["clock", "stated", "receipt", "log", "unknown"]


# From the most that stands behind a result to the least. `undecided` ranks as `self-reported`, `refuted` nowhere.
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
    """What the file says of a run, in the words of an entry. It is nobody's word but the file's: the token's is in the
    `claims` of a report.

    `selection` says which of a run's numbers each metric is (`run.selection`), by the metric's id and slice,
    `completeness` whether the whole benchmark was run (`run.completeness`), and `reproduces` which other result, by its
    content digest, it says to have reproduced (`run.reproduces`); "" where the file does not say. `value` is the lone
    one that an entry of the live Hub has, whose metric it does not name.
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

    @classmethod
    def of(cls, entry: Entry) -> Said:
        """Return what an entry of a file says."""
        run = {} if entry.details.run is UNSET else entry.details.run
        named = run.get("selection")
        items = named.items() if isinstance(named, dict) else ()
        selection = {name: text for name, text in items if isinstance(text, str)}
        members = entry.dataset, entry.metrics or (), entry.framework, entry.model_revision
        details = entry.details
        return cls(
            *members, selection, _text(run.get("completeness")), entry.value, _text(run.get("reproduces")),
            details.benchmark_subset or "", details.normalization or {}, details.date or "",
        )  # fmt: skip


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


class Report(Struct, frozen=True):
    """The whole judgement of one entry: all eleven checks, in their order.

    `said` is what the file says, and `line` where the entry stands in it (0: not known). What the token says is in
    `claims`, `caller` (who asked for it, as the issuer verified it), `run_url` (where people can look at that run, or
    ""), `issued_at` and `expires_at` (Unix seconds), `attempt` (None where it says none), `issuer`, `integration`,
    `framework`, `jti`, `kid` and `content_digest`: all of them None, empty or "" unless its signature is good.

    `reason` says why an entry is `unverified`, or that all that is missing is when it was received. `at` (Unix seconds)
    is when the file counts as received; where nobody knows (`at_from`), now, or for a token that has ended by now a
    time at which it existed (`log`). `witnessed_at` (Unix seconds) is by when witnesses of the issuer's log had seen
    the token, from a minute before its issue to its end; None where that is not shown. `revoked`: the issuer has
    revoked this token, or what its integration had signed at that time. `token_digest` is the SHA-256 of the token's
    text, "" without one. `shared_jti`: it failed only because another good token has its jti. `wants_keys_of`: the
    trusted issuer whose keys, as they are since the token's issue, would decide check 2. `tier` is how much stands
    behind the result, and `tier_reason` why, in words (`tiers`). `badges` are the Hub's, None where nobody asked for
    them.
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
    """Make the check of this number, with its name."""
    return Check(number, NAMES[number], status, evidence, token, file)


def rests_on(number: int, other: int) -> Check:
    """Make a check that is skipped because another one did not pass."""
    return check(number, Status.SKIP, f"rests on check {other}, which did not pass")


def verdict_of(checks: Iterable[Check], due: frozenset[int] = ALWAYS_DUE) -> Verdict:
    """Any fail is no; otherwise any unknown is undecided; otherwise all that are due passed."""
    statuses = {check.status for check in checks if check.number in due}
    if Status.FAIL in statuses:
        return "failed"
    return "verified" if statuses == {Status.PASS} else "undecided"


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of `Reports`; `#/$defs/Report` is that of one JSON line."""
    (top,), definitions = msgspec.json.schema_components([Reports], ref_template="#/$defs/{name}")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **top, "$defs": definitions}


# -- replay ------------------------------------------------------------------------------------------------------------

# Two different tokens with one jti are the issuer's fault, and both fail. A token is remembered only after all its
# checks have passed: a copy in another place, or what a thief signs with a revoked key, burns nothing.
KEY_BYTES = 16  # of SHA-256: two keys that differ meet with a chance of 2^-128


def replay_key(report: Report) -> bytes:
    """Return what two tokens of one issuer must not share: 16 bytes for issuer and jti."""
    return hashlib.sha256(f"{report.issuer}\0{report.jti}".encode()).digest()[:KEY_BYTES]


def token_key(report: Report) -> bytes:
    """Return 16 bytes that differ for different tokens."""
    return bytes.fromhex(report.token_digest.removeprefix("sha256:")[: 2 * KEY_BYTES])


class ReplayIndex:
    """The first token of each issuer and jti, in a dict: 130 to 170 bytes for each, by the dict's room to grow."""

    def __init__(self) -> None:
        # One value, the token's key and the caller's number in 4 bytes: a tuple of two takes 80 bytes more.
        self._first: dict[bytes, bytes] = {}

    def __len__(self) -> int:
        return len(self._first)

    def add(self, report: Report, place: int) -> int | None:
        """Remember a verified report under the caller's number for it, below 2^32. Returns the number of the report
        whose token is another one with the same jti of the same issuer, or None. What is not verified is neither
        remembered nor compared."""
        return self.add_key(replay_key(report), token_key(report), place) if report.verdict == "verified" else None

    def add_key(self, key: bytes, token: bytes, place: int) -> int | None:
        """Do the same with the two keys of a verified report."""
        first = self._first.setdefault(key, token + place.to_bytes(4, "big"))
        return None if first[:KEY_BYTES] == token else int.from_bytes(first[KEY_BYTES:], "big")
