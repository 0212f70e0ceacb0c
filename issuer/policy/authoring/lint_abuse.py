"""Rules of `abuse` that can never say anything, or say it of everybody. Pure.

Only what the file itself says is warned of: a default that a narrow policy never meets does no harm.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from issuer.abuse import SPREADS, THENS, Throttle
from issuer.codes import Code
from issuer.formats.findings import Findings
from issuer.formats.strict_yaml import Document
from issuer.limits import Limits, Rate
from issuer.policy.globs import glob_matches
from issuer.policy.model import Grants, Policy

_DAY_US = 86_400_000_000
_RULES = ("attempts", "artifact", "spread")  # twins are never more than observed


def lint_abuse(findings: Findings, document: Document, policy: Policy) -> None:
    """Warn of rules without an effect (`lint.no_effect`), at the member that is written."""
    entry = _Entry(findings, document, policy)
    for name in SPREADS:
        if why := entry.written(f"/abuse/spread/{name}") and _why_never(policy, name):
            entry.warn(f"/abuse/spread/{name}", why)
    _doubt_artifact(entry)
    _doubt_throttle(entry)
    if entry.written("/abuse/quarantine_s") and not entry.rules_that("quarantine"):
        entry.warn("/abuse/quarantine_s", "no rule says `then: quarantine`")
    _doubt_ignored(entry)


class _Entry(Struct, frozen=True):
    findings: Findings
    document: Document
    policy: Policy

    def written(self, pointer: str) -> bool:
        """Say whether the file has this member; the others have their defaults."""
        value = self.document.value
        for name in pointer.split("/")[1:]:
            if not isinstance(value, dict) or name not in value:
                return False
            value = value[name]
        return True

    def rules_that(self, then: str) -> list[str]:
        return [name for name in _RULES if getattr(self.policy.abuse, name).then == then]

    def warn(self, pointer: str, detail: str) -> None:
        self.findings.warn(self.document, pointer, Code.LINT_NO_EFFECT, detail)


# -- spread -----------------------------------------------------------------------------------------------------------


def _why_never(policy: Policy, name: str) -> str:
    """Say why a limit of `spread` is never crossed before another one is, "" where it may be."""
    value, most = getattr(policy.abuse.spread, name), _most_tokens(policy.limits)
    if value >= most:
        return f"`limits` let at most {most} tokens through in a day: more than {value} are never counted"
    owners = _owners(policy.grants)
    if name.startswith("owners") and owners and value >= len(owners):
        return f"the grants name no more than {len(owners)} model owners: more than {value} are never counted"
    for other in _sooner(name):
        if value > (limit := getattr(policy.abuse.spread, other)):
            return f"`{other}` is {limit}, and is always crossed before"
    return ""


def _most_tokens(limits: Limits) -> int:
    return min(_most_in_a_day(limits.identity), _most_in_a_day(limits.integration))


def _most_in_a_day(rate: Rate) -> int:
    return rate.burst + _DAY_US // rate.interval_us


def _owners(grants: Grants) -> set[str]:
    """Return the model owners that the grants name; empty where they name any."""
    owners = {glob.partition("/")[0].lower() for glob in grants.models}
    return set() if any("*" in owner for owner in owners) else owners


def _sooner(name: str) -> Iterator[str]:
    """Yield the limits whose count is never below that of `name`: of the day that a run is in, of an owner's tokens."""
    what, _, when = name.partition("_a_")
    if when == "run":
        yield f"{what}_a_day"
    if what == "owners":
        yield f"tokens_a_{when}"


# -- what follows -----------------------------------------------------------------------------------------------------


def _doubt_artifact(entry: _Entry) -> None:
    attempts, artifact = entry.policy.abuse.attempts, entry.policy.abuse.artifact
    later = artifact.distinct >= attempts.distinct and THENS.index(artifact.then) <= THENS.index(attempts.then)
    if later and entry.written("/abuse/artifact/distinct"):
        why = f"`attempts.distinct` is {attempts.distinct}, and says as much before: it counts every file together"
        entry.warn("/abuse/artifact/distinct", why)


def _doubt_throttle(entry: _Entry) -> None:
    at = "/abuse/throttle"
    rules, throttle, identity = entry.rules_that("throttle"), entry.policy.abuse.throttle, entry.policy.limits.identity
    if entry.written(at) and not rules:
        entry.warn(at, "no rule says `then: throttle`")
    elif rules and not _slows(throttle, identity):
        place = at if entry.written(at) else f"/abuse/{rules[0]}/then"
        rate = f"{throttle.count} per {throttle.per_s} s, burst {throttle.burst}"
        entry.warn(place, f"the throttle ({rate}) is no slower than `limits.identity`: it slows nobody")


def _slows(throttle: Throttle, identity: Rate) -> bool:
    slower = throttle.count * identity.per_s < identity.count * throttle.per_s
    return slower or throttle.burst < identity.burst


def _doubt_ignored(entry: _Entry) -> None:
    """Where no metric is left all count, and those of the machine differ in every run."""
    grants, ignore = entry.policy.grants, entry.policy.abuse.attempts.ignore
    metrics = [grant if isinstance(grant, str) else grant.id for grant in grants.metrics]
    covered = all(any(glob_matches(glob, metric) for glob in ignore) for metric in metrics)
    if covered and not grants.registered_only:  # else the benchmark says what counts
        at = "/abuse/attempts/ignore"
        rule = "`abuse.attempts.ignore` matches every granted metric: where none is left, all of them count"
        entry.warn(at if entry.written(at) else "/grants/metrics", rule)
