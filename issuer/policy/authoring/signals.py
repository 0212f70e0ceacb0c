"""What would follow from counts that an author states: the rules of `abuse`, judged as the admission's are. Pure.

Nothing is counted here; `abuse.judge` alone says what is crossed.
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


class Counted(Struct, frozen=True):
    """One rule beside what was counted for it: `count`, and the `limit` that it may not cross; for twins both are how
    many values are equal. `then` follows where it is `crossed`."""

    rule: str
    count: int
    limit: int
    then: Then
    crossed: bool


def compare(abuse: Abuse, counts: Counts) -> tuple[Counted, ...]:
    """Return every rule with its count, in the order of the policy."""
    crossed = {signal.rule for signal in _judge(abuse, counts)}
    return tuple(Counted(*row, crossed=row[0] in crossed) for row in _rows(abuse, counts))


def follows(abuse: Abuse, counts: Counts) -> dict[Name, Then]:
    """Return what follows from the counts, by the name of the signal."""
    return {signal.name: signal.then for signal in _judge(abuse, counts)}


def stated(expected: ExpectedSignals) -> dict[Name, Then]:
    """Return what an author expects to follow, in the same form."""
    return {name: getattr(expected, name) for name in NAMES if getattr(expected, name) is not UNSET}


def differ(expected: Follows, actual: Follows, rows: tuple[Counted, ...]) -> str:
    """Say where what follows is not what is expected, "" where both are equal."""
    names = [name for name in NAMES if expected.get(name) != actual.get(name)]
    return "; ".join(_difference(name, expected, actual, rows) for name in names)


def _difference(name: Name, expected: Follows, actual: Follows, rows: tuple[Counted, ...]) -> str:
    own = [row for row in rows if row.rule.startswith(f"abuse.{name}.") and (row.crossed or name not in actual)]
    why = ", ".join(f"{row.rule} is {row.limit}, counted {row.count}" for row in own)
    return f"{name}: expected {expected.get(name, 'nothing')}, {actual.get(name, 'nothing')} follows ({why})"


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


# -- plan signals ------------------------------------------------------------------------------------------------------

# How recorded decisions would signal otherwise under other rules of `abuse`. Pure.
#
# Judged is what the admission counted at the time. A rule that counts otherwise (over other days, other metrics) has
# another count, which nobody can tell afterwards.

EXAMPLES = 3  # of each group; the counts are of all


class SignalExample(Struct, frozen=True):
    """One decision of a group, the rule that it crosses or no longer does, and its count; "" and 0 where that cannot be
    told. `time` is Unix seconds."""

    request_id: str
    time: int
    rule: str = ""
    counted: int = 0


class SignalGroup(Struct):
    """Decisions of one integration that would signal otherwise: `before` and `after` are what follows, None for
    nothing. `untold` is the member that counts otherwise, so that nobody can tell. The first few are examples."""

    integration: str
    signal: Name
    before: Then | None = None
    after: Then | None = None
    untold: str = ""
    count: int = 0
    examples: list[SignalExample] = []


Signals = dict[tuple[str, Name, Then | None, Then | None, str], SignalGroup]


def compare_signals(groups: Signals, integration: str, before: Abuse, after: Abuse, decision: Decision) -> None:
    """Count a decision with the others that would signal otherwise in the same way."""
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
        told = (signal.rule, signal.count) if signal else ("", 0)
        group.examples.append(SignalExample(decision.request_id, decision.time, *told))


def counts_otherwise(name: Name, before: Abuse, after: Abuse) -> str:
    """Return the member by which a rule's count is another one, "" where it is the same."""
    for member in _counted_by(name):
        rule, _, last = member.partition(".")
        if getattr(getattr(before, rule), last) != getattr(getattr(after, rule), last):
            return f"abuse.{member}"
    return ""


def _counted_by(name: Name) -> Iterator[str]:
    if name in {"attempts", "artifact"}:
        yield from ("attempts.per_days", "attempts.ignore")
    elif name == "twins":
        yield from ("attempts.ignore", "twins.values", "twins.per_days")


def _worst(signals: tuple[Signal, ...]) -> dict[Name, Signal]:
    """Return the signal with the highest count of each name."""
    return {signal.name: signal for signal in sorted(signals, key=lambda signal: signal.count)}
