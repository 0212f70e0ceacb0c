"""For tests of `POST /verify`: a trust file that trusts the service itself, and a request."""

from pathlib import Path
from typing import Any

import httpx
import msgspec

from issuer.dev.sandbox import AUDIENCE
from tests.support import make
from tests.support.running import Running

PATH = ".eval_results/gsm8k.yaml"
OWN = "version: 1\naudience: {audience}\nissuers:\n- issuer: {url}\n  keys: {{url: {url}/.well-known/jwks.json}}\n"


def write_trust(folder: Path, url: str) -> Path:
    path = folder / "trust.yaml"
    path.write_text(OWN.format(audience=AUDIENCE, url=url), "utf-8")
    return path


def ask(live: Running, **members: Any) -> httpx.Response:
    body = make.without_dots({"repo": "acme/open-model", "path": PATH, **members})
    return live.post(None, msgspec.json.encode(body), "/verify")
