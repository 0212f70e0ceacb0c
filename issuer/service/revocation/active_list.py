"""What is revoked, as a process has it in force, and the list that it serves; both followed apart from everything
else.

What is revoked is taken at the first look that sees it, and never given back: nothing that is damaged, older or gone
takes anything out of a process's memory, nor the last good list out of its answers.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import structlog
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from msgspec import Struct

from issuer.audit.events import Audit, RevocationsLoaded
from issuer.codes import Code
from issuer.errors import InputError, IssuerError, Place, Undecided
from issuer.io.followed import Complaint, Failure, Followed, Reading
from issuer.service.revocation.bounds import LIST_ENDS_S, LIST_RETRY_S, LIST_TOLD_S
from issuer.service.revocation.ledger import NOTHING, Ledger, LedgerState, SignedList, Signing, is_due, unlisted
from issuer.service.settings.background import OwnThread
from issuer.verify.revocations import LEEWAY_S, Items

_log = structlog.get_logger("issuer")


class ListStatus(Struct, frozen=True):
    """A list that is served. `good_for_s` seconds are left until `next_update` (Unix seconds), fewer than none where it
    has ended."""

    number: int
    next_update: int
    good_for_s: int


class RevocationsStatus(Struct, frozen=True, rename={"signed_list": "list"}):
    """What readiness shows: how many items are in force, how many of them the list lacks, and the list, null where none
    is served. `stale`: the files are not as they should be."""

    items: int
    unlisted: int
    stale: bool
    signed_list: ListStatus | None


class InForce(Struct, frozen=True):
    """What a process goes by: all that is revoked, the list that it serves, how many items that lacks, how many good
    lines the record has, and what is wrong with the files."""

    items: Items
    published: SignedList | None
    unlisted: int
    lines: int
    error: InputError | None = None

    @classmethod
    def of(cls, found: LedgerState) -> InForce:
        """Take the files as they are."""
        return cls(found.items, found.published, unlisted(found.published, found.items), len(found.acts), found.error)

    def after(self, found: LedgerState, place: Place) -> InForce:
        """Add what the files revoke, and serve their list unless it is older than the one that is served."""
        items = self.items.with_those_of(found.items) if self.items.missing(found.items) else self.items
        published, error = found.published or self.published, found.error
        if error is None and published is not found.published:
            error = InputError(Code.FILE_UNREADABLE, "it is gone", place)
        if published is not None and published.is_behind(self.published):
            published = self.published
            error = error or InputError(Code.FILE_RULE, "it is older than the list that is served", place)
        lines = len(found.acts) if found.record_error is None else self.lines
        return InForce(items, published, unlisted(published, items), lines, error)


class LiveRevocations:
    """The revocations of one process. Implements `issuance.ports.Revocations`. `clock` returns Unix seconds. The
    constructor reads the files, and raises InputError where one is not good: nobody knows what it was to revoke."""

    def __init__(self, ledger: Ledger, audit: Audit, clock: Callable[[], int]) -> None:
        self._ledger = ledger
        self._audit = audit
        self._clock = clock
        self._thread = OwnThread()
        self._files = Followed(ledger.look, self._read, self._say, narrow=lambda _, found: found)
        self._recorded = NOTHING  # that nothing is revoked is no event

    @property
    def in_force(self) -> InForce:
        """What this process goes by; replaced as a whole."""
        return self._files.value

    def reason(self, jti: str, sub: str, iat: int) -> str:
        """Return why a token is revoked, or "" where it is not."""
        return self.in_force.items.revoked(jti, sub, iat)

    @property
    def status(self) -> RevocationsStatus:
        """What health shows."""
        now, published = self.in_force, self.in_force.published
        listed = None if published is None else published.listed
        left = None if listed is None else listed.next_update - self._clock()
        shown = None if listed is None or left is None else ListStatus(listed.number, listed.next_update, left)
        return RevocationsStatus(now.items.count, now.unlisted, now.error is not None, shown)

    async def turn(self, _asked: bool) -> None:
        """Look at the files, and read them where they have changed. The largest take a second."""
        before = self.in_force
        if await self._thread.run(self._files.turn):
            self._tell(before, self.in_force)
        await self._announce()

    def _read(self, last: InForce | None) -> Reading[InForce]:
        found = self._ledger.read()
        now = InForce.of(found) if last is None else last.after(found, Place(self._ledger.place))
        # What could not be read may be readable again without any change that shows.
        return Reading(now, now.error, again=now.error is not None and now.error.code is Code.FILE_UNREADABLE)

    def _say(self, error: Failure | None) -> None:
        if isinstance(error, InputError):
            _log.error("revocations refused", code=str(error.code), detail=error.detail, file=str(error.place))
        else:
            _log.info("revocations accepted again")

    def _tell(self, before: InForce, now: InForce) -> None:
        items = now.items
        if items is not before.items:
            _log.warning("revocations in force", tokens=len(items.jtis), intervals=items.count - len(items.jtis))
        if now.lines < before.lines:
            _log.error("revocation record has lost lines", before=before.lines, now=now.lines)

    async def _announce(self) -> None:
        """Audit that more is revoked; where that fails, the next `turn` tries again."""
        items = self.in_force.items
        if items is not self._recorded and items.count:
            with suppress(Undecided):
                tokens = len(items.jtis)
                await self._audit.record(RevocationsLoaded(self._clock(), tokens, items.count - tokens))
                self._recorded = items


class ListKeeper:
    """Signs the list anew when that is due, where this host has its key; and says in the log when it comes to its end.
    `find_key` returns the key, or None; it blocks, and raises SetupError and OSError."""

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
        self._complaint = Complaint(_say_not_written)
        self._failed: tuple[InForce, int] | None = None
        self._told = ("", 0)

    async def turn(self, _asked: bool) -> None:
        """Sign the list if that is due. What is in the way is told once."""
        self._tell_end(is_kept=await self._thread.run(self._keep))

    def _keep(self) -> bool:
        """Sign the list where it is due; return whether this host can."""
        known, now = self._live.in_force, self._clock()
        is_needed = known.error is not None or is_due(known.published, known.unlisted, now)
        if is_needed and self._failed and self._failed[0] is known and abs(now - self._failed[1]) < LIST_RETRY_S:
            return False
        try:
            key = self._find_key() if is_needed else None
            written = key and self._ledger.keep(Signing(key), now, known.items, known.published)
        except (IssuerError, OSError) as error:
            self._failed = known, now
            self._complaint.note(error)
            return False
        self._complaint.note(None)
        if written:
            number, items, until = written.listed.number, written.listed.count, written.listed.next_update
            _log.info("revocation list written", number=number, items=items, next_update=until)
        return key is not None or not is_needed

    def _tell_end(self, *, is_kept: bool) -> None:
        """Say, once an hour, that the list ends soon, or has ended, or is dated so far ahead that nobody takes it."""
        now, published = self._clock(), self._live.in_force.published
        if published is None:
            return
        left, ahead = published.listed.next_update - now, published.listed.iat - now
        event = ""
        if ahead > LEEWAY_S:
            event = "revocation list is dated ahead of this clock"
        elif left < LIST_ENDS_S and not is_kept:
            event = "revocation list has ended" if left < 0 else "revocation list ends soon"
        if event and (event != self._told[0] or abs(now - self._told[1]) >= LIST_TOLD_S):
            _log.error(event, number=published.listed.number, good_for_s=left, dated_ahead_s=max(0, ahead))
            self._told = event, now


def _say_not_written(error: Failure | None) -> None:
    if error is not None:
        _log.error("revocation list not written", detail=str(error))
