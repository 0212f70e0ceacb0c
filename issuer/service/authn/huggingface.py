"""Hugging Face access tokens, by asking the Hub whose they are: `GET /api/whoami-v2`, as `huggingface_hub` does.

Such a token names no audience: anyone who is shown it can use it here. So this kind is off until `providers.yaml` names
it, and an identity is pinned to the account's persistent id. Tokens of OAuth apps are refused: the apps hold them.
"""

from __future__ import annotations

import functools
import re
import time
from collections.abc import Callable, Mapping
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
from issuer.service.authn.keysets import NoteAnswer, ProviderFetcher, ReportFailure
from issuer.service.authn.opaque_tokens import AnswerCache, CheckedTransport, ProviderAnswer, asking, read_object

WHOAMI = "/api/whoami-v2"
# A user's or an organization's own token; `hf_oauth_...` and `hf_jwt_...` are others.
_TOKEN = re.compile(r"hf_[A-Za-z0-9]{16,128}")
_ID = re.compile(r"[0-9A-Za-z]{1,64}")


class HuggingFace:
    """Verifies Hugging Face tokens. Belongs to one event loop; the parameters are `introspection.Introspector`'s."""

    def __init__(
        self,
        fetcher: ProviderFetcher,
        *,
        report: ReportFailure = lambda _provider, _reason: None,
        note_answer: NoteAnswer = lambda _provider: None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._transport = CheckedTransport(fetcher)
        self._report, self._note_answer = report, note_answer
        self._deadline_s = fetcher.deadline_s
        self._answers = AnswerCache(monotonic=monotonic)

    async def verify(self, bearer: str, provider: Provider, now: int, allowance: Allowance) -> Caller:
        """Return the account behind a token at `now`, Unix seconds. Raises as `introspection.Introspector.verify`."""
        if not _TOKEN.fullmatch(bearer):  # before any network: nothing else is ever sent to the Hub
            raise Refused(Code.IDENTITY_MALFORMED)
        ask = functools.partial(self._ask, bearer, provider, now)
        answer = await self._answers.find(provider, bearer, now, allowance, ask)
        use_parts = ("nonce", provider.id, str(answer.claims["id"]))
        expires_at = now + int(ANSWER_KEPT_S) if answer.expires_at is None else answer.expires_at
        return Caller(provider, derive(provider.rules, answer.claims), use_parts, now, expires_at)

    async def _ask(self, bearer: str, provider: Provider, now: int) -> ProviderAnswer:
        async with asking(provider, self._report, self._note_answer, self._deadline_s):
            async with httpx2.AsyncClient(transport=self._transport, trust_env=False, timeout=None) as client:
                url = provider.issuer + WHOAMI
                response = await client.get(url, headers={"Authorization": f"Bearer {bearer}"})
            if response.status_code == 401:
                raise Refused(Code.IDENTITY_CREDENTIAL_UNKNOWN)
            answer = read_account(read_object(response))
        if answer.expires_at is not None and now - LEEWAY_S >= answer.expires_at:
            raise Refused(Code.IDENTITY_EXPIRED)
        return answer

    async def aclose(self) -> None:
        """Cancel what is being asked and wait until its connections are closed."""
        await self._answers.aclose()


def read_account(account: Mapping[str, JSON]) -> ProviderAnswer:
    """Return the account's persistent id, name and type and the token's role: no e-mail, no organizations.

    Raises Refused for a token that was made for an app, FetchRefused where there is no account in the answer.
    """
    auth = account.get("auth")
    if not isinstance(auth, dict) or auth.get("type") != "access_token":
        raise Refused(Code.IDENTITY_TYPE_REFUSED)
    token = auth.get("accessToken")
    found = {name: account.get(name) for name in ("id", "name", "type")}
    if not isinstance(token, dict) or not all(isinstance(value, str) for value in found.values()):
        raise FetchRefused("the answer has no account and token")
    if not _ID.fullmatch(str(found["id"])):
        raise FetchRefused("the account's id is none")
    claims: dict[str, JSON] = {**found, "auth": {"accessToken": {"role": token.get("role")}}}
    ends = [_unix_s(end) for end in (token.get("expiration"), auth.get("expiresAt")) if end is not None]
    return ProviderAnswer(claims, min(ends, default=None))


def _unix_s(expiration: JSON) -> int:
    """Read an ISO 8601 time. Raises FetchRefused and ValueError for anything else."""
    if not isinstance(expiration, str):
        raise FetchRefused("the token's expiration is no time")
    end = datetime.fromisoformat(expiration)
    if end.tzinfo is None:
        raise FetchRefused("the token's expiration has no time zone")
    return int(end.timestamp())
