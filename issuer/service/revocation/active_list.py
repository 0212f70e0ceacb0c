"""The revocations that a process applies, and the revocation list that it serves; both follow their files.

A revocation applies from the first look at the files that shows it. A process never drops one: if a file is damaged,
older or missing, it keeps all revocations that it knows, and goes on serving the last good list.
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
    """A list that is served. `good_for_s` seconds are left until `next_update` (Unix seconds); negative once it has
    expired."""

    number: int
    next_update: int
    good_for_s: int


class RevocationsStatus(Struct, frozen=True, rename={"signed_list": "list"}):
    """Revocations for readiness: the number of items in force, the number that the list lacks, and the list (null if
    none is served). `stale`: a file is damaged, older or missing."""

    items: int
    unlisted: int
    stale: bool
    signed_list: ListStatus | None


class InForce(Struct, frozen=True):
    """The revocations of a process: all items, the list that it serves, the number of items that the list lacks, the
    number of good lines in the record, and the fault of the files, if any."""

    items: Items
    published: SignedList | None
    unlisted: int
    lines: int
    error: InputError | None = None

    @classmethod
    def of(cls, read: LedgerState) -> InForce:
        """Return the state of the files."""
        return cls(read.items, read.published, unlisted(read.published, read.items), len(read.acts), read.error)

    def after(self, read: LedgerState, place: Place) -> InForce:
        """Add the items of the files, and serve their list unless it is older than the one that is served."""
        items = self.items.with_those_of(read.items) if self.items.missing(read.items) else self.items
        published, error = read.published or self.published, read.error
        if error is None and published is not read.published:
            error = InputError(Code.FILE_UNREADABLE, "it is gone", place)
        if published is not None and published.is_behind(self.published):
            published = self.published
            error = error or InputError(Code.FILE_RULE, "it is older than the list that is served", place)
        lines = len(read.acts) if read.record_error is None else self.lines
        return InForce(items, published, unlisted(published, items), lines, error)


class LiveRevocations:
    """The revocations of one process. Implements `issuance.ports.Revocations`. `clock` returns Unix seconds. The
    constructor reads the files, and raises InputError if one is damaged: then some revocations are unknown."""

    def __init__(self, ledger: Ledger, audit: Audit, clock: Callable[[], int]) -> None:
        self._ledger = ledger
        self._audit = audit
        self._clock = clock
        self._thread = OwnThread()
        self._files = Followed(ledger.look, self._read, self._say, narrow=lambda _, found: found)
        self._recorded = NOTHING  # an empty set of revocations is not audited

    @property
    def in_force(self) -> InForce:
        """The revocations that apply; replaced as a whole."""
        return self._files.value

    def reason(self, jti: str, sub: str, iat: int) -> str:
        """Return the reason why a token is revoked, or "" if it is not."""
        return self.in_force.items.revoked(jti, sub, iat)

    @property
    def status(self) -> RevocationsStatus:
        """The state for readiness."""
        now, signed_list = self.in_force, None
        if now.published is not None:
            listed = now.published.listed
            signed_list = ListStatus(listed.number, listed.next_update, listed.next_update - self._clock())
        return RevocationsStatus(now.items.count, now.unlisted, now.error is not None, signed_list)

    async def turn(self, _asked: bool) -> None:
        """Look at the files, and read them if they have changed. Reading the largest files takes a second."""
        before = self.in_force
        if await self._thread.run(self._files.turn):
            self._tell(before, self.in_force)
        await self._announce()

    def _read(self, last: InForce | None) -> Reading[InForce]:
        read = self._ledger.read()
        now = InForce.of(read) if last is None else last.after(read, Place(self._ledger.place))
        # An unreadable file may become readable without a visible change, and a folder safe, so it is read again.
        unseen = {Code.FILE_UNREADABLE, Code.FILE_UNSAFE}
        return Reading(now, now.error, again=now.error is not None and now.error.code in unseen)

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
        """Audit new revocations. If the audit fails, the next `turn` tries again."""
        items = self.in_force.items
        if items is not self._recorded and items.count:
            with suppress(Undecided):
                tokens = len(items.jtis)
                await self._audit.record(RevocationsLoaded(self._clock(), tokens, items.count - tokens))
                self._recorded = items


class ListKeeper:
    """Renews the list in time if this host has its key, and logs an error when the list is about to expire. `find_key`
    returns the key or None; it blocks, and raises SetupError and OSError."""

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
        self._thread = OwnThread()  # separate, so that waiting for the lock does not delay LiveRevocations
        self._complaint = Complaint(_say_not_written)
        self._failed: tuple[InForce, int] | None = None
        self._logged = ("", 0)  # the last event about the end of the list, and its time

    async def turn(self, _asked: bool) -> None:
        """Sign the list if that is due. A failure is logged once."""
        self._log_end(is_kept=await self._thread.run(self._keep))

    def _keep(self) -> bool:
        """Sign the list if that is due; return whether this host can."""
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

    def _log_end(self, *, is_kept: bool) -> None:
        """Log, once an hour, that the list expires soon, has expired, or is dated too far ahead for relying parties."""
        now, published = self._clock(), self._live.in_force.published
        if published is None:
            return
        left, ahead = published.listed.next_update - now, published.listed.iat - now
        event = ""
        if ahead > LEEWAY_S:
            event = "revocation list is dated ahead of this clock"
        elif left < LIST_ENDS_S and not is_kept:
            event = "revocation list has ended" if left < 0 else "revocation list ends soon"
        if event and (event != self._logged[0] or abs(now - self._logged[1]) >= LIST_TOLD_S):
            _log.error(event, number=published.listed.number, good_for_s=left, dated_ahead_s=max(0, ahead))
            self._logged = event, now


def _say_not_written(error: Failure | None) -> None:
    if error is not None:
        _log.error("revocation list not written", detail=str(error))
