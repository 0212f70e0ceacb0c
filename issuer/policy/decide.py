"""The decision about a request, by every rule of the policy. Pure: no clock, no network, no Redis.

Rules are checked in the order of policies/REFERENCE.md, and the first failed check names the code of the refusal.
`issuer.policy.disclose` selects what the caller may see of the checks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec
from msgspec import UNSET, Struct

from issuer.codes import Code
from issuer.formats.strict_yaml import number_text
from issuer.identity.token import Caller
from issuer.policy.check import Check, Rule, show_name
from issuer.policy.compiled import BENCHMARKS, MODELS, TASKS, CompiledMetrics
from issuer.policy.match import PolicySet, resolve
from issuer.policy.model import RegisteredBenchmarks
from issuer.policy.registration import Registration, check_identity, warn_of_names
from issuer.results.claims import Metric, RunClaims

# The pointer to a run's claims in the request body, and the claims.
Run = tuple[str, RunClaims]


class Grant(Struct, frozen=True):
    """A permission to sign: for `ttl_s` seconds, for the relying party `audience`. `warnings` are for the caller."""

    ttl_s: int
    audience: str
    warnings: tuple[str, ...]
    checks: tuple[Check, ...]


class Denial(Struct, frozen=True):
    """A refusal; `code` is the code of the first failed check."""

    code: Code
    checks: tuple[Check, ...]

    @classmethod
    def of(cls, checks: Iterable[Check]) -> Denial | None:
        """Return a denial if a check failed, else None."""
        checks = tuple(checks)
        return next((cls(check.code, checks) for check in checks if not check.passed), None)


def check_caller(registration: Registration, caller: Caller, now: int) -> tuple[Check, ...]:
    """Check the mode of a caller's integration, then the caller's identity, at `now` (Unix seconds).

    A caller that fails here has the pins of the identity but only resembles it, unless the integration is suspended.
    """
    mode = registration.policy.mode
    return Check(_NOT_SUSPENDED, mode != "suspended", (mode,)), *check_identity(registration, caller, now)


def decide(
    registration: Registration,
    caller: Caller,
    runs: Iterable[Run],
    now: int,
    *,
    integration: str = "",
    audience: str = "",
) -> Grant | Denial:
    """Judge a request of one registered identity against its policy at `now` (Unix seconds). Total and deterministic.

    `integration` and `audience` are "" if the request names none. Without `runs`, only the identity is judged.
    """
    of_caller = check_caller(registration, caller, now)
    return decide_request(registration, caller, of_caller, runs, integration=integration, audience=audience)


def decide_request(
    registration: Registration,
    caller: Caller,
    of_caller: tuple[Check, ...],
    runs: Iterable[Run],
    *,
    integration: str = "",
    audience: str = "",
) -> Grant | Denial:
    """Judge the rest of a request; `of_caller` is the result of `check_caller`."""
    policy, audiences = registration.policy, registration.policy.token.audiences
    mode, *of_identity = of_caller
    checks = [
        mode,
        _check_named(_INTEGRATION, integration, (policy.integration,), "/integration"),
        *of_identity,
        _check_named(_AUDIENCE, audience, audiences, "/audience"),
    ]
    for pointer, claims in runs:
        checks += check_run(registration, claims, pointer)
    if policy.mode == "staged":  # last: it names the code only if every other check passed
        checks.append(_STAGED)
    if denial := Denial.of(checks):
        return denial
    warnings = tuple(warn_of_names(registration, caller))
    return Grant(policy.token.ttl_s, audience or audiences[0], warnings, tuple(checks))


_INTEGRATION = Rule(Code.INTEGRATION_UNKNOWN, "integration", "the request's integration is {}",
                    "none, or the integration of this identity")  # fmt: skip
_AUDIENCE = Rule(Code.POLICY_AUDIENCE, "token.audiences", "the request's audience is {}",
                 "none, or one of the integration's audiences")  # fmt: skip
_NOT_SUSPENDED = Rule(Code.INTEGRATION_SUSPENDED, "mode", "the integration is {}")
_STAGED = Check(Rule(Code.INTEGRATION_STAGED, "mode", "the integration is staged"), False)
_COMMAND = Rule(Code.POLICY_COMMAND, "grants.command", "the run's command is {}")
_DEFINITION = Rule(Code.POLICY_DEFINITION, "grants.definitions", "the run names {} at {}", "one of ", "benchmarks")


def _check_named(rule: Rule, named: str, own: tuple[str, ...], pointer: str) -> Check:
    if not named:
        return Check(rule, True, (None,), pointer)
    return Check(rule, True, (named,), pointer) if named in own else Check(rule, False, (show_name(named),), pointer)


def check_run(registration: Registration, claims: RunClaims, at: str) -> list[Check]:
    """Check one run against the grants, in the order of policies/REFERENCE.md. `at` is the pointer to its claims."""
    compiled, grants, framework = registration.grants, registration.policy.grants, claims.framework
    deny = grants.deny
    checks = [*compiled.frameworks.check(framework.name, framework.version, f"{at}/framework")]
    if grants.command == "required":
        sent = framework.command is not UNSET
        checks.append(Check(_COMMAND, sent, ("present" if sent else None,), f"{at}/framework/command"))
    checks += BENCHMARKS.check(grants.benchmarks, deny.benchmarks, claims.benchmark_repo, f"{at}/benchmark_repo")
    if listed := compiled.definitions.listed(claims.benchmark_repo):
        named = claims.benchmark_repo, claims.benchmark_revision
        checks.append(Check(_DEFINITION, named[1] in listed, named, f"{at}/benchmark_revision", listed))
    checks += MODELS.check(grants.models, deny.models, claims.model_repo, f"{at}/model_repo")
    checks += TASKS.check(grants.tasks, deny.tasks, claims.task_id, f"{at}/task_id")
    checks += _check_metrics(compiled.metrics, claims.metrics, f"{at}/metrics")
    if grants.registered_only:
        checks += _check_registered(registration.benchmarks, claims, at)
    return checks


# A refusal shows at most this many refused metrics.
_MAX_SHOWN = 16


def _check_metrics(granted: CompiledMetrics, metrics: tuple[Metric, ...], at: str) -> list[Check]:
    refused = [index for index, metric in enumerate(metrics) if not granted.allows(metric.metric_id, metric.value)]
    if not refused:
        return [Check(granted.rule, True, (", ".join([metric.metric_id for metric in metrics]),), at)]
    checks = []
    for index in refused[:_MAX_SHOWN]:
        name, value = metrics[index].metric_id, metrics[index].value
        shown = f"{name} = {number_text(value)}" if granted.has_range(name) else name
        checks.append(Check(granted.rule, False, (shown,), f"{at}/{index}"))
    return checks


_REGISTERED_AT = "grants.registered_only"
_BENCHMARK = Rule(Code.POLICY_BENCHMARK, _REGISTERED_AT, "the run names {} at {}",
                  "a benchmark that is registered with an eval.yaml as of that commit")  # fmt: skip
_TASK = Rule(Code.POLICY_TASK, _REGISTERED_AT, "the run names {}", "a task of the registered eval.yaml")
_METRIC = Rule(Code.POLICY_METRIC, _REGISTERED_AT, "the run names {}", "a metric of the registered eval.yaml")
_NO_METRIC = msgspec.structs.replace(_METRIC, expected=f"{_METRIC.expected}, which defines none")


def _check_registered(benchmarks: RegisteredBenchmarks, claims: RunClaims, at: str) -> Iterator[Check]:
    benchmark = benchmarks.find(claims.benchmark_repo, claims.benchmark_revision)
    names = (claims.benchmark_repo, claims.benchmark_revision)
    yield Check(_BENCHMARK, benchmark is not None, names, f"{at}/benchmark_revision")
    if benchmark is None:
        return  # its tasks and metrics are unknown
    yield Check(_TASK, claims.task_id in benchmark.task_ids, (claims.task_id,), f"{at}/task_id")
    foreign = [index for index, metric in enumerate(claims.metrics) if metric.metric_id not in benchmark.metric_ids]
    rule = _METRIC if benchmark.metrics else _NO_METRIC
    if not foreign:
        yield Check(rule, True, ("metrics that it defines",), f"{at}/metrics")
    for index in foreign[:_MAX_SHOWN]:
        yield Check(rule, False, (claims.metrics[index].metric_id,), f"{at}/metrics/{index}")


# -- evaluate ----------------------------------------------------------------------------------------------------------

# `resolve` and `decide` in one step, for policy tests and `issuer policy explain`, which have the whole request. The
# service takes two steps (`issuer.issuance`), because it does not read the body of an unregistered caller.


class Evaluation(Struct, frozen=True):
    """The caller's registration, and the decision of its policy."""

    registration: Registration
    decision: Grant | Denial


def evaluate(
    policies: PolicySet, caller: Caller, runs: Iterable[Run], now: int, *, integration: str = "", audience: str = ""
) -> Evaluation:
    """Resolve the caller and judge its request at `now` (Unix seconds). Raises Refused for an unregistered caller."""
    registration = resolve(policies, caller)
    return Evaluation(registration, decide(registration, caller, runs, now, integration=integration, audience=audience))
