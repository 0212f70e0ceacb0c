"""Personal access tokens: one process's view of their records, and their verifier.

Each request with a right token reads its record again, so a revocation takes effect at once in every worker. Memory has
the digests, so a guess takes equally long for an existing and for an unknown id.
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
from issuer.service.authn.pat_records import (
    USED,
    PatRecord,
    check_folder,
    last_used,
    list_names,
    read_named,
    write_used,
)

# Stands in for the digest of an unknown id, so that every guess is compared. No known text has this digest.
_NO_DIGEST = bytes(32)

_log = structlog.get_logger("issuer")

# Device, inode, size, mtime and ctime (nanoseconds) of a file or folder: another value shows a change.
Fingerprint = tuple[int, int, int, int, int]


class Pats:
    """The registered tokens in a folder, for one event loop.

    An unreadable record is logged and treated as unknown; it does not affect the others. Raises SetupError for an
    existing folder with unsafe permissions.
    """

    def __init__(self, folder: Path, clock_ns: Callable[[], int] = time.time_ns) -> None:
        self._folder = folder
        self._clock_ns = clock_ns
        self._fingerprint: Fingerprint | None = None
        self._read_ns = 0
        self._wait_ns: float = 0
        self._files: dict[str, tuple[Fingerprint, bytes]] = {}
        self._digests: dict[str, bytes] = {}
        self._logged: dict[str, str] = {}
        self._refresh()

    def find(self, token_id: str, digest: bytes) -> PatRecord | None:
        """Return the current record with this id and digest, else None. The caller checks its state.

        An unknown id and a wrong digest take the same steps. Raises Undecided(`dependency.credentials`) if the folder
        cannot be read.
        """
        try:
            self._refresh()
            is_right = hmac.compare_digest(self._digests.get(token_id, _NO_DIGEST), digest)
            record = self._read(f"{token_id}.json") if is_right else None
        except (OSError, SetupError) as failure:
            self._log_once(".", failure.detail if isinstance(failure, SetupError) else type(failure).__name__)
            raise Undecided(Code.DEPENDENCY_CREDENTIALS) from failure
        self._log_once(".", "")
        return record if record and hmac.compare_digest(bytes.fromhex(record.sha256), digest) else None

    def mark_used(self, token_id: str, now: int) -> None:
        """Record the use of a token, at most once a minute. A failure is logged, and does not refuse the caller."""
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
        status, now_ns = check_folder(self._folder), self._clock_ns()
        fingerprint = _fingerprint(status) if status else None
        # abs(), here and below: a clock that was set back must not stop the readings, and a file server's clock that is
        # ahead must not make every look a reading.
        if status and fingerprint == self._fingerprint and abs(now_ns - self._read_ns) < self._wait_ns:
            return
        names = list_names(self._folder) if status else []
        self._files = dict(self._read_changed(names))
        self._digests = {name.removesuffix(".json"): digest for name, (_, digest) in self._files.items()}
        self._fingerprint, self._read_ns = fingerprint, now_ns
        self._wait_ns = math.inf if len(names) == len(self._files) else BAD_AGAIN_NS
        if status and abs(now_ns - status.st_ctime_ns) <= RACY_NS:
            self._wait_ns = RACY_AGAIN_NS

    def _read_changed(self, names: Iterable[str]) -> Iterator[tuple[str, tuple[Fingerprint, bytes]]]:
        """Yield the fingerprint and digest of each good record. Read only changed files. Raises OSError."""
        for name in names:
            try:
                fingerprint = _fingerprint(os.stat(self._folder / name, follow_symlinks=False))
            except FileNotFoundError:  # removed since the folder was listed
                continue
            before = self._files.get(name)
            if before and before[0] == fingerprint:
                yield name, before
            elif record := self._read(name):
                yield name, (fingerprint, bytes.fromhex(record.sha256))

    def _read(self, name: str) -> PatRecord | None:
        """Read one record. For a bad one, log the place and the broken rule, never the content. Raises OSError."""
        try:
            record = read_named(self._folder, name)
        except InputError as error:
            self._log_once(name, f"{error.code} {error.pointer or error.place.line or ''}".rstrip())
            return None
        self._log_once(name, "")
        return record

    def _log_once(self, what: str, why: str) -> None:
        """Log a problem when it begins, not at every request. An empty `why` ends it."""
        if not why:
            self._logged.pop(what, None)
        elif self._logged.get(what) != why:
            self._logged[what] = why
            _log.error("personal access tokens", file=os.fsencode(what).decode("utf-8", "replace"), problem=why)


def _fingerprint(status: os.stat_result) -> Fingerprint:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


# -- verifier ----------------------------------------------------------------------------------------------------------

_REFUSED = {
    "revoked": Code.IDENTITY_INACTIVE,
    "expired": Code.IDENTITY_EXPIRED,
    "future": Code.IDENTITY_NOT_YET_VALID,
}


class PatVerifier:
    """Verifies the tokens of the one `pat` provider: form, registration, state, network, with the cheapest check first.

    An unknown id and a wrong secret get the same answer after the same work. Only the owner of the secret learns that a
    token is revoked, has expired or came from another network. No provider is asked, so sources over their limit are
    served, too.
    """

    def __init__(self, pats: Pats) -> None:
        self._pats = pats

    async def verify(self, bearer: str, provider: Provider, now: int, allowance: Allowance) -> Caller:
        """Verify a token from `allowance.source` at `now` (Unix seconds). Raises Refused (401 `identity.*`, 403
        `identity.network_forbidden`) and Undecided(`dependency.credentials`)."""
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


def _refused(record: PatRecord, code: Code) -> Refused:
    """Log the id of a refused token, which may have leaked: its secret was right, and no audit event names its account.
    Return the refusal."""
    _log.warning("personal access token refused", token_id=record.id, code=str(code))
    return Refused(code)
