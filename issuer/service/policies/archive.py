"""The reader of `data/policies`, the archive of every policy that ever decided, by its digest."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable
from pathlib import Path

import msgspec
from msgspec import Struct

from issuer.errors import InputError
from issuer.io import files
from issuer.service.policies.bounds import MAX_POLICIES, MAX_POLICY_BYTES

PREFIX = "sha256:"


class _Named(Struct, frozen=True):
    integration: str


class _Kept(Struct, frozen=True):
    """The part of an archived value that is read."""

    policy: _Named


class PolicyArchive:
    """Implements `issuance.ports.KeptPolicies`. A file counts only if its name is the digest of its content."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._found: Callable[[str], str] = functools.lru_cache(MAX_POLICIES)(self._read)

    def integration_of(self, digest: str) -> str | None:
        """Return the integration of the policy with this digest, or None. The cache has only those that were found."""
        try:
            return self._found(digest)
        except (InputError, OSError, LookupError, msgspec.MsgspecError):
            return None

    def _read(self, digest: str) -> str:
        name = digest.removeprefix(PREFIX)
        if not (len(name) == 64 and name.isalnum()):
            raise LookupError(digest)
        raw = files.read(self._folder / f"{name}.json", MAX_POLICY_BYTES)
        if hashlib.sha256(raw).hexdigest() != name:
            raise LookupError(digest)
        return msgspec.json.decode(raw, type=_Kept).policy.integration
