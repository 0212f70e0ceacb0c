"""Token exchange over HTTP: good forms, with changes, and the posts of them."""

from typing import Any
from urllib.parse import urlencode

import httpx
import msgspec

from tests.support.running import BODY, Running

EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
ID_TOKEN = "urn:ietf:params:oauth:token-type:id_token"
JWT = "urn:ietf:params:oauth:token-type:jwt"
FORM = {"Content-Type": "application/x-www-form-urlencoded"}


def detail(sent: dict[str, Any] = BODY) -> str:
    return msgspec.json.encode([{"type": "eval_result", **sent}]).decode()


def form(identity: str, **parameters: str | None) -> dict[str, str]:
    """Return a good form with changed parameters; None leaves one out."""
    good = {
        "grant_type": EXCHANGE,
        "subject_token": identity,
        "subject_token_type": ID_TOKEN,
        "authorization_details": detail(),
    }
    return {name: value for name, value in {**good, **parameters}.items() if value is not None}


def post(service: Running, sent: dict[str, str] | str, **headers: str) -> httpx.Response:
    content = sent if isinstance(sent, str) else urlencode(sent)
    return service.http.post("/oauth/token", content=content, headers={**FORM, **headers})


def exchange(service: Running, identity: str = "", **parameters: str | None) -> httpx.Response:
    identity = identity or service.token()
    service.secrets.append(identity)
    return post(service, form(identity, **parameters))
