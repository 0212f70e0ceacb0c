"""Compiled policies: the patterns of a policy, and the texts of its rules, made once when it is loaded. Pure.

`issuer.policy.registration` and `issuer.policy.decide` apply the rules, in the order of policies/REFERENCE.md.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from functools import lru_cache
from math import inf
from typing import Any, Literal, TypeVar

import msgspec
from msgspec import UNSET, Struct
from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from issuer.codes import Code
from issuer.formats.strict_json import JSON
from issuer.formats.strict_yaml import number_text
from issuer.identity.table import Provider
from issuer.policy.check import Check, Rule, escape_braces
from issuer.policy.model import FrameworkGrant, Grants, Identity, Matcher, MetricGrant, Requirement, describe, is_met
from issuer.policy.patterns import Globs, denies, matches_one
from issuer.results.benchmark import AcceptedDefinitions

# -- one object for equal values ---------------------------------------------------------------------------------------

# Ten thousand integrations have much the same rules. One object for equal rules saves 65 MB a worker (of 200).

T = TypeVar("T")
_MAX_INTERNED = 65_536  # beyond it the table is emptied; equal rules are then compiled again
_interned: dict[Hashable, Any] = {}
_write = msgspec.msgpack.Encoder().encode


def intern(make: Callable[[], T], kind: str, *given: object) -> T:
    """Return the result of `make`, which depends only on `kind` and `given`; the same object for equal ones."""
    key = kind, _write(given)
    found: T | None = _interned.get(key)
    if found is None:
        if len(_interned) >= _MAX_INTERNED:
            _interned.clear()
        found = _interned[key] = make()
    return found


# -- callers -----------------------------------------------------------------------------------------------------------


class CompiledProvider:
    """The rules of a provider for every caller: the event that started the job, the scope of its profile (or None), and
    the demands of its profile."""

    __slots__ = ("demands", "event", "provider", "scope")

    def __init__(self, provider: Provider) -> None:
        self.provider = provider
        claim, at = provider.rules.event_claim, f"providers.{provider.id}"
        expected = "one of " + ", ".join(provider.events)
        says = f"the identity token's {claim} is {{}}"
        reads = (claim,) if claim else ()
        self.event = Rule(Code.IDENTITY_EVENT_FORBIDDEN, f"{at}.events", says, expected, "identity", reads=reads)
        word = provider.rules.scope
        remedy = f"Ask for a token with the scope {word}."
        may = Matcher(contains_all=(word,))
        self.scope = CompiledRequirement("scope", may, f"{at}.profile", remedy) if word else None
        self.demands = tuple(
            CompiledRequirement(name, Matcher(absent=True) if value is None else value, f"{at}.profile")
            for name, value in provider.rules.demands.items()
        )


class CompiledIdentity:
    """The rules of a registered identity for its callers."""

    __slots__ = ("expiry", "requirements")

    def __init__(self, identity: Identity) -> None:
        at = f"identities.{identity.id}"
        ends = f"a day before {identity.expires}"
        says = "the request is of {}"
        self.expiry = Rule(Code.IDENTITY_REGISTRATION_EXPIRED, f"{at}.expires", says, ends, "identity")
        self.requirements = tuple(
            CompiledRequirement(name, rule, f"{at}.require.{name}") for name, rule in identity.require.items()
        )


def compile_identity(identity: Identity) -> CompiledIdentity:
    """Compile the requirements of an identity."""
    expires = "" if identity.expires is UNSET else identity.expires
    return intern(lambda: CompiledIdentity(identity), "identity", identity.id, identity.require, expires)


class CompiledRequirement:
    """A requirement for the claim `name`, with its words for a wrong and for an absent claim."""

    __slots__ = ("_mismatch", "_missing", "_rule", "name")

    def __init__(self, name: str, rule: Requirement, place: str, remedy: str = "") -> None:
        self.name = name
        self._rule = rule
        expected, quoted = describe(rule), escape_braces(name)
        says = f"the identity token's {quoted} is {{}}"
        self._mismatch = Rule(Code.IDENTITY_CLAIM_MISMATCH, place, says, expected, "identity", remedy, (name,))
        says = f"the identity token has no claim {quoted}"
        self._missing = Rule(Code.IDENTITY_CLAIM_MISSING, place, says, expected, "identity", remedy, (name,))

    def check(self, claims: Mapping[str, JSON]) -> Check:
        """Judge the caller's claims by the requirement."""
        passed = is_met(claims, self.name, self._rule)
        if self.name in claims:
            return Check(self._mismatch, passed, (claims[self.name],))
        return Check(self._missing, passed)


# -- grants ------------------------------------------------------------------------------------------------------------


class CompiledGrants:
    """The compiled grants of one integration. Its lists of names are not compiled: `NameRules` reads them."""

    __slots__ = ("definitions", "frameworks", "metrics")

    def __init__(self, grants: Grants) -> None:
        stated = grants.definitions or {}
        self.definitions = intern(lambda: AcceptedDefinitions.of(stated), "definitions", stated)
        self.frameworks = intern(lambda: CompiledFrameworks(grants.frameworks), "frameworks", grants.frameworks)
        self.metrics = intern(lambda: CompiledMetrics(grants.metrics), "metrics", grants.metrics)


class CompiledFrameworks:
    """The frameworks that a run may name, each with its version ranges."""

    __slots__ = ("_in_range", "_named", "_ranges")

    def __init__(self, grants: tuple[FrameworkGrant, ...]) -> None:
        self._ranges: dict[str, list[str]] = {}
        for grant in grants:
            self._ranges.setdefault(grant.name, []).append(grant.versions or "")
        expected = "one of " + ", ".join(self._ranges)
        says = "the run names the framework {}"
        self._named = Rule(Code.POLICY_FRAMEWORK, "grants.frameworks[].name", says, expected, "frameworks")
        self._in_range = {name: _version_rule(ranges) for name, ranges in self._ranges.items()}

    def check(self, name: str, version: str, place: str) -> tuple[Check, Check]:
        """Judge a run's framework; `place` is its pointer in the request body."""
        ranges = self._ranges.get(name)
        allowed = ranges is None or any([allows_version(one, version) for one in ranges])  # noqa: C419 (faster here)
        rule = self._in_range.get(name, _ANY_VERSION)
        if not allowed and (remedy := _remedy_for(version)):
            rule = msgspec.structs.replace(rule, remedy=remedy)
        return (
            Check(self._named, ranges is not None, (name,), f"{place}/name"),
            Check(rule, allowed, (version,), f"{place}/version"),
        )


def _version_rule(ranges: list[str]) -> Rule:
    expected = " or ".join(filter(None, ranges))
    place = "grants.frameworks[].versions"
    return Rule(Code.POLICY_VERSION, place, "the run names version {}", expected, "frameworks")


_ANY_VERSION = _version_rule([])


@lru_cache(maxsize=16_384)
def allows_version(specifier: str, version: str) -> bool:
    """Return whether a version is in a PEP 440 range. The range "" contains every text, others only PEP 440 versions.

    Only the normal form of a version is in a range, so the compared text is the signed text. A pre-release or
    development build is only in a range that names such a version (`>=0.3.dev0`). Anybody can build a local version, so
    `==` must name it.
    """
    if not specifier:
        return True
    allowed = SpecifierSet(specifier)
    if version != _normal_form(version):
        return False
    if "+" in version and not any("+" in one.version for one in allowed if one.operator in {"==", "==="}):
        return False
    # Explicit, because the default of `packaging` changed between its releases 25 and 26.
    return allowed.contains(Version(version), prereleases=bool(allowed.prereleases))


def _normal_form(version: str) -> str:
    """Return the normal form of a version (PEP 440), or "" for another text."""
    try:
        return str(Version(version))
    except InvalidVersion:
        return ""


def _remedy_for(version: str) -> str:
    """Return the next step for a version whose spelling keeps it out of every range, or "" if the spelling is good."""
    normal = _normal_form(version)
    if normal not in {"", version}:
        return f"Send the version in its normal form: {normal}"
    if "+" in normal:
        return "Evaluate with a released version; a local one (`+...`) must be named by the policy with `==`."
    return ""


class NameRules:
    """The rules for one list of names in `grants`, and for its list in `deny`. All policies share them: ten thousand
    policies have different lists, and a compiled rule for each would fill the memory.
    """

    __slots__ = ("_allowed", "_granted")

    def __init__(self, topic: Literal["benchmarks", "models", "tasks"], code: Code) -> None:
        says = "the run names {}"
        self._granted = Rule(code, f"grants.{topic}", says, "one of ", topic)
        self._allowed = Rule(code, f"grants.deny.{topic}", says, "none of ", topic)

    def check(
        self, granted: tuple[str, ...], denied: tuple[str, ...], actual: str, pointer: str = ""
    ) -> tuple[Check, ...]:
        """Judge a name in a run by the two lists of a policy."""
        check = Check(self._granted, matches_one(granted, actual), (actual,), pointer, granted)
        if not denied:
            return (check,)
        return check, Check(self._allowed, not denies(denied, actual), (actual,), pointer, denied)


BENCHMARKS = NameRules("benchmarks", Code.POLICY_BENCHMARK)
MODELS = NameRules("models", Code.POLICY_MODEL)
TASKS = NameRules("tasks", Code.POLICY_TASK)


class CompiledMetrics:
    """The metrics that a run may name, some with a range of values."""

    __slots__ = ("_any_value", "_ranges", "rule")

    def __init__(self, grants: tuple[str | MetricGrant, ...]) -> None:
        self._any_value = Globs(_id_of(grant) for grant in grants if is_unbounded(grant))
        self._ranges = tuple(_range(grant) for grant in grants if not (isinstance(grant, str) or is_unbounded(grant)))
        expected = "one of " + ", ".join(map(_describe_metric, grants))
        self.rule = Rule(Code.POLICY_METRIC, "grants.metrics", "the run names {}", expected, "metrics")

    def allows(self, metric_id: str, value: float) -> bool:
        """Return whether any grant allows this id with this value."""
        return self._any_value.match(metric_id) or any(
            one.low <= value <= one.high for one in self._ranges if one.ids.match(metric_id)
        )

    def has_range(self, metric_id: str) -> bool:
        """Return whether a grant sets a range for this metric."""
        return any(one.ids.match(metric_id) for one in self._ranges)

    def reads_value(self, metric_id: str) -> bool:
        """Return whether a rule depends on this metric's value. If a grant allows every value, no rule does."""
        return bool(self._ranges) and not self._any_value.match(metric_id) and self.has_range(metric_id)


class _Range(Struct, frozen=True):
    """The range of values, both ends included, for metrics with these ids."""

    ids: Globs
    low: float
    high: float


def _range(grant: MetricGrant) -> _Range:
    low = -inf if grant.min is UNSET else grant.min
    return _Range(Globs([grant.id]), low, inf if grant.max is UNSET else grant.max)


def is_unbounded(grant: str | MetricGrant) -> bool:
    """Return whether a grant allows every value of its metrics."""
    return isinstance(grant, str) or (grant.min is UNSET and grant.max is UNSET)


def _id_of(grant: str | MetricGrant) -> str:
    return grant if isinstance(grant, str) else grant.id


def _describe_metric(grant: str | MetricGrant) -> str:
    if isinstance(grant, str):
        return grant
    low = "" if grant.min is UNSET else f" from {number_text(grant.min)}"
    return f"{grant.id}{low}" + ("" if grant.max is UNSET else f" up to {number_text(grant.max)}")
