"""A service that knows one reusable identity of each kind and a limited one, and their credentials' issuers."""

import json
import os
import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from issuer.dev.provider import OWNER_ID, REPOSITORY_ID, LocalProvider
from issuer.identity.pat import RANDOM_BYTES
from issuer.service.authn.pat_records import DAY_S, Order, create
from issuer.service.signing.keyring import generate
from tests.support.oauth_server import PREFIX, OAuthServer, oauth_server
from tests.support.running import Running, numbered
from tests.support.samples import policy_of, text_of

KINDS = ("pat", "jwt", "opaque")
ACCOUNT = "nightly"
OTHER_SUBJECT = "another-subject"
MANY = {"count": 1_000_000, "per_s": 60, "burst": 50_000}
WIDE = {"limits": {"identity": MANY, "integration": MANY, "refusals": MANY}}


@dataclass
class Issuers:
    """The issuers of credentials: a CI's provider, and two OAuth servers, one of JWTs and one of opaque tokens."""

    local: LocalProvider
    jwts: OAuthServer
    opaques: OAuthServer

    def write(
        self, folder: Path, policy: Mapping[str, Any] = {}, **more: tuple[dict[str, Any], dict[str, str]]
    ) -> None:
        """Make keys, and a policy; `policy` has further members.

        Its identities are one of each kind, and a second subject of each OAuth client (`OTHER_SUBJECT`).

        `more` are further providers, by id: the entry, and the pins of an identity of it.
        """
        secret = folder / "introspection.secret"
        secret.touch(0o600)
        secret.write_text(self.opaques.resource_secret, "utf-8")
        asked = {"client_id": self.opaques.resource_id, "client_secret_file": str(secret), "token_prefix": PREFIX}
        providers = {
            "pat": {"profile": "pat"},
            "jwt": {"profile": "oauth", "issuer": self.jwts.issuer},
            "opaque": {"profile": "oauth-introspection", "issuer": self.opaques.issuer, "introspection": asked},
            "ci": {"profile": "github-actions", "issuer": self.local.issuer},
            **{name: entry for name, (entry, _) in more.items()},
        }
        pins = {
            "pat": {"account": ACCOUNT},
            "jwt": {"client_id": self.jwts.client_id, "sub": self.jwts.client_id},
            "opaque": {"client_id": self.opaques.client_id, "sub": self.opaques.client_id},
            "ci": {"repository_id": REPOSITORY_ID, "repository_owner_id": OWNER_ID, "ref": "refs/heads/main"},
            **{name: pinned for name, (_, pinned) in more.items()},
        }
        identities = [{"id": name, "provider": name, "pins": pinned} for name, pinned in pins.items()]
        identities += [
            {"id": f"{name}-other", "provider": name, "pins": {**pins[name], "sub": OTHER_SUBJECT}}
            for name in ("jwt", "opaque")
        ]
        (folder / "policies").mkdir()
        (folder / "policies" / "providers.yaml").write_text(text_of(providers), "utf-8")
        text = json.dumps({**json.loads(policy_of(*identities)), **WIDE, **policy})
        (folder / "policies" / "inspect-ai.yaml").write_text(text, "utf-8")
        generate(folder / "keys", "active")

    def credential(self, live: Running, kind: str, **claims: Any) -> str:
        """Issue one: a personal access token, or an access token with changed claims; `limited`: an identity token."""
        match kind:
            case "pat":
                token = create_pat(live.folder)
            case "limited":
                token = live.token()
            case "jwt":
                token = self.jwts.token(live.url, form="jwt", **claims)
            case _:
                token = self.opaques.token(live.url, **claims)
        live.secrets.append(token)
        return token


@contextmanager
def issuers(local: LocalProvider) -> Iterator[Issuers]:
    with oauth_server() as jwts, oauth_server() as opaques:
        yield Issuers(local, jwts, opaques)


def create_pat(folder: Path, account: str = ACCOUNT, networks: tuple[str, ...] = ()) -> str:
    """Make a personal access token of a service that has its data in this folder."""
    order = Order(account, ("tokens:issue",), networks, DAY_S)
    token, _ = create(folder / "data" / "pats", order, now=int(time.time()), random=os.urandom(RANDOM_BYTES))
    return token


def new_nonce() -> str:
    """Make a nonce of 128 bits: 22 characters."""
    return secrets.token_urlsafe(16)


def with_nonce(nonce: object, number: int = 0) -> dict[str, Any]:
    """Return the good body of this number with a nonce."""
    return {**numbered(number), "nonce": nonce}
