"""The policies that a process answers by, and their change: all of the folder at once, or nothing.

Each process looks at the folder once a second for itself, and on SIGHUP. A request keeps what it began with: it takes
`Live.active` once. A folder that does not load changes nothing: the last good one goes on deciding, and audit, log and
readiness say so. What it takes away counts all the same (policy/narrow.py).
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Generic, TypeVar

import structlog
from msgspec import Struct
from msgspec.structs import replace

from issuer import files
from issuer.audit_events import PoliciesLoaded, PoliciesRefused
from issuer.codes import Code
from issuer.errors import InputError, IssuerError, Undecided
from issuer.issuance.ports import Audit, Authority
from issuer.policy.authoring.load import load_policies, paths_that_decide, read_each
from issuer.policy.authoring.schema import schemas
from issuer.policy.authoring.stops import STOPS_FILE
from issuer.policy.match import PolicySet
from issuer.policy.narrow import narrow, narrowed_names
from issuer.service.look import Look, look

# policies/benchmarks/<owner>/<name>/eval.yaml
MAX_DEPTH = 4

_log = structlog.get_logger("issuer")


class Active(Struct, frozen=True):
    """The policies of one load, and the authority made of them. `loaded_at` is Unix seconds."""

    authority: Authority
    loaded_at: int

    @property
    def digest(self) -> str:
        """The digest of everything that the folder says."""
        return self.authority.policies.digest


ActiveT = TypeVar("ActiveT", bound=Active)


class Live(Generic[ActiveT]):
    """The active policies of one process. `active` is replaced as a whole; `stale`: the folder was refused since.

    `load` reads both folders, in a thread, and raises where it refuses them. The constructor loads, and raises too.
    """

    def __init__(self, folder: Path, load: Callable[[], ActiveT], audit: Audit) -> None:
        self._folder = folder
        self._load = load
        self._audit = audit
        self._seen: Look | None = _look(folder)
        self._before = self._seen
        self.active = load()
        self._whole = self.active.authority.policies
        self.stale = False
        self._announced = False

    async def announce(self) -> None:
        """Audit the policies at start. If that fails, no token leaves, and `watch` tries again."""
        with suppress(Undecided):
            await self._audit.record(loaded_event(None, self.active))
            self._announced = True

    async def turn(self, asked: bool) -> None:
        """Look at the folder, and load it where two looks in a row see the same new one, or where a signal `asked`."""
        if not self._announced:
            await self.announce()
        seen = await asyncio.to_thread(_look, self._folder)
        before, self._before = self._before, seen
        if asked or (seen == before and seen != self._seen):
            await self._reload(seen)

    async def _reload(self, seen: Look) -> None:
        """Load the folder as it was `seen`. A change that cannot be audited is not made, and tried again."""
        self._seen = None  # until it has been audited: the next looks find the folder new
        began = time.perf_counter()
        loaded = await asyncio.to_thread(self._attempt)
        if await asyncio.to_thread(_look, self._folder) != seen:
            return  # it changed while it was read: what was loaded was never on the disk as a whole
        if isinstance(loaded, Exception):
            await self._narrow(seen)  # before it is audited: that may fail
        try:
            if isinstance(loaded, Exception):
                await self._refuse(loaded)
            else:
                await self._activate(loaded, round((time.perf_counter() - began) * 1000))
            self._seen = seen
        except Undecided:
            await self._narrow(seen)

    async def _narrow(self, seen: Look) -> None:
        """Take away what the folder, as it was `seen`, takes away although it is not taken as a whole."""
        found = await asyncio.to_thread(read_each, self._folder)
        if found is None or await asyncio.to_thread(_look, self._folder) != seen:
            return
        authority = self.active.authority
        narrowed = narrow(authority.policies, found)
        if narrowed is not authority.policies:
            self.active = replace(self.active, authority=replace(authority, policies=narrowed))
            _log.warning("policies narrowed", integrations=self.narrowed)

    @property
    def narrowed(self) -> list[str]:
        """The integrations from which a folder that was not taken as a whole has taken something away."""
        return narrowed_names(self._whole, self.active.authority.policies)

    def _attempt(self) -> ActiveT | Exception:
        """Load, and return an error as a value: a thread's StopIteration would never reach the coroutine."""
        try:
            return self._load()
        except Exception as error:  # noqa: BLE001 (whatever it is, the last good policies go on)
            return error

    async def _activate(self, loaded: ActiveT, ms: int) -> None:
        event = loaded_event(self.active, loaded)
        self.stale = True  # until it has been audited
        await self._audit.record(event)
        self.active, self.stale = loaded, False
        self._whole = loaded.authority.policies
        _log.info("policies loaded", policies=loaded.digest, changed=sorted(event.changed), ms=ms)

    async def _refuse(self, error: Exception) -> None:
        event = refused_event(self.active, error, self.narrowed)
        self.stale = True
        # Without its text, which may show a policy. What has no code is our own mistake: its frames, without variables.
        frames = None if isinstance(error, IssuerError | OSError) else error
        place = {"file": event.file, "line": event.line, "column": event.column}
        _log.error("policies refused", policies=event.policies, code=event.code, **place, exc_info=frames)
        await self._audit.record(event)


def _look(folder: Path) -> Look:
    """Look at what decides; the stops beside it are followed apart."""
    return look(folder, MAX_DEPTH, without=STOPS_FILE)


# -- audit events (deploy/README.md) ----------------------------------------------------------------------------------


def loaded_event(before: Active | None, after: Active) -> PoliciesLoaded:
    """Record what decides from now on: the digest of all, and the changed ones."""
    old, new = digests(before.authority.policies) if before else {}, digests(after.authority.policies)
    return PoliciesLoaded(
        time=after.loaded_at,
        policies=after.digest,
        changed={name: found for name, found in new.items() if found != old.get(name)},
        removed=sorted(old.keys() - new.keys()),
    )


def digests(policies: PolicySet) -> dict[str, list[str]]:
    """Return each integration's policy digests: one for each provider that it has identities of."""
    found: dict[str, set[str]] = {}
    for registrations in policies.registrations.values():
        for registration in registrations:
            found.setdefault(registration.policy.integration, set()).add(registration.digest)
    return {name: sorted(found[name]) for name in sorted(found)}


def refused_event(active: Active, error: Exception, narrowed: list[str]) -> PoliciesRefused:
    """Record that the folder was refused: the code and the place, never the content; and what it took away."""
    place = error.place if isinstance(error, InputError) else None
    unnamed = Code.FILE_UNREADABLE if isinstance(error, OSError) else Code.INTERNAL
    return PoliciesRefused(
        time=int(time.time()),
        policies=active.digest,
        code=str(error.code if isinstance(error, IssuerError) else unnamed),
        file=os.fsencode(place.file).decode("utf-8", "replace") if place else "",
        line=place.line if place else 0,
        column=place.column if place else 0,
        narrowed=narrowed,
    )


# -- what is loaded ---------------------------------------------------------------------------------------------------


def load_and_keep(folder: Path, kept: Path, issuer_url: str, development: bool) -> PolicySet:
    """Load a folder of policies that is guarded, and keep each of them. Raises InputError and SetupError.

    The one place of the service that knows how policies are written (`policy.authoring`); requests meet what is loaded.
    """
    for path in dict.fromkeys(paths_that_decide(folder)):
        files.demand_guarded(path, group=True)
    policies = load_policies(folder, issuer_url, development=development)
    keep_policies(policies, kept)
    return policies


def schema_documents() -> dict[str, bytes]:
    """Return the JSON schemas of the files that are loaded, by name."""
    return schemas()


def keep_policies(policies: PolicySet, folder: Path) -> None:
    """Keep every policy value, and every registered benchmark that it names, under its digest, before the first
    admission under it (contract section 4)."""
    files.make_folder(folder)
    for suffix, values in (("yaml", policies.benchmarks), ("json", policies.digests)):
        for digest, value in values.items():
            path = folder / f"{digest.removeprefix('sha256:')}.{suffix}"
            if not path.exists():
                files.replace(path, value, mode=0o600, durable=True)
