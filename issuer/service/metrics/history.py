"""What was answered lately, for a page that an operator looks at: by the minute for an hour, by the hour for a day.

Kept by the process that answers at the metrics' address, and gone with it; Prometheus remembers longer. It is bounded:
three numbers a minute, and once an hour what the board holds.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from msgspec import Struct

from issuer.service.metrics.counts import REQUESTS, Key
from issuer.service.metrics.state import BoardReader

MINUTES, HOURS = 60, 24
_MINUTE = 60  # in seconds
# The endpoints that sign. A batch is one answer.
_SIGNING = frozenset({"/tokens", "/tokens/batch"})


class Answer(Struct, frozen=True):
    """What sort of answer it was (`issued`, `no`, `undecided`), its code, and for whom."""

    sort: str
    code: str
    integration: str


Answers = Counter[Answer]
_T = TypeVar("_T")


def answers_of(counted: Mapping[Key, list[int]]) -> Answers:
    """Return how many answers of each kind the endpoints that sign have given."""
    found = Answers()
    for (name, *labels), (number, *_) in counted.items():
        if name == REQUESTS and labels[0] in _SIGNING:
            _, outcome, code, integration = labels
            found[Answer(outcome if outcome in {"no", "undecided"} else "issued", code, integration)] += number
    return found


class History:
    """Looks at the board once a minute. `clock` is Unix seconds."""

    def __init__(self, reader: BoardReader, clock: Callable[[], float] = time.time) -> None:
        self._reader = reader
        self._clock = clock
        first, minute = answers_of(reader.read().counted), self._minute()
        self.since = minute * _MINUTE
        # Which minute, or hour, and all answers before it.
        self._minutes = deque([(minute, by_sort(first))], MINUTES)
        self._hours = deque([(minute // 60, first)], HOURS)

    def turn(self) -> None:
        """Look, where another minute has begun. Called every second or so."""
        if (minute := self._minute()) <= self._minutes[-1][0]:
            return
        found = answers_of(self._reader.read().counted)
        self._minutes.append((minute, by_sort(found)))
        if minute // 60 > self._hours[-1][0]:
            self._hours.append((minute // 60, found))

    def by_minute(self, now: Answers) -> list[Counter[str]]:
        """Return how many answers of each sort there were in each of the last 60 minutes, oldest first; the last one is
        this minute so far. `now` are all answers."""
        return _differences(self._minutes, self._minute(), MINUTES, by_sort(now))

    def by_hour(self, now: Answers) -> list[Answers]:
        """Return the answers of each of the last 24 hours, oldest first; the last one is this hour so far."""
        return _differences(self._hours, self._minute() // 60, HOURS, now)

    def _minute(self) -> int:
        return int(self._clock()) // _MINUTE


def by_sort(answers: Answers) -> Counter[str]:
    """Add up the answers of each sort."""
    found = Counter[str]()
    for answer, number in answers.items():
        found[answer.sort] += number
    return found


def _differences(held: Iterable[tuple[int, Counter[_T]]], last: int, count: int, now: Counter[_T]) -> list[Counter[_T]]:
    """Return what came in each of so many turns up to the last one, of what there was before each. A turn that began
    unseen has nothing, and what came in it belongs to the one before."""
    before, found = dict(held), []
    for turn in range(last, last - count, -1):
        sums = before.get(turn, now)
        found.append(now - sums)
        now = sums
    return found[::-1]
