"""The policies that a process answers by, and their change: all of the folder at once, or nothing.

A request keeps what it began with: it takes `Live.active` once. A folder that does not load changes nothing: the last
good one goes on deciding, and audit, log and readiness say so. What it takes away counts all the same
(policy/restriction.py). Who looks at the folder is another's business (watcher.py).
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
from issuer.service.policies.watcher import Setback, State

_log = structlog.get_logger("issuer")


class Active(Struct, frozen=True):
    """The policies of one load, and the authority made of them. `loaded_at` is Unix seconds."""

    authority: Authority
    loaded_at: int

    @property
    def digest(self) -> str:
        """The digest of everything that the folder says."""
        return self.authority.policies.digest


class Follows(Protocol):
    """What knows the state of the folder: `every_s` seconds it is asked for a new one."""

    every_s: float
    state: State

    def follow(self, asked: bool) -> State | None:
        """Return the newest state, None where nothing is new. `asked`: a signal has come."""


ActiveT = TypeVar("ActiveT", bound=Active)


class Live(Generic[ActiveT]):
    """The active policies of one process. `active` is replaced as a whole; `stale`: the folder was refused since.

    `policies` follow the folder, or are told of it; `activate` makes of policies what answers by them. Both are called
    in a thread.
    """

    def __init__(self, policies: Follows, activate: Callable[[PolicySet], ActiveT], audit: Audit) -> None:
        self.every_s = policies.every_s
        self._policies = policies
        self._activate = activate
        self._audit = audit
        self._state = state = policies.state
        self._loaded = state.folder  # what has been audited: of this the active policies are made
        self._refused: Setback | None = None
        self.active = activate(state.policies)
        self.stale = state.setback is not None
        self._announced = False

    async def announce(self) -> None:
        """Audit the policies at start. If that fails, no token leaves, and `turn` tries again."""
        with suppress(Undecided):
            await self._audit.record(loaded_event(None, self.active))
            self._announced = True

    async def turn(self, asked: bool) -> None:
        """Take what is new of the folder. A change that cannot be audited is not made, and tried again."""
        if not self._announced:
            await self.announce()
        if (state := await asyncio.to_thread(self._policies.follow, asked)) is not None:
            self._state = state
        try:
            if self._state.folder is not self._loaded:
                await self._load(self._state)
            if self._state.setback is not self._refused:
                await self._refuse(self._state.setback)
        except Undecided:
            await self._narrow()

    @property
    def narrowed(self) -> list[str]:
        """The integrations from which a folder that was not taken as a whole has taken something away."""
        return narrowed_names(self._loaded.policies, self.active.authority.policies)

    async def _load(self, state: State) -> None:
        began = time.perf_counter()
        loaded = await asyncio.to_thread(self._activate, state.policies)
        event = await asyncio.to_thread(loaded_event, self.active, loaded)
        self.stale = True  # until it has been audited
        await self._audit.record(event)
        self.active, self.stale, self._loaded = loaded, False, state.folder
        # As at the start: what is loaded stays, and no full collection need look at it again.
        gc.freeze()
        ms = round((time.perf_counter() - began) * 1000)
        _log.info("policies loaded", policies=loaded.digest, changed=sorted(event.changed), ms=ms)

    async def _refuse(self, setback: Setback | None) -> None:
        if setback is not None:
            await self._narrow()  # before it is audited: that may fail
            event = refused_event(self.active, setback, self.narrowed)
            self.stale = True
            place = {"file": event.file, "line": event.line, "column": event.column}
            _log.error("policies refused", policies=event.policies, code=event.code, **place)
            await self._audit.record(event)
        self._refused = setback

    async def _narrow(self) -> None:
        """Take away what the folder takes away although it is not taken as a whole."""
        authority = self.active.authority
        narrowed = await asyncio.to_thread(self._state.narrow, authority.policies)
        if narrowed is not authority.policies:
            self.active = replace(self.active, authority=replace(authority, policies=narrowed))
            _log.warning("policies narrowed", integrations=self.narrowed)


# -- audit events (deploy/AUDIT.md) -----------------------------------------------------------------------------------


def loaded_event(before: Active | None, after: Active) -> PoliciesLoaded:
    """Record what decides from now on: the digest of all, and the changed ones."""
    whole, other = after.authority.policies.registrations, before.authority.policies.registrations if before else {}
    # Of ten thousand integrations one may be new: what was taken over is the same object.
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


def refused_event(active: Active, setback: Setback, narrowed: list[str]) -> PoliciesRefused:
    """Record that the folder was refused: the code and the place, never the content; and what it took away."""
    return PoliciesRefused(
        time=int(time.time()),
        policies=active.digest,
        code=setback.code,
        file=setback.file,
        line=setback.line,
        column=setback.column,
        narrowed=narrowed,
    )
