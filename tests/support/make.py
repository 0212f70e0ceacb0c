"""Good claims, entries, signed tokens and a trust in them, for tests that break one thing at a time.

Every token that `signed` makes in standard form is also verified by joserfc.
"""

import warnings
from collections.abc import Mapping
from functools import cache
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ed25519
from joserfc import jws
from joserfc.errors import SecurityWarning
from joserfc.jwk import OKPKey

from issuer.formats import jcs, jose
from issuer.formats.strict_json import JSON
from issuer.results.benchmark import Benchmark, read_benchmark
from issuer.results.claims import read_claims
from issuer.results.details import read_details
from issuer.results.entry import Submission, result_file_name, write_entry
from issuer.token import verify_token as token
from issuer.verify.revocations import REVOCATIONS_TYPE, Revocations, parse_revocations
from issuer.verify.trust import Archive, Trust, TrustedIssuer, parse_archive

NOW = 1_795_000_000
ISSUER = "https://issuer.example"
AUDIENCE = "https://hub.example"
REPO = "acme/open-model"
BENCHMARK = "openai/gsm8k"
PATH = result_file_name(BENCHMARK)
BENCHMARK_TEXT = """name: "GSM8K"
description: "Grade school mathematics."
metrics:
  - {id: "accuracy", display_name: "Accuracy", higher_is_better: true, primary: true}
  - {id: "pass_at_5", display_name: "Pass at 5", higher_is_better: true, primary: false}
tasks:
  - {id: "gsm8k", dataset: {id: "openai/gsm8k"}}
"""
JTI = jose.base64url_encode(bytes(range(16)))
# A little more than a year: files are also judged that late.
YEAR = 400 * 86_400
KEY = ed25519.Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
KID = str(jose.public_jwk(KEY.public_key())["kid"])
RECEIPT_KEY = ed25519.Ed25519PrivateKey.from_private_bytes(b"r" * 32)
REVOCATION_KEY = ed25519.Ed25519PrivateKey.from_private_bytes(b"v" * 32)
STRANGER = ed25519.Ed25519PrivateKey.from_private_bytes(b"s" * 32)
HEADER: dict[str, JSON] = {"alg": "EdDSA", "kid": KID, "typ": "eval-verify+jwt"}


def claims(**members: Any) -> dict[str, Any]:
    """Return good run claims with changed members; one that is `...` is left out."""
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
    """Return what the issuer makes of good claims with changed members."""
    return Submission.of(read_claims(claims(**members)), read_details(dict(details or {})))


TERMS: dict[str, Any] = {
    "ver": 1, "iss": ISSUER, "sub": "inspect-ai", "aud": AUDIENCE, "iat": NOW, "nbf": NOW, "exp": NOW + 3600, "jti": JTI,
    "caller": {"provider": "github", "repository_id": "1"}, "policy": "sha256:" + "0" * 64,
}  # fmt: skip


def template(**terms: Any) -> token.Template:
    """Return a template of one hour from NOW with changed terms."""
    return token.Template.of(KID, token.Terms(**{**TERMS, **terms}))


def signed(header: Mapping[str, JSON], payload: bytes, key: ed25519.Ed25519PrivateKey = KEY) -> str:
    """Sign any header and any payload bytes; joserfc must verify what has the form of this issuer's JWS."""
    signing_input = jose.signing_input(header, payload)
    token = jose.compact(signing_input, jose.sign(key, signing_input))
    text = all(isinstance(value, str) for value in header.values())
    if text and header.keys() == {"alg", "kid", "typ"} and header["alg"] in jose.EDDSA_NAMES:
        assert payload_by_joserfc(token, key) == payload
    return token


def issued(items: tuple[Submission, ...], *, batch: bool = False) -> list[str]:
    """Compose and sign the tokens of submissions as the issuer does; joserfc must verify every one."""
    tokens = []
    for part in token.compose(template(), items, batch=batch):
        tokens.append(jose.compact(part.signing_input, jose.sign(KEY, part.signing_input)))
        assert payload_by_joserfc(tokens[-1]) == jose.parse_compact(tokens[-1]).unverified_payload
    return tokens


def payload_of(item: Submission, **members: Any) -> dict[str, Any]:
    """Return the payload for a submission with changed members; one that is `...` is left out."""
    own = {"claims_digest": item.claims_digest, "content_digest": item.content_digest}
    return without_dots({**TERMS, **item.claims.to_json(), **own, **members})


def token_for(item: Submission, *, header: Mapping[str, JSON] = HEADER, **members: Any) -> str:
    """Sign the token of a submission, with changed payload members."""
    return signed(header, jcs.canonical(payload_of(item, **members)))


def two_metrics(**claims: Any) -> str:
    """Return a file whose `value` only a definition can judge: its entry has two metrics."""
    metrics = [{"metric_id": "accuracy", "value": 20.9}, {"metric_id": "f1", "value": 0.5}]
    return file_for(submission(metrics=metrics, **claims), jti="V" * 21 + "A") + "  value: 20.9\n"


def file_for(item: Submission, **members: Any) -> str:
    """Write the result file with one entry and its token."""
    return write_entry(item.form, token_for(item, **members))


def payload_by_joserfc(token: str, key: ed25519.Ed25519PrivateKey = KEY) -> bytes:
    """Verify a token with joserfc, another library, and return its payload; its errors pass."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SecurityWarning)  # it prefers RFC 9864's name
        public = _joserfc_key(key.public_key().public_bytes_raw())
        return bytes(jws.deserialize_compact(token, public, algorithms=["EdDSA", "Ed25519"]).payload or b"")


@cache
def _joserfc_key(point: bytes) -> OKPKey:
    return OKPKey.import_key({"kty": "OKP", "crv": "Ed25519", "x": jose.base64url_encode(point)})


def jwks(*keys: ed25519.Ed25519PrivateKey, **more: JSON) -> bytes:
    """Return the JWK set that publishes these keys, each with further members."""
    members: list[JSON] = [{**jose.public_jwk(key.public_key()), **more} for key in keys or (KEY,)]
    return jcs.canonical({"keys": members})


def key_set(*keys: ed25519.Ed25519PrivateKey) -> jose.KeySet:
    return jose.parse_key_set(jwks(*keys))


def archive(*keys: ed25519.Ed25519PrivateKey, **window: int) -> Archive:
    """Return the archive of these keys: in use for a month around NOW, unless another window is given."""
    return parse_archive(jwks(*keys, **{"active_from": NOW - 86_400, "last_token_exp": NOW + 30 * 86_400, **window}))


def statement_header(typ: str, key: ed25519.Ed25519PrivateKey) -> dict[str, JSON]:
    """Return the header of a receipt or a revocation list by this key."""
    return {"alg": "EdDSA", "kid": jose.public_jwk(key.public_key())["kid"], "typ": typ}


def revocation_list(
    *, key: ed25519.Ed25519PrivateKey = REVOCATION_KEY, typ: str = REVOCATIONS_TYPE, **payload: Any
) -> bytes:
    """Return a list that revokes nothing, good for a day, with changed members; one that is `...` is left out."""
    good = {"ver": 1, "iss": ISSUER, "iat": NOW, "number": 1, "jti": [], "sub": [], "next_update": NOW + 86_400}
    return signed(statement_header(typ, key), jcs.canonical(without_dots({**good, **payload})), key).encode()


def revocations(**payload: Any) -> Revocations:
    return parse_list(revocation_list(**payload))


def parse_list(raw: bytes, issuer: str = ISSUER) -> Revocations:
    """Read a list of an issuer by the key that signs lists."""
    return parse_revocations(raw, issuer, key_set(REVOCATION_KEY))


def benchmark(text: str = BENCHMARK_TEXT) -> Benchmark:
    return read_benchmark(text.encode(), "eval.yaml")


def trust(*, issuer: str = ISSUER, audience: str = AUDIENCE, life_s: int = 86_400, **members: Any) -> Trust:
    """Trust the issuer with the key; further members are the trusted issuer's, or the trust's own.

    Its keys have been confirmed since the issue of the tokens.
    """
    own = {name: members.pop(name) for name in ("receipt_keys", "require", "max_attempt") if name in members}
    confirmed = {"keys_fetched_at": NOW + 1, "archive_fetched_at": NOW + 1}
    trusted = TrustedIssuer(issuer, **{"keys": key_set(), **confirmed, **members})
    return Trust(audience, {issuer: trusted}, life_s, digest="sha256:" + "7" * 64, **own)
