"""An issuer over real HTTP with its own keys. A test changes its answers."""

import json
import socket
import time
from collections.abc import Callable
from typing import Any

from issuer.formats import jcs, jose
from issuer.results.claims import read_claims
from issuer.results.details import read_details
from issuer.results.entry import Submission
from issuer.token.wire import JWKS_PATH, LOG_PATH
from tests.support import make
from tests.support.scripted import Action, Scripted, Seen, reply

# The changes to a good answer, given its parts, and to all tokens of a batch.
Lie = Callable[["Good"], Any]
Spoil = Callable[[list[dict[str, Any]]], list[dict[str, Any]]]


class Good:
    """A good answer to a request, in parts that a lie may change."""

    def __init__(self, url: str, item: dict[str, Any], jti: str = make.JTI) -> None:
        self.url = url
        self.sent = Submission.of(read_claims(item["claims"]), read_details(item.get("details", {})))
        now = int(time.time())
        self.terms: dict[str, Any] = {"iss": url, "iat": now, "nbf": now, "exp": now + 3600, "jti": jti}

    def answer(self, sent: Submission | None = None, entry: str | None = None, **terms: Any) -> dict[str, Any]:
        """Sign a token, for another run or with other terms, and answer what is true of it."""
        sent = sent or self.sent
        payload = make.payload_of(sent, **{**self.terms, **terms})
        token = make.signed(make.HEADER, jcs.canonical(payload))
        return {
            "verify_token": token, "token_type": "eval-verify+jwt", "jti": payload["jti"], "kid": make.KID,
            "issued_at": payload["iat"], "expires_at": payload["exp"], "claims_digest": payload["claims_digest"],
            "content_digest": payload["content_digest"], "integration": payload["sub"], "identity": "ci",
            "policy": payload["policy"], "entry": entry or sent.entry(token), "warnings": [],
        }  # fmt: skip


class HostileIssuer(Scripted):
    """Answers a GET of the key set with `keys`, the last of them for ever, and a POST with a good answer after `lie`.

    `posted` are the requests for tokens, without those for keys; `answers` are given to them in turn instead. `proofs`
    are the answers of its log, in turn, the last of them for ever.
    """

    def __init__(
        self,
        lie: Lie = Good.answer,
        *,
        spoil: Spoil = list,
        keys: list[Action] | None = None,
        answers: list[Action] | None = None,
        proofs: list[Action] | None = None,
    ) -> None:
        super().__init__([self._answer_one])
        self._lie, self._spoil, self._answers = lie, spoil, answers or []
        self._keys = keys or [reply(200, make.jwks())]
        self.proofs = proofs or [reply(404)]
        self._said = 0

    def say(self, *answers: Action) -> None:
        """Give these answers to the next posts, in turn; none: good ones."""
        self._answers, self._said = list(answers), len(self.posted)

    @property
    def posted(self) -> list[Seen]:
        return [seen for seen in self.seen if seen.line.startswith("POST")]

    @property
    def asked_for_proofs(self) -> list[str]:
        return [path for seen in self.seen if (path := seen.line.split()[1]).startswith(f"{LOG_PATH}/")]

    @property
    def asked_for_keys(self) -> int:
        return sum(seen.line.startswith(f"GET {JWKS_PATH}") for seen in self.seen)

    def _answer_one(self, connection: socket.socket) -> None:
        seen = self.seen[-1]
        if seen.line.startswith(f"GET {LOG_PATH}/"):
            action = self.proofs[min(len(self.asked_for_proofs), len(self.proofs)) - 1]
        elif seen.line.startswith("GET"):
            action = self._keys[min(self.asked_for_keys, len(self._keys)) - 1]
        elif self._answers:
            action = self._answers[min(len(self.posted) - self._said, len(self._answers)) - 1]
        else:
            action = reply(201, self._made_of(json.loads(seen.body)))
        connection.sendall(action) if isinstance(action, bytes) else action(connection)

    def _made_of(self, body: dict[str, Any]) -> Any:
        if "results" not in body:
            return self._lie(Good(self.url, body))
        goods = [Good(self.url, item, jti_of(number)) for number, item in enumerate(body["results"])]
        return {"tokens": self._spoil([self._lie(good) for good in goods])}


def jti_of(number: int) -> str:
    return jose.base64url_encode(number.to_bytes(16, "big"))
