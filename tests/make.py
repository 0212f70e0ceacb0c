"""Good claims, entries, signed tokens and a trust in them, for tests that break one thing at a time."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import hypothesis
from cryptography.hazmat.primitives.asymmetric import ed25519
from joserfc import jws
from joserfc.errors import SecurityWarning
from joserfc.jwk import OKPKey

from issuer import jcs, jose, token
from issuer.results.claims import read_claims
from issuer.results.entry import Submission, content_digest, read_details, result_file_name, target_entry, write_entry
from issuer.strict_json import JSON
from issuer.trust import Trust, TrustedIssuer

hypothesis.settings.register_profile("stable", deadline=None, derandomize=True, database=None, max_examples=100)
hypothesis.settings.load_profile("stable")

NOW = 1_795_000_000
ISSUER = "https://issuer.example"
AUDIENCE = "https://hub.example"
REPO = "acme/open-model"
BENCHMARK = "openai/gsm8k"
PATH = result_file_name(BENCHMARK)
JTI = jose.base64url_encode(bytes(range(16)))
KEY = ed25519.Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
KID = str(jose.public_jwk(KEY.public_key())["kid"])
HEADER: dict[str, JSON] = {"alg": "EdDSA", "kid": KID, "typ": "eval-verify+jwt"}


def claims(**members: Any) -> dict[str, Any]:
    """Return good run claims with other members; one that is `...` is left out."""
    good: dict[str, Any] = {
        "model_repo": REPO,
        "model_revision": "9f3c2c9a1c4e6d1e0b7a5f4d3c2b1a0987654321",
        "benchmark_repo": BENCHMARK,
        "benchmark_revision": "5503434ddd753f426f4b38109466949a1217c2bb",
        "task_id": "gsm8k",
        "metrics": [{"metric_id": "accuracy", "value": 20.9}],
        "framework": {"name": "inspect-ai", "version": "0.3.285", "command": "inspect eval gsm8k"},
    }
    return without_dots({**good, **members})


def without_dots(members: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out the members that are `...`."""
    return {name: value for name, value in members.items() if value is not ...}


def submission(details: Mapping[str, JSON] | None = None, **members: Any) -> Submission:
    """Return what the issuer makes of good claims with other members."""
    run, read = read_claims(claims(**members)), read_details(dict(details or {}))
    form = target_entry(run, read)
    return Submission("", run, read, form, run.digest, content_digest(form))


def template(**payload: Any) -> token.Template:
    """Return a template of one hour from NOW with other payload members; one that is `...` is left out."""
    draft = token.draft(
        kid=KID, iss=ISSUER, sub="inspect-ai", aud=AUDIENCE, now=NOW, ttl_s=3600, jti=JTI,
        caller={"provider": "github", "repository_id": "1"}, policy="sha256:" + "0" * 64, log=None,
    )  # fmt: skip
    return token.Template(draft.header, without_dots({**draft.payload, **payload}))


def signed(header: Mapping[str, JSON], payload: bytes, key: ed25519.Ed25519PrivateKey = KEY) -> str:
    """Sign any header and any payload bytes."""
    signing_input = jose.signing_input(header, payload)
    return jose.compact(signing_input, jose.sign(key, signing_input))


def payload_of(item: Submission, **members: Any) -> dict[str, Any]:
    """Return the payload for a submission with other members; one that is `...` is left out."""
    own = {"claims_digest": item.claims_digest, "content_digest": item.content_digest}
    return without_dots({**template().payload, **item.claims.to_json(), **own, **members})


def token_for(item: Submission, *, header: Mapping[str, JSON] = HEADER, **members: Any) -> str:
    """Sign the token of a submission, with other payload members."""
    return signed(header, jcs.canonical(payload_of(item, **members)))


def file_for(item: Submission, **members: Any) -> str:
    """Write the result file with one entry and its token."""
    return write_entry(item.form, token_for(item, **members))


def payload_by_joserfc(token: str) -> bytes:
    """Verify a token with another library and return its payload; a bad signature raises what joserfc raises."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SecurityWarning)  # it prefers RFC 9864's name
        jwk: dict[str, Any] = dict(jose.public_jwk(KEY.public_key()))
        return bytes(jws.deserialize_compact(token, OKPKey.import_key(jwk), algorithms=["EdDSA"]).payload or b"")


def key_set(*keys: ed25519.Ed25519PrivateKey) -> jose.KeySet:
    """Return the key set that publishes these keys."""
    jwks: list[JSON] = [jose.public_jwk(key.public_key()) for key in keys or (KEY,)]
    return jose.parse_key_set(jcs.canonical({"keys": jwks}))


def trust(*, issuer: str = ISSUER, audience: str = AUDIENCE, life_s: int = 86_400, **members: Any) -> Trust:
    """Trust the issuer with the key; `keys` and `frameworks` are the trusted issuer's members."""
    trusted = TrustedIssuer(issuer, members.get("keys", key_set()), members.get("frameworks"))
    return Trust(audience, {issuer: trusted}, life_s)
