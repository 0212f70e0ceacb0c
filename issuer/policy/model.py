"""The types of a policy file and of registered benchmarks. Pure.

The decision, the tests or the loader enforce every member that these types accept.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from issuer.formats.display import show_typed
from issuer.formats.strict_json import JSON, Text
from issuer.identity.table import Seconds
from issuer.limits.abuse import MAX_SETS, Abuse, Then
from issuer.limits.rate import Limits
from issuer.policy import patterns
from issuer.policy.check import Disclosable
from issuer.policy.patterns import glob_matches
from issuer.results.benchmark import Benchmark, Commits


class Matcher(Struct, frozen=True, forbid_unknown_fields=True):
    """A requirement other than one exact value. It has exactly one member, and `regex` also needs a `reason`.

    `contains_all` is for claims of space-separated words, such as `scope`. A token without the claim meets `absent`.
    """

    any_of: Annotated[tuple[str | bool | int, ...], Meta(min_length=1)] | UnsetType = UNSET
    glob: Text | UnsetType = UNSET
    regex: Text | UnsetType = UNSET
    reason: Text | UnsetType = UNSET
    contains_all: Annotated[tuple[Text, ...], Meta(min_length=1)] | UnsetType = UNSET
    absent: Literal[True] | UnsetType = UNSET


Requirement = str | bool | int | Matcher


class Identity(Struct, frozen=True, forbid_unknown_fields=True):
    """A machine identity that may speak for the integration.

    `pins` are immutable ids; a token matches only if all are equal. `names` are advisory. Every claim under `require`
    must match. `any_ref`, with a `reason`, accepts jobs of any ref, environment and workflow. The identity is refused
    from 00:00 UTC of `expires`.
    """

    id: str
    provider: str
    pins: Annotated[dict[str, Text], Meta(min_length=1)]
    names: dict[str, Text] = {}
    require: dict[str, Requirement] = {}
    any_ref: Literal[True] | UnsetType = UNSET
    reason: Text | UnsetType = UNSET
    expires: str | UnsetType = UNSET


class FrameworkGrant(Struct, frozen=True, forbid_unknown_fields=True):
    """A framework that the integration may speak for. `versions` is a PEP 440 range; without it all versions pass."""

    name: Text
    versions: str | UnsetType = UNSET


class MetricGrant(Struct, frozen=True, forbid_unknown_fields=True):
    """Metrics with an id that matches the glob `id` and a value from `min` to `max`, both included."""

    id: Text
    min: float | UnsetType = UNSET
    max: float | UnsetType = UNSET


Patterns = Annotated[tuple[Text, ...], Meta(min_length=1)]


class Deny(Struct, frozen=True, forbid_unknown_fields=True):
    """Globs that override every grant. They ignore upper and lower case."""

    benchmarks: tuple[Text, ...] = ()
    models: tuple[Text, ...] = ()
    tasks: tuple[Text, ...] = ()


class Grants(Struct, frozen=True, forbid_unknown_fields=True):
    """The results that the integration may have signed. Every list is required, so an omission grants nothing.

    `definitions`: by benchmark repository, the commits whose `eval.yaml` may decide: one, a list, or `any`, the
    default. `registered_only`: an `eval.yaml` under `benchmarks/` must define the benchmark, the task and the metrics.
    """

    frameworks: Annotated[tuple[FrameworkGrant, ...], Meta(min_length=1)]
    benchmarks: Patterns
    models: Patterns
    tasks: Patterns
    metrics: Annotated[tuple[Text | MetricGrant, ...], Meta(min_length=1, max_length=1000)]
    deny: Deny = Deny()
    definitions: dict[Text, Commits] | UnsetType = UNSET
    registered_only: bool = False
    command: Literal["optional", "required"] = "optional"


class TokenRules(Struct, frozen=True, forbid_unknown_fields=True):
    """The lifetime of verify tokens, and their relying parties. A request that names no audience gets the first."""

    audiences: Annotated[tuple[Text, ...], Meta(min_length=1)]
    ttl_s: Seconds = 3600


class Override(Struct, frozen=True, forbid_unknown_fields=True):
    """A test's changes to the test that it starts from. A null removes a member."""

    identity: dict[str, Any] = {}
    run: dict[str, Any] = {}


_Count = Annotated[int, Meta(ge=0, le=1_000_000)]


class Counts(Struct, frozen=True, forbid_unknown_fields=True):
    """The counts that the admission would have of one identity for one result, this result included.

    `attempts`: different sets of metric values of the run key. `artifact`: how many of these sets name the same
    evidence file (0 if no other set does). `is_new`: the result's set was not signed before. `twins`: another model
    repository has the same values. The others count model owners and tokens of the day and of the CI run.
    """

    attempts: Annotated[int, Meta(ge=1, le=MAX_SETS)] = 1
    is_new: bool = True
    artifact: Annotated[int, Meta(ge=0, le=MAX_SETS)] = 0
    twins: bool = False
    owners_a_day: _Count = 0
    owners_a_run: _Count = 0
    tokens_a_day: _Count = 0
    tokens_a_run: _Count = 0


class ExpectedSignals(Struct, frozen=True, forbid_unknown_fields=True):
    """The consequences that a test expects of its counts: one for each rule that they cross, and no others."""

    attempts: Then | UnsetType = UNSET
    artifact: Then | UnsetType = UNSET
    twins: Then | UnsetType = UNSET
    spread: Then | UnsetType = UNSET


class PolicyTest(Struct, frozen=True, forbid_unknown_fields=True):
    """A case that the policy must decide as `expect` says: `granted`, or the code of the refusal.

    `identity` has the claims of an identity token of `provider`. `run` has the run claims that the case needs.
    `claims_from` names an earlier test of the file: its provider, identity and run are used, changed by `override`.
    `date` is the date of the request; without it nothing has expired. If the run is granted, exactly `signals` must
    follow from `counts`; if one of them is a quarantine, `expect` is `abuse.quarantined`.
    """

    name: Text
    expect: Text
    provider: Text | UnsetType = UNSET
    identity: dict[str, Any] | UnsetType = UNSET
    run: dict[str, Any] | UnsetType = UNSET
    claims_from: Text | UnsetType = UNSET
    override: Override = Override()
    counts: Counts | UnsetType = UNSET
    signals: ExpectedSignals = ExpectedSignals()
    date: str | UnsetType = UNSET


class Policy(Struct, frozen=True, forbid_unknown_fields=True):
    """One integration's policy file.

    `staged` requests are judged and audited, and get no token. `disclose` lists the rules whose expected values a
    refused caller may see. `public`: anyone may read what the integration's callers must send.
    """

    version: Literal[1]
    integration: str
    mode: Literal["active", "staged", "suspended"]
    contacts: Annotated[list[Text], Meta(min_length=1)]
    identities: Annotated[list[Identity], Meta(min_length=1)]
    grants: Grants
    token: TokenRules
    limits: Limits = Limits()
    abuse: Abuse = Abuse()
    disclose: tuple[Disclosable, ...] = ("identity", "frameworks")
    public: bool = False
    tests: tuple[PolicyTest, ...] = ()


class RegisteredFile(Struct, frozen=True):
    """One registered `eval.yaml`: its benchmark repository, its bytes, and their digest."""

    repo: str
    raw: bytes
    digest: str


class RegisteredBenchmarks(Struct, frozen=True):
    """The registered benchmarks: `at_commit` by repository and full commit, `at_any` by repository for all others."""

    at_commit: Mapping[tuple[str, str], Benchmark] = {}
    at_any: Mapping[str, Benchmark] = {}

    def find(self, repo: str, revision: str) -> Benchmark | None:
        """Return the benchmark that is registered for a repository at a full commit, or None."""
        return self.at_commit.get((repo, revision)) or self.at_any.get(repo)


# -- requirements on a claim -------------------------------------------------------------------------------------------

# Values match exactly and type-strictly; globs and expressions match by `issuer.policy.patterns`. An absent claim meets
# only `absent`.


def is_met(claims: Mapping[str, JSON], name: str, rule: Requirement) -> bool:
    """Return whether the claim `name`, present or absent, meets its requirement."""
    if not isinstance(rule, Matcher):
        return equals(claims.get(name), rule)  # no requirement equals null
    if rule.absent is not UNSET:
        return name not in claims
    return name in claims and meets(claims[name], rule)


def equals(actual: JSON, expected: str | bool | int) -> bool:
    """Compare type-strictly: "1" is not 1, and True is not 1."""
    return type(actual) is type(expected) and actual == expected


def meets(actual: JSON, rule: Requirement) -> bool:
    """Return whether the value of a present claim meets a requirement. Only text meets a pattern."""
    if not isinstance(rule, Matcher):
        return equals(actual, rule)
    if rule.any_of is not UNSET:
        return any([equals(actual, value) for value in rule.any_of])  # noqa: C419 (a list is faster here)
    if not isinstance(actual, str):
        return False
    if rule.contains_all is not UNSET:
        # RFC 6749 section 3.3: words separated by spaces. Other white space is part of a word.
        return set(rule.contains_all) <= set(actual.split(" "))
    if rule.regex is not UNSET:
        return patterns.matches(rule.regex, actual)
    return rule.glob is not UNSET and glob_matches(rule.glob, actual)


def exact_values(rule: Requirement) -> tuple[str | bool | int | None, ...]:
    """Return the exact values that meet a requirement, None for an absent claim; () for a pattern."""
    if not isinstance(rule, Matcher):
        return (rule,)
    if rule.absent is not UNSET:
        return (None,)
    return tuple(rule.any_of) if rule.any_of is not UNSET else ()


def describe(rule: Requirement) -> str:
    """Return a requirement in words."""
    if not isinstance(rule, Matcher):
        return show_typed(rule)
    if rule.any_of is not UNSET:
        return "one of " + ", ".join(show_typed(value) for value in rule.any_of)
    if rule.contains_all is not UNSET:
        return "the words " + ", ".join(rule.contains_all)
    if rule.regex is not UNSET:
        return f"text that matches the expression {rule.regex}"
    return "no such claim" if rule.absent is not UNSET else f"text of the form {rule.glob}"
