"""What a registered identity may have signed. Pure: no clock, no network, no Redis.

Every rule is tried, in the order of policies/README.md; the first that failed names the code. What of a check a caller
may see is `issuer.policy.disclose`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Literal, NamedTuple

from msgspec import UNSET, Struct
from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from issuer.errors import Code
from issuer.policy.check import Check, listed, misnamed, shown
from issuer.policy.identity import check_identity, name_warnings
from issuer.policy.match import deny_matches, glob_matches
from issuer.policy.model import Caller, FrameworkGrant, Grants, MetricGrant, Party, Policy, Registered
from issuer.results.claims import Framework, Metric, RunClaims
from issuer.results.entry import Submission
from issuer.strict_yaml import number_text

_MetricGrants = tuple[str | MetricGrant, ...]
Checks = tuple[Check, ...]


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


def decide(
    party: Party, caller: Caller, submissions: tuple[Submission, ...], now: int, *, integration: str, audience: str
) -> Grant | Denial:
    """Judge a request of one registered identity against its policy at `now` (Unix seconds). Total and deterministic.

    `integration` and `audience` are what the request names, "" where it names none. `submissions` may be empty: then
    only the identity is judged.
    """
    policy, audiences = party.policy, party.policy.token.audiences
    checks = [
        _check_integration(integration, policy.integration),
        _check_mode(policy.mode),
        *check_identity(party, caller, now),
        _check_audience(audience, audiences),
    ]
    for submission in submissions:
        checks += check_run(policy.grants, party.registered, submission.claims, f"{submission.pointer}/claims")
    if policy.mode == "staged":  # last, so that it names the code only where everything else passed
        checks.append(Check(Code.INTEGRATION_STAGED, "", "mode", False, "the integration is staged"))
    if failed := [check for check in checks if not check.passed]:
        return Denial(failed[0].code, tuple(checks))
    warnings = tuple(name_warnings(party, caller))
    return Grant(policy.token.ttl_s, audience or audiences[0], warnings, tuple(checks))


# What a policy says of a name never changes, and one integration's runs name the same few frameworks, benchmarks and
# tasks again and again: a look-up costs a third of the judgement. Only of what the data contract keeps short.
_remembered = lru_cache(maxsize=4096)


def _check_integration(named: str, own: str) -> Check:
    passed = not named or named == own
    told = f"the request names {named if passed else misnamed(named)}" if named else "the request names no integration"
    return Check(Code.INTEGRATION_UNKNOWN, "/integration", "integration", passed, told,
                 "none, or the one of this identity")  # fmt: skip


@_remembered
def _check_mode(mode: str) -> Check:
    return Check(Code.INTEGRATION_SUSPENDED, "", "mode", mode != "suspended", f"the integration is {mode}")


def _check_audience(named: str, own: tuple[str, ...]) -> Check:
    passed = not named or named in own
    told = f"the request names {named if passed else misnamed(named)}" if named else "the request names no audience"
    return Check(Code.POLICY_AUDIENCE, "/audience", "token.audiences", passed, told,
                 "none, or one of the integration's")  # fmt: skip


def check_run(grants: Grants, registered: Registered, claims: RunClaims, at: str) -> list[Check]:
    """Judge one run by the grants, in the order of policies/README.md. `at` is where its claims stand in the body."""
    deny, framework = grants.deny, claims.framework
    return [
        *_check_framework(grants.frameworks, framework.name, framework.version, f"{at}/framework"),
        *([_check_command(framework, f"{at}/framework/command")] if grants.command == "required" else ()),
        *_check_familiar(
            _BENCHMARKS, f"{at}/benchmark_repo", claims.benchmark_repo, grants.benchmarks, deny.benchmarks
        ),
        *_check_name(_MODELS, f"{at}/model_repo", claims.model_repo, grants.models, deny.models),
        *_check_familiar(_TASKS, f"{at}/task_id", claims.task_id, grants.tasks, deny.tasks),
        *_check_metrics(grants.metrics, claims.metrics, f"{at}/metrics"),
        *(_check_registered(registered, claims, at) if grants.registered_only else ()),
    ]


@_remembered
def _check_framework(grants: tuple[FrameworkGrant, ...], name: str, version: str, place: str) -> Checks:
    ranges = [grant.versions or "" for grant in grants if grant.name == name]
    names = tuple(dict.fromkeys(grant.name for grant in grants))
    allowed = not ranges or any(version_allowed(versions, version) for versions in ranges)
    return (
        Check(Code.POLICY_FRAMEWORK, f"{place}/name", "grants.frameworks[].name", bool(ranges),
              f"the run names the framework {name}", listed("one of ", names), "frameworks"),
        Check(Code.POLICY_VERSION, f"{place}/version", "grants.frameworks[].versions", allowed,
              f"the run names version {version}", " or ".join(filter(None, ranges)), "frameworks"),
    )  # fmt: skip


def _check_command(framework: Framework, place: str) -> Check:
    sent = framework.command is not UNSET
    return Check(Code.POLICY_COMMAND, place, "grants.command", sent, f"the run has {'a' if sent else 'no'} command")


class _Names(NamedTuple):
    """How one of the lists of names is judged."""

    topic: Literal["benchmarks", "models", "tasks"]
    code: Code
    granted: str
    denied: str


_BENCHMARKS = _Names("benchmarks", Code.POLICY_BENCHMARK, "grants.benchmarks", "grants.deny.benchmarks")
_MODELS = _Names("models", Code.POLICY_MODEL, "grants.models", "grants.deny.models")
_TASKS = _Names("tasks", Code.POLICY_TASK, "grants.tasks", "grants.deny.tasks")


def _check_name(kind: _Names, pointer: str, actual: str, granted: tuple[str, ...], denied: tuple[str, ...]) -> Checks:
    said = f"the run names {actual}"
    passed = any([glob_matches(pattern, actual) for pattern in granted])  # noqa: C419 (a list is faster here)
    check = Check(kind.code, pointer, kind.granted, passed, said, listed("one of ", granted), kind.topic)
    if not denied:
        return (check,)
    # The Hub finds a repository in any case, so another case must not be a way around.
    passed = not any([deny_matches(pattern, actual) for pattern in denied])  # noqa: C419
    return (check, Check(kind.code, pointer, kind.denied, passed, said, listed("none of ", denied), kind.topic))


_check_familiar = _remembered(_check_name)


# A caller learns from the first few refused metrics what the others are refused for.
_MAX_TOLD = 16


def _check_metrics(grants: _MetricGrants, metrics: tuple[Metric, ...], at: str) -> Checks:
    wanted = _metrics_said(grants)
    refused = [index for index, metric in enumerate(metrics) if not metric_granted(grants, metric)]
    if refused:
        return tuple(
            Check(Code.POLICY_METRIC, f"{at}/{index}", "grants.metrics", False,
                  f"the run names {_metric_shown(grants, metrics[index])}", wanted, "metrics")
            for index in refused[:_MAX_TOLD]
        )  # fmt: skip
    said = shown(", ".join([metric.metric_id for metric in metrics]))
    return (Check(Code.POLICY_METRIC, at, "grants.metrics", True, f"the run names {said}", wanted, "metrics"),)


def _metric_shown(grants: _MetricGrants, metric: Metric) -> str:
    """Show a metric; its value only where that is what was read."""
    read = any(not isinstance(grant, str) and glob_matches(grant.id, metric.metric_id) for grant in grants)
    return f"{metric.metric_id} = {number_text(metric.value)}" if read else metric.metric_id


def metric_granted(grants: _MetricGrants, metric: Metric) -> bool:
    """Say whether any of the grants allows a metric's id and value; grants add up."""
    for grant in grants:
        if isinstance(grant, str):
            if glob_matches(grant, metric.metric_id):
                return True
        elif glob_matches(grant.id, metric.metric_id) and _in_range(grant, metric.value):
            return True
    return False


def _in_range(grant: MetricGrant, value: float) -> bool:
    return (grant.min is UNSET or grant.min <= value) and (grant.max is UNSET or value <= grant.max)


def unbounded(grant: str | MetricGrant) -> bool:
    """Say whether a metric grant allows every value of the metrics that it names."""
    return isinstance(grant, str) or (grant.min is UNSET and grant.max is UNSET)


def values_read(policy: Policy, metric_id: str) -> bool:
    """Say whether a rule reads this metric's value: an id that is granted in every value needs none."""
    named = [grant for grant in policy.grants.metrics if glob_matches(_id_of(grant), metric_id)]
    return bool(named) and not any(map(unbounded, named))


def _id_of(grant: str | MetricGrant) -> str:
    return grant if isinstance(grant, str) else grant.id


def _check_registered(registered: Registered, claims: RunClaims, at: str) -> Iterator[Check]:
    rule = "grants.registered_only"
    benchmark = registered.find(claims.benchmark_repo, claims.benchmark_revision)
    yield Check(Code.POLICY_BENCHMARK, f"{at}/benchmark_revision", rule, benchmark is not None,
                f"the run names {claims.benchmark_repo} at {claims.benchmark_revision}",
                "a benchmark that is registered with an eval.yaml as of that commit")  # fmt: skip
    if benchmark is None:
        return  # what it defines is not known, so nothing of it can be judged
    yield Check(Code.POLICY_TASK, f"{at}/task_id", rule, claims.task_id in benchmark.task_ids,
                f"the run names {claims.task_id}", "a task of the registered eval.yaml")  # fmt: skip
    foreign = [index for index, metric in enumerate(claims.metrics) if metric.metric_id not in benchmark.metric_ids]
    wanted = "a metric of the registered eval.yaml" + ("" if benchmark.metrics else ", which defines none")
    if not foreign:
        yield Check(Code.POLICY_METRIC, f"{at}/metrics", rule, True, "the run names metrics that it defines", wanted)
    for index in foreign[:_MAX_TOLD]:
        yield Check(Code.POLICY_METRIC, f"{at}/metrics/{index}", rule, False,
                    f"the run names {claims.metrics[index].metric_id}", wanted)  # fmt: skip


@_remembered
def _metrics_said(grants: _MetricGrants) -> str:
    return "one of " + ", ".join(map(_metric_said, grants))


def _metric_said(grant: str | MetricGrant) -> str:
    if isinstance(grant, str):
        return grant
    low = "" if grant.min is UNSET else f" from {number_text(grant.min)}"
    return f"{grant.id}{low}" + ("" if grant.max is UNSET else f" up to {number_text(grant.max)}")


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
