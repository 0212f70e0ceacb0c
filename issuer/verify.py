"""When a token and an entry agree (contract section 6): numbered checks, each with its evidence. Pure.

For relying parties. Imports no server, no network and no clock. Any entry and any token become a report, never an
exception; reading the file is `issuer.results.entry.read_entries`, whose one declared error is InputError.

Checks 10 (eval.yaml) and 11 (transparency log) are reported as `skip`: no trust file can require them yet.
"""

from __future__ import annotations

import enum
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath
from typing import Literal

from msgspec import UNSET, Struct
from msgspec.structs import replace

from issuer import jcs, jose
from issuer.errors import InputError, Refused
from issuer.results.claims import RunClaims
from issuer.results.entry import Entry, content_digest, result_file_name
from issuer.strict_json import JSON
from issuer.token import TokenClaims, read_unverified
from issuer.trust import Trust, TrustedIssuer

# How far the issuer's clock may run ahead of the relying party's.
NOT_BEFORE_LEEWAY_S = 60


class Status(enum.StrEnum):
    """`unknown`: due, but something needed was not to be had. `skip`: not required, or it rests on one that failed."""

    PASS = "pass"  # noqa: S105
    FAIL = "fail"
    UNKNOWN = "unknown"
    SKIP = "skip"


class Check(Struct, frozen=True):
    """One numbered check. Where two values differ, `token` is the token's and `file` the file's."""

    number: int
    name: str
    status: Status
    evidence: str
    token: str = ""
    file: str = ""


Verdict = Literal["verified", "failed", "undecided", "unverified"]


class Report(Struct, frozen=True):
    """The whole judgement of one entry. `reason` says why an entry is `unverified`; `at` is Unix seconds."""

    pointer: str
    verdict: Verdict
    reason: str
    at: int
    jti: str
    checks: tuple[Check, ...]


NAMES = {
    1: "well-formed token", 2: "key", 3: "signature", 4: "issuer and audience", 5: "fresh",
    6: "repository and file name", 7: "bound fields", 8: "metrics", 9: "digests",
    10: "benchmark definition", 11: "transparency log",
}  # fmt: skip


def verify_entry(entry: Entry, repo: str, path: str, trust: Trust, at: int) -> Report:
    """Judge one entry of the file `path` in the model repository `repo`, as received at `at` (Unix seconds).

    Every check is made and reported. A badge must come from `verdict` alone, never from a member of the file.
    """
    if entry.token is None:
        return _unverified(entry, at, "no token")
    if entry.metrics is None:
        return _unverified(entry, at, "profile: an entry without `metrics` names no metric that a token could bind")
    return _Judgement(entry, entry.token, repo, path, trust, at).report()


def verify_entries(entries: Iterable[Entry], repo: str, path: str, trust: Trust, at: int) -> tuple[Report, ...]:
    """Judge all entries of a file; two different tokens with one jti and good signatures fail, both."""
    judged = [(entry, verify_entry(entry, repo, path, trust, at)) for entry in entries]
    tokens: defaultdict[str, set[str | None]] = defaultdict(set)
    for entry, report in judged:
        if report.jti:
            tokens[report.jti].add(entry.token)
    return tuple(_fail_shared_jti(report) if len(tokens[report.jti]) > 1 else report for _, report in judged)


def _fail_shared_jti(report: Report) -> Report:
    evidence = f"another token of this file has the jti {report.jti}: the issuer is at fault"
    checks = tuple(
        replace(check, status=Status.FAIL, evidence=evidence) if check.number == 5 else check for check in report.checks
    )
    return replace(report, verdict="failed", checks=checks)


def _unverified(entry: Entry, at: int, reason: str) -> Report:
    checks = tuple(Check(number, name, Status.SKIP, reason) for number, name in NAMES.items())
    return Report(entry.pointer, "unverified", reason, at, "", checks)


def verdict_of(checks: Iterable[Check]) -> Verdict:
    """Any fail is no; otherwise any unknown is undecided; otherwise all that are due passed."""
    statuses = {check.status for check in checks if check.number <= 9}
    if Status.FAIL in statuses:
        return "failed"
    return "verified" if statuses == {Status.PASS} else "undecided"


class _Judgement:
    """The checks of one entry, in their order; each method is one number and may rest on what earlier ones found."""

    def __init__(self, entry: Entry, token: str, repo: str, path: str, trust: Trust, at: int) -> None:
        self.entry, self.token, self.repo, self.path, self.trust, self.at = entry, token, repo, path, trust, at
        self.jws: jose.UnverifiedJws | None = None
        self.claims: TokenClaims | None = None
        self.run: RunClaims | None = None
        self.issuer: TrustedIssuer | None = None
        self.key: jose.Key | None = None
        self.signed = Status.SKIP

    def report(self) -> Report:
        checks = (
            self.well_formed(), self.keyed(), self.signature(), self.trusted(), self.fresh(), self.placed(),
            self.fields(), self.metrics(), self.digests(),
            _check(10, Status.SKIP, "not required"), _check(11, Status.SKIP, "not required"),
        )  # fmt: skip
        jti = self.claims.jti if self.claims and self.signed is Status.PASS else ""
        return Report(self.entry.pointer, verdict_of(checks), "", self.at, jti, checks)

    def well_formed(self) -> Check:  # (1)
        try:
            jws = jose.parse_compact(self.token)
            if jws.header.keys() != {"alg", "kid", "typ"} or not all(isinstance(x, str) for x in jws.header.values()):
                return _check(1, Status.FAIL, "the header must have exactly the members alg, kid and typ, all text")
            if jws.header["typ"] != jose.TOKEN_TYPE:
                return _check(1, Status.FAIL, f"typ is not {jose.TOKEN_TYPE}: a JWT of another kind")
            self.claims, self.run = read_unverified(jws.unverified_payload)
        except (InputError, Refused) as error:
            fault = error.faults[0]
            where = f" at {fault.pointer}" if fault.pointer else ""
            return _check(1, Status.FAIL, f"{fault.detail}{where}")
        self.jws = jws
        return _check(1, Status.PASS, f"{len(self.token)} bytes, version {self.claims.ver}")

    def keyed(self) -> Check:  # (2)
        if self.jws is None or self.claims is None:
            return _rests_on(2, 1)
        kid, algorithm = self.jws.header["kid"], self.jws.header["alg"]
        if algorithm not in jose.EDDSA_NAMES:
            return _check(2, Status.FAIL, "the algorithm is not EdDSA (Ed25519)")
        self.issuer = self.trust.issuers.get(self.claims.iss)
        if self.issuer is None:
            return _check(2, Status.FAIL, "no trusted issuer has this name, so there is no key to check with",
                          token=self.claims.iss)  # fmt: skip
        if self.issuer.keys is None:
            return _check(2, Status.UNKNOWN, f"the key set of {self.issuer.issuer} is not to be had")
        self.key = self.issuer.keys.get(kid)
        if self.key is None or not jose.EDDSA_NAMES & self.key.algorithms:
            self.key = None
            return _check(2, Status.FAIL, "no good Ed25519 key of the issuer's key set has this kid", token=str(kid))
        return _check(2, Status.PASS, f"kid {kid}")

    def signature(self) -> Check:  # (3)
        if self.jws is None:
            return _rests_on(3, 1)
        if self.key is None:
            if self.issuer is not None and self.issuer.keys is None:
                return _check(3, Status.UNKNOWN, "there is no key to check with")
            return _rests_on(3, 2)
        good = self.key.verifies(str(self.jws.header["alg"]), self.jws.signing_input, self.jws.signature)
        self.signed = Status.PASS if good else Status.FAIL
        return _check(3, self.signed, "Ed25519, by that key" if good else "the signature does not fit token and key")

    def trusted(self) -> Check:  # (4)
        if self.claims is None or self.issuer is None or self.run is None or self.signed is not Status.PASS:
            return _rests_on(4, 3)
        framework = self.run.framework.name
        if self.issuer.frameworks is not None and framework not in self.issuer.frameworks:
            return _check(4, Status.FAIL, "the issuer is not trusted to speak for this framework", token=framework)
        if self.claims.aud != self.trust.audience:
            return _check(4, Status.FAIL, "the token is for another relying party",
                          token=self.claims.aud, file=self.trust.audience)  # fmt: skip
        return _check(4, Status.PASS, f"{self.claims.iss}, for {self.claims.aud}")

    def fresh(self) -> Check:  # (5)
        if self.claims is None or self.signed is not Status.PASS:
            return _rests_on(5, 3)
        life = self.claims.exp - self.claims.iat
        if life > self.trust.max_token_life_s:
            return _check(5, Status.FAIL, f"lives {life} s; at most {self.trust.max_token_life_s} s are trusted")
        if self.at < self.claims.nbf - NOT_BEFORE_LEEWAY_S:
            return _check(5, Status.FAIL, f"not valid for another {self.claims.nbf - self.at} s")
        if self.at > self.claims.exp:
            return _check(5, Status.FAIL, f"expired {self.at - self.claims.exp} s before the time it is judged at")
        return _check(
            5, Status.PASS, f"issued {self.at - self.claims.iat} s ago, expires in {self.claims.exp - self.at} s"
        )

    def placed(self) -> Check:  # (6): the file's name needs no token, the repository does
        expected = PurePosixPath(result_file_name(self.entry.dataset.id)).name
        actual = PurePosixPath(self.path).name
        if actual != expected:
            return _check(6, Status.FAIL, f"results of {self.entry.dataset.id} belong into {expected}", file=actual)
        if self.run is None or self.signed is not Status.PASS:
            return _rests_on(6, 3)
        if self.run.model_repo != self.repo:
            return _check(6, Status.FAIL, "the token is for another model repository",
                          token=self.run.model_repo, file=self.repo)  # fmt: skip
        return _check(6, Status.PASS, f"{self.repo}, {actual}")

    def fields(self) -> Check:  # (7)
        if self.run is None or self.signed is not Status.PASS:
            return _rests_on(7, 3)
        for name, bound, found in _bound_fields(self.run, self.entry):
            if bound != found:
                return _check(7, Status.FAIL, f"{name} differs", token=_shown(bound), file=_shown(found))
        return _check(7, Status.PASS, "model, benchmark, task and framework are equal")

    def metrics(self) -> Check:  # (8)
        if self.run is None or self.signed is not Status.PASS:
            return _rests_on(8, 3)
        bound = {(metric.metric_id, metric.slice or ""): metric.value for metric in self.run.metrics}
        found = [((metric.metric_id, metric.slice or ""), metric.value) for metric in self.entry.metrics or ()]
        for pair, value in found:
            if pair not in bound:
                return _check(8, Status.FAIL, "the token does not bind this metric", file=_pair(pair))
            if bound[pair] != value:
                return _check(8, Status.FAIL, f"{_pair(pair)} differs", token=_shown(bound[pair]), file=_shown(value))
        if missing := sorted(bound.keys() - dict(found).keys()):
            return _check(
                8, Status.FAIL, "the file lacks a metric of the token", token=_pair(missing[0]), file="absent"
            )
        if len(found) != len(bound):
            return _check(8, Status.FAIL, "the file names a metric twice")
        if self.entry.value is not UNSET:
            return _check(8, Status.UNKNOWN, "`value` can only be judged with the benchmark's eval.yaml")
        return _check(8, Status.PASS, f"{len(bound)} equal")

    def digests(self) -> Check:  # (9)
        if self.run is None or self.claims is None or self.signed is not Status.PASS:
            return _rests_on(9, 3)
        claims = _entry_claims_digest(self.entry.form, self.repo)
        if not claims == self.run.digest == self.claims.claims_digest:
            return _check(
                9, Status.FAIL, "claims_digest does not recompute", token=self.claims.claims_digest, file=claims
            )
        content = content_digest(self.entry.form)
        if content != self.claims.content_digest:
            return _check(9, Status.FAIL, "content_digest does not recompute: some member of the entry was changed",
                          token=self.claims.content_digest, file=content)  # fmt: skip
        return _check(9, Status.PASS, "claims_digest and content_digest recompute")


def _check(number: int, status: Status, evidence: str, *, token: str = "", file: str = "") -> Check:
    return Check(number, NAMES[number], status, evidence, token, file)


def _rests_on(number: int, other: int) -> Check:
    return _check(number, Status.SKIP, f"rests on check {other}, which did not pass")


def _bound_fields(run: RunClaims, entry: Entry) -> Iterator[tuple[str, object, object]]:
    """Yield every bound field by its name in the file, with the token's and the file's value."""
    yield "dataset.id", run.benchmark_repo, entry.dataset.id
    yield "dataset.task_id", run.task_id, entry.dataset.task_id
    yield "dataset.revision", run.benchmark_revision, entry.dataset.revision
    yield "model_revision", run.model_revision, entry.model_revision
    yield "framework.name", run.framework.name, entry.framework.name
    yield "framework.version", run.framework.version, entry.framework.version
    yield "framework.command", run.framework.command, entry.framework.command


def _entry_claims_digest(form: dict[str, JSON], repo: str) -> str:
    """Recompute the claims digest from the file alone. Checks 7 and 8 have compared the types by then."""
    dataset = form.get("dataset")
    parts = dataset if isinstance(dataset, dict) else {}
    members: dict[str, JSON] = {
        "model_repo": repo,
        "model_revision": form.get("model_revision"),
        "benchmark_repo": parts.get("id"),
        "benchmark_revision": parts.get("revision"),
        "task_id": parts.get("task_id"),
        "metrics": form.get("metrics"),
        "framework": form.get("framework"),
    }
    return jcs.digest(members)


def _pair(pair: tuple[str, str]) -> str:
    return f"{pair[0]} ({pair[1]})" if pair[1] else pair[0]


def _shown(value: object) -> str:
    if value is UNSET:
        return "absent"
    text = value if isinstance(value, str) else jcs.canonical(value).decode()  # type: ignore[arg-type]
    return text if len(text) <= 200 else f"{text[:200]}..."
