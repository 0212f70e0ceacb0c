"""The emergency stops that a process enforces. It follows `stops.yaml` separately from all other files.

A stop begins at the first look that sees it, before it is audited. It ends only when two looks in a row see a good file
without it, or no file: a checkout under way, a typo or a folder that vanished ends no stop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

import structlog
from msgspec import Struct

from issuer.audit.events import Audit, StopsLoaded
from issuer.codes import Code
from issuer.errors import Finding, InputError, Place, Refused, Undecided
from issuer.identity.table import Provider
from issuer.io import files
from issuer.io.followed import Seen, look_at
from issuer.io.shared_memory import SharedPage
from issuer.issuance.ports import KnownRefusals
from issuer.issuance.steps import Registered
from issuer.policy.authoring.load import PROVIDERS_FILE
from issuer.policy.authoring.stops import MAX_STOPS_BYTES, STOPS_FILE, read_stops
from issuer.policy.stops import Stops, names_of_provider, names_of_registration
from issuer.service.settings.background import OwnThread
from issuer.token.wire import StopsStatus

_log = structlog.get_logger("issuer")


class _Read(Struct, frozen=True):
    """The result of one reading of the file: the stops in it, and its first error."""

    stops: Stops
    error: Finding | None = None


class LiveStops:
    """The stops of one process. Implements `issuance.ports.KnownRefusals`; `behind` knows all other refusals.

    `clock` returns Unix seconds; a stop begins and ends by it, even for requests under way. The constructor reads
    `stops.yaml`. It raises InputError for an invalid file, because its stops are then unknown.
    """

    def __init__(
        self, folder: Path, page: SharedPage, audit: Audit, behind: KnownRefusals, clock: Callable[[], float]
    ) -> None:
        self._path = folder / STOPS_FILE
        self._page = page
        self._audit = audit
        self._behind = behind
        self._clock = clock
        self._thread = OwnThread()
        page.publish("stops", bytes(32))  # before the read: a command that awaits a stop must await this process
        self._before = self._look()
        self._seen: Seen | None = self._before
        self._error: Finding | None = None
        read = self._read()
        if read.error is not None:
            raise InputError(read.error.code, read.error.detail, read.error.place, read.error.pointer)
        self.stops = read.stops
        self._recorded = (Stops(), False)

    # -- refusing -----------------------------------------------------------------------------------------------------

    def refusal(self, registered: Registered) -> Refused | None:
        """Return the refusal of a caller that is stopped, or that `behind` refuses."""
        if self._stops(names_of_registration(registered.registration)):
            return Refused(Code.INTEGRATION_STOPPED)
        return self._behind.refusal(registered)

    def learn(self, registered: Registered, error: Refused) -> None:
        """Pass the refusal on to `behind`."""
        self._behind.learn(registered, error)

    def check_provider(self, provider: Provider) -> None:
        """Raise Refused for a stopped provider, before any request to it."""
        if self.stops.find(names_of_provider(provider), int(self._clock())) is not None:
            raise Refused(Code.INTEGRATION_STOPPED)

    def _stops(self, names: Iterable[str]) -> bool:
        return self._page.everything_stopped or self.stops.find(names, int(self._clock())) is not None

    @property
    def status(self) -> StopsStatus:
        """The stops as health shows them."""
        published, own = self._page.published("stops"), _digest_bytes(self.stops)
        return StopsStatus(
            digest=self.stops.digest,
            count=len(self.stops.all),
            stale=self._error is not None,
            everything=self._page.everything_stopped,
            workers=len(published),
            agreeing=published.count(own),
        )

    # -- following ----------------------------------------------------------------------------------------------------

    async def announce(self) -> None:
        """Audit the stops in force if they have changed. After a failure the next `turn` tries again."""
        self._page.publish("stops", _digest_bytes(self.stops))
        if (self.stops, self._page.everything_stopped) == self._recorded:
            return
        with suppress(Undecided):
            everything, stops = self._page.everything_stopped, sorted({stop.what for stop in self.stops.all})
            await self._audit.record(StopsLoaded(int(self._clock()), self.stops.digest, stops, everything))
            self._recorded = (self.stops, everything)

    async def turn(self, _asked: bool) -> None:
        """Look at the file, and read it if it has changed."""
        seen = await self._thread.run(self._look)
        before, self._before = self._before, seen
        if seen != self._seen:
            self._seen = None  # until the reading is complete: the file may look as before again
            read = await self._thread.run(self._read)
            self._take(read, seen if seen == before else None)
        await self.announce()

    def _take(self, read: _Read, twice: Seen | None) -> None:
        """Add the stops of the file. If it is good and two looks saw it (`twice`), replace all stops by its stops."""
        if read.error is not None and read.error != self._error:
            place, code = read.error.place, str(read.error.code)
            _log.error("stops refused", code=code, file=place.file, line=place.line, column=place.column)
        self._error = read.error
        if twice is None or read.error is not None:
            stops = self.stops.with_those_of(read.stops)
        else:
            self._seen, stops = twice, read.stops
        if stops.digest != self.stops.digest:
            self._set(stops)

    def _set(self, stops: Stops) -> None:
        self.stops = stops
        self._page.publish("stops", _digest_bytes(stops))
        _log.warning("stops in force", digest=stops.digest, stops=[stop.what for stop in stops.all])

    def _look(self) -> Seen:
        return look_at(str(self._path))

    def _read(self) -> _Read:
        """Read the file. If it is missing in a folder without providers, return an error: a volume may be unmounted."""
        stops = Stops()
        if not self._path.exists():
            folder = self._path.parent
            is_whole = (folder / PROVIDERS_FILE).exists()
            gone = f"not a folder of policies: it has no {PROVIDERS_FILE}"
            return _Read(stops, None if is_whole else Finding(Code.FILE_UNREADABLE, Place(str(folder)), gone))
        try:
            stops, errors = read_stops(files.read(self._path, MAX_STOPS_BYTES), str(self._path))
            files.demand_guarded(self._path, group=True)  # anyone who can write to it could end a stop
        except InputError as error:
            return _Read(stops, error.finding)
        return _Read(stops, errors[0] if errors else None)


def _digest_bytes(stops: Stops) -> bytes:
    return bytes.fromhex(stops.digest.removeprefix("sha256:"))
