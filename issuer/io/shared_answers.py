"""A cache of answers in which callers with the same question share one task (as in Go's `singleflight`).

We considered cachetools and aiocache. They keep answers, but do not bound the number of callers that wait for one, and
cancel the question if the first of these callers hangs up.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, Generic, TypeVar

from msgspec import Struct

from issuer.codes import Code
from issuer.errors import IssuerError, Undecided

Key = TypeVar("Key", bound=Hashable)
Answer = TypeVar("Answer")


class Kept(Struct, Generic[Answer], frozen=True):
    """An answer, and its end of validity on the monotonic clock."""

    answer: Answer | IssuerError
    until: float


class SharedAnswers(Generic[Key, Answer]):
    """The current questions, with one task for each key, and the kept answers. It belongs to one event loop.

    An answer is the result of a question, or the IssuerError that it raised; other exceptions are not allowed. If
    `keeps` accepts an answer, it is kept for `kept_s` seconds from the beginning of its question. Of more than
    `capacity` answers, the least recently used is dropped. After `aclose`, callers get the code `ended`.
    """

    def __init__(
        self,
        ended: Code,
        *,
        kept_s: float = 0.0,
        keeps: Callable[[Answer | IssuerError], bool] = lambda _: True,
        capacity: int = 1,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ended = ended
        self._kept_s = kept_s
        self._keeps = keeps
        self._capacity = capacity
        self._monotonic = monotonic
        self._kept: OrderedDict[Key, Kept[Answer]] = OrderedDict()
        self._tasks: dict[Key, asyncio.Task[Answer | IssuerError]] = {}
        self._waiting: Counter[Key] = Counter()

    def load(self, counts: Callable[[Key], bool] = lambda _: True) -> int:
        """Return the number of waiting callers or of running tasks, whichever is larger, for the keys that count.

        A task continues after its callers have hung up.
        """
        waiting = sum(number for key, number in self._waiting.items() if counts(key))
        return max(waiting, sum(1 for key in self._tasks if counts(key)))

    def kept(self, key: Key) -> Kept[Answer] | None:
        """Return the kept answer, or None if it is absent or too old."""
        kept = self._kept.get(key)
        if kept is None or self._monotonic() >= kept.until:
            return None
        self._kept.move_to_end(key)
        return kept

    def under_way(self, key: Key) -> bool:
        """Say whether a task for this key is running."""
        task = self._tasks.get(key)
        return task is not None and not task.done()

    def start(self, key: Key, ask: Callable[[], Awaitable[Answer]]) -> asyncio.Task[Any]:
        """Start a task for a key that has no running task."""
        self._tasks[key] = task = asyncio.create_task(self._ask(key, ask))
        task.add_done_callback(lambda done: self._forget(key, done))
        return task

    async def wait(self, key: Key) -> Answer | IssuerError:
        """Wait, together with all other callers, for the running task of this key.

        A cancelled caller does not affect the others: `asyncio.wait` does not cancel the task.
        """
        task = self._tasks[key]
        self._waiting[key] += 1
        try:
            await asyncio.wait([task])
        finally:
            self._waiting[key] -= 1
            if not self._waiting[key]:
                del self._waiting[key]
        return Undecided(self._ended) if task.cancelled() else task.result()

    async def find(self, key: Key, ask: Callable[[], Awaitable[Answer]]) -> Answer:
        """Return the kept answer, or wait for the question and start it if necessary. Raises the question's error."""
        if (kept := self.kept(key)) is None and not self.under_way(key):
            self.start(key, ask)
        answer = await self.wait(key) if kept is None else kept.answer
        if isinstance(answer, IssuerError):
            raise answer
        return answer

    async def aclose(self) -> None:
        """Cancel the running tasks, and wait until they have ended."""
        tasks = tuple(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _ask(self, key: Key, ask: Callable[[], Awaitable[Answer]]) -> Answer | IssuerError:
        until = self._monotonic() + self._kept_s
        answer: Answer | IssuerError
        try:
            answer = await ask()
        except IssuerError as error:
            answer = error
        if self._kept_s and self._keeps(answer):
            self._kept[key] = Kept(answer, until)
            self._kept.move_to_end(key)
            if len(self._kept) > self._capacity:
                self._kept.popitem(last=False)
        return answer

    def _forget(self, key: Key, task: asyncio.Task[Any]) -> None:
        if self._tasks.get(key) is task:
            del self._tasks[key]
