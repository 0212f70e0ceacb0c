"""The types of an integration's policy file, and of the benchmarks that the operator registered. Pure.

Every accepted member is enforced somewhere. What is not enforced yet is not a member yet.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from issuer.formats.strict_json import Text
from issuer.identity.table import Seconds
from issuer.limits.abuse import MAX_SETS, Abuse, Then
from issuer.limits.rate import Limits
from issuer.policy.check import Disclosable
from issuer.policy.requirement import Requirement
from issuer.results.benchmark import Benchmark


class Identity(Struct, frozen=True, forbid_unknown_fields=True):
    """A machine identity that may speak for the integration.

    `pins` are immutable ids, all equal or no match. `names` are advisory. Every claim under `require` must match.
    `any_ref` says, with a `reason`, that the provider's job may be of any ref, environment and workflow. From 00:00 UTC
    of `expires` on, the identity is refused.
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
    """A framework that the integration may speak for; `versions` is a PEP 440 specifier, absent for every version."""

    name: Text
    versions: str | UnsetType = UNSET


class MetricGrant(Struct, frozen=True, forbid_unknown_fields=True):
    """Metrics whose id matches the glob `id`, and whose value lies between `min` and `max`, both included."""

    id: Text
    min: float | UnsetType = UNSET
    max: float | UnsetType = UNSET


Patterns = Annotated[tuple[Text, ...], Meta(min_length=1)]


class Deny(Struct, frozen=True, forbid_unknown_fields=True):
    """Globs that win over every grant; they also match what differs in upper and lower case only."""

    benchmarks: tuple[Text, ...] = ()
    models: tuple[Text, ...] = ()
    tasks: tuple[Text, ...] = ()


class Grants(Struct, frozen=True, forbid_unknown_fields=True):
    """What the integration may have signed. Every list must be there: nothing is granted by leaving something out.

    `registered_only`: benchmark, task and metrics must be those of an `eval.yaml` under `benchmarks/`.
    """

    frameworks: Annotated[tuple[FrameworkGrant, ...], Meta(min_length=1)]
    benchmarks: Patterns
    models: Patterns
    tasks: Patterns
    metrics: Annotated[tuple[Text | MetricGrant, ...], Meta(min_length=1, max_length=1000)]
    deny: Deny = Deny()
    registered_only: bool = False
    command: Literal["optional", "required"] = "optional"


class TokenRules(Struct, frozen=True, forbid_unknown_fields=True):
    """How long verify tokens live, and for which relying parties they may be; the first where a request names none."""

    audiences: Annotated[tuple[Text, ...], Meta(min_length=1)]
    ttl_s: Seconds = 3600


class Override(Struct, frozen=True, forbid_unknown_fields=True):
    """What a test changes of the one that it starts from; a null takes a member away."""

    identity: dict[str, Any] = {}
    run: dict[str, Any] = {}


_Count = Annotated[int, Meta(ge=0, le=1_000_000)]


class Counts(Struct, frozen=True, forbid_unknown_fields=True):
    """What the admission would have counted of one identity for one result, this one included.

    `attempts` different sets of metric values of its run key, of which `artifact` name the same evidence file (0 where
    no other does); `is_new` where its own set was not among them before. `twins`: another model repository has the same
    values. Then model owners and tokens of the day, and of the CI run.
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
    """What must follow from the counts of a test: from each rule that is crossed, and from no other one."""

    attempts: Then | UnsetType = UNSET
    artifact: Then | UnsetType = UNSET
    twins: Then | UnsetType = UNSET
    spread: Then | UnsetType = UNSET


class PolicyTest(Struct, frozen=True, forbid_unknown_fields=True):
    """A case that the policy must decide as `expect` says: `granted`, or the code of the refusal.

    `identity` are the claims of an identity token of `provider`; `run` is as much of the run claims as the case is
    about. `claims_from` names an earlier test of the file, whose provider, identity and run are taken and changed by
    `override`. `date` is that of the request; without it nothing has expired. From `counts`, where the run is granted,
    exactly `signals` must follow; where one of them is a quarantine, `expect` is `abuse.quarantined`.
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

    `staged` is judged and audited, never issued. `disclose` names whose expected values a refused caller may see.
    `public`: anyone may read what its callers must send.
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
    """One `eval.yaml` of the folder: the benchmark repository that it is of, its text, and the digest of that."""

    repo: str
    raw: bytes
    digest: str


class RegisteredBenchmarks(Struct, frozen=True):
    """The benchmarks that the operator registered: `at_commit` by repository and full commit, `at_any` by repository
    for every commit without its own file."""

    at_commit: Mapping[tuple[str, str], Benchmark] = {}
    at_any: Mapping[str, Benchmark] = {}

    def find(self, repo: str, revision: str) -> Benchmark | None:
        """Return the `eval.yaml` that counts for a repository as of a full commit, or None."""
        return self.at_commit.get((repo, revision)) or self.at_any.get(repo)
