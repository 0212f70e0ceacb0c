"""Whom a relying party trusts: its trust file, and the same with the key sets filled in. Pure: nothing is fetched.

A trust file without an issuer or without an audience is an error, not a permissive default (contract section 6).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from issuer import jose
from issuer.errors import Code
from issuer.strict_yaml import Document, load
from issuer.token import MAX_TTL_S

Text = Annotated[str, Meta(min_length=1, max_length=512)]
TokenLife = Annotated[int, Meta(ge=1, le=MAX_TTL_S)]


class KeySetSource(Struct, frozen=True, forbid_unknown_fields=True):
    """Where an issuer's key set comes from: exactly one of a URL, a file beside the trust file, or the set itself."""

    url: Text | UnsetType = UNSET
    file: Text | UnsetType = UNSET
    inline: dict[str, Any] | UnsetType = UNSET


class TrustedEntry(Struct, frozen=True, forbid_unknown_fields=True):
    """One issuer of a trust file; `frameworks` limits which `framework.name`s it may speak for."""

    issuer: Text
    keys: KeySetSource
    frameworks: Annotated[list[Text], Meta(min_length=1)] | UnsetType = UNSET


class TrustFile(Struct, frozen=True, forbid_unknown_fields=True):
    """A trust file as written. `audience` is this relying party; `max_token_life_s` bounds exp - iat."""

    version: Literal[1]
    audience: Text
    issuers: Annotated[list[TrustedEntry], Meta(min_length=1)]
    max_token_life_s: TokenLife = MAX_TTL_S


class TrustedIssuer(Struct, frozen=True):
    """An issuer with its keys. `keys` is None where they could not be had: then nothing of it can be decided."""

    issuer: str
    keys: jose.KeySet | None
    frameworks: frozenset[str] | None = None


class Trust(Struct, frozen=True):
    """What `issuer.verify` judges by. Issuers are compared byte for byte."""

    audience: str
    issuers: Mapping[str, TrustedIssuer]
    max_token_life_s: int = MAX_TTL_S


def read_trust_file(raw: bytes, name: str) -> TrustFile:
    """Read a trust file. Raises InputError with file, line and column."""
    document = load(raw, name)
    trust = document.convert(TrustFile)
    issuers = [entry.issuer for entry in trust.issuers]
    for index, entry in enumerate(trust.issuers):
        at = f"/issuers/{index}"
        if issuers.count(entry.issuer) > 1:
            raise document.error(Code.FILE_RULE, f"{at}/issuer", "this issuer stands here twice")
        _check_source(document, f"{at}/keys", entry.keys)
    return trust


def _check_source(document: Document, at: str, source: KeySetSource) -> None:
    if sum(part is not UNSET for part in (source.url, source.file, source.inline)) != 1:
        raise document.error(Code.FILE_RULE, at, "give exactly one of `url`, `file` and `inline`")


def with_keys(trust: TrustFile, keys: Mapping[str, jose.KeySet | None]) -> Trust:
    """Fill in the key sets, by issuer; an issuer that is not among them has none."""
    issuers = {
        entry.issuer: TrustedIssuer(
            entry.issuer,
            keys.get(entry.issuer),
            None if entry.frameworks is UNSET else frozenset(entry.frameworks),
        )
        for entry in trust.issuers
    }
    return Trust(trust.audience, issuers, trust.max_token_life_s)


def inline_keys(source: KeySetSource) -> jose.KeySet | None:
    """Return the key set that stands in the trust file itself, or None. Raises InputError."""
    if source.inline is UNSET:
        return None
    return jose.parse_key_set(msgspec.json.encode(source.inline))
