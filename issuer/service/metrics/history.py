"""Recent answers for the operator's view: by the minute for an hour, and by the hour for a day.

The process at the metrics' address keeps them in its memory, so they end with it. Prometheus keeps them for longer. The
size is bounded: three numbers for each minute, and the board's numbers once an hour.
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
_SIGNING = frozenset({"/tokens", "/tokens/batch", "/oauth/token"})


class CountedAnswer(Struct, frozen=True):
    """The sort of an answer (`issued`, `no`, `undecided`), its code, and its integration."""

    sort: str
    code: str
    integration: str


Answers = Counter[CountedAnswer]
_T = TypeVar("_T")


def answers_of(counted: Mapping[Key, list[int]]) -> Answers:
    """Return the number of each answer that the signing endpoints have given."""
    answers = Answers()
    for (name, *labels), (number, *_) in counted.items():
        if name == REQUESTS and labels[0] in _SIGNING:
            _, outcome, code, integration = labels
            answers[CountedAnswer(outcome if outcome in {"no", "undecided"} else "issued", code, integration)] += number
    return answers


class History:
    """Reads the board once a minute. `clock` returns Unix seconds."""

    def __init__(self, reader: BoardReader, clock: Callable[[], float] = time.time) -> None:
        self._reader = reader
        self._clock = clock
        first, minute = answers_of(reader.read().counted), self._minute()
        self.since = minute * _MINUTE
        # The number of a minute or hour, and all answers before it.
        self._minutes = deque([(minute, by_sort(first))], MINUTES)
        self._hours = deque([(minute // 60, first)], HOURS)

    def turn(self) -> None:
        """Read the board if a new minute has begun. Called about once a second."""
        if (minute := self._minute()) <= self._minutes[-1][0]:
            return
        answers = answers_of(self._reader.read().counted)
        self._minutes.append((minute, by_sort(answers)))
        if minute // 60 > self._hours[-1][0]:
            self._hours.append((minute // 60, answers))

    def by_minute(self, now: Answers) -> list[Counter[str]]:
        """Return the answers of each sort in the last 60 minutes, oldest first. `now` has all answers so far."""
        return _differences(self._minutes, self._minute(), MINUTES, by_sort(now))

    def by_hour(self, now: Answers) -> list[Answers]:
        """Return the answers of each of the last 24 hours, oldest first. The last hour has not ended."""
        return _differences(self._hours, self._minute() // 60, HOURS, now)

    def _minute(self) -> int:
        return int(self._clock()) // _MINUTE


def by_sort(answers: Answers) -> Counter[str]:
    """Add up the answers of each sort."""
    sums = Counter[str]()
    for answer, number in answers.items():
        sums[answer.sort] += number
    return sums


def _differences(kept: Iterable[tuple[int, Counter[_T]]], last: int, count: int, now: Counter[_T]) -> list[Counter[_T]]:
    """Return the counts of each of the `count` periods up to the last one, from the sums before each period. If the
    sums before a period are missing, its counts are added to the period before."""
    before, periods = dict(kept), []
    for period in range(last, last - count, -1):
        sums = before.get(period, now)
        periods.append(now - sums)
        now = sums
    return periods[::-1]
