"""Whose work is next, in a process that does one thing at a time: a step of each caller's, and rests in between.

A large body takes a worker a second. Its steps are taken a few at a time, then the event loop has its turn: others are
read, answered and heard meanwhile. Who has used the least time is next, so that one caller's work, however much it is,
costs another caller a step or two.
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
    """How far a worker has come: counted on its event loop, read by the thread that beats for it. `refusal` is why it
    does not start."""

    def __init__(self) -> None:
        self.count = 0
        self.refusal: SetupError | None = None

    def note(self) -> None:
        """Count one turn of the loop, or one step of work that is done in it."""
        self.count += 1


class _Work(Struct, frozen=True):
    """Steps that are left, and who waits for what they return."""

    steps: Generator[None, None, Any]
    done: asyncio.Future[Any]


class Turns:
    """Implements `issuance.ports.Turns` for one process, on one event loop. `note` is called as steps are taken."""

    def __init__(self, note: Callable[[], object] = lambda: None) -> None:
        self._note = note
        self._work: dict[Payer, deque[_Work]] = {}
        self._used_s: dict[Payer, float] = {}
        self._due = False

    async def take(self, payer: Payer, steps: Generator[None, None, T]) -> T:
        """Take the steps of one caller's work when it is its turn. Returns and raises what they do.

        They begin at once where no other work of this caller waits: most is done then.
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
        """Take steps for `SOON_S`. Raises what they do, and StopIteration at their end."""
        self._note()
        ends = time.perf_counter() + SOON_S
        while time.perf_counter() < ends:
            next(steps)

    def _add(self, payer: Payer, work: _Work) -> None:
        if payer not in self._work:
            self._work[payer] = deque()
            self._used_s[payer] = min(self._used_s.values(), default=0.0)  # who was away has saved nothing up
        self._work[payer].append(work)
        if not self._due:
            self._due = True
            asyncio.get_running_loop().call_soon(self._take_turns)

    def _take_turns(self) -> None:
        """Take steps for `TURN_S`, then rest while there are more: longer, where the last step took longer."""
        now = time.perf_counter()
        ends = now + TURN_S
        while self._work and now < ends:
            payer = min(self._used_s, key=self._used_s.__getitem__)
            self._step(payer)
            self._note()
            began, now = now, time.perf_counter()
            if payer in self._used_s:
                self._used_s[payer] += now - began
        self._due = bool(self._work)
        if self._due:
            asyncio.get_running_loop().call_later(max(REST_S, now - ends), self._take_turns)

    def _step(self, payer: Payer) -> None:
        work = self._work[payer][0]
        try:
            if not work.done.done():  # else nobody waits for it any more
                next(work.steps)
                return
        except StopIteration as end:
            work.done.set_result(end.value)
        except Exception as error:  # noqa: BLE001 (it is for who waits)
            work.done.set_exception(error)
        self._work[payer].popleft()
        if not self._work[payer]:
            del self._work[payer], self._used_s[payer]
