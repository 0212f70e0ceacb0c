"""Opaque OAuth access tokens: ask the provider about them (RFC 7662), and check its answer like a token.

Authlib's client sends a credential to its one provider only, over the checked connections of `opaque_tokens.py`. A
missing or malformed answer is undecided (503), never a pass.
"""

from __future__ import annotations

import asyncio
import base64
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Unpack
from urllib.parse import quote

import msgspec
from authlib.integrations.httpx_client import AsyncOAuth2Client  # type: ignore[import-untyped]
from msgspec import UNSET

from issuer.codes import Code
from issuer.errors import Refused, SetupError
from issuer.formats.jose import MAX_TOKEN_BYTES
from issuer.formats.strict_json import JSON
from issuer.formats.times import LEEWAY_S
from issuer.identity.profiles import derive
from issuer.identity.table import Introspection, Provider
from issuer.identity.token import Caller, check_audience, check_id, check_unbound, read_unix_s
from issuer.io import files
from issuer.io.bounds import MAX_SECRET_BYTES
from issuer.io.fetch import FAILURES, FetchRefused, reason
from issuer.limits.sources import Allowance
from issuer.service.authn.authenticator import credential_of
from issuer.service.authn.bounds import ENDPOINT_KEPT_S, MAX_KEPT_BYTES, MAX_TEXT_CHARS
from issuer.service.authn.keysets import ProviderFetcher
from issuer.service.authn.opaque_tokens import OpaqueVerifier, ProviderAnswer, VerifierOptions, read_object

# Members that say "access token": `token_type` (RFC 6749 7.1), `token_use` (Hydra) and `typ` (Keycloak). A server sends
# none, one or two of them. They matter because refresh and ID tokens can be active, too.
_ACCESS_TOKEN = {
    "token_type": {"bearer", "access_token"},
    "token_use": {"access", "access_token"},
    "typ": {"bearer", "at+jwt", "application/at+jwt"},
}


class Introspector(OpaqueVerifier):
    """Verifies opaque tokens of registered providers by introspection."""

    def __init__(self, fetcher: ProviderFetcher, **options: Unpack[VerifierOptions]) -> None:
        super().__init__(fetcher, **options)
        self._endpoints: dict[str, tuple[str, float]] = {}
        self._discovering: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def verify(self, bearer: str, provider: Provider, now: int, allowance: Allowance) -> Caller:
        """Return the caller of a token that its provider calls active at `now` (Unix seconds).

        Raises Refused (401; 429 `rate.source` if the source is over its limit and no answer is kept) and Charged
        (`dependency.introspection`).
        """
        if len(bearer) > MAX_TOKEN_BYTES:
            raise Refused(Code.IDENTITY_MALFORMED)
        answer = await self._find(bearer, provider, now, allowance)
        # Check again: a kept answer was checked at an earlier time, and perhaps under an older registration.
        issued_at, expires_at = check_answer(answer.claims, provider, now)
        use_parts = ("nonce", provider.id, credential_of(answer.claims))
        return Caller(provider, derive(provider.rules, answer.claims), use_parts, issued_at, expires_at)

    async def _ask(self, bearer: str, provider: Provider, now: int) -> ProviderAnswer:
        async with self._asking(provider):
            claims = await self._introspect(bearer, provider)
            _, expires_at = check_answer(claims, provider, now)
            return ProviderAnswer(keep_readable(claims), expires_at)

    async def _introspect(self, bearer: str, provider: Provider) -> Mapping[str, JSON]:
        how = provider.introspection
        if how is None:
            raise FetchRefused("the provider is registered without `introspection`")
        endpoint = await self._endpoint(provider) if how.endpoint is UNSET else how.endpoint
        client = AsyncOAuth2Client(
            how.client_id, read_secret(how), "basic", transport=self._transport, trust_env=False, timeout=None
        )
        client.register_client_auth_method(("basic", form_encoded_basic))
        async with client:
            response = await client.introspect_token(endpoint, token=bearer, token_type_hint="access_token")  # noqa: S106
        # Some servers return the token itself as its `jti`. It must not be kept.
        return {name: value for name, value in read_object(response).items() if value != bearer}

    async def _endpoint(self, provider: Provider) -> str:
        """Return the discovered endpoint, from memory or from one request that all waiting calls share."""
        async with self._discovering[provider.issuer]:
            endpoint, until = self._endpoints.get(provider.issuer, ("", 0.0))
            if not endpoint or self._monotonic() >= until:
                endpoint = await self._fetcher.discover(provider, "introspection_endpoint")
                self._endpoints[provider.issuer] = (endpoint, self._monotonic() + ENDPOINT_KEPT_S)
            return endpoint


# -- the question -----------------------------------------------------------------------------------------------------


def read_secret(how: Introspection) -> str:
    """Read the client's secret for each request, so a new one needs no restart. Raises InputError and FetchRefused."""
    with files.open_plain(Path(how.client_secret_file), private=True) as file:
        raw = file.read(MAX_SECRET_BYTES + 1)
    secret = raw.decode("utf-8", "replace").rstrip("\r\n")
    if not secret or len(raw) > MAX_SECRET_BYTES or not secret.isprintable():
        raise FetchRefused("the client secret's file must contain one line of text")
    return secret


def demand_secret(provider: Provider) -> None:
    """Raise SetupError if the client secret of an introspecting provider cannot be read."""
    if provider.introspection is None:
        return
    try:
        read_secret(provider.introspection)
    except FAILURES as failure:
        file = provider.introspection.client_secret_file
        detail = f"the secret of the provider {provider.id}, {file}: {reason(failure)}"
        raise SetupError(Code.SETTINGS_INVALID, detail) from None


def form_encoded_basic(client: Any, _method: str, uri: str, headers: Any, body: str) -> tuple[str, Any, str]:
    """Authenticate with HTTP Basic. First form-encode id and secret (RFC 6749 2.3.1), which Authlib does not."""
    # `%20` is as valid as `+` in form encoding, and servers that ignore the rule decode it, too.
    pair = f"{quote(client.client_id, safe='')}:{quote(client.client_secret, safe='')}"
    headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
    return uri, headers, body


# -- the answer -------------------------------------------------------------------------------------------------------


def keep_readable(claims: Mapping[str, JSON]) -> dict[str, JSON]:
    """Return the part of a good answer to keep: `aud`, `scope`, and scalars of up to 512 characters.

    Every other member becomes an empty object: it stays visible, but meets no requirement. Raises FetchRefused if the
    result is larger than MAX_KEPT_BYTES.
    """
    kept = {name: value if name == "aud" or _is_readable(name, value) else {} for name, value in claims.items()}
    if len(msgspec.json.encode(kept)) > MAX_KEPT_BYTES:
        raise FetchRefused("the answer is too large to be kept")
    return kept


def _is_readable(name: str, value: JSON) -> bool:
    if isinstance(value, str):
        return len(value) <= MAX_TEXT_CHARS or name == "scope"
    return not isinstance(value, list | dict)


def check_answer(claims: Mapping[str, JSON], provider: Provider, now: int) -> tuple[int, int]:
    """Return issue and expiry (Unix seconds) from an answer that is good at `now`. Without a time of issue, that is
    `now`. Raises Refused. The policy checks `scope`."""
    if claims.get("active") is not True:  # (1) not "true", not 1 (RFC 7662 2.2)
        raise Refused(Code.IDENTITY_INACTIVE)
    if claims.get("iss") != provider.issuer:  # (2) issuer
        raise Refused(Code.IDENTITY_ISSUER_UNKNOWN)
    check_kind(claims)  # (3) an access token, good for any bearer
    issued_at, expires_at = check_times(claims, now)  # (4) times
    check_audience(claims.get("aud"), provider.audience)  # (5) audience
    check_id(claims.get("client_id"))  # (6) client and subject
    if "sub" in claims:
        check_id(claims["sub"])
    return issued_at, expires_at


def check_kind(claims: Mapping[str, JSON]) -> None:
    """Refuse an answer about another kind of token, or about a token that is bound to a key of its client."""
    for name, access_token in _ACCESS_TOKEN.items():
        if name in claims and str(claims[name]).lower() not in access_token:
            raise Refused(Code.IDENTITY_TYPE_REFUSED)
    check_unbound(claims)


def check_times(claims: Mapping[str, JSON], now: int) -> tuple[int, int]:
    """Return `iat`, or `now` without one, and `exp`, which is required. Raises Refused."""
    issued_at, expires_at = read_unix_s(claims.get("iat", now)), read_unix_s(claims.get("exp"))
    not_before = read_unix_s(claims.get("nbf", issued_at))
    if now - LEEWAY_S >= expires_at:
        raise Refused(Code.IDENTITY_EXPIRED)
    if max(issued_at, not_before) > now + LEEWAY_S:
        raise Refused(Code.IDENTITY_NOT_YET_VALID)
    return issued_at, expires_at
