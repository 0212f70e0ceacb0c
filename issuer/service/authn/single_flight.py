"""One task for each question, however many wait for its answer (Go's `singleflight`), and a bound on those who wait.

Does not know what is asked. cachetools and aiocache keep answers, but do not bound the number who wait for one, and
cancel the question when the first of them hangs up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Hashable
from typing import Any, Generic, TypeVar

from issuer.service.bounds import MAX_WAITING

Key = TypeVar("Key", bound=Hashable)
Result = TypeVar("Result")


class SingleFlight(Generic[Key, Result]):
    """The tasks under way, one a key. Belongs to one event loop; `aclose` ends them.

    A task must not raise: its result, or an error as a value, is for all who wait.
    """

    def __init__(self) -> None:
        self._tasks: dict[Key, asyncio.Task[Result]] = {}
        self.waiting = 0

    def __len__(self) -> int:
        return len(self._tasks)

    @property
    def is_full(self) -> bool:
        """Whether the bound is reached. Tasks count too: one goes on after those who waited for it have hung up."""
        return max(self.waiting, len(self._tasks)) >= MAX_WAITING

    def find(self, key: Key) -> asyncio.Task[Result] | None:
        """Return the task that is under way for a key."""
        task = self._tasks.get(key)
        return None if task is None or task.done() else task

    def start(self, key: Key, work: Coroutine[Any, Any, Result]) -> asyncio.Task[Result]:
        """Begin the task for a key that has none."""
        self._tasks[key] = task = asyncio.create_task(work)
        task.add_done_callback(lambda done: self._forget(key, done))
        return task

    def _forget(self, key: Key, task: asyncio.Task[Result]) -> None:
        if self._tasks.get(key) is task:
            del self._tasks[key]

    async def wait(self, task: asyncio.Task[Result]) -> Result | None:
        """Wait for a task together with everybody else; None where it was cancelled.

        A cancelled waiter does not affect the others: `asyncio.wait` does not cancel what it waits for.
        """
        self.waiting += 1
        try:
            await asyncio.wait([task])
        finally:
            self.waiting -= 1
        return None if task.cancelled() else task.result()

    async def aclose(self) -> None:
        """Cancel the tasks and wait until they have ended."""
        tasks = tuple(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
