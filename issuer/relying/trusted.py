"""A relying party's trust file with everything that it names, and the newest revocation lists seen so far.

Revocation lists are stored, because an attacker who replays an old list could otherwise undo a revocation (contract
section 6). They are stored as their issuers signed them, and count only under keys that this party trusts.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from issuer.codes import Code
from issuer.errors import FormatError, InputError, Place, SetupError, reading
from issuer.formats import jose
from issuer.io import files
from issuer.io.http_client import check_url
from issuer.relying.documents import Copy, Documents, Good, demand_own, user_folder
from issuer.token.wire import ARCHIVE_PATH, JWKS_PATH, REVOCATION_KEYS_PATH, REVOCATIONS_PATH
from issuer.verify.revocations import MAX_BYTES, Revocations, newest, parse_revocations
from issuer.verify.trust import (
    Absence,
    IssuerSources,
    Trust,
    TrustedIssuer,
    TrustFile,
    TrustSource,
    check_found,
    raw_of,
    read_trust_file,
    resolve,
    sources,
)


def default_state() -> Path | None:
    """Return the default folder: in $XDG_STATE_HOME, or in ~/.local/state; None for a user without a home."""
    return user_folder("XDG_STATE_HOME", ".local/state")


class SeenLists:
    """The newest revocation list of each issuer and signing key: `DIR/<16 hex of the issuer>-<48 hex of the key>.jwt`,
    0600. Lists are stored by key, so that a list under a stranger's keys cannot displace the issuer's. Raises
    SetupError if others can write to the folder, or this user cannot."""

    def __init__(self, path: Path) -> None:
        self._path = path
        demand_own(path, "--state")

    def has(self, issuer: str) -> bool:
        """Say whether a list of this issuer has been stored, under any key."""
        return any(True for _ in self._path.glob(f"{_hashed(issuer, 16)}-*.jwt"))

    def settle(
        self, issuer: str, keys: jose.KeySet, at_hand: tuple[Revocations, bytes] | None, now: int
    ) -> tuple[Revocations | None, str]:
        """Return the list that counts, and why the one at hand was refused, or "". `at_hand` is a list with its bytes,
        None if unavailable. The list that counts is on disk before this returns."""
        if at_hand is None and not self.has(issuer):
            return None, ""
        with self._locked():
            seen = [listed for key in keys.keys.values() if (listed := self._read(issuer, keys, key)) is not None]
            counts, refused = newest(None if at_hand is None else at_hand[0], seen, now)
            if at_hand is not None and counts is at_hand[0] and counts not in seen:
                files.replace(self._file(issuer, keys.keys[counts.kid]), at_hand[1], mode=0o600, durable=True)
        return counts, refused

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        try:
            files.make_folder(self._path)
            with files.locked(self._path / ".lock"):
                yield
        except OSError as error:
            detail = f"the folder of revocation lists: {error.filename} {error.strerror}; give --state DIR"
            raise SetupError(Code.SETTINGS_INVALID, detail) from None

    def _read(self, issuer: str, keys: jose.KeySet, key: jose.Key) -> Revocations | None:
        if not jose.EDDSA_NAMES & key.algorithms or not (file := self._file(issuer, key)).exists():
            return None
        try:
            return parse_revocations(files.read(file, MAX_BYTES, private=True), issuer, keys)
        except FormatError as error:
            raise SetupError(Code.SETTINGS_INVALID, f"a stored revocation list, {file}: {error.detail}") from None
        except InputError as error:
            raise SetupError(Code.SETTINGS_INVALID, f"a stored revocation list, {error}") from None

    def _file(self, issuer: str, key: jose.Key) -> Path:
        # The key itself is in the name, because its kid could be given to another key.
        point = key.public.public_bytes_raw()  # type: ignore[union-attr]
        return self._path / f"{_hashed(issuer, 16)}-{hashlib.sha256(point).hexdigest()[:48]}.jwt"


def _hashed(issuer: str, length: int) -> str:
    return hashlib.sha256(issuer.encode()).hexdigest()[:length]


MAX_FILE_BYTES = 4 * 1024 * 1024  # a revocation list may have so many; the parsers of other files have smaller limits


def read_trust(path: Path) -> TrustFile:
    """Read a trust file alone. Raises InputError if it is malformed."""
    return read_trust_file(files.read(path, MAX_FILE_BYTES), str(path))


def trust_by_file(path: Path, documents: Documents, seen: SeenLists | None = None) -> Trust:
    """Read a trust file and all that it names. Raises InputError for a malformed file or document. `seen` refuses
    revocation lists that are older than stored ones."""
    return Trusted.by_file(path, documents, seen).trust


class Trusted:
    """A relying party's current trust, which can fetch an issuer's keys again."""

    def __init__(
        self, file: TrustFile, beside: Path, documents: Documents, name: str, seen: SeenLists | None = None
    ) -> None:
        self._file, self._documents, self._name, self._seen = file, documents, name, seen
        self._raw, self._fetched_at = _gather(file, beside, documents)
        self._unpublished = False
        self.trust = self._resolve()

    @classmethod
    def by_file(cls, path: Path, documents: Documents, seen: SeenLists | None = None) -> Trusted:
        """Trust by a trust file. Raises InputError if it is malformed, or a file that it names is."""
        return cls(read_trust(path), path.parent, documents, str(path), seen)

    @classmethod
    def in_issuer(
        cls,
        issuer: str,
        audience: str,
        documents: Documents,
        seen: SeenLists | None = None,
        receipt_keys: Path | None = None,
    ) -> Trusted:
        """Trust one issuer by its published documents: keys and, if it publishes them, archive and revocations.
        `receipt_keys` is a file with the JWK set of this party's receipts. An issuer that answers that it publishes no
        list has revoked nothing, unless `seen` has a list of it. Raises SetupError for a URL that is not an
        issuer's."""
        url = check_url(issuer)
        keys, archive, listed, listing = (
            TrustSource(url=url + path) for path in (JWKS_PATH, ARCHIVE_PATH, REVOCATIONS_PATH, REVOCATION_KEYS_PATH)
        )
        entry = IssuerSources(issuer=url, keys=keys, archive=archive, revocations=listed)
        own: TrustSource | UnsetType = UNSET if receipt_keys is None else TrustSource(file=str(receipt_keys.absolute()))
        file = TrustFile(version=1, audience=audience, issuers=[entry], revocation_keys=listing, receipt_keys=own)
        trusted = cls(file, Path(), documents, "--issuer", seen)
        trusted._leave_out_unpublished(url)
        return trusted

    def renew(self, issuers: Iterable[str]) -> Trust:
        """Fetch the keys and archives of these issuers again, and return the trust: the same object if they have not
        changed."""
        wanted = set(issuers)
        places = [index for index, entry in enumerate(self._file.issuers) if entry.issuer in wanted]
        pointers = [f"/issuers/{index}/{name}" for index in places for name in ("keys", "archive")]
        renewed = [pointer for pointer in pointers if self._renew(pointer)]
        if renewed:
            self.trust = self._resolve()
        return self.trust

    def _renew(self, pointer: str) -> bool:
        source = sources(self._file).get(pointer)
        if source is None or not isinstance(source.url, str) or pointer not in self._fetched_at:
            return False
        copy = self._documents.renew(source.url, lambda body: check_found(pointer, body), self._fetched_at[pointer])
        if copy is None:
            return False
        self._raw[pointer], self._fetched_at[pointer] = copy.body, copy.confirmed_at
        return True

    def _leave_out_unpublished(self, issuer: str) -> None:
        """Remove the documents that this issuer does not publish, or that are not cached while offline."""
        (entry,) = self._file.issuers
        if self._lacks("/issuers/0/archive", entry.archive):
            entry = replace(entry, archive=UNSET)
        keys = self._file.revocation_keys
        if self._lacks("/issuers/0/revocations", entry.revocations) and not (self._seen and self._seen.has(issuer)):
            entry, keys = replace(entry, revocations=UNSET), UNSET
            self._unpublished = not self._documents.offline
        self._file = replace(self._file, issuers=[entry], revocation_keys=keys)
        self.trust = self._resolve()

    def _lacks(self, pointer: str, source: object) -> bool:
        missing = self._documents.offline or (
            isinstance(source, TrustSource) and source.url in self._documents.unpublished
        )
        return missing and self._raw[pointer] is None

    def _resolve(self) -> Trust:
        with reading(self._name):
            trust = resolve(self._file, self._raw, self._fetched_at)
        settled = {
            issuer.issuer: self._settle(index, issuer, trust) for index, issuer in enumerate(trust.issuers.values())
        }
        issuers = {name: issuer for name, (issuer, _) in settled.items()}
        refused = tuple(absence for _, absences in settled.values() for absence in absences)
        return replace(trust, issuers=issuers, absent=trust.absent + refused)

    def _settle(self, index: int, issuer: TrustedIssuer, trust: Trust) -> tuple[TrustedIssuer, tuple[Absence, ...]]:
        pointer = f"/issuers/{index}/revocations"
        if issuer.revocations is UNSET or self._seen is None or not trust.revocation_keys:
            return replace(issuer, unpublished=self._unpublished), ()
        at_hand = None
        if issuer.revocations is not None:
            source = sources(self._file)[pointer]
            at_hand = issuer.revocations, raw_of(source, self._raw.get(pointer)) or b""
        listed, refused = self._seen.settle(issuer.issuer, trust.revocation_keys, at_hand, self._documents.now)
        notes = (Absence(pointer, f"refused, and the list that was seen before counts: {refused}"),) if refused else ()
        return replace(issuer, revocations=listed), notes


def _gather(trust: TrustFile, beside: Path, documents: Documents) -> tuple[dict[str, bytes | None], dict[str, int]]:
    """Read the files that a trust file names, which are in the folder `beside`, and fetch its URLs. Returns the bytes
    by pointer, and for URLs when the server last confirmed them (Unix seconds)."""
    raw: dict[str, bytes | None] = {}
    fetched_at: dict[str, int] = {}
    wanted = sources(trust)
    # Revocation lists come last: a list is cached only if one of the keys signed it.
    for pointer in sorted(wanted, key=lambda pointer: pointer.endswith("/revocations")):
        source = wanted[pointer]
        if isinstance(source.file, str):
            raw[pointer] = files.read(beside / source.file, MAX_FILE_BYTES)
        elif isinstance(source.url, str):
            copy = _fetch(source.url, pointer, documents, lambda body, at=pointer: _check(trust, at, body, raw))  # type: ignore[misc]
            raw[pointer] = None if copy is None else copy.body
            if copy is not None:
                fetched_at[pointer] = copy.confirmed_at
    return raw, fetched_at


def _fetch(url: str, pointer: str, documents: Documents, good: Good) -> Copy | None:
    try:
        return documents.get(url, good)
    except SetupError as error:
        if error.code is Code.URL_INVALID:  # the trust file has this URL
            raise InputError(Code.FILE_RULE, error.detail, Place("the trust file"), f"{pointer}/url") from None
        raise


def _check(trust: TrustFile, pointer: str, body: bytes, found: Mapping[str, bytes | None]) -> None:
    check_found(pointer, body)
    if pointer.endswith("/revocations"):
        for absence in resolve(trust, {**found, pointer: body}).absent:
            if absence.pointer == pointer:
                raise FormatError(Code.FILE_RULE, absence.reason, pointer)
