"""What is revoked, as a process has it in force, and the list that it serves; both followed on the disk apart from
everything else.

What is revoked is taken at the first look that sees it, and never given back: no file that is damaged, older or gone
takes anything out of a process's memory, nor the last good list out of its answers.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import structlog
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from msgspec import Struct

from issuer.audit_events import RevocationsLoaded
from issuer.codes import Code
from issuer.errors import InputError, IssuerError, Place, Undecided
from issuer.issuance.ports import Audit
from issuer.service.background import OwnThread
from issuer.service.bounds import LIST_ENDS_S, LIST_TOLD_S
from issuer.service.look import Seen
from issuer.service.revocation.ledger import LIST, NOTHING, Found, Ledger, Signing, is_due
from issuer.verify.revocations import LEEWAY_S

_log = structlog.get_logger("issuer")


class ListStatus(Struct, frozen=True):
    """What readiness shows of the list that a process serves: `good_for_s` seconds are left until `next_update` (Unix
    seconds), fewer than none where it has ended. `stale`: the files are not as they should be."""

    number: int
    items: int
    next_update: int
    good_for_s: int
    stale: bool


class LiveRevocations:
    """The revocations of one process. Implements `issuance.ports.Revocations`.

    `clock` returns Unix seconds. The constructor reads the files, and raises InputError where one is not good: nobody
    knows what it was to revoke.
    """

    def __init__(self, ledger: Ledger, audit: Audit, clock: Callable[[], int]) -> None:
        self._ledger = ledger
        self._audit = audit
        self._clock = clock
        self._thread = OwnThread()
        self._seen: tuple[Seen, ...] | None = ledger.look()
        found = ledger.read()
        if found.error is not None:
            raise found.error
        self.items, self.published = found.items, found.published
        self.error: InputError | None = None
        self._recorded = NOTHING  # that nothing is revoked is no event

    def reason(self, jti: str, sub: str, iat: int) -> str:
        """Return why a token is revoked, or "" where it is not."""
        return self.items.revoked(jti, sub, iat)

    @property
    def status(self) -> ListStatus | None:
        """What health shows; None where no list is served."""
        if self.published is None:
            return None
        listed, count, stale = self.published.listed, self.items.count, self.error is not None
        return ListStatus(listed.number, count, listed.next_update, listed.next_update - self._clock(), stale)

    async def turn(self, _asked: bool) -> None:
        """Look at the files, and read them where they have changed."""
        seen = await self._thread.run(self._ledger.look)
        if seen != self._seen:
            found = await self._thread.run(self._ledger.read)
            self._take(found)
            # What could not be read may be readable again without any change that shows.
            is_read = self.error is None or self.error.code is not Code.FILE_UNREADABLE
            self._seen = seen if is_read else None
        await self._announce()

    def _take(self, found: Found) -> None:
        """Add what the files revoke, and serve their list unless it is older than the one that is served."""
        if self.items.missing(found.items):
            self.items = self.items.with_those_of(found.items)
            _log.warning("revocations in force", tokens=len(self.items.jtis), intervals=_intervals(self))
        error, published = found.error, found.published
        if error is None and published is None and self.published is not None:
            error = InputError(Code.FILE_UNREADABLE, "it is gone", self._place)
        if published is not None and published.is_behind(self.published):
            error = InputError(Code.FILE_RULE, "it is older than the list that is served", self._place)
        elif published is not None:
            self.published = published
        if error is not None and str(error) != str(self.error):
            _log.error("revocations refused", code=str(error.code), detail=error.detail, file=str(error.place))
        self.error = error

    @property
    def _place(self) -> Place:
        return Place(str(self._ledger.folder / LIST))

    async def _announce(self) -> None:
        """Audit that more is revoked; where that fails, the next `turn` tries again."""
        items = self.items
        if items is not self._recorded and items.count:
            with suppress(Undecided):
                await self._audit.record(RevocationsLoaded(self._clock(), len(items.jtis), _intervals(self)))
                self._recorded = items


def _intervals(live: LiveRevocations) -> int:
    return live.items.count - len(live.items.jtis)


class ListKeeper:
    """Signs the list anew when that is due, where this host has its key; and says in the log when it comes to its end.

    `find_key` returns the key, or None; it blocks, and raises SetupError and OSError.
    """

    def __init__(
        self,
        ledger: Ledger,
        live: LiveRevocations,
        find_key: Callable[[], Ed25519PrivateKey | None],
        clock: Callable[[], int],
    ) -> None:
        self._ledger = ledger
        self._live = live
        self._find_key = find_key
        self._clock = clock
        self._thread = OwnThread()  # of its own: who holds the lock keeps nobody from following
        self._problem = ""
        self._told_at = 0

    async def turn(self, _asked: bool) -> None:
        """Sign the list if that is due. What is in the way is told once."""
        problem = await self._thread.run(self._keep)
        if problem and problem != self._problem:
            _log.error("revocation list not written", detail=problem)
        self._problem = problem or ""
        self._tell_end(is_kept=problem is None)

    def _keep(self) -> str | None:
        """Sign the list where it is due. Returns what is in the way, "" where this host has no key for it."""
        live, now = self._live, self._clock()
        if live.error is None and not is_due(live.published, live.items, now):
            return None
        try:
            key = self._find_key()
            if key is None:
                return ""
            self._ledger.keep(Signing(key), now, live.items, live.published)
        except (IssuerError, OSError) as error:
            return str(error)
        return None

    def _tell_end(self, *, is_kept: bool) -> None:
        """Say that the list ends soon, or has ended, or is dated ahead of the clock so that nobody takes it."""
        now, published = self._clock(), self._live.published
        if published is None or abs(now - self._told_at) < LIST_TOLD_S:
            return
        listed = published.listed
        left, ahead = listed.next_update - now, listed.iat - now
        if ahead > LEEWAY_S:
            _log.error("revocation list is dated ahead of this clock", number=listed.number, by_s=ahead)
        elif left < 0 and not is_kept:
            _log.critical("revocation list has ended", number=listed.number, ended_s_ago=-left)
        elif left < LIST_ENDS_S and not is_kept:
            _log.error("revocation list ends soon", number=listed.number, good_for_s=left)
        else:
            return
        self._told_at = now
