"""Hugging Face access tokens: ask the Hub for the account of a token (`GET /api/whoami-v2`, as `huggingface_hub` does).

Such a token names no audience, so anyone who receives it can use it here. Therefore this kind is off until
`providers.yaml` names it, and an identity is pinned to the account's persistent id. Tokens of OAuth apps are refused,
because those apps could use them here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime

import httpx2

from issuer.codes import Code
from issuer.errors import Refused
from issuer.formats.strict_json import JSON
from issuer.formats.times import LEEWAY_S
from issuer.identity.profiles import derive
from issuer.identity.table import Provider
from issuer.identity.token import Caller
from issuer.io.fetch import FetchRefused
from issuer.limits.sources import Allowance
from issuer.service.authn.bounds import ANSWER_KEPT_S
from issuer.service.authn.opaque_tokens import OpaqueVerifier, ProviderAnswer, read_object

WHOAMI = "/api/whoami-v2"
# A token of a user or an organization. `hf_oauth_...` and `hf_jwt_...` are tokens of other kinds.
_TOKEN = re.compile(r"hf_[A-Za-z0-9]{16,128}")
_ID = re.compile(r"[0-9A-Za-z]{1,64}")


class HuggingFace(OpaqueVerifier):
    """Verifies Hugging Face tokens."""

    async def verify(self, bearer: str, provider: Provider, now: int, allowance: Allowance) -> Caller:
        """Return the account of a token at `now` (Unix seconds). Raises as `Introspector.verify` does."""
        if not _TOKEN.fullmatch(bearer):  # other credentials must never reach the Hub
            raise Refused(Code.IDENTITY_MALFORMED)
        answer = await self._find(bearer, provider, now, allowance)
        use_parts = ("nonce", provider.id, str(answer.claims["id"]))
        expires_at = now + int(ANSWER_KEPT_S) if answer.expires_at is None else answer.expires_at
        return Caller(provider, derive(provider.rules, answer.claims), use_parts, now, expires_at)

    async def _ask(self, bearer: str, provider: Provider, now: int) -> ProviderAnswer:
        async with self._asking(provider):
            async with httpx2.AsyncClient(transport=self._transport, trust_env=False, timeout=None) as client:
                url = provider.issuer + WHOAMI
                response = await client.get(url, headers={"Authorization": f"Bearer {bearer}"})
            if response.status_code == 401:
                raise Refused(Code.IDENTITY_CREDENTIAL_UNKNOWN)
            answer = read_account(read_object(response))
        if answer.expires_at is not None and now - LEEWAY_S >= answer.expires_at:
            raise Refused(Code.IDENTITY_EXPIRED)
        return answer


def read_account(account: Mapping[str, JSON]) -> ProviderAnswer:
    """Return only the account's persistent id, name and type, and the token's role: no e-mail, no organizations. Raises
    Refused for a token of an app, and FetchRefused for an answer without an account."""
    auth = account.get("auth")
    if not isinstance(auth, dict) or auth.get("type") != "access_token":
        raise Refused(Code.IDENTITY_TYPE_REFUSED)
    token = auth.get("accessToken")
    found = {name: account.get(name) for name in ("id", "name", "type")}
    if not isinstance(token, dict) or not all(isinstance(value, str) for value in found.values()):
        raise FetchRefused("the answer has no account and token")
    if not _ID.fullmatch(str(found["id"])):
        raise FetchRefused("the account's id is malformed")
    claims: dict[str, JSON] = {**found, "auth": {"accessToken": {"role": token.get("role")}}}
    ends = [_unix_s(end) for end in (token.get("expiration"), auth.get("expiresAt")) if end is not None]
    return ProviderAnswer(claims, min(ends, default=None))


def _unix_s(expiration: JSON) -> int:
    """Read an ISO 8601 time. Raises FetchRefused and ValueError for anything else."""
    if not isinstance(expiration, str):
        raise FetchRefused("the token's expiration is not a time")
    end = datetime.fromisoformat(expiration)
    if end.tzinfo is None:
        raise FetchRefused("the token's expiration has no time zone")
    return int(end.timestamp())
