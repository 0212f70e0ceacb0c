"""What a registered identity may have signed. Pure: no clock, no network, no Redis.

Every rule is tried, in the order of policies/README.md; the first that failed names the code. What of a check a caller
may see is the disclosure ladder of contract section 5: its own values and the rule's place always, the expected value
only for the identity's requirements and the framework.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from functools import lru_cache

import msgspec
from msgspec import UNSET, Struct
from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from issuer.errors import Code, Fault, Refused
from issuer.policy.match import equal, glob_matches, meets
from issuer.policy.model import Caller, FrameworkGrant, Matcher, Party, Requirement
from issuer.results.claims import Framework
from issuer.results.entry import Submission


class Check(Struct, frozen=True):
    """One rule's outcome. `pointer` leads into the request body ("" for what the identity token says), `rule` into the
    policy file. `expected` is filled in only where the caller may see it."""

    code: Code
    pointer: str
    rule: str
    passed: bool
    actual: str
    expected: str = ""

    def fault(self) -> Fault:
        """Say what failed, as the caller may see it."""
        wanted = f"; expected {self.expected}" if self.expected else ""
        return Fault(self.code, self.pointer, f"{self.actual}{wanted}; rule: {self.rule}")


class Grant(Struct, frozen=True):
    """Yes: for this long, for this relying party; `warnings` are for the caller."""

    ttl_s: int
    audience: str
    warnings: tuple[str, ...]
    checks: tuple[Check, ...]


class Denial(Struct, frozen=True):
    """No: `code` is that of the first check that failed."""

    code: Code
    checks: tuple[Check, ...]

    def refusal(self) -> Refused:
        """Return the refusal with every failed check."""
        return Refused.of([check.fault() for check in self.checks if not check.passed])


def decide(
    party: Party, caller: Caller, submissions: tuple[Submission, ...], now: int, *, integration: str, audience: str
) -> Grant | Denial:
    """Judge a request of one registered identity against its policy at `now` (Unix seconds). Total and deterministic.

    `integration` and `audience` are what the request names, "" where it names none. `submissions` may be empty: then
    only the identity is judged.
    """
    grants, token = party.policy.grants, party.policy.token
    checks = [
        Check(Code.INTEGRATION_UNKNOWN, "/integration", "integration", integration in {"", party.policy.integration},
              "the request names another integration than the one that this identity is registered for"),
        Check(Code.INTEGRATION_SUSPENDED, "", "mode", party.policy.mode == "active",
              f"the integration is {party.policy.mode}"),
        _check_expiry(party, now),
        *_check_event(party, caller),
        *(_check_claim(caller, name, rule) for name, rule in party.identity.require.items()),
        Check(Code.POLICY_AUDIENCE, "/audience", "token.audience", audience in {"", token.audience},
              "the request names another audience than the integration's"),
    ]  # fmt: skip
    for submission in submissions:
        claims, at = submission.claims, f"{submission.pointer}/claims"
        checks += [
            *_check_framework(grants.frameworks, claims.framework, f"{at}/framework"),
            _check_name(Code.POLICY_BENCHMARK, f"{at}/benchmark_repo", claims.benchmark_repo, grants.benchmarks),
            _check_name(Code.POLICY_MODEL, f"{at}/model_repo", claims.model_repo, grants.models),
            _check_name(Code.POLICY_TASK, f"{at}/task_id", claims.task_id, grants.tasks),
        ]
    if failed := [check for check in checks if not check.passed]:
        return Denial(failed[0].code, tuple(checks))
    return Grant(token.ttl_s, token.audience, tuple(_name_warnings(party, caller)), tuple(checks))


def _check_expiry(party: Party, now: int) -> Check:
    expires = party.identity.expires
    passed = expires is UNSET or now < datetime.fromisoformat(expires).replace(tzinfo=UTC).timestamp()
    where = f"identities.{party.identity.id}.expires"
    return Check(Code.IDENTITY_REGISTRATION_EXPIRED, "", where, passed, f"the registration of this identity: {expires}")


def _check_event(party: Party, caller: Caller) -> Iterator[Check]:
    """Judge what started the job, unless the policy itself names the events that may."""
    claim = caller.provider.rules.event_claim
    if claim is None or claim in party.identity.require:
        return
    actual = caller.claims.get(claim)
    passed = any(equal(actual, event) for event in caller.provider.events)
    wanted = "one of " + ", ".join(caller.provider.events)
    yield Check(Code.IDENTITY_EVENT_FORBIDDEN, "", f"providers.{caller.provider.id}.events", passed,
                f"the identity token's {claim} is {_shown(actual)}", wanted)  # fmt: skip


def _check_claim(caller: Caller, name: str, rule: Requirement) -> Check:
    where = f"identities[].require.{name}"
    if name not in caller.claims:
        missing = f"the identity token has no claim {name}"
        return Check(Code.IDENTITY_CLAIM_MISSING, "", where, passed=False, actual=missing, expected=_said(rule))
    actual = f"the identity token's {name} is {_shown(caller.claims[name])}"
    return Check(Code.IDENTITY_CLAIM_MISMATCH, "", where, meets(caller.claims[name], rule), actual, _said(rule))


def _check_framework(grants: list[FrameworkGrant], framework: Framework, place: str) -> Iterator[Check]:
    named = [grant for grant in grants if grant.name == framework.name]
    names = "one of " + ", ".join(grant.name for grant in grants)
    yield Check(Code.POLICY_FRAMEWORK, f"{place}/name", "grants.frameworks[].name", bool(named),
                f"the run names the framework {framework.name}", names)  # fmt: skip
    ranges = [grant.versions or "" if grant.versions is not UNSET else "" for grant in named]
    yield Check(Code.POLICY_VERSION, f"{place}/version", "grants.frameworks[].versions",
                any(version_allowed(allowed, framework.version) for allowed in ranges) or not named,
                f"the run names version {framework.version}", " or ".join(filter(None, ranges)))  # fmt: skip


_GRANTED = {Code.POLICY_BENCHMARK: "benchmarks", Code.POLICY_MODEL: "models", Code.POLICY_TASK: "tasks"}


def _check_name(code: Code, pointer: str, actual: str, patterns: list[str]) -> Check:
    passed = any(glob_matches(pattern, actual) for pattern in patterns)
    return Check(code, pointer, f"grants.{_GRANTED[code]}", passed, f"the run names {actual}")


@lru_cache(maxsize=4096)
def version_allowed(specifier: str, version: str) -> bool:
    """Say whether a version lies in a PEP 440 range; "" allows every text, a range only what PEP 440 can order.

    Pre-releases and development builds lie in a range that names one itself, as `>=0.3.dev0`.
    """
    if not specifier:
        return True
    allowed = SpecifierSet(specifier)
    try:
        # Said here, because packaging's own default changed between its releases 25 and 26.
        return allowed.contains(Version(version), prereleases=bool(allowed.prereleases))
    except InvalidVersion:
        return False


def _name_warnings(party: Party, caller: Caller) -> Iterator[str]:
    for name, expected in party.identity.names.items():
        if not equal(caller.claims.get(name), expected):
            actual = _shown(caller.claims.get(name))
            yield f"the identity token's {name} is {actual}, registered as {expected}: ids decide; tell the operator"


def _shown(value: object) -> str:
    """Show a claim's value to the caller whose claim it is, shortened."""
    if value is None:
        return "absent"
    text = _text(value)
    return text if len(text) <= 200 else f"{text[:200]}..."


def _text(value: object) -> str:
    """Write a value so that the number 1 and the text "1", which never match, do not look alike."""
    if isinstance(value, str):
        return value
    kind = "boolean" if isinstance(value, bool) else "number" if isinstance(value, int | float) else "structure"
    return f"the {kind} {msgspec.json.encode(value).decode()}"


def _said(rule: Requirement) -> str:
    if not isinstance(rule, Matcher):
        return _text(rule)
    if rule.any_of is not UNSET:
        return "one of " + ", ".join(_text(value) for value in rule.any_of)
    return f"the form {rule.glob}"
