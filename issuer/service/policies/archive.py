"""Whose policy was this: the reader of `data/policies`, where each one that ever decided is kept by its digest."""

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
    """As much of a kept value as is asked for."""

    policy: _Named


class KeptPolicies:
    """Implements `issuance.ports.KeptPolicies`. A file counts only under the digest of what is in it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._found: Callable[[str], str] = functools.lru_cache(MAX_POLICIES)(self._read)

    def integration_of(self, digest: str) -> str | None:
        """Say whose policy this is; None where nothing is kept under this digest. Only what is found is remembered."""
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
