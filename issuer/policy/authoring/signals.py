"""The signals of `abuse` that follow from given counts, those of a policy test or of recorded decisions. Pure.

`abuse.judge`, which also judges the counts of the admission, decides which rules are crossed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import get_args

from msgspec import UNSET, Struct

from issuer.audit.events import Decision
from issuer.limits.abuse import SPREADS, Abuse, ItemTally, Name, Signal, Tally, Then, judge
from issuer.policy.model import Counts, ExpectedSignals

NAMES: tuple[Name, ...] = get_args(Name)
Follows = Mapping[Name, Then]


class CountedRule(Struct, frozen=True):
    """A rule of `abuse` with its count and limit (for twins, numbers of equal values). `then` follows if `crossed`."""

    rule: str
    count: int
    limit: int
    then: Then
    crossed: bool


def compare(abuse: Abuse, counts: Counts) -> tuple[CountedRule, ...]:
    """Return every rule with its count, in the order of the policy."""
    crossed = {signal.rule for signal in _judge(abuse, counts)}
    return tuple(CountedRule(*row, crossed=row[0] in crossed) for row in _rows(abuse, counts))


def follows(abuse: Abuse, counts: Counts) -> dict[Name, Then]:
    """Return the consequence of each signal that the counts cause."""
    return {signal.name: signal.then for signal in _judge(abuse, counts)}


def stated(expected: ExpectedSignals) -> dict[Name, Then]:
    """Return the consequence of each signal that a test expects."""
    return {name: getattr(expected, name) for name in NAMES if getattr(expected, name) is not UNSET}


def differ(expected: Follows, actual: Follows, rows: tuple[CountedRule, ...]) -> str:
    """Return how the signals differ from the expected ones, "" if they are equal."""
    names = [name for name in NAMES if expected.get(name) != actual.get(name)]
    return "; ".join(_difference(name, expected, actual, rows) for name in names)


def _difference(name: Name, expected: Follows, actual: Follows, rows: tuple[CountedRule, ...]) -> str:
    own = [row for row in rows if row.rule.startswith(f"abuse.{name}.") and (row.crossed or name not in actual)]
    why = ", ".join(f"{row.rule} is {row.limit}, counted {row.count}" for row in own)
    wanted, caused = expected.get(name, "no signal"), actual.get(name, "no signal")
    return f"{name}: the test expects {wanted}, but its counts cause {caused} ({why})"


def _judge(abuse: Abuse, counts: Counts) -> tuple[Signal, ...]:
    item = ItemTally(counts.attempts, 0, is_new=counts.is_new, files=counts.artifact, twin=counts.twins)
    return judge(abuse, Tally((item,), **{name: getattr(counts, name) for name in SPREADS}))


def _rows(abuse: Abuse, counts: Counts) -> Iterator[tuple[str, int, int, Then]]:
    attempts, artifact, twins, spread = abuse.attempts, abuse.artifact, abuse.twins, abuse.spread
    yield "abuse.attempts.distinct", counts.attempts, attempts.distinct, attempts.then
    yield "abuse.artifact.distinct", counts.artifact, artifact.distinct, artifact.then
    yield "abuse.twins.values", twins.values if counts.twins else 0, twins.values, twins.then
    for name in SPREADS:
        yield f"abuse.spread.{name}", getattr(counts, name), getattr(spread, name), spread.then


# -- signals of recorded decisions under other rules -------------------------------------------------------------------

# The counts are those that the admission had at the time. If a rule counts differently (over other days or metrics),
# the audit cannot tell its count.

EXAMPLES = 3  # of each group


class SignalExample(Struct, frozen=True):
    """One decision of a group, with the rule that it newly crosses or no longer crosses, and its count. Both are empty
    if they are unknown. `time` is Unix seconds."""

    request_id: str
    time: int
    rule: str = ""
    counted: int = 0


class SignalGroup(Struct):
    """Decisions of one integration whose signals would change in the same way.

    `before` and `after` are the consequences, None without a signal. `untold` is a member that makes the rule count
    differently, so the change is unknown. The first few decisions are examples.
    """

    integration: str
    signal: Name
    before: Then | None = None
    after: Then | None = None
    untold: str = ""
    count: int = 0
    examples: list[SignalExample] = []


Signals = dict[tuple[str, Name, Then | None, Then | None, str], SignalGroup]


def compare_signals(groups: Signals, integration: str, before: Abuse, after: Abuse, decision: Decision) -> None:
    """Add a decision to the groups of those whose signals would change in the same way."""
    if decision.counted is UNSET:
        return
    old, new = (_worst(judge(abuse, decision.counted)) for abuse in (before, after))
    for name in NAMES:
        untold = counts_otherwise(name, before, after)
        was, will = (None, None) if untold else (old.get(name), new.get(name))
        then_was, then_will = (None if signal is None else signal.then for signal in (was, will))
        if untold or then_was != then_will:
            key = integration, name, then_was, then_will, untold
            _add(groups.setdefault(key, SignalGroup(*key)), decision, will or was)


def _add(group: SignalGroup, decision: Decision, signal: Signal | None) -> None:
    group.count += 1
    if len(group.examples) < EXAMPLES:
        known = (signal.rule, signal.count) if signal else ("", 0)
        group.examples.append(SignalExample(decision.request_id, decision.time, *known))


def counts_otherwise(name: Name, before: Abuse, after: Abuse) -> str:
    """Return the member that makes a rule count differently, "" if it counts the same."""
    for member in _COUNTED_BY.get(name, ()):
        rule, _, last = member.partition(".")
        if getattr(getattr(before, rule), last) != getattr(getattr(after, rule), last):
            return f"abuse.{member}"
    return ""


_COUNTED_BY: Mapping[Name, tuple[str, ...]] = {
    "attempts": ("attempts.per_days", "attempts.ignore"),
    "artifact": ("attempts.per_days", "attempts.ignore"),
    "twins": ("attempts.ignore", "twins.values", "twins.per_days"),
}


def _worst(signals: tuple[Signal, ...]) -> dict[Name, Signal]:
    """Return, for each name, the signal with the highest count."""
    return {signal.name: signal for signal in sorted(signals, key=lambda signal: signal.count)}
