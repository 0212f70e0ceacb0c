"""The active policies of a process, and their replacement: the whole folder at once, or nothing of it.

A request reads `Live.active` once, and keeps it until it is answered. If a folder does not load, the last good one
still decides, and the audit file, the log stream and readiness say so. Permissions that the failed folder withdraws
are gone at once (policy/restriction.py). `watcher.py` reads the folder.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Generic, Protocol, TypeVar

import structlog
from msgspec import Struct
from msgspec.structs import replace

from issuer.audit.events import Audit, PoliciesLoaded, PoliciesRefused
from issuer.errors import Undecided
from issuer.issuance.ports import Authority
from issuer.policy.match import Key, PolicySet
from issuer.policy.registration import Registration
from issuer.policy.restriction import narrowed_names
from issuer.service.policies.watcher import FailedLoad, WatchedPolicies

_log = structlog.get_logger("issuer")


class Active(Struct, frozen=True):
    """The policies of one load, and the authority that is made from them. `loaded_at` is in Unix seconds."""

    authority: Authority
    loaded_at: int

    @property
    def digest(self) -> str:
        """The digest of everything that the folder says."""
        return self.authority.policies.digest


class Follows(Protocol):
    """The source of the state of the folder; `Live` asks it every `every_s` seconds."""

    every_s: float

    @property
    def state(self) -> WatchedPolicies:
        """The newest state."""

    def follow(self, asked: bool) -> WatchedPolicies | None:
        """Return the new state, or None if nothing is new. `asked`: a signal has come."""


ActiveT = TypeVar("ActiveT", bound=Active)


class Live(Generic[ActiveT]):
    """The active policies of one process. `active` is replaced as a whole; `stale` means that the folder has been
    refused since.

    `activate` makes the value for `active` from policies. It and `policies` are called in a thread.
    """

    def __init__(self, policies: Follows, activate: Callable[[PolicySet], ActiveT], audit: Audit) -> None:
        self.every_s = policies.every_s
        self._policies = policies
        self._activate = activate
        self._audit = audit
        self._state = state = policies.state
        self._loaded = state.folder  # the audited folder that the active policies are made from
        self._refused: FailedLoad | None = None
        self.active = activate(state.policies)
        self.stale = state.failure is not None
        self._announced = False

    async def announce(self) -> None:
        """Audit the policies at start. If that fails, no token leaves, and `turn` tries again."""
        with suppress(Undecided):
            await self._audit.record(loaded_event(None, self.active))
            self._announced = True

    async def turn(self, asked: bool) -> None:
        """Apply a change of the folder. If it cannot be audited, it is not applied, and the next turn tries again."""
        if not self._announced:
            await self.announce()
        if (state := await asyncio.to_thread(self._policies.follow, asked)) is not None:
            self._state = state
        try:
            if self._state.folder is not self._loaded:
                await self._load(self._state)
            if self._state.failure is not self._refused:
                await self._refuse(self._state.failure)
        except Undecided:
            await self._narrow()

    @property
    def narrowed(self) -> list[str]:
        """The integrations from which a refused folder has withdrawn permissions."""
        return narrowed_names(self._loaded.policies, self.active.authority.policies)

    async def _load(self, state: WatchedPolicies) -> None:
        began = time.perf_counter()
        loaded = await asyncio.to_thread(self._activate, state.policies)
        event = await asyncio.to_thread(loaded_event, self.active, loaded)
        self.stale = True  # until it has been audited
        await self._audit.record(event)
        self.active, self.stale, self._loaded = loaded, False, state.folder
        # As at the start: the loaded policies stay, so a full collection need not visit them.
        gc.freeze()
        ms = round((time.perf_counter() - began) * 1000)
        _log.info("policies loaded", policies=loaded.digest, changed=sorted(event.changed), ms=ms)

    async def _refuse(self, failure: FailedLoad | None) -> None:
        if failure is not None:
            await self._narrow()  # before the audit, which may fail
            event = refused_event(self.active, failure, self.narrowed)
            self.stale = True
            place = {"file": event.file, "line": event.line, "column": event.column}
            _log.error("policies refused", policies=event.policies, code=event.code, **place)
            await self._audit.record(event)
        self._refused = failure

    async def _narrow(self) -> None:
        """Withdraw the permissions that a refused folder withdraws."""
        authority = self.active.authority
        narrowed = await asyncio.to_thread(self._state.narrow, authority.policies)
        if narrowed is not authority.policies:
            self.active = replace(self.active, authority=replace(authority, policies=narrowed))
            _log.warning("policies narrowed", integrations=self.narrowed)


# -- audit events (deploy/AUDIT.md) -----------------------------------------------------------------------------------


def loaded_event(before: Active | None, after: Active) -> PoliciesLoaded:
    """Return the event for newly active policies: the digest of all, and the changed ones."""
    whole, other = after.authority.policies.registrations, before.authority.policies.registrations if before else {}
    # Of ten thousand integrations one may be new: the others are the same objects as before.
    keys = [key for key, bucket in whole.items() if bucket is not other.get(key)]
    keys += [key for key in other if key not in whole]
    old, new = _digests(other, keys), _digests(whole, keys)
    return PoliciesLoaded(
        time=after.loaded_at,
        policies=after.digest,
        changed={name: found for name, found in new.items() if found != old.get(name)},
        removed=sorted(old.keys() - new.keys()),
    )


def _digests(registrations: Mapping[Key, tuple[Registration, ...]], keys: Iterable[Key]) -> dict[str, list[str]]:
    """Return the policy digests of each integration under these keys: one for each provider."""
    found: dict[str, set[str]] = {}
    for registration in (one for key in keys for one in registrations.get(key, ())):
        found.setdefault(registration.policy.integration, set()).add(registration.digest)
    return {name: sorted(found[name]) for name in sorted(found)}


def refused_event(active: Active, failure: FailedLoad, narrowed: list[str]) -> PoliciesRefused:
    """Return the event for a refused folder: code and place, never the content, and the narrowed integrations."""
    return PoliciesRefused(
        time=int(time.time()),
        policies=active.digest,
        code=failure.code,
        file=failure.file,
        line=failure.line,
        column=failure.column,
        narrowed=narrowed,
    )
