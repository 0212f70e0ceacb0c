"""The audit sink: one JSON line per decision in an append-only file of mode 0600, apart from the log stream.

If an event cannot be written, no token leaves (contract section 5). Each process chains its lines (`audit_chain.py`)
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

import msgspec
import structlog
from msgspec import UNSET
from msgspec.structs import replace

from issuer.audit_chain import NO_LINE, digest_of
from issuer.audit_events import AbuseSignal, Decision, Event
from issuer.codes import Code
from issuer.errors import SetupError, Undecided
from issuer.limits import Rate
from issuer.service.append_file import AppendFile
from issuer.service.bounds import COUNTED_S, REFUSED_BYTES, SYNC_LATE_S
from issuer.service.refusals import Account, Refusals

_log = structlog.get_logger("issuer")
_encode = msgspec.json.Encoder().encode


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
        return _encode(replace(event, version=1, worker=self.worker, seq=self._seq + 1, prev=self._head)) + b"\n"

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
