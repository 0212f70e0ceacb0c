"""The personal access tokens that one process knows, and when they were last used.

The file decides: a request with a right token reads its record anew, so that a revocation counts at once, in every
worker. Memory holds the digests, so that a guess takes as long for an existing id as for any other.
"""

from __future__ import annotations

import hmac
import math
import os
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import structlog

from issuer.codes import Code
from issuer.errors import InputError, Refused, SetupError, Undecided
from issuer.identity import pat
from issuer.identity.table import Provider
from issuer.identity.token import Caller
from issuer.limits.sources import Allowance
from issuer.service.authn.bounds import BAD_AGAIN_NS, RACY_AGAIN_NS, RACY_NS, USED_EVERY_S
from issuer.service.authn.pat_records import USED, Record, check_folder, last_used, list_names, read_named, write_used

# An unknown id is compared with this: the digest of no known text.
_NO_DIGEST = bytes(32)

_log = structlog.get_logger("issuer")

# What shows a change of a file or folder: device, inode, size, mtime and ctime in nanoseconds.
Fingerprint = tuple[int, int, int, int, int]


class Pats:
    """The registered tokens, as one process sees the folder. Belongs to one event loop.

    A record that cannot be read is unknown and logged; the others are not affected. Raises SetupError for an existing
    folder that must not be trusted.
    """

    def __init__(self, folder: Path, clock_ns: Callable[[], int] = time.time_ns) -> None:
        self._folder = folder
        self._clock_ns = clock_ns
        self._seen: Fingerprint | None = None
        self._read_ns = 0
        self._rest_ns: float = 0
        self._files: dict[str, tuple[Fingerprint, bytes]] = {}
        self._digests: dict[str, bytes] = {}
        self._logged: dict[str, str] = {}
        self._refresh()

    def find(self, token_id: str, digest: bytes) -> Record | None:
        """Return the record that is registered under an id with this digest, as its file is now; else None.

        Its state is not judged here. An unknown id and a wrong digest take the same steps. Raises
        Undecided(`dependency.credentials`) where nothing can be read.
        """
        try:
            self._refresh()
            known = self._digests.get(token_id, _NO_DIGEST)
            right = hmac.compare_digest(known, digest)
            record = self._read(f"{token_id}.json") if right else None
        except (OSError, SetupError) as failure:
            self._log_once(".", failure.detail if isinstance(failure, SetupError) else type(failure).__name__)
            raise Undecided(Code.DEPENDENCY_CREDENTIALS) from failure
        self._log_once(".", "")
        return record if record and hmac.compare_digest(bytes.fromhex(record.sha256), digest) else None

    def mark_used(self, token_id: str, now: int) -> None:
        """Note that a token was used, at most once a minute. A failure to note it refuses nobody."""
        before = last_used(self._folder, token_id)
        if before is not None and abs(now - before) < USED_EVERY_S:
            return
        try:
            write_used(self._folder, token_id, now)
            self._log_once(USED, "")
        except OSError as error:
            self._log_once(USED, type(error).__name__)

    def _refresh(self) -> None:
        """Read the folder again if it may have changed. Raises OSError and SetupError."""
        found, now_ns = check_folder(self._folder), self._clock_ns()
        fingerprint = _fingerprint(found) if found else None
        # abs(), here and below: a clock that was set back, or a file server's that is ahead, is not a change.
        if found and fingerprint == self._seen and abs(now_ns - self._read_ns) < self._rest_ns:
            return
        listed = list_names(self._folder) if found else []
        self._files = dict(self._read_changed(listed))
        self._digests = {name.removesuffix(".json"): digest for name, (_, digest) in self._files.items()}
        self._seen, self._read_ns = fingerprint, now_ns
        self._rest_ns = math.inf if len(listed) == len(self._files) else BAD_AGAIN_NS
        if found and abs(now_ns - found.st_ctime_ns) <= RACY_NS:
            self._rest_ns = RACY_AGAIN_NS

    def _read_changed(self, listed: Iterable[str]) -> Iterator[tuple[str, tuple[Fingerprint, bytes]]]:
        """Yield the digest of each good record; unchanged files are not read again. Raises OSError."""
        for name in listed:
            try:
                fingerprint = _fingerprint(os.stat(self._folder / name, follow_symlinks=False))
            except FileNotFoundError:  # gone since it was named
                continue
            before = self._files.get(name)
            if before and before[0] == fingerprint:
                yield name, before
            elif record := self._read(name):
                yield name, (fingerprint, bytes.fromhex(record.sha256))

    def _read(self, name: str) -> Record | None:
        """Read one record, or log where and by which rule it is bad, never its content. Raises OSError."""
        try:
            record = read_named(self._folder, name)
        except InputError as error:
            self._log_once(name, f"{error.code} {error.pointer or error.place.line or ''}".rstrip())
            return None
        self._log_once(name, "")
        return record

    def _log_once(self, what: str, why: str) -> None:
        """Log what is wrong when it begins, not at every request; "" means that nothing is."""
        if not why:
            self._logged.pop(what, None)
        elif self._logged.get(what) != why:
            self._logged[what] = why
            _log.error("personal access tokens", file=os.fsencode(what).decode("utf-8", "replace"), problem=why)


def _fingerprint(found: os.stat_result) -> Fingerprint:
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


# -- pat ---------------------------------------------------------------------------------------------------------------

# Personal access tokens of this service: form, registration, state, network; in this order, cheap first.
#
# `pats.py` knows which tokens exist. A token of an unknown id is answered as one whose secret is wrong, after the same
# work; only the holder of the secret learns that it was revoked, has expired or came from elsewhere.

_REFUSED = {
    "revoked": Code.IDENTITY_INACTIVE,
    "expired": Code.IDENTITY_EXPIRED,
    "future": Code.IDENTITY_NOT_YET_VALID,
}


class PatVerifier:
    """Verifies the tokens of the one `pat` provider. Asks nobody, so a source over its limit is served as well."""

    def __init__(self, pats: Pats) -> None:
        self._pats = pats

    async def verify(self, bearer: str, provider: Provider, now: int, allowance: Allowance) -> Caller:
        """Verify a token at `now`, Unix seconds, sent from `allowance.source`.

        Raises Refused (401 `identity.*`, 403 `identity.network_forbidden`) and Undecided(`dependency.credentials`).
        """
        token_id = pat.token_id(bearer)  # (1) form and checksum
        if token_id is None:
            raise Refused(Code.IDENTITY_MALFORMED)
        record = self._pats.find(token_id, pat.digest(bearer))  # (2) id and secret
        if record is None:
            raise Refused(Code.IDENTITY_CREDENTIAL_UNKNOWN)
        state = record.state(now)  # (3) state
        if state != "active":
            raise _refused(record, _REFUSED[state])
        if not record.may_come_from(allowance.source):  # (4) network
            raise _refused(record, Code.IDENTITY_NETWORK_FORBIDDEN)
        self._pats.mark_used(token_id, now)
        claims = {"account": record.account, "token_id": token_id, "scope": " ".join(record.scopes)}
        return Caller(provider, claims, ("nonce", provider.id, token_id), record.created, record.expires)


def _refused(record: Record, code: Code) -> Refused:
    """Refuse a token with the right secret, and log its id: it may have leaked, and no event names its account."""
    _log.warning("personal access token refused", token_id=record.id, code=str(code))
    return Refused(code)
