"""A fair queue of CPU work for one event loop: it runs callers' work in small steps, with pauses for the loop.

A large body takes a worker one second. The queue runs a few steps, then lets the event loop read and answer other
requests. The caller that has used the least time is next, so a caller's work, however large, delays another caller
by one or two steps.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Generator
from typing import Any, TypeVar

from msgspec import Struct

from issuer.errors import SetupError
from issuer.issuance.steps import Payer
from issuer.service.process.bounds import REST_S, SOON_S, TURN_S

T = TypeVar("T")


class Progress:
    """The progress of a worker: its event loop counts, and the thread of its heartbeat reads the count. `refusal` is
    the reason if the worker does not start."""

    def __init__(self) -> None:
        self.count = 0
        self.refusal: SetupError | None = None

    def note(self) -> None:
        """Count one turn of the loop, or one step of work."""
        self.count += 1


class _Work(Struct, frozen=True):
    """The steps that are left, and the future of their result."""

    steps: Generator[None, None, Any]
    done: asyncio.Future[Any]


class FairQueue:
    """Implements `issuance.ports.Turns` for one event loop. `note` is called as the queue runs steps; `clock` counts
    their seconds."""

    def __init__(
        self, note: Callable[[], object] = lambda: None, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._note = note
        self._clock = clock
        self._work: dict[Payer, deque[_Work]] = {}
        self._used_s: dict[Payer, float] = {}
        self._due = False

    async def take(self, payer: Payer, steps: Generator[None, None, T]) -> T:
        """Run the steps of one caller's work when it is its turn. Return their result, or raise their exception.

        If no other work of this caller waits, the steps begin at once, and most work ends within `SOON_S`.
        """
        if payer not in self._work:
            try:
                self._begin(steps)
            except StopIteration as end:
                ended: T = end.value
                return ended
        work = _Work(steps, asyncio.get_running_loop().create_future())
        self._add(payer, work)
        done: T = await work.done
        return done

    def _begin(self, steps: Generator[None, None, Any]) -> None:
        """Run steps for `SOON_S`. Raises their exceptions, and StopIteration at their end."""
        self._note()
        ends = self._clock() + SOON_S
        while self._clock() < ends:
            next(steps)

    def _add(self, payer: Payer, work: _Work) -> None:
        if payer not in self._work:
            self._work[payer] = deque()
            # A caller that was idle gets no credit for it.
            self._used_s[payer] = min(self._used_s.values(), default=0.0)
        self._work[payer].append(work)
        if not self._due:
            self._due = True
            asyncio.get_running_loop().call_soon(self._take_turns)

    def _take_turns(self) -> None:
        """Run steps for `TURN_S`. If some are left, pause; after a step that overran, pause that much longer."""
        now = self._clock()
        ends = now + TURN_S
        while self._work and now < ends:
            payer = min(self._used_s, key=self._used_s.__getitem__)
            self._step(payer)
            self._note()
            began, now = now, self._clock()
            if payer in self._used_s:
                self._used_s[payer] += now - began
        self._due = bool(self._work)
        if self._due:
            asyncio.get_running_loop().call_later(max(REST_S, now - ends), self._take_turns)

    def _step(self, payer: Payer) -> None:
        work = self._work[payer][0]
        try:
            if not work.done.done():  # else the request was cancelled
                next(work.steps)
                return
        except StopIteration as end:
            work.done.set_result(end.value)
        except Exception as error:  # noqa: BLE001 (the waiting request gets it)
            work.done.set_exception(error)
        self._work[payer].popleft()
        if not self._work[payer]:
            del self._work[payer], self._used_s[payer]
