"""A Hub over HTTP with the real one's `whoami-v2`, which records its requests."""

import secrets
from typing import Any

from issuer.dev.provider import Exchange, LocalProvider, Responder
from issuer.service.authn.huggingface import WHOAMI
from tests.support.make import without_dots

ACCOUNT_ID = "64f1a2b3c4d5e6f708192a3b"
# The Hub's address, for a service that also has a CI provider.
BESIDE = "/hub"


class Hub:
    """A LocalProvider that knows accounts by token, and records the headers of its requests."""

    def __init__(self, provider: LocalProvider) -> None:
        self.provider = provider
        self.tokens: dict[str, dict[str, Any]] = {}
        self.headers: list[dict[str, str]] = []
        self.answer: Responder | None = None
        provider.answers |= dict.fromkeys((WHOAMI, BESIDE + WHOAMI), self._whoami)

    @property
    def asked(self) -> int:
        return self.provider.requests[WHOAMI]

    def token(self, **members: Any) -> str:
        """Return a new token of the account; `...` leaves a member out of its answer."""
        token = "hf_" + secrets.token_hex(17)
        org = {"type": "org", "id": "6" * 24, "name": "example-org", "email": None, "roleInOrg": "admin"}
        account = {
            "type": "user", "id": ACCOUNT_ID, "name": "evals-bot", "fullname": "Evals Bot", "email": "bot@example.org",
            "emailVerified": True, "canPay": False, "isPro": False, "periodEnd": None, "avatarUrl": "/avatars/1.svg",
            "orgs": [org], "auth": auth(),
        }  # fmt: skip
        self.tokens[token] = without_dots({**account, **members})
        return token

    def _whoami(self, exchange: Exchange) -> None:
        self.headers.append(dict(exchange.headers.items()))
        if self.answer is not None:
            self.answer(exchange)
        elif (account := self.tokens.get(exchange.headers["Authorization"].removeprefix("Bearer "))) is None:
            exchange.reply(401, {"error": "Invalid credentials in Authorization header"})
        else:
            exchange.reply(200, account, Content_Type="application/json; charset=utf-8")


def auth(type: str = "access_token", **token: Any) -> dict[str, Any]:
    known = {"displayName": "nightly", "role": "fineGrained", "createdAt": "2026-01-02T03:04:05.678Z", **token}
    return {"type": type, "accessToken": known}
