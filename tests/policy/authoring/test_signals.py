"""Recorded decisions that would have other signals: the audit has the counts, which both rules judge."""

from pathlib import Path

import msgspec
from msgspec.structs import replace

from issuer.audit.events import Decision
from issuer.cli.policy.explain import render_plan
from issuer.limits.abuse import ItemTally, Tally
from issuer.policy.authoring.load import load_policies
from issuer.policy.authoring.plan import Plan, make_plan
from issuer.policy.authoring.signals import EXAMPLES
from issuer.policy.match import PolicySet
from tests.support.audited import line_of, recorded
from tests.support.policies import ISSUER_URL, POLICY, PROVIDERS, write

OLD = "abuse: {attempts: {distinct: 5}, artifact: {distinct: 1}, spread: {owners_a_day: 20, then: observe}}"


def policies(folder: Path, block: str) -> PolicySet:
    inner = folder / str(len(list(folder.iterdir())))
    inner.mkdir()
    return load_policies(write(inner, PROVIDERS, inspect_ai=f"{POLICY}{block}\n"), ISSUER_URL)


def counted(policies: PolicySet, tally: Tally, **changes: object) -> bytes:
    """Return the event of a decision for which this was counted."""
    event = msgspec.json.decode(recorded(policies), type=Decision)
    return line_of(replace(event, counted=tally, **changes))


def tally(attempts: int = 1, *, files: int = 0, twin: bool = False, owners: int = 1, is_new: bool = True) -> Tally:
    return Tally((ItemTally(attempts, 0, is_new=is_new, files=files, twin=twin),), owners_a_day=owners)


def planned(folder: Path, new: str, *tallies: Tally, **changes: object) -> Plan:
    old = policies(folder, OLD)
    return make_plan(old, policies(folder, new), [counted(old, each, **changes) for each in tallies])


def changes_of(plan: Plan) -> list[tuple[str, str | None, str | None, int]]:
    return [(group.signal, group.before, group.after, group.count) for group in plan.signals]


def test_a_plan_has_the_signals_that_would_change_by_what_was_counted(tmp_path: Path) -> None:
    for new, expected in [
        (OLD, []),
        (OLD.replace("distinct: 5", "distinct: 3"), [("attempts", None, "warn", 2)]),
        (OLD.replace("distinct: 5", "distinct: 9"), [("attempts", "warn", None, 1)]),
        (OLD.replace("distinct: 5", "distinct: 5, then: throttle"), [("attempts", "warn", "throttle", 1)]),
        (OLD.replace("observe", "warn"), [("spread", "observe", "warn", 1)]),
        (OLD.replace("20", "5"), [("spread", None, "observe", 1)]),
        (OLD.replace("20", "5").replace("distinct: 1", "distinct: 2"), [
            ("artifact", "warn", None, 1), ("spread", None, "observe", 1),
        ]),
        (OLD.replace("attempts: {", "quarantine_s: 90, attempts: {"), []),
    ]:  # fmt: skip
        counts = (tally(), tally(3), tally(4), tally(5), tally(6), tally(9, is_new=False), tally(2, files=2),
                  tally(owners=6), tally(owners=21))  # fmt: skip
        plan = planned(tmp_path, new, *counts)
        assert (changes_of(plan), plan.unchanged) == (expected, len(counts))


def test_a_new_quarantine_would_refuse_a_decision_and_the_end_of_one_grant_it(tmp_path: Path) -> None:
    quarantining = OLD.replace("distinct: 5", "distinct: 5, then: quarantine")
    plan = planned(tmp_path, quarantining, tally(5), tally(6))
    (group,) = plan.groups
    assert (plan.unchanged, plan.refused, group.why, group.examples[0].rule, group.examples[0].detail) == (
        1, 1, "abuse.quarantined", "abuse.attempts.distinct", "counted 6, the limit is 5",
    )  # fmt: skip
    assert changes_of(plan) == [("attempts", "warn", "quarantine", 1)]
    old = policies(tmp_path, quarantining)
    refused = counted(old, tally(6), verdict="refused", code="abuse.quarantined")
    waiting = line_of(replace(msgspec.json.decode(refused, type=Decision), counted=msgspec.UNSET))
    plan = make_plan(old, policies(tmp_path, OLD), [refused, waiting])
    assert (plan.granted, plan.not_decided, plan.groups[0].why) == (1, 1, "abuse.quarantined")
    assert changes_of(plan) == [("attempts", "quarantine", "warn", 1)]


def test_a_signal_or_quarantine_that_counts_in_another_way_is_unknown(tmp_path: Path) -> None:
    for new, signals in [
        (OLD.replace("distinct: 5", "distinct: 5, per_days: 3"), [
            ("artifact", "abuse.attempts.per_days"), ("attempts", "abuse.attempts.per_days"),
        ]),
        (OLD.replace("distinct: 5", 'distinct: 5, ignore: ["x"]'), [
            ("artifact", "abuse.attempts.ignore"), ("attempts", "abuse.attempts.ignore"),
            ("twins", "abuse.attempts.ignore"),
        ]),
        (OLD.replace("attempts: {", "twins: {values: 4}, attempts: {"), [("twins", "abuse.twins.values")]),
        (OLD.replace("attempts: {", "twins: {per_days: 9}, attempts: {"), [("twins", "abuse.twins.per_days")]),
    ]:  # fmt: skip
        plan = planned(tmp_path, new, tally(6, twin=True, owners=21))
        assert [(group.signal, group.untold) for group in plan.signals] == signals
        assert changes_of(plan) == [(signal, None, None, 1) for signal, _ in signals]
    new = OLD.replace("distinct: 5", "distinct: 5, per_days: 3, then: quarantine")
    plan = planned(tmp_path, new, tally(6), tally(2))
    why = "the count under another abuse.attempts.per_days"
    assert (plan.untold, plan.unchanged, plan.groups[0].why) == (1, 1, why)


def test_a_batch_is_one_decision_with_its_worst_count_and_few_examples_are_kept(tmp_path: Path) -> None:
    items = tally(4).items + tally(7).items + tally(5).items
    (group,) = planned(tmp_path, OLD.replace("distinct: 5", "distinct: 3, then: throttle"), Tally(items)).signals
    assert (group.before, group.after, group.count, group.examples[0].counted) == ("warn", "throttle", 1, 7)
    (group,) = planned(tmp_path, OLD.replace("distinct: 5", "distinct: 3"), *[tally(4)] * (EXAMPLES + 2)).signals
    assert (group.count, len(group.examples)) == (EXAMPLES + 2, EXAMPLES)
    new = OLD.replace("distinct: 5", "distinct: 3")
    assert changes_of(planned(tmp_path, new, tally(6), verdict="repeated")) == [], "a repeat signals nothing"
    old = policies(tmp_path, OLD)
    other = write(tmp_path / "0", inspect_ai=POLICY.replace('"openai/gsm8k", ', "") + new + "\n")
    plan = make_plan(old, load_policies(other, ISSUER_URL), [counted(old, tally(4))])
    assert (plan.refused, changes_of(plan)) == (1, []), "it would be refused anyway"


def test_the_plan_says_what_would_signal_and_why(tmp_path: Path) -> None:
    new = "abuse: {attempts: {distinct: 3}, twins: {values: 4}, spread: {owners_a_day: 30, then: warn}}"
    old = "abuse: {attempts: {distinct: 5}, spread: {owners_a_day: 20, then: observe}}"
    before = policies(tmp_path, old)
    events = [counted(before, each) for each in (tally(4), tally(owners=21), tally(owners=31))]
    assert render_plan(make_plan(before, policies(tmp_path, new), events)).splitlines()[1:] == [
        "would signal: 1 of inspect-ai: attempts (warn)",
        "  2026-11-21T09:00:00Z r1: counted 4; rule: abuse.attempts.distinct",
        "would signal no longer: 1 of inspect-ai: spread (observe)",
        "  2026-11-21T09:00:00Z r1: counted 21; rule: abuse.spread.owners_a_day",
        "would have another consequence: 1 of inspect-ai: spread (warn instead of observe)",
        "  2026-11-21T09:00:00Z r1: counted 31; rule: abuse.spread.owners_a_day",
        "cannot tell whether it would signal: 3 of inspect-ai: twins, because the recorded count used another abuse.twins.values",
        *["  2026-11-21T09:00:00Z r1"] * 3,
    ]
