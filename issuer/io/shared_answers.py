"""Answers that all callers with the same question share: asked once (Go's `singleflight`), and kept for a while.

Knows nothing of the questions. We considered cachetools and aiocache: they keep answers, but do not bound the number of
callers that wait for one, and cancel the question when the first of them hangs up.
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


def _is_any(_: object) -> bool:
    return True


class Kept(Struct, Generic[Answer], frozen=True):
    """An answer, and until when it serves on the monotonic clock."""

    answer: Answer | IssuerError
    until: float


class SharedAnswers(Generic[Key, Answer]):
    """The questions that are under way, one task a key, and the last answers. Belongs to one event loop.

    An answer is the result of its question, or the IssuerError that it raised; a question may raise nothing else. An
    answer that `keeps` accepts is kept for `kept_s` seconds from the beginning of its question; of more than `capacity`
    the least recently used goes. `ended` is the code for callers whose question `aclose` has ended.
    """

    def __init__(
        self,
        ended: Code,
        *,
        kept_s: float = 0.0,
        keeps: Callable[[Answer | IssuerError], bool] = _is_any,
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

    def load(self, counts: Callable[[Key], bool] = _is_any) -> int:
        """Return how many callers wait for the keys that count, or how many tasks are under way where these are more.

        A task goes on after the callers that waited for it have hung up.
        """
        waiting = sum(number for key, number in self._waiting.items() if counts(key))
        return max(waiting, sum(1 for key in self._tasks if counts(key)))

    def kept(self, key: Key) -> Kept[Answer] | None:
        """Return the kept answer, None where there is none or it is too old."""
        found = self._kept.get(key)
        if found is None or self._monotonic() >= found.until:
            return None
        self._kept.move_to_end(key)
        return found

    def under_way(self, key: Key) -> bool:
        """Say whether a question is under way."""
        task = self._tasks.get(key)
        return task is not None and not task.done()

    def start(self, key: Key, ask: Callable[[], Awaitable[Answer]]) -> asyncio.Task[Any]:
        """Begin the question of a key that has none under way."""
        self._tasks[key] = task = asyncio.create_task(self._ask(key, ask))
        task.add_done_callback(lambda done: self._forget(key, done))
        return task

    async def wait(self, key: Key) -> Answer | IssuerError:
        """Wait, together with all other callers, for the question that is under way.

        A cancelled caller does not affect the others: `asyncio.wait` does not cancel what it waits for.
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
        """Return the kept answer, or that of the question, begun where none is under way. Raises what it raised."""
        if (found := self.kept(key)) is None and not self.under_way(key):
            self.start(key, ask)
        answer = await self.wait(key) if found is None else found.answer
        if isinstance(answer, IssuerError):
            raise answer
        return answer

    async def aclose(self) -> None:
        """Cancel the questions that are under way and wait until they have ended."""
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
