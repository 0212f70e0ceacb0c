"""What would follow from counts that an author states: the rules of `abuse`, judged as the admission's are. Pure.

Nothing is counted here; `abuse.judge` alone says what is crossed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import get_args

from msgspec import UNSET, Struct

from issuer.abuse import SPREADS, Abuse, ItemTally, Name, Signal, Tally, Then, judge
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
