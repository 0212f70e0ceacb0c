"""The effect of new policies on recorded decisions. Pure: lines of an audit file in, a summary out.

The functions that judge requests judge each decision again, under the old and the new policies, at the time of the
decision. The audit has only what the decision read. If a rule reads something else (a claim that was not recorded, a
metric's value, whether there was a command) and no other rule refuses, the answer is "cannot tell". The rules of
`abuse` are judged by the counts that the admission had then. Memory does not grow with the file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal

import msgspec
from msgspec import UNSET, Struct
from msgspec.structs import replace

from issuer.audit.events import CallerRead, Decision, Named, ResultRead
from issuer.codes import Code
from issuer.errors import Refused
from issuer.formats.strict_json import JSON
from issuer.identity.profiles import Profile, derive
from issuer.identity.table import Provider
from issuer.identity.token import Caller
from issuer.limits.abuse import Abuse, judge
from issuer.policy.authoring.signals import EXAMPLES, SignalGroup, Signals, compare_signals, counts_otherwise
from issuer.policy.check import Check
from issuer.policy.decide import Run, decide
from issuer.policy.match import PolicySet, resolve
from issuer.policy.model import Requirement, is_met
from issuer.policy.registration import Registration, names_commit
from issuer.results.claims import Framework, Metric, RunClaims

# -- the lines of the audit --------------------------------------------------------------------------------------------


class _AnyEvent(Struct, frozen=True):
    event: str


_DECISIONS = msgspec.json.Decoder(Decision)
_EVENTS = msgspec.json.Decoder(_AnyEvent)


def read_decision(line: bytes) -> Decision | None:
    """Return the decision of an audit file's line, None for another event. Raises ValueError for any other line."""
    try:
        if _EVENTS.decode(line).event != "decision":
            return None
        return _DECISIONS.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise ValueError("not a whole event") from None


# -- judging again ----------------------------------------------------------------------------------------------------


Kind = Literal["granted", "refused", "untold"]


class Verdict(Struct, frozen=True):
    """The decision of policies about a recorded request.

    `code` and `rule` are those of a refusal. `missing` lists what the answer depends on and the audit lacks. `abuse`
    has the rules for the recorded counts, None if these are not judged.
    """

    kind: Kind
    integration: str = ""
    code: str = ""
    rule: str = ""
    detail: str = ""
    missing: tuple[str, ...] = ()
    abuse: Abuse | None = None


class _Recorded(Struct, frozen=True):
    """A caller's claims in the audit, and the names of claims that were absent."""

    claims: Mapping[str, JSON]
    absent: frozenset[str]

    @classmethod
    def of(cls, recorded: CallerRead, profile: Profile) -> _Recorded:
        claims, absent = recorded.claims, frozenset(recorded.absent)
        # A claim derived from a recorded one is known, even if the old policies did not read it.
        known = {name for name, how in profile.derived.items() if how.path[0] in absent.union(claims)}
        return cls({**derive(profile, claims), **claims}, absent | known)

    def missing(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return the claims of `names` that the audit neither has nor lists as absent."""
        return tuple(name for name in names if name not in self.claims and name not in self.absent)

    def allows(self, registration: Registration) -> bool:
        """Return whether the caller may be this identity: all known claims meet its rules."""
        rules = _rules_of(registration)
        return all(is_met(self.claims, name, rule) for name, rule in rules.items() if not self.missing((name,)))


class _Identified(Struct, frozen=True):
    """The registered identity of a recorded caller, if it is certain."""

    registration: Registration
    caller: Caller
    recorded: _Recorded


def judge_again(policies: PolicySet, decision: Decision) -> Verdict:
    """Return the decision of these policies about a recorded request, at its time."""
    return _decide(_identify(policies, decision), decision)


def _identify(policies: PolicySet, decision: Decision) -> _Identified | Verdict:
    provider = _provider_of(policies, decision.caller)
    if provider is None:
        return Verdict("refused", "", Code.IDENTITY_ISSUER_UNKNOWN, "providers", "the issuer is not in providers.yaml")
    recorded = _Recorded.of(decision.caller, provider.rules)
    if missing := recorded.missing(provider.rules.pins[:1]):
        return _cannot_tell(missing)
    caller = Caller.suppose(provider, recorded.claims, decision.time)
    possible = [registration for registration in _candidates(policies, decision) if recorded.allows(registration)]
    missing = recorded.missing(dict.fromkeys(name for registration in possible for name in _rules_of(registration)))
    try:
        registration = resolve(policies, caller)
    except Refused as refusal:
        if missing:
            return _cannot_tell(missing)
        return Verdict("refused", "", refusal.code, "identities", refusal.detail)
    if any(other is not registration for other in possible):
        return _cannot_tell(missing, registration.policy.integration)
    return _Identified(registration, caller, recorded)


def _cannot_tell(names: tuple[str, ...], integration: str = "") -> Verdict:
    return Verdict("untold", integration, missing=tuple(f"the claim {name}" for name in names))


def _rules_of(registration: Registration) -> dict[str, Requirement]:
    return {**registration.identity.pins, **registration.identity.require}


def _provider_of(policies: PolicySet, recorded: CallerRead) -> Provider | None:
    """Find a caller's provider by its issuer. The provider of this service's own tokens is found by its id, because a
    reader of the policies may not know the service's URL."""
    own = (provider for provider in policies.providers.values() if provider.rules.kind == "pat")
    return policies.providers.get(recorded.issuer) or next((it for it in own if it.id == recorded.provider), None)


def _decide(identified: _Identified | Verdict, decision: Decision) -> Verdict:
    """Judge by the recorded inputs. A refusal by a rule with recorded inputs counts, whatever other rules would say."""
    if isinstance(identified, Verdict):
        return identified
    registration, recorded, named = identified.registration, identified.recorded, decision.named or Named()
    integration = registration.policy.integration
    runs, missing_of_runs = _runs(registration, decision)
    verdict = decide(
        registration, identified.caller, runs, decision.time, integration=named.integration, audience=named.audience
    )
    for check in verdict.checks:
        if not check.passed and not recorded.missing(check.of.reads):
            return Verdict("refused", integration, check.code, check.rule, check.actual)
    names = recorded.missing(dict.fromkeys(_reads(registration, verdict.checks)))
    missing = *(f"the claim {name}" for name in names), *missing_of_runs
    if missing:
        return Verdict("untold", integration, missing=missing)
    return _admit(integration, registration.policy.abuse, decision)


def _admit(integration: str, abuse: Abuse, decision: Decision) -> Verdict:
    """Refuse a granted request if its counts cause a quarantine. A repeat was counted the first time."""
    granted = Verdict("granted", integration, abuse=None if decision.verdict == "repeated" else abuse)
    for signal in () if granted.abuse is None or decision.counted is UNSET else judge(abuse, decision.counted):
        if signal.then == "quarantine":
            detail = f"counted {signal.count}, the limit is {signal.limit}"
            return replace(granted, kind="refused", code=Code.ABUSE_QUARANTINED, rule=signal.rule, detail=detail)
    return granted


def _check_counts(before: Verdict, after: Verdict) -> Verdict:
    """Return "cannot tell" for a quarantine by a rule that counts differently than the rule in force at the time."""
    if after.code != Code.ABUSE_QUARANTINED or before.abuse is None or after.abuse is None:
        return after
    _, name, _ = after.rule.split(".")
    member = counts_otherwise(name, before.abuse, after.abuse)  # type: ignore[arg-type]
    return replace(after, kind="untold", code="", missing=(f"the count under another {member}",)) if member else after


def _reads(registration: Registration, checks: Iterable[Check]) -> Iterator[str]:
    """Yield the claims that the answer depends on, with the claim that shows a workflow of another repository."""
    for check in checks:
        yield from check.of.reads
    foreign = registration.provider.rules.foreign
    if foreign is not None and not names_commit(registration.identity, foreign.commit):
        yield foreign.claims[0]


def _runs(registration: Registration, decision: Decision) -> tuple[tuple[Run, ...], tuple[str, ...]]:
    """Return the recorded runs, and what the audit lacks of them. A metric is left out if a rule reads its value and
    the audit lacks it."""
    if decision.results is UNSET:
        return (), ("the run",)
    read = [_run(registration, result) for result in decision.results]
    missing = dict.fromkeys(name for _, names in read for name in names)
    return tuple(("/claims", claims) for claims, _ in read), tuple(missing)


def _run(registration: Registration, result: ResultRead) -> tuple[RunClaims, list[str]]:
    reads_value = registration.grants.metrics.reads_value
    known = [metric for metric in result.metrics if metric.value is not UNSET or not reads_value(metric.metric_id)]
    missing = [f"the value of {metric.metric_id}" for metric in result.metrics if metric not in known]
    if registration.policy.grants.command == "required" and result.has_command is UNSET:
        missing.append("the command")
    has_command = result.has_command is UNSET or result.has_command
    claims = RunClaims(
        model_repo=result.model_repo,
        model_revision=result.model_revision,
        benchmark_repo=result.benchmark_repo,
        benchmark_revision=result.benchmark_revision,
        task_id=result.task_id,
        metrics=tuple(
            Metric(metric.metric_id, 0.0 if metric.value is UNSET else metric.value, slice=metric.slice)
            for metric in known
        ),
        framework=Framework(result.framework.name, result.framework.version, "-" if has_command else UNSET),
    )
    return claims, missing


# -- groups of changes -------------------------------------------------------------------------------------------------


class Example(Struct, frozen=True):
    """One decision of a group; `time` is Unix seconds."""

    request_id: str
    time: int
    rule: str
    detail: str


class DecisionGroup(Struct, kw_only=True):
    """Decisions of one integration that would become `kind` for the same reason.

    `why` is the code of the refusal that is added or removed, or what the audit lacks. The first few are examples.
    """

    kind: Kind
    integration: str
    why: str
    count: int = 0
    examples: list[Example] = []


class Plan(Struct):
    """The numbers of decisions that would change and that would not, and the changed ones in groups.

    `not_decided` are refusals that no policy made: a limit, a replay, a body that could not be read. `otherwise` are
    decisions that the old policies do not explain, because they were made under others. `torn` are lines without a
    whole event. `signals` are groups of decisions whose signals would change, even if the decision would not.
    """

    decisions: int = 0
    unchanged: int = 0
    refused: int = 0
    granted: int = 0
    untold: int = 0
    not_decided: int = 0
    otherwise: int = 0
    torn: int = 0
    groups: list[DecisionGroup] = []
    signals: list[SignalGroup] = []


def make_plan(old: PolicySet, new: PolicySet, lines: Iterable[bytes]) -> Plan:
    """Compare the decisions of two sets of policies about every request in the lines of an audit file."""
    plan, comparison = Plan(), _Comparison(old, new)
    for line in lines:
        try:
            decision = read_decision(line) if line.strip() else None
        except ValueError:
            plan.torn += 1
            continue
        if decision is not None:
            _count(plan, comparison, decision)
    groups, signals = comparison.groups.values(), comparison.signals.values()
    plan.groups = sorted(groups, key=lambda group: (group.kind, group.integration, -group.count, group.why))
    plan.signals = sorted(signals, key=lambda group: (group.integration, group.signal, -group.count))
    return plan


class _Comparison(Struct):
    """Two sets of policies, and the groups of decisions that differ. Rules with equal digests are the same rules."""

    old: PolicySet
    new: PolicySet
    groups: dict[tuple[Kind, str, str], DecisionGroup] = {}
    signals: Signals = {}

    def judge(self, decision: Decision) -> tuple[Verdict, Verdict | None]:
        """Return the verdicts of the old and the new policies; the second is None if the rules are the same."""
        before, after = _identify(self.old, decision), _identify(self.new, decision)
        candidates = _candidates(self.old, decision)
        same = bool(candidates) and _same(candidates, _candidates(self.new, decision))
        if not isinstance(before, Verdict) and not isinstance(after, Verdict):
            same = same or _same([before.registration], [after.registration])
        was = _decide(before, decision)
        return was, None if same else _check_counts(was, _decide(after, decision))


def _same(ones: Sequence[Registration], others: Sequence[Registration]) -> bool:
    return [(one.digest, one.identity.id) for one in ones] == [(one.digest, one.identity.id) for one in others]


def _candidates(policies: PolicySet, decision: Decision) -> tuple[Registration, ...]:
    """Return the identities that share the caller's first pin: it is one of these or unregistered."""
    provider = _provider_of(policies, decision.caller)
    pin = decision.caller.claims.get(provider.rules.pins[0]) if provider else None
    return policies.registrations.get((provider.id, pin), ()) if provider and isinstance(pin, str) else ()


def _count(plan: Plan, comparison: _Comparison, decision: Decision) -> None:
    plan.decisions += 1
    if not _is_by_policy(decision):
        plan.not_decided += 1
        return
    recorded = "refused" if decision.verdict == "refused" else "granted"
    before, after = comparison.judge(decision)
    if after is not None and before.abuse is not None and after.abuse is not None:
        compare_signals(comparison.signals, after.integration, before.abuse, after.abuse, decision)
    plan.otherwise += before.kind not in {recorded, "untold"}
    was = recorded if before.kind == "untold" else before.kind
    if after is None or after.kind == was:
        plan.unchanged += 1
        return
    setattr(plan, after.kind, getattr(plan, after.kind) + 1)
    _group(comparison.groups, decision, before, after)


def _group(
    groups: dict[tuple[Kind, str, str], DecisionGroup], decision: Decision, before: Verdict, after: Verdict
) -> None:
    telling = before if after.kind == "granted" else after
    why = ", ".join(after.missing) or telling.code or decision.code or ""
    integration = after.integration or before.integration
    group = groups.setdefault(
        (after.kind, integration, why), DecisionGroup(kind=after.kind, integration=integration, why=why)
    )
    group.count += 1
    if len(group.examples) < EXAMPLES:
        group.examples.append(Example(decision.request_id, decision.time, telling.rule, telling.detail))


def _is_by_policy(decision: Decision) -> bool:
    """Return whether a policy made this decision: a grant, a refusal, or a quarantine by its counts."""
    code = Code.named(decision.code or "")
    if decision.verdict != "refused" or code is None:
        return decision.verdict != "refused"
    return code.meaning.status == 403 and (code is not Code.ABUSE_QUARANTINED or decision.counted is not UNSET)
