"""The eleven checks by which a relying party compares a token with an entry (contract section 6). Pure.

Each check comes with its evidence. Any entry and any token become a report, never an exception. Reading the file is
left to `issuer.results.entry.read_entries`, which raises InputError. It imports no server, network or clock. Checks 1
to 5 are in `check_token`, 6 to 10 in `check_entry`, 11 in `check_log`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import UNSET, Struct, field
from msgspec.structs import replace

from issuer.results.entry import Entry
from issuer.verify import check_entry, check_log
from issuer.verify.check_entry import Benchmarks
from issuer.verify.check_log import CheckedNotes, Proofs, Search
from issuer.verify.check_token import GOOD_WHEN_ISSUED, JudgedToken, Occurrence, Signed, judge_token
from issuer.verify.provenance import run_url
from issuer.verify.receipts import Moment, token_digest
from issuer.verify.report import (
    ALWAYS_DUE,
    NAMES,
    REPORT_VERSION,
    Check,
    Report,
    Said,
    Status,
    Verdict,
    check,
    replay_key,
    verdict_of,
)
from issuer.verify.tiers import HubFacts, badges_of, ranked, with_reproductions
from issuer.verify.trust import Trust

__all__ = [
    "Check", "Context", "Report", "Status", "Verdict", "fail_shared_jti", "token_digest", "verify_entries",
    "verify_entry",
]  # fmt: skip


class Context(Struct, frozen=True):
    """Facts that a relying party has beside the file and its trust.

    `now` is the relying party's clock (Unix seconds), which decides when revocation lists go stale. `witnessed`: `at`
    comes from its own clock or record of the push. If `at` is only a claim, a report gets no receipt. `benchmarks` maps
    (repository, commit) to `eval.yaml`, `receipts` maps token digests to the text of receipts. `proofs` has the
    inclusion proofs at hand, `asked` the answers of logs for tokens that have no usable proof, and `notes` the
    checkpoints that passed, for many files. If `hub` has the Hub's facts about the file, reports have badges;
    `hub.benchmark` is looked up for each entry.
    """

    now: int
    witnessed: bool = False
    benchmarks: Benchmarks = field(default_factory=dict)
    receipts: Mapping[str, str] = field(default_factory=dict)
    proofs: Proofs = field(default_factory=dict)
    asked: Proofs = field(default_factory=dict)
    notes: CheckedNotes = field(default_factory=CheckedNotes)
    hub: HubFacts | None = None


def verify_entry(entry: Entry, repo: str, path: str, trust: Trust, at: int | None, context: Context) -> Report:
    """Judge one entry of the file `path` in the model repository `repo`, as received at `at` (Unix seconds). A reader
    passes None, because it does not know when the file came: check 5 of an expired token is then `unknown` and does not
    fail. Every check is made and reported. A badge must come from `verdict` alone, never from a member of the file.
    `verify_entries` finds two tokens with one jti within a file, a ReplayIndex across files."""
    report = ranked(_judged(entry, repo, path, trust, at, context))
    if context.hub is None:
        return report
    benchmark = context.benchmarks.get((entry.dataset.id, entry.dataset.revision or ""))
    return replace(report, badges=badges_of(report, entry, replace(context.hub, benchmark=benchmark)))


def _judged(entry: Entry, repo: str, path: str, trust: Trust, at: int | None, context: Context) -> Report:
    own = _moment(at, context)
    blank = Report(
        REPORT_VERSION, repo, path, entry.pointer, "unverified", "", own.at, own.at_from, issuer="", framework="",
        jti="", kid="", content_digest="", token_digest=token_digest(entry.token) if entry.token else "", checks=(),
        said=Said.of(entry),
    )  # fmt: skip
    if entry.token is None:
        return _unverified(blank, "no token")
    if entry.metrics is None:
        return _unverified(blank, "profile: an entry without `metrics` names no metric that a token could bind")
    receipt = context.receipts.get(blank.token_digest)
    search = Search(context.proofs, context.asked, context.notes)
    token = judge_token(entry.token, trust, Occurrence(repo, path, own, context.now, receipt, search))
    signed = token.signed
    checks = (
        *token.checks,
        check_entry.placed(entry, repo, path, signed),
        check_entry.fields(entry, signed),
        check_entry.metrics(entry, signed, context.benchmarks),
        check_entry.digests(entry, signed),
        check_entry.defined(entry, signed, context.benchmarks, trust),
        check_log.logged(token.inclusion, required="log" in trust.require),
    )
    numbers, moment = due(trust), token.moment
    verdict = verdict_of(checks, numbers)
    reason = _reason(verdict, checks, numbers)
    if reason and not _could_still_say(token, trust):
        verdict = "good_when_issued"
    vouched = {} if signed is None else _vouched(signed)
    return replace(
        blank, verdict=verdict, reason=reason, at=moment.at, at_from=moment.at_from, checks=checks,
        wants_keys_of=token.wants_keys_of, witnessed_at=moment.witnessed, **vouched,
    )  # fmt: skip


def _moment(at: int | None, context: Context) -> Moment:
    if at is None:
        return Moment(context.now, "unknown")
    return Moment(at, "clock" if context.witnessed else "stated")


def _reason(verdict: Verdict, checks: Iterable[Check], due: frozenset[int]) -> str:
    """Return the sentence for an expired token that passes every other check that is due; else ""."""
    if verdict != "undecided":
        return ""
    unknown = [made.evidence for made in checks if made.number in due and made.status is Status.UNKNOWN]
    return GOOD_WHEN_ISSUED if len(unknown) == 1 and unknown[0].startswith(GOOD_WHEN_ISSUED) else ""


def _could_still_say(token: JudgedToken, trust: Trust) -> bool:
    """Say whether a receipt or the issuer's log could still show that the token counts."""
    if trust.receipt_keys is not UNSET:
        return True
    log = token.signed.issuer.log if token.signed else None
    unseen = token.inclusion is not None and token.inclusion.status is Status.UNKNOWN
    return log is not None and unseen and log.policy.asks_for_witnesses


def due(trust: Trust) -> frozenset[int]:
    """Return the numbers of the checks that must pass: 1 to 9, and those that the trust file requires. No other check
    may fail."""
    return ALWAYS_DUE | {number for name, number in _DUE_BY.items() if name in trust.require}


# Check 4 covers the requirement `attempt`.
_DUE_BY = {"benchmark": 10, "log": 11}


def _vouched(signed: Signed) -> dict[str, Any]:
    """Return the members of a report that a good signature vouches for."""
    claims = signed.claims
    return {
        "issuer": claims.iss, "framework": signed.run.framework.name, "jti": claims.jti, "kid": signed.kid,
        "content_digest": claims.content_digest, "claims": signed.run, "caller": claims.caller,
        "run_url": run_url(claims.caller), "integration": claims.sub, "issued_at": claims.iat, "expires_at": claims.exp,
        "attempt": None if claims.attempt is UNSET else claims.attempt, "revoked": bool(signed.revoked),
    }  # fmt: skip


def _unverified(blank: Report, reason: str) -> Report:
    checks = tuple(check(number, Status.SKIP, reason) for number in NAMES)
    return replace(blank, reason=reason, checks=checks)


def verify_entries(
    entries: Iterable[Entry], repo: str, path: str, trust: Trust, at: int | None, context: Context
) -> tuple[Report, ...]:
    """Judge all entries of a file. Two different tokens of one issuer with one jti both fail. Of the rest, a reproduced
    result gets the tier `reproduced`."""
    reports = [verify_entry(entry, repo, path, trust, at, context) for entry in entries]
    if len(reports) == 1:
        return tuple(reports)  # nearly every file
    pointers: defaultdict[bytes, dict[str, str]] = defaultdict(dict)  # by issuer and jti: the first entry of each token
    for report in reports:
        if report.verdict == "verified":
            pointers[replay_key(report)].setdefault(report.token_digest, report.pointer)
    unshared = [_unshared(report, pointers.get(replay_key(report), {})) for report in reports]
    return with_reproductions(unshared, trust.tolerance)


def _unshared(report: Report, pointers: Mapping[str, str]) -> Report:
    if report.verdict != "verified":
        return report
    others = (pointer for token, pointer in pointers.items() if token != report.token_digest)
    other = next(others, None)
    return report if other is None else fail_shared_jti(report, f"entry {other} of this file")


def fail_shared_jti(report: Report, other: str) -> Report:
    """Turn check 5 of a verified report into a failure: the entry `other` has another token with its jti."""
    evidence = f"{other} has another good token with the jti {report.jti}: the issuer is at fault, and neither counts"
    checks = tuple(check(5, Status.FAIL, evidence) if made.number == 5 else made for made in report.checks)
    badges = None if report.badges is None else replace(report.badges, verified="no")
    return ranked(replace(report, verdict="failed", checks=checks, shared_jti=True, badges=badges))
