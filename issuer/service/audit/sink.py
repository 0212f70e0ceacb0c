"""The audit sink: one JSON line per decision in an append-only file of mode 0600, apart from the log stream.

If an event cannot be written, no token leaves (contract section 5). Each process chains its lines (`audit/chain.py`)
and tells the head of its chain to the log stream; the chain goes on in the next file where the file is rotated. A token
waits for the write and not for the disk: what was written is synced twice a second, so that a machine that loses its
power loses a second of events at most, and a process that dies loses none.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import structlog
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from issuer.audit.chain import NO_LINE, digest_of
from issuer.audit.events import COUNTED, AbuseSignal, Decision, Event, RefusalsCounted
from issuer.codes import Code
from issuer.errors import SetupError, Undecided
from issuer.formats.strict_json import to_line
from issuer.io.append_file import AppendFile
from issuer.io.bounds import COUNTED_S
from issuer.limits.rate import Rate, Spent, spend
from issuer.service.audit.bounds import MAX_COUNTED, REFUSED_BYTES, SYNC_LATE_S

# -- refusals ----------------------------------------------------------------------------------------------------------

# A rate bounds the bytes that one caller's refusals add, whatever they are refused for; beyond it they are counted. So
# nobody can fill the audit's disk with refusals. The table of callers is bounded, in one process's memory.

# Who is charged for the bytes: an identity, all who only resemble it, or everybody unregistered of one provider.
_Who = tuple[str, str, bool]
# What is counted apart: the bucket (of those who resemble an identity), and the code.
_What = tuple[int | UnsetType, str]

_OTHERS: _Who = ("", "", False)


class Account:
    """The refusals of one caller: what it may still add, and what was not told one by one."""

    def __init__(self, who: _Who, rate: Rate, now_us: int) -> None:
        self.who = who
        self.since_us = now_us
        self._rate = rate
        self._arrival_us = 0
        self._told: set[_What] = set()
        self._counts: dict[_What, int] = {}
        self._written: set[_What] = set()

    def pays(self, size: int, now_us: int) -> bool:
        """Charge `size` bytes, if they are within the rate."""
        outcome = spend(self._rate, self._arrival_us, now_us, size)
        if isinstance(outcome, Spent):
            self._arrival_us = outcome.arrival_us
        return isinstance(outcome, Spent)

    def is_told(self, refused: Decision) -> bool:
        """Say whether one of this kind has been told within this minute, so that this one is only counted."""
        return _what(refused) in self._told

    def note(self, refused: Decision) -> None:
        """Note that a refusal was told."""
        if refused.code in COUNTED:
            self._told.add(_what(refused))

    def count(self, refused: Decision) -> None:
        """Count a refusal that is not told."""
        what = _what(refused)
        self._counts[what] = self._counts.get(what, 0) + 1

    def events(self, now_us: int) -> list[RefusalsCounted]:
        """Return what was counted, for each bucket."""
        integration, name, _ = self.who
        return [
            RefusalsCounted(
                time=now_us // 1_000_000,
                since=self.since_us // 1_000_000,
                codes={code: count for (of, code), count in self._counts.items() if of == bucket},
                provider=UNSET if integration else name or UNSET,
                integration=integration or UNSET,
                identity=name if integration else UNSET,
                bucket=bucket,
            )
            for bucket in dict.fromkeys(bucket for bucket, _ in self._counts)
        ]

    def settle(self, counted: RefusalsCounted) -> None:
        """Forget what has been written."""
        for code in counted.codes:
            del self._counts[counted.bucket, code]
            if code in COUNTED:
                self._written.add((counted.bucket, code))

    def renew(self, now_us: int) -> bool:
        """Begin the next minute: what nothing was counted of is told singly again. False where nothing is left."""
        self.since_us = now_us
        self._told, self._written = self._written, set()
        return bool(self._told) or self._arrival_us > now_us


class Refusals:
    """The accounts of all callers. `rate` is that of bytes, for each."""

    def __init__(self, rate: Rate, capacity: int = MAX_COUNTED) -> None:
        self._rate = rate
        self._capacity = capacity
        self._accounts: dict[_Who, Account] = {}

    def __len__(self) -> int:
        return len(self._accounts)

    def account_of(self, refused: Decision, now_us: int) -> Account:
        """Return the account of a refused caller; where there are too many, that of all others."""
        who = _who(refused)
        if (account := self._accounts.get(who)) is None:
            if len(self._accounts) >= self._capacity:
                who = _OTHERS
            account = self._accounts.setdefault(who, Account(who, self._rate, now_us))
        return account

    def due(self, now_us: int) -> list[Account]:
        """Return the accounts whose minute is over."""
        return [it for it in self._accounts.values() if now_us - it.since_us >= COUNTED_S * 1_000_000]

    def every(self) -> list[Account]:
        """Return all accounts."""
        return [*self._accounts.values()]

    def forget(self, account: Account) -> None:
        """Forget an account of which nothing is left to know."""
        del self._accounts[account.who]


def _who(refused: Decision) -> _Who:
    if refused.integration is UNSET:
        return "", refused.caller.provider, False
    return refused.integration, refused.identity or "", refused.bucket is not UNSET


def _what(refused: Decision) -> _What:
    return refused.bucket, refused.code or ""


# -- the sink ----------------------------------------------------------------------------------------------------------

_log = structlog.get_logger("issuer")


class FileAudit:
    """An open sink. Implements `issuance.ports.Audit`; `turn` is to be called twice a second.

    `refused_bytes` is the rate of bytes that one caller's refusals may add; `now_us` the clock, in microseconds.
    `count_failure` is called for each event, or sync, that does not get onto the disk, `count_signal` for each signal
    of abuse that did.
    """

    def __init__(
        self,
        path: Path,
        refused_bytes: Rate = REFUSED_BYTES,
        now_us: Callable[[], int] = lambda: time.time_ns() // 1000,
        count_failure: Callable[[], object] = lambda: None,
        count_signal: Callable[[AbuseSignal], object] = lambda _: None,
    ) -> None:
        self.worker = os.urandom(16).hex()
        self._seq, self._head = 0, NO_LINE
        self._told_seq, self._told_us = 0, now_us()
        self._refusals = Refusals(refused_bytes)
        self._now_us = now_us
        self._count_failure, self._count_signal = count_failure, count_signal
        self._sync_began: float | None = None
        self._unsynced = False
        self.is_failing = False
        try:
            self._file = AppendFile(path)
        except OSError as error:
            raise SetupError(
                Code.SETTINGS_INVALID, f"the audit file {path} cannot be opened: {error.strerror}"
            ) from None
        if self._file.is_open_to_others:
            self._file.close()
            raise SetupError(Code.SETTINGS_INVALID, f"others may read the audit file {path}. Run `chmod 600 {path}`")

    @property
    def head(self) -> tuple[str, str]:
        """The random id of this worker, and the head of its chain: the digest of its last line."""
        return self.worker, self._head

    async def record(self, event: Event) -> None:
        """Append an event, whatever it costs; of a signal the log stream tells, too. Raises
        Undecided(`dependency.audit`) where it was not written."""
        self._append(self._line_of(event))
        if isinstance(event, AbuseSignal):
            _log.warning("abuse signal", **_evidence(event))
            self._count_signal(event)

    async def refuse(self, refused: Decision) -> None:
        """Tell a refusal, or count it: where one of its kind was told already, or its caller has added too much.

        Raises Undecided(`dependency.audit`) where it was not written.
        """
        now_us = self._now_us()
        account = self._refusals.account_of(refused, now_us)
        if account.is_told(refused):
            account.count(refused)
            return
        line = self._line_of(refused)
        if not account.pays(len(line), now_us):
            account.count(refused)
            return
        self._append(line)
        account.note(refused)

    async def turn(self, _asked: bool = False) -> None:
        """Write the counts that are due, tell the head of the chain, and sync the file."""
        now_us = self._now_us()
        with suppress(Undecided):
            for account in self._refusals.due(now_us):
                self._settle(account, now_us)
        if now_us - self._told_us >= COUNTED_S * 1_000_000:
            self._tell_head(now_us)
        await self._sync()

    def check(self) -> None:
        """Raise Undecided(`dependency.audit`) where the next event would not be written.

        After a failed write this tries another one, which is the way back: a service that is not ready gets no request
        that could try.
        """
        self._demand_synced()
        try:
            self._file.check()
        except OSError as error:
            self._undecided(error)
            todo = " Make room on the disk of `data`." if error.errno == errno.ENOSPC else ""
            detail = f"No event of the audit can be written: {error.strerror}.{todo}"
            raise Undecided(Code.DEPENDENCY_AUDIT, detail) from None
        self._works()

    def close(self) -> None:
        """Write what was counted, tell the head, sync and close."""
        now_us = self._now_us()
        with suppress(Undecided):
            for account in self._refusals.every():
                for counted in account.events(now_us):
                    self._append(self._line_of(counted))
        self._tell_head(now_us)
        try:
            self._file.close()
        except OSError as error:
            self._undecided(error)

    def _settle(self, account: Account, now_us: int) -> None:
        """Write an account's counts, as far as they are within its rate: the rest waits."""
        for counted in account.events(now_us):
            line = self._line_of(counted)
            if not account.pays(len(line), now_us):
                return
            self._append(line)
            account.settle(counted)
        if not account.renew(now_us):
            self._refusals.forget(account)

    def _line_of(self, event: Event) -> bytes:
        return to_line(replace(event, version=1, worker=self.worker, seq=self._seq + 1, prev=self._head))

    def _append(self, line: bytes) -> None:
        self._demand_synced()
        try:
            self._file.append(line)
            self._seq, self._head = self._seq + 1, digest_of(line[:-1])
            self._file.mend(line)
        except OSError as error:
            raise self._undecided(error) from None
        self._works()

    def _tell_head(self, now_us: int) -> None:
        if self._seq != self._told_seq:
            self._told_seq = self._seq
            _log.info("audit head", worker=self.worker, seq=self._seq, head=self._head)
        self._told_us = now_us

    async def _sync(self) -> None:
        self._sync_began = time.monotonic()
        try:
            if self._unsynced:
                self._file.check()
            await self._file.sync()
        except OSError as error:
            self._unsynced = True
            self._undecided(error)
        else:
            self._unsynced = False
        finally:
            self._sync_began = None

    def _demand_synced(self) -> None:
        """Raise Undecided while what was written does not get onto the disk."""
        late = self._sync_began is not None and time.monotonic() - self._sync_began > SYNC_LATE_S
        if self._unsynced or late:
            self._count_failure()
            raise Undecided(Code.DEPENDENCY_AUDIT)

    def _undecided(self, error: OSError) -> Undecided:
        """Say it once in the log stream, and return what to raise."""
        self._count_failure()
        if not self.is_failing:
            _log.error("audit not written", reason=error.strerror)
        self.is_failing = True
        self._file.doubt()
        return Undecided(Code.DEPENDENCY_AUDIT)

    def _works(self) -> None:
        if self.is_failing:
            _log.info("audit written again")
        self.is_failing = False


_SHOWN = ("signal", "then", "integration", "identity", "rule", "count", "limit", "results", "request_id")


def _evidence(event: AbuseSignal) -> dict[str, object]:
    """Return what the log stream tells of a signal: of another caller its provider and ids."""
    told: dict[str, object] = {name: getattr(event, name) for name in _SHOWN}
    return told if event.caller is UNSET else told | {"provider": event.caller.provider, "caller": event.caller.claims}
