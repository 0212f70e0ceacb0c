"""What recorded decisions would change under other policies. Pure: lines of an audit file in, a summary out.

Each decision is judged again, under the old policies and under the new ones, by the functions that judge requests, at
the time of the decision. The audit holds what the decision read and no more: where a rule reads something else (a
claim that was not recorded, a metric's value, whether there was a command) and no other rule refuses, the answer is
"cannot tell". So it is with the rules of `abuse`, which are judged by what the admission counted then. Memory does not
grow with the file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal

import msgspec
from msgspec import UNSET, Struct
from msgspec.structs import replace

from issuer.audit.events import CallerRead, Decision, MetricRead, Named, ResultRead
from issuer.codes import Code
from issuer.errors import Refused
from issuer.formats.strict_json import JSON
from issuer.identity.profiles import Profile, derive
from issuer.identity.table import Provider
from issuer.identity.token import Caller
from issuer.limits.abuse import Abuse, Signal, judge
from issuer.policy.authoring.signals import EXAMPLES, SignalGroup, Signals, compare_signals, counts_otherwise
from issuer.policy.check import Check
from issuer.policy.decide import Run, decide
from issuer.policy.match import PolicySet, resolve
from issuer.policy.registration import Registration, names_commit
from issuer.policy.requirement import Requirement, is_met
from issuer.results.claims import Framework, Metric, RunClaims

# -- what the audit holds ---------------------------------------------------------------------------------------------


class _AnyEvent(Struct, frozen=True):
    event: str


_DECISIONS = msgspec.json.Decoder(Decision)
_EVENTS = msgspec.json.Decoder(_AnyEvent)


def read_decision(line: bytes) -> Decision | None:
    """Read one line of an audit file; None for an event of another kind. Raises ValueError for any other line."""
    try:
        if _EVENTS.decode(line).event != "decision":
            return None
        return _DECISIONS.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise ValueError("not an event, or half of one") from None


# -- judging again ----------------------------------------------------------------------------------------------------


Kind = Literal["granted", "refused", "untold"]


class Verdict(Struct, frozen=True):
    """What policies say of a recorded decision. `code` and `rule` are those of a refusal; `missing` is what the audit
    does not hold and the answer depends on. `abuse` are the rules for what was counted of it, None where that is not
    judged."""

    kind: Kind
    integration: str = ""
    code: str = ""
    rule: str = ""
    detail: str = ""
    missing: tuple[str, ...] = ()
    abuse: Abuse | None = None

    def signals(self, decision: Decision) -> tuple[Signal, ...]:
        """Return what these policies say of what was counted for the decision."""
        return () if self.abuse is None or decision.counted is UNSET else judge(self.abuse, decision.counted)


class _Held(Struct, frozen=True):
    """What the audit holds of a caller: its claims, and the names of those that were absent."""

    claims: Mapping[str, JSON]
    absent: frozenset[str]

    @classmethod
    def of(cls, recorded: CallerRead, profile: Profile) -> _Held:
        claims, absent = recorded.claims, frozenset(recorded.absent)
        # A claim derived from a recorded one is known, even if the old policies did not read it.
        known = {name for name, how in profile.derived.items() if how.path[0] in absent.union(claims)}
        return cls({**derive(profile, claims), **claims}, absent | known)

    def missing(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return those of these claims that the audit neither holds nor says to have been absent."""
        return tuple(name for name in names if name not in self.claims and name not in self.absent)

    def allows(self, registration: Registration) -> bool:
        """Say whether the caller may be this identity: no claim that is known speaks against it."""
        rules = _rules_of(registration)
        return all(is_met(self.claims, name, rule) for name, rule in rules.items() if not self.missing((name,)))


class _Identified(Struct, frozen=True):
    """The registered identity that a recorded caller is, for certain."""

    registration: Registration
    caller: Caller
    held: _Held


def judge_again(policies: PolicySet, decision: Decision) -> Verdict:
    """Say what these policies say of a recorded decision, at the time that it was made."""
    return _conclude(_identify(policies, decision), decision)


def _conclude(found: _Identified | Verdict, decision: Decision) -> Verdict:
    return found if isinstance(found, Verdict) else _decide(found, decision)


def _identify(policies: PolicySet, decision: Decision) -> _Identified | Verdict:
    provider = _provider_of(policies, decision.caller)
    if provider is None:
        return Verdict("refused", "", Code.IDENTITY_ISSUER_UNKNOWN, "providers", "the issuer is no provider")
    held = _Held.of(decision.caller, provider.rules)
    if missing := held.missing(provider.rules.pins[:1]):
        return _cannot_tell(missing)
    caller = Caller.suppose(provider, held.claims, decision.time)
    possible = [registration for registration in _candidates(policies, decision) if held.allows(registration)]
    missing = held.missing(dict.fromkeys(name for registration in possible for name in _rules_of(registration)))
    try:
        registration = resolve(policies, caller)
    except Refused as refusal:
        if missing:
            return _cannot_tell(missing)
        return Verdict("refused", "", refusal.code, "identities", refusal.detail)
    if any(other is not registration for other in possible):
        return _cannot_tell(missing, registration.policy.integration)
    return _Identified(registration, caller, held)


def _cannot_tell(names: tuple[str, ...], integration: str = "") -> Verdict:
    return Verdict("untold", integration, missing=tuple(f"the claim {name}" for name in names))


def _rules_of(registration: Registration) -> dict[str, Requirement]:
    return {**registration.identity.pins, **registration.identity.require}


def _provider_of(policies: PolicySet, recorded: CallerRead) -> Provider | None:
    """Find a caller's provider by its issuer; that of this service's own tokens by its id, because who reads the
    policies may not know the service's URL."""
    own = (provider for provider in policies.providers.values() if provider.rules.kind == "pat")
    return policies.providers.get(recorded.issuer) or next((it for it in own if it.id == recorded.provider), None)


def _decide(found: _Identified, decision: Decision) -> Verdict:
    """Judge by what is held. A refusal by a rule whose input is held counts, whatever the other rules would say."""
    registration, held, named = found.registration, found.held, decision.named or Named()
    integration = registration.policy.integration
    runs, missing_of_runs = _runs(registration, decision)
    verdict = decide(
        registration, found.caller, runs, decision.time, integration=named.integration, audience=named.audience
    )
    for check in verdict.checks:
        if not check.passed and not held.missing(check.of.reads):
            return Verdict("refused", integration, check.code, check.rule, check.actual)
    names = held.missing(dict.fromkeys(_reads(registration, verdict.checks)))
    missing = *(f"the claim {name}" for name in names), *missing_of_runs
    if missing:
        return Verdict("untold", integration, missing=missing)
    return _admit(Verdict("granted", integration, abuse=registration.policy.abuse), decision)


def _admit(granted: Verdict, decision: Decision) -> Verdict:
    """Refuse what was counted into a quarantine; a repeat was counted the first time."""
    if decision.verdict == "repeated":
        return replace(granted, abuse=None)
    for signal in granted.signals(decision):
        if signal.then == "quarantine":
            detail = f"counted {signal.count}, and {signal.limit} is the limit"
            return replace(granted, kind="refused", code=Code.ABUSE_QUARANTINED, rule=signal.rule, detail=detail)
    return granted


def _doubt_counts(before: Verdict, after: Verdict) -> Verdict:
    """Tell nothing of a quarantine by a rule that counts otherwise than the one by which was counted."""
    if after.code != Code.ABUSE_QUARANTINED or before.abuse is None or after.abuse is None:
        return after
    _, name, _ = after.rule.split(".")
    member = counts_otherwise(name, before.abuse, after.abuse)  # type: ignore[arg-type]
    return replace(after, kind="untold", code="", missing=(f"what another {member} counts",)) if member else after


def _reads(registration: Registration, checks: Iterable[Check]) -> Iterator[str]:
    """Yield the claims that the answer depends on; one of them says whether there is borrowed code to be checked."""
    for check in checks:
        yield from check.of.reads
    foreign = registration.provider.rules.foreign
    if foreign is not None and not names_commit(registration.identity, foreign.commit):
        yield foreign.claims[0]


def _runs(registration: Registration, decision: Decision) -> tuple[tuple[Run, ...], tuple[str, ...]]:
    """Return the recorded runs, and what of them is missing: metrics whose value a rule reads and the audit does not
    hold are left out."""
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
        metrics=tuple(_metric(metric) for metric in known),
        framework=Framework(result.framework.name, result.framework.version, "-" if has_command else UNSET),
    )
    return claims, missing


def _metric(recorded: MetricRead) -> Metric:
    return Metric(recorded.metric_id, 0.0 if recorded.value is UNSET else recorded.value, slice=recorded.slice)


# -- what would change ------------------------------------------------------------------------------------------------


class Example(Struct, frozen=True):
    """One decision of a group; `time` is Unix seconds."""

    request_id: str
    time: int
    rule: str
    detail: str


class Group(Struct, kw_only=True):
    """Decisions of one integration that would become `kind` for one reason, `why`: the code of the refusal that comes
    or goes, or what the audit does not hold. The first few are examples."""

    kind: Kind
    integration: str
    why: str
    count: int = 0
    examples: list[Example] = []


class Plan(Struct):
    """How many decisions were read, how many would stay as they are, and those that would not, in groups.

    `not_decided` are refusals not made by a policy: a limit, a replay, a body that could not be read. `otherwise` are
    decisions that the old policies do not explain, because they were made under others. `torn` are lines that do not
    hold a whole event. `signals` are the decisions that would signal otherwise, whatever becomes of them.
    """

    decisions: int = 0
    unchanged: int = 0
    refused: int = 0
    granted: int = 0
    untold: int = 0
    not_decided: int = 0
    otherwise: int = 0
    torn: int = 0
    groups: list[Group] = []
    signals: list[SignalGroup] = []


def make_plan(old: PolicySet, new: PolicySet, lines: Iterable[bytes]) -> Plan:
    """Compare what two sets of policies say of every decision in the lines of an audit file."""
    plan, comparison = Plan(), _Comparison(old, new)
    groups = _Groups()
    for line in lines:
        try:
            decision = read_decision(line) if line.strip() else None
        except ValueError:
            plan.torn += 1
            continue
        if decision is not None:
            _count(plan, groups, comparison, decision)
    plan.groups = sorted(
        groups.verdicts.values(), key=lambda group: (group.kind, group.integration, -group.count, group.why)
    )
    plan.signals = sorted(groups.signals.values(), key=lambda group: (group.integration, group.signal, -group.count))
    return plan


class _Comparison:
    """Two sets of policies, whose rules for one identity are the same where the digests are."""

    def __init__(self, old: PolicySet, new: PolicySet) -> None:
        self.old, self.new = old, new

    def judge(self, decision: Decision) -> tuple[Verdict, Verdict | None]:
        """Return the verdicts of the old and of the new policies, the second None where the rules are the same."""
        before, after = _identify(self.old, decision), _identify(self.new, decision)
        same = self._same_candidates(decision)
        if not isinstance(before, Verdict) and not isinstance(after, Verdict):
            same = same or _same([before.registration], [after.registration])
        was = _conclude(before, decision)
        return was, None if same else _doubt_counts(was, _conclude(after, decision))

    def _same_candidates(self, decision: Decision) -> bool:
        """Say whether both have the same rules for every identity that this caller may be."""
        before, after = _candidates(self.old, decision), _candidates(self.new, decision)
        return bool(before) and _same(before, after)


def _same(ones: Sequence[Registration], others: Sequence[Registration]) -> bool:
    return [_key_of(one) for one in ones] == [_key_of(other) for other in others]


def _candidates(policies: PolicySet, decision: Decision) -> tuple[Registration, ...]:
    """Return the identities that share the caller's first pin: it is one of these or unregistered."""
    provider = _provider_of(policies, decision.caller)
    pin = decision.caller.claims.get(provider.rules.pins[0]) if provider else None
    return policies.registrations.get((provider.id, pin), ()) if provider and isinstance(pin, str) else ()


def _key_of(registration: Registration) -> tuple[str, str]:
    return registration.digest, registration.identity.id


class _Groups(Struct):
    """What is grouped so far, by what makes a group."""

    verdicts: dict[tuple[Kind, str, str], Group] = {}
    signals: Signals = {}


def _count(plan: Plan, groups: _Groups, comparison: _Comparison, decision: Decision) -> None:
    plan.decisions += 1
    if not _is_by_policy(decision):
        plan.not_decided += 1
        return
    recorded = "refused" if decision.verdict == "refused" else "granted"
    before, after = comparison.judge(decision)
    if after is not None and before.abuse is not None and after.abuse is not None:
        compare_signals(groups.signals, after.integration, before.abuse, after.abuse, decision)
    plan.otherwise += before.kind not in {recorded, "untold"}
    was = recorded if before.kind == "untold" else before.kind
    if after is None or after.kind == was:
        plan.unchanged += 1
        return
    setattr(plan, after.kind, getattr(plan, after.kind) + 1)
    _group(groups.verdicts, decision, before, after)


def _group(groups: dict[tuple[Kind, str, str], Group], decision: Decision, before: Verdict, after: Verdict) -> None:
    telling = before if after.kind == "granted" else after
    why = ", ".join(after.missing) or telling.code or decision.code or ""
    integration = after.integration or before.integration
    group = groups.setdefault((after.kind, integration, why), Group(kind=after.kind, integration=integration, why=why))
    group.count += 1
    if len(group.examples) < EXAMPLES:
        group.examples.append(Example(decision.request_id, decision.time, telling.rule, telling.detail))


def _is_by_policy(decision: Decision) -> bool:
    """Say whether a policy made this decision: a grant, or a refusal by one of its rules. A quarantine is that where it
    begins, by what was counted."""
    code = Code.named(decision.code or "")
    begins = code is not Code.ABUSE_QUARANTINED or decision.counted is not UNSET
    decided = code is not None and code.meaning.status == 403 and begins
    return decision.verdict != "refused" or decided
