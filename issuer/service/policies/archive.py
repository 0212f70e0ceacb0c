"""`data/policies`, the archive of every policy that ever decided, by its digest.

A policy file may change every two seconds, and the audit refers only to the versions that decided. So the watcher puts
a new version into the folder beside it, `data/policies-unused`. The first worker that decides by a version moves it
into the archive, in one step; the watcher removes the versions that were replaced before they decided.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import os
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from pathlib import Path

import msgspec
import structlog
from msgspec import Struct

from issuer.codes import Code
from issuer.errors import InputError, Undecided
from issuer.io import files
from issuer.policy.match import PolicySet
from issuer.service.policies.bounds import MAX_KNOWN, MAX_POLICIES, MAX_POLICY_BYTES

PREFIX = "sha256:"
_log = structlog.get_logger("issuer")


class _Named(Struct, frozen=True):
    integration: str


class _Kept(Struct, frozen=True):
    """The part of an archived value that is read. `benchmarks` has digests of registered files, by path."""

    policy: _Named
    benchmarks: Mapping[str, str] = {}


_decode = msgspec.json.Decoder(_Kept).decode


class PolicyArchive:
    """Implements `issuance.ports.KeptPolicies`. A file counts only if its name is the digest of its content."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: set[str] = set()
        self._found: Callable[[str], str] = functools.lru_cache(MAX_POLICIES)(self._read)

    def integration_of(self, digest: str) -> str | None:
        """Return the integration of the policy with this digest, or None. The cache has only those that were found."""
        try:
            return self._found(digest)
        except (InputError, OSError, LookupError, msgspec.MsgspecError):
            return None

    async def keep(self, digest: str) -> None:
        """Keep the policy with this digest for ever: it is about to decide. Raises Undecided(`dependency.audit`)."""
        if digest in self._known:
            return
        try:
            await asyncio.to_thread(self._keep, digest.removeprefix(PREFIX))
        except (InputError, OSError, msgspec.MsgspecError) as error:
            _log.error("policy not kept", policy=digest, error=type(error).__name__)
            raise Undecided(Code.DEPENDENCY_AUDIT) from None
        if len(self._known) >= MAX_KNOWN:
            self._known.clear()
        self._known.add(digest)

    def _keep(self, name: str) -> None:
        """Move a version and the registered files that it names into the archive, the version last."""
        kept = self._folder / f"{name}.json"
        if kept.exists():
            return
        try:
            raw = files.read(unused_beside(self._folder) / kept.name, MAX_POLICY_BYTES)
            for digest in _decode(raw).benchmarks.values():
                self._take(f"{digest.removeprefix(PREFIX)}.yaml")
            self._take(kept.name)
        except (InputError, OSError):
            if not kept.exists():  # else another worker was first
                raise

    def _take(self, name: str) -> None:
        """Move a file into the archive, unless it is there: another version may name the same registered file."""
        try:
            files.move(unused_beside(self._folder) / name, self._folder / name, follow=True)
        except OSError:
            if not (self._folder / name).exists():
                raise

    def _read(self, digest: str) -> str:
        name = digest.removeprefix(PREFIX)
        if not (len(name) == 64 and name.isalnum()):
            raise LookupError(digest)
        kept = self._folder / f"{name}.json"
        # A policy that decided on another host may still wait here.
        raw = files.read(kept if kept.exists() else unused_beside(self._folder) / kept.name, MAX_POLICY_BYTES)
        if hashlib.sha256(raw).hexdigest() != name:
            raise LookupError(digest)
        return _decode(raw).policy.integration


# -- the watcher's part ------------------------------------------------------------------------------------------------


def unused_beside(archive: Path) -> Path:
    """Return the folder of the versions that have not decided."""
    return archive.with_name(f"{archive.name}-unused")


def keep_policies(policies: PolicySet, folder: Path, *, archive: Path | None = None) -> None:
    """Write every policy value, and every registered benchmark that it names, under its digest, before the first
    admission under it (contract section 4), unless the folder or the archive has it. An empty value was written
    before."""
    files.make_folder(folder)
    for suffix, values in (("yaml", policies.benchmarks), ("json", policies.digests)):
        for digest, value in values.items():
            name = f"{digest.removeprefix(PREFIX)}.{suffix}"
            if value and not (folder / name).exists() and not (archive and (archive / name).exists()):
                files.replace(folder / name, value, mode=0o600, durable=True)


def drop_unused(archive: Path, kept_s: int, current: Callable[[], Collection[str]]) -> None:
    """Remove the versions that were replaced `kept_s` seconds ago and never decided. `current` returns the file names
    of those that are in force here: their files get today's time, so that no other host removes them. If the disk
    fails, this does nothing: the watcher must go on."""
    with suppress(OSError), os.scandir(unused_beside(archive)) as found:
        entries = list(found)
        names = current() if entries else ()
        for entry in entries:
            with suppress(OSError):  # a worker has just moved it
                if entry.name in names:
                    os.utime(entry.path)
                elif entry.stat().st_mtime < time.time() - kept_s:
                    os.unlink(entry.path)
