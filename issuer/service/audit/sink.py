"""The audit sink: one JSON line per decision in an append-only file of mode 0600, separate from the log stream.

If an event cannot be written, no token is issued (contract section 5). Each process chains its lines (`audit/chain.py`)
and writes the head of its chain to the log stream. When the file is rotated, the chain goes on in the next file. A
token waits for the write, but not for the sync, which happens twice a second: a power cut loses at most a second of
events, and the death of a process loses no event.
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

# A rate limits the bytes that one caller's refusals add to the file, whatever the reasons. Further refusals are only
# counted, so callers cannot fill the disk. The table of accounts is bounded; each process has its own in memory.

# The payer of an account: an identity, all callers that only resemble it, or all unregistered callers of one provider.
_Payer = tuple[str, str, bool]
# The kind of a refusal: the bucket (of callers that resemble an identity), and the code.
_Kind = tuple[int | UnsetType, str]

_OTHERS: _Payer = ("", "", False)


class Account:
    """The refusals of one payer: the bytes that it may still add, and the refusals that were only counted."""

    def __init__(self, payer: _Payer, rate: Rate, now_us: int) -> None:
        self.payer = payer
        self.since_us = now_us
        self._rate = rate
        self._arrival_us = 0
        self._recorded: set[_Kind] = set()
        self._counts: dict[_Kind, int] = {}
        self._counts_written: set[_Kind] = set()

    def pays(self, size: int, now_us: int) -> bool:
        """Charge `size` bytes, and return True, if they are within the rate."""
        outcome = spend(self._rate, self._arrival_us, now_us, size)
        if isinstance(outcome, Spent):
            self._arrival_us = outcome.arrival_us
        return isinstance(outcome, Spent)

    def is_recorded(self, refused: Decision) -> bool:
        """Return whether a refusal of this kind has its own event in this minute, so that this one is only counted."""
        return _kind(refused) in self._recorded

    def note(self, refused: Decision) -> None:
        """Note that the event of a refusal was written."""
        if refused.code in COUNTED:
            self._recorded.add(_kind(refused))

    def count(self, refused: Decision) -> None:
        """Count a refusal that does not get an event."""
        kind = _kind(refused)
        self._counts[kind] = self._counts.get(kind, 0) + 1

    def events(self, now_us: int) -> list[RefusalsCounted]:
        """Return an event with the counts of each bucket."""
        integration, name, _ = self.payer
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
        """Forget counts that have been written."""
        for code in counted.codes:
            del self._counts[counted.bucket, code]
            if code in COUNTED:
                self._counts_written.add((counted.bucket, code))

    def renew(self, now_us: int) -> bool:
        """Begin the next minute, in which kinds without written counts get an event again. Return False if the account
        is no longer needed."""
        self.since_us = now_us
        self._recorded, self._counts_written = self._counts_written, set()
        return bool(self._recorded) or self._arrival_us > now_us


class Refusals:
    """The accounts of all payers. `rate` limits the bytes of each."""

    def __init__(self, rate: Rate, capacity: int = MAX_COUNTED) -> None:
        self._rate = rate
        self._capacity = capacity
        self._accounts: dict[_Payer, Account] = {}

    def account_of(self, refused: Decision, now_us: int) -> Account:
        """Return the account of a refused caller; if there are too many accounts, the one for all others."""
        payer = _payer(refused)
        if (account := self._accounts.get(payer)) is None:
            if len(self._accounts) >= self._capacity:
                payer = _OTHERS
            account = self._accounts.setdefault(payer, Account(payer, self._rate, now_us))
        return account

    def due(self, now_us: int) -> list[Account]:
        """Return the accounts whose minute is over."""
        return [account for account in self.every() if now_us - account.since_us >= COUNTED_S * 1_000_000]

    def every(self) -> list[Account]:
        """Return all accounts."""
        return [*self._accounts.values()]

    def forget(self, account: Account) -> None:
        """Delete an account that is no longer needed."""
        del self._accounts[account.payer]


def _payer(refused: Decision) -> _Payer:
    if refused.integration is UNSET:
        return "", refused.caller.provider, False
    return refused.integration, refused.identity or "", refused.bucket is not UNSET


def _kind(refused: Decision) -> _Kind:
    return refused.bucket, refused.code or ""


# -- the sink ----------------------------------------------------------------------------------------------------------

_log = structlog.get_logger("issuer")


class FileAudit:
    """An open sink. Implements `audit.events.Audit`. Its owner calls `turn` twice a second. `refused_bytes` limits
    the bytes that one caller's refusals add; `now_us` is the clock, in microseconds. `count_failure` is called for each
    event or sync that fails, `count_signal` for each abuse signal that is written."""

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
        self._logged_seq, self._logged_us = 0, now_us()
        self._refusals = Refusals(refused_bytes)
        self._now_us = now_us
        self._count_failure, self._count_signal = count_failure, count_signal
        self._sync_began: float | None = None
        self._unsynced = False
        self.is_failing = False
        try:
            self._file = AppendFile(path)
        except OSError as error:
            detail = f"the audit file {path} cannot be opened: {error.strerror}"
            raise SetupError(Code.SETTINGS_INVALID, detail) from None
        if self._file.is_open_to_others:
            self._file.close()
            detail = f"other users may read the audit file {path}. Run `chmod 600 {path}`"
            raise SetupError(Code.SETTINGS_INVALID, detail)

    @property
    def head(self) -> tuple[str, str]:
        """The random id of this worker, and the head of its chain: the digest of its last line."""
        return self.worker, self._head

    async def record(self, event: Event) -> None:
        """Append an event; write an abuse signal to the log stream, too. Raises Undecided(`dependency.audit`) if it
        fails."""
        self._append(self._line_of(event))
        if isinstance(event, AbuseSignal):
            _log.warning("abuse signal", **_evidence(event))
            self._count_signal(event)

    async def refuse(self, refused: Decision) -> None:
        """Append the event of a refusal, or only count the refusal: if its kind has an event already, or if its payer
        has added too many bytes. Raises Undecided(`dependency.audit`) if the write fails."""
        now_us = self._now_us()
        account = self._refusals.account_of(refused, now_us)
        if account.is_recorded(refused) or not account.pays(len(line := self._line_of(refused)), now_us):
            account.count(refused)
            return
        self._append(line)
        account.note(refused)

    async def turn(self, _asked: bool = False) -> None:
        """Write the counts that are due, log the head of the chain, and sync the file."""
        now_us = self._now_us()
        with suppress(Undecided):
            for account in self._refusals.due(now_us):
                self._settle(account, now_us)
        if now_us - self._logged_us >= COUNTED_S * 1_000_000:
            self._log_head(now_us)
        await self._sync()

    def check(self) -> None:
        """Raise Undecided(`dependency.audit`) if the next event could not be written. After a failed write this tries
        another one, because a service that is not ready gets no requests that would try."""
        self._demand_synced()
        try:
            self._file.check()
        except OSError as error:
            self._undecided(error)
            todo = " Make room on the disk of `data`." if error.errno == errno.ENOSPC else ""
            detail = f"Audit events cannot be written: {error.strerror}.{todo}"
            raise Undecided(Code.DEPENDENCY_AUDIT, detail) from None
        self._works()

    def close(self) -> None:
        """Write the counts, log the head, sync and close."""
        now_us = self._now_us()
        with suppress(Undecided):
            for account in self._refusals.every():
                for counted in account.events(now_us):
                    self._append(self._line_of(counted))
        self._log_head(now_us)
        try:
            self._file.close()
        except OSError as error:
            self._undecided(error)

    def _settle(self, account: Account, now_us: int) -> None:
        """Write an account's counts as far as its rate allows; the others wait."""
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

    def _log_head(self, now_us: int) -> None:
        if self._seq != self._logged_seq:
            self._logged_seq = self._seq
            _log.info("audit head", worker=self.worker, seq=self._seq, head=self._head)
        self._logged_us = now_us

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
        """Raise Undecided while syncs fail or take too long."""
        late = self._sync_began is not None and time.monotonic() - self._sync_began > SYNC_LATE_S
        if self._unsynced or late:
            self._count_failure()
            raise Undecided(Code.DEPENDENCY_AUDIT)

    def _undecided(self, error: OSError) -> Undecided:
        """Log a failure unless it is logged already, and return the exception to raise."""
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


_LOGGED = ("signal", "then", "integration", "identity", "rule", "count", "limit", "results", "request_id")


def _evidence(event: AbuseSignal) -> dict[str, object]:
    """Return the members of a signal for the log stream, with provider and ids of another caller, if it names one."""
    members: dict[str, object] = {name: getattr(event, name) for name in _LOGGED}
    if event.caller is not UNSET:
        members |= {"provider": event.caller.provider, "caller": event.caller.claims}
    return members
