"""A relying party's trust, complete: its trust file, the files beside it, and the documents of its URLs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from issuer import files
from issuer.codes import Code
from issuer.errors import FormatError, InputError, Place, SetupError, reading
from issuer.http_client import check_url
from issuer.relying.documents import Copy, Documents, Good
from issuer.verify.trust import Source, Trust, TrustedEntry, TrustFile, check_found, read_trust_file, resolve, sources
from issuer.wire import JWKS_PATH

MAX_FILE_BYTES = 4 * 1024 * 1024  # as much as the largest of them may have; smaller bounds are their readers'


class Gathered(Struct, frozen=True):
    """The bytes that a trust file points to, by pointer; for URLs, when they last confirmed them (Unix seconds)."""

    raw: Mapping[str, bytes | None]
    fetched_at: Mapping[str, int]


def trust_by_file(path: Path, documents: Documents) -> Trust:
    """Read a trust file and all that it points to. Raises InputError for what is malformed in any of them."""
    trust = read_trust_file(files.read(path, MAX_FILE_BYTES), str(path))
    return _resolve(trust, gather(trust, path.parent, documents), str(path))


def trust_in_issuer(issuer: str, audience: str, documents: Documents) -> Trust:
    """Trust one issuer, by the key set that it publishes. Raises SetupError for a URL that is not an issuer's."""
    url = check_url(issuer)
    source = Source(url=f"{url}{JWKS_PATH}")
    trust = TrustFile(version=1, audience=audience, issuers=[TrustedEntry(issuer=url, keys=source)])
    return _resolve(trust, gather(trust, Path(), documents), "--issuer")


def gather(trust: TrustFile, beside: Path, documents: Documents) -> Gathered:
    """Read the files that a trust file names, which are beside it, and get its URLs."""
    raw: dict[str, bytes | None] = {}
    fetched_at: dict[str, int] = {}
    wanted = sources(trust)
    # Revocation lists last: the keys that must have signed a list decide whether it may be kept.
    for pointer in sorted(wanted, key=lambda pointer: pointer.endswith("/revocations")):
        source = wanted[pointer]
        if isinstance(source.file, str):
            raw[pointer] = files.read(beside / source.file, MAX_FILE_BYTES)
        elif isinstance(source.url, str):
            copy = _fetch(source.url, pointer, documents, lambda body, at=pointer: _check(trust, at, body, raw))  # type: ignore[misc]
            raw[pointer] = None if copy is None else copy.body
            if copy is not None:
                fetched_at[pointer] = copy.fetched_at
    return Gathered(raw, fetched_at)


def _fetch(url: str, pointer: str, documents: Documents, good: Good) -> Copy | None:
    try:
        return documents.get(url, good)
    except SetupError as error:
        if error.code is Code.SETTINGS_INVALID:  # the URL, which is the file's
            raise InputError(Code.FILE_RULE, error.detail, Place("the trust file"), f"{pointer}/url") from None
        raise


def _check(trust: TrustFile, pointer: str, body: bytes, found: Mapping[str, bytes | None]) -> None:
    check_found(pointer, body)
    if pointer.endswith("/revocations"):
        for absence in resolve(trust, {**found, pointer: body}).absent:
            if absence.pointer == pointer:
                raise FormatError(Code.FILE_RULE, absence.reason, pointer)


def _resolve(trust: TrustFile, found: Gathered, name: str) -> Trust:
    with reading(name):
        return resolve(trust, found.raw, found.fetched_at)
