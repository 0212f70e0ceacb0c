"""What an identity token says beside what the issuer wants, where it was refused for that: the caller holds both. Pure.

An issuer says of an unknown caller's token only which rule failed (contract section 5). The token is its owner's, and
the issuer's providers are public. No part of a token is shown but these claims.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from issuer.codes import Code
from issuer.errors import FormatError
from issuer.formats import jose
from issuer.formats.strict_json import JSON, loads
from issuer.formats.times import MAX_UNIX_S, show_when
from issuer.identity.profiles import TOKEN_PREFIXES

COMPARED = frozenset({
    Code.IDENTITY_AUDIENCE_MISMATCH,
    Code.IDENTITY_ISSUER_UNKNOWN,
    Code.IDENTITY_EXPIRED,
    Code.IDENTITY_TOO_OLD,
    Code.IDENTITY_NOT_YET_VALID,
    Code.IDENTITY_LIFETIME_TOO_LONG,
})  # fmt: skip
_MAX_BYTES = 64 * 1024


def compare(code: Code, bearer: str, document: bytes, now: int) -> tuple[tuple[str, str], ...]:
    """Return `yours` and `wanted` for a refusal with one of the COMPARED codes; () where the token says nothing of it.

    `document` is the issuer's /.well-known/eval-token-issuer, b"" where it was not to be had; `now` is Unix seconds.
    """
    claims = _claims_of(bearer)
    providers = _providers_in(document)
    if code is Code.IDENTITY_ISSUER_UNKNOWN and bearer.startswith(TOKEN_PREFIXES):
        prefix = next(prefix for prefix in TOKEN_PREFIXES if bearer.startswith(prefix))
        listed = " or ".join(_text(one.get("issuer")) for one in providers)
        return (("yours", f"a token that begins with {prefix}"), *((("wanted", f"one of {listed}"),) if listed else ()))
    if code not in COMPARED or claims is None:
        return ()
    provider = next((one for one in providers if one.get("issuer") == claims.get("iss")), {})
    wanted = _wanted(code, providers, provider)
    return (("yours", _yours(code, claims, now)), *((("wanted", wanted),) if wanted else ()))


def _claims_of(bearer: str) -> Mapping[str, JSON] | None:
    try:
        claims = loads(jose.parse_compact(bearer).unverified_payload, max_bytes=_MAX_BYTES, max_depth=16)
    except FormatError:
        return None
    return claims if isinstance(claims, dict) else None


def _providers_in(document: bytes) -> list[Mapping[str, Any]]:
    try:
        value = loads(document, max_bytes=_MAX_BYTES, max_depth=16)
    except FormatError:
        return []
    listed = value.get("identity_providers") if isinstance(value, dict) else None
    return [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []


def _yours(code: Code, claims: Mapping[str, JSON], now: int) -> str:
    match code:
        case Code.IDENTITY_AUDIENCE_MISMATCH:
            return f"aud {_text(claims.get('aud'))}"
        case Code.IDENTITY_ISSUER_UNKNOWN:
            return f"iss {_text(claims.get('iss'))}"
        case Code.IDENTITY_EXPIRED:
            return f"expired {_time(claims.get('exp'), now)}"
        case Code.IDENTITY_LIFETIME_TOO_LONG:
            return f"issued {_time(claims.get('iat'), now)}, expires {_time(claims.get('exp'), now)}"
        case _:
            return f"issued {_time(claims.get('iat'), now)}, not valid before {_time(claims.get('nbf'), now)}"


def _wanted(code: Code, providers: list[Mapping[str, Any]], provider: Mapping[str, Any]) -> str:
    match code:
        case Code.IDENTITY_AUDIENCE_MISMATCH:
            return f"aud {_text(provider.get('audience'))}" if "audience" in provider else ""
        case Code.IDENTITY_ISSUER_UNKNOWN:
            return f"iss {' or '.join(_text(one.get('issuer')) for one in providers)}" if providers else ""
        case Code.IDENTITY_EXPIRED | Code.IDENTITY_NOT_YET_VALID:
            return "a token that is valid now"
        case Code.IDENTITY_TOO_OLD:
            return f"issued at most {provider['max_age_s']} s ago" if "max_age_s" in provider else ""
        case _:
            return f"a life of at most {provider['max_lifetime_s']} s" if "max_lifetime_s" in provider else ""


def _text(value: object) -> str:
    """Show a claim: text as it is, several as a list."""
    if isinstance(value, list):
        return " and ".join(map(_text, value[:4]))
    return value[:300] if isinstance(value, str) and value else "(none)"


def _time(value: JSON, now: int) -> str:
    return show_when(value, now) if type(value) is int and 0 <= value < MAX_UNIX_S else "(none)"
