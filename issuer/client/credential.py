"""What a caller proves itself with, and whether it may be used again. Pure but for the nonce's randomness.

A credential is *limited* (an identity token: it is its own use record) or *reusable* (an access token: a personal one,
OAuth's, Hugging Face's), and then every request needs a nonce (contract section 5). Nothing here shows its text: no
repr, no error.
"""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass, field

from issuer.codes import Code
from issuer.errors import FormatError, SetupError
from issuer.formats import jose
from issuer.identity import pat

# RFC 6750 2.1, b64token. The HTTP library quotes any other text in its error.
_BEARER = re.compile(r"[A-Za-z0-9._~+/-]+=*")
_ACCESS_TOKEN_TYPES = frozenset({"at+jwt", "application/at+jwt"})
NONCE_BYTES = 16


@dataclass(frozen=True, slots=True)
class Credential:
    """`bearer` is what the Authorization header says after `Bearer`; `reusable` says that requests need a nonce."""

    bearer: str = field(repr=False)
    reusable: bool


def is_bearer(text: str) -> bool:
    """Say whether a text can be sent as a bearer token (RFC 6750 2.1), and is no longer than the service reads."""
    return len(text) <= jose.MAX_TOKEN_BYTES and _BEARER.fullmatch(text) is not None


def identity_token(text: str, place: str) -> Credential:
    """Return the credential of an identity token from `place`.

    A token of the type at+jwt (RFC 9068) and a personal access token are reusable here, too.

    Raises SetupError(`credential.unusable`).
    """
    return Credential(_check(text, place, "identity token"), reusable=_is_access_token(text))


def access_token(text: str, place: str) -> Credential:
    """Return the credential of an access token, of whatever kind. Raises SetupError(`credential.unusable`)."""
    return Credential(_check(text, place, "access token"), reusable=True)


def _check(text: str, place: str, kind: str) -> str:
    if not is_bearer(text):
        detail = f"{place} holds no {kind}: it has other characters, none at all, or too many"
        raise SetupError(Code.CREDENTIAL_UNUSABLE, detail)
    if text.startswith(pat.PREFIX) and pat.token_id(text) is None:
        detail = f"{place} holds a personal access token whose checksum is wrong; copy it again, all of it"
        raise SetupError(Code.CREDENTIAL_UNUSABLE, detail)
    return text


def _is_access_token(text: str) -> bool:
    """Say whether a text shows by its form that it is reusable, wherever it was found."""
    if text.startswith(pat.PREFIX):
        return True
    try:
        typ = jose.parse_compact(text).header.get("typ")
    except FormatError:
        return False  # the issuer says what it is
    return isinstance(typ, str) and typ.lower() in _ACCESS_TOKEN_TYPES


def fresh_nonce() -> str:
    """Make a nonce of 128 random bits: 22 base64url characters."""
    return jose.base64url_encode(secrets.token_bytes(NONCE_BYTES))
