"""How recorded decisions would signal otherwise under other rules of `abuse`. Pure.

Judged is what the admission counted at the time. A rule that counts otherwise (over other days, other metrics) has
another count, which nobody can tell afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import UNSET, Struct

from issuer.abuse import Abuse, Name, Signal, Then, judge
from issuer.audit_events import Decision
from issuer.policy.authoring.counted import NAMES

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
