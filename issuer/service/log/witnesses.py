"""The log's witnesses: every newest head is shown to all of them, and kept as cosigned once a quorum has signed it.

Heads go out in rounds, one checkpoint for all witnesses: a quorum are signatures of one checkpoint, and witnesses that
were each asked about what is newest at that moment would sign different ones. A round ends with its quorum, or when
nobody owes an answer. A witness that is still busy misses it and holds nobody up. Issuance waits for nothing here, but
in `wait_for`, where the operator wants that (`sync`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NoReturn

import structlog

from issuer.service.bounds import MAX_WITNESS_PAUSE_S, WITNESS_MISSES, WITNESS_S, WITNESS_SYNC_S
from issuer.service.log.witness import Contradiction, Head, LogWitness, MovedOn, WitnessedLog
from issuer.service.log.witness_call import Fault
from issuer.service.log.witness_faults import Faults
from issuer.tlog.note import SignatureLine, Verifier
from issuer.tlog.quorum import NO_QUORUM, WitnessPolicy

_log = structlog.get_logger("issuer")

# Told, while the log runs, what a witness says against it.
Alarm = Callable[[str, Contradiction], None]


class Round:
    """One checkpoint on its way to all witnesses, by name: those not asked yet, and those that owe an answer."""

    def __init__(self, head: Head, names: set[str]) -> None:
        self.head = head
        self.unasked = set(names)
        self.owing = set(names)
        self.lines: dict[Verifier, SignatureLine] = {}
        self.is_kept = False
        self.over = asyncio.Event()


class Witnesses:
    """Shows heads to witnesses. Belongs to one event loop. `pace_s` is the least time between two rounds."""

    def __init__(
        self, policy: WitnessPolicy, log: WitnessedLog, witnesses: Sequence[LogWitness], pace_s: float, alarm: Alarm
    ) -> None:
        self._policy = policy
        self._tree = log
        self._witnesses = witnesses
        self._pace_s = pace_s
        self._alarm = alarm
        self._faults = Faults()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._wanted = asyncio.Event()
        self._moved = asyncio.Condition()
        self._cosigned = -1
        self._cosigned_at = 0.0
        self._misses = 0
        self._round: Round | None = None

    @property
    def cosigned(self) -> tuple[int, int] | None:
        """The size of the newest tree that was cosigned here, and so many seconds ago; None before the first."""
        if self._cosigned < 0:
            return None
        return self._cosigned, int(asyncio.get_running_loop().time() - self._cosigned_at)

    @property
    def failing(self) -> tuple[str, ...]:
        """The witnesses that do not do their part now."""
        return self._faults.failing

    @property
    def is_stuck(self) -> bool:
        """Whether several rounds in a row have reached no quorum."""
        return self._misses >= WITNESS_MISSES

    def committed(self) -> None:
        """Say that the log has a new head. Returns at once."""
        self._wanted.set()

    async def wait_for(self, size: int) -> bool:
        """Wait, WITNESS_SYNC_S at most, for any cosigned checkpoint of at least this size; say whether it is there."""
        try:
            async with asyncio.timeout(WITNESS_SYNC_S), self._moved:
                await self._moved.wait_for(lambda: self._cosigned >= size)
        except TimeoutError:
            return False
        return True

    async def run(self) -> NoReturn:
        """Show every newest head to the witnesses. No error ends it."""
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            if await self._show_newest():
                self._misses = 0
            else:
                self._misses += 1
                self._wanted.set()
            await asyncio.sleep(min(self._pace_s * 2 ** min(self._misses, 10), max(self._pace_s, MAX_WITNESS_PAUSE_S)))

    async def aclose(self) -> None:
        """End what is under way."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    # -- rounds -------------------------------------------------------------------------------------------------------

    async def _show_newest(self) -> bool:
        """Make one round, unless its head is cosigned already. Says whether it is cosigned now."""
        try:
            head = await Head.newest(self._tree)
            if head.size <= self._cosigned:
                return True
            current = self._round = Round(head, set(self._names))
            for witness in self._witnesses:
                if (task := self._tasks.get(witness.name)) is None or task.done():
                    self._tasks[witness.name] = asyncio.create_task(self._attend(witness))
            await self._settle(current)
            with suppress(TimeoutError):
                async with asyncio.timeout(WITNESS_S):
                    await current.over.wait()
        except Exception as error:  # noqa: BLE001  (of the database, which may come back)
            _log.error("head not shown to witnesses", exc_info=error)
            return False
        return current.is_kept

    async def _attend(self, witness: LogWitness) -> None:
        """Ask one witness about the round that is under way; if that took long, also about the one that is by then."""
        while (current := self._round) and not current.over.is_set() and witness.name in current.unasked:
            current.unasked.discard(witness.name)
            try:
                await self._ask(witness, current)
                current.owing.discard(witness.name)
                await self._settle(current)
            except Exception as error:  # noqa: BLE001  (as above)
                _log.error("witness not asked", witness=witness.name, exc_info=error)

    async def _ask(self, witness: LogWitness, current: Round) -> None:
        try:
            vouched = await witness.cosign(current.head)
        except MovedOn:
            self._wanted.set()
            return
        except Contradiction as contradiction:
            self._alarm(witness.name, contradiction)
            self._faults.tell(witness.name, str(contradiction))
            return
        except Fault as fault:
            self._faults.tell(witness.name, str(fault))
            return
        self._faults.tell(witness.name, "")
        current.lines[witness.verifier] = vouched.line

    async def _settle(self, current: Round) -> None:
        """Keep a round's checkpoint when it has its quorum, and end the round when there is nothing to wait for."""
        all_asked = not current.owing
        # Where no witness is demanded, all that are named may still sign.
        enough = self._policy.met_by(current.lines) and (all_asked or self._policy.quorum != NO_QUORUM)
        if enough and not current.is_kept:
            current.is_kept = True
            await self._keep(current)
        if enough or all_asked:
            current.over.set()

    async def _keep(self, current: Round) -> None:
        try:
            note = current.head.note.with_lines(current.lines.values())
            await self._tree.keep_cosigned(current.head.size, note.to_bytes())
        except BaseException:
            current.is_kept = False
            raise
        async with self._moved:
            self._cosigned = max(self._cosigned, current.head.size)
            self._cosigned_at = asyncio.get_running_loop().time()
            self._moved.notify_all()

    @property
    def _names(self) -> list[str]:
        return [witness.name for witness in self._witnesses]
