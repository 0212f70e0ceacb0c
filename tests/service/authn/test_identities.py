"""The attacks J1 to J14 of SECURITY.md, posted over HTTP to the running service."""

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ed25519

from issuer.formats import jose
from tests.support.running import BODY, Running, numbered

Forge = Callable[[Running], str]


def b64(raw: bytes | str) -> str:
    return base64.urlsafe_b64encode(raw.encode() if isinstance(raw, str) else raw).rstrip(b"=").decode()


def claims(live: Running, **overrides: Any) -> dict[str, Any]:
    return live.provider.claims(**{"aud": live.url, **overrides})


def header(live: Running, **overrides: Any) -> dict[str, Any]:
    return {"typ": "JWT", "alg": "RS256", "kid": live.provider.rs256.kid, **overrides}


def with_header(**overrides: Any) -> Forge:
    return lambda live: live.provider.sign(header(live, **overrides), claims(live))


def with_claims(**overrides: Any) -> Forge:
    return lambda live: live.provider.sign(header(live), claims(live, **overrides))


def raw_payload(edit: Callable[[str], str | bytes]) -> Forge:
    def forge(live: Running) -> str:
        text = edit(json.dumps(claims(live)))
        return live.provider.sign(header(live), text if isinstance(text, bytes) else text.encode())

    return forge


def with_times(**seconds_from_now: int) -> Forge:
    """Times as seconds from the moment of the request: a suite may take long to get there."""

    def forge(live: Running) -> str:
        now = int(time.time())
        return live.provider.sign(header(live), claims(live, **{name: now + s for name, s in seconds_from_now.items()}))

    return forge


def unsigned(live: Running) -> str:
    return f"{b64(json.dumps(header(live, alg='none')))}.{b64(json.dumps(claims(live)))}.AA"


def hmac_with_public_key(live: Running) -> str:
    signed = f"{b64(json.dumps(header(live, alg='HS256')))}.{b64(json.dumps(claims(live)))}"
    secret = json.dumps(dict(live.provider.rs256.jwk)).encode()
    return f"{signed}.{b64(hmac.digest(secret, signed.encode(), hashlib.sha256))}"


def our_own_verify_token(live: Running) -> str:
    answer = live.post(live.token(), numbered(int(time.time_ns() % 10**9)))
    token: str = answer.json()["verify_token"]
    return token


# The attack with its number, the token, and the code of its refusal. tests/service/authn/test_oidc.py has all variants.
ROWS: list[tuple[str, Forge, str]] = [
    # J1: no algorithm, HMAC with public material, another algorithm
    ("J1 alg none", unsigned, "identity.algorithm_refused"),
    ("J1 HS256 with the public key", hmac_with_public_key, "identity.algorithm_refused"),
    ("J1 ES256 by its own key, not registered", lambda live: live.provider.token(live.url, alg="ES256"),
     "identity.algorithm_refused"),
    ("J1 another signature", lambda live: live.token().rpartition(".")[0] + "." + "A" * 342, "identity.signature_invalid"),
    # J2: kid
    ("J2 kid with NUL", with_header(kid="a\x00"), "identity.malformed"),
    # J3: keys and extensions in the header
    ("J3 jku", with_header(jku="https://evil.example/jwks"), "identity.malformed"),
    ("J3 crit", with_header(crit=["exp"]), "identity.malformed"),
    # J4: tokens of another kind
    ("J4 an access token", with_header(typ="at+jwt"), "identity.type_refused"),
    ("J4 our own verify token", our_own_verify_token, "identity.issuer_unknown"),
    # J5: two spellings of one thing
    ("J5 duplicate claim, escaped", raw_payload(lambda text: text[:-1] + ', "\\u0061ud": "x"}'), "identity.malformed"),
    ("J5 padding", lambda live: live.token() + "==", "identity.malformed"),
    # J6: size and depth
    ("J6 over 16 KiB", with_claims(pad="x" * 14000), "identity.malformed"),
    ("J6 header over 4 KiB", with_header(pad="x" * 4000), "identity.malformed"),
    ("J6 over 200 claims", with_claims(**{f"c{i}": i for i in range(200)}), "identity.malformed"),
    # J7: times
    ("J7 exp NaN", raw_payload(lambda text: text.replace('"exp": ', '"exp": NaN, "x": ')), "identity.malformed"),
    ("J7 expired", with_times(iat=-600, exp=-31), "identity.expired"),
    ("J7 not yet valid", with_times(nbf=300), "identity.not_yet_valid"),
    ("J7 lives too long", with_times(exp=7300), "identity.lifetime_too_long"),
    ("J7 too old", with_times(iat=-2000, exp=60), "identity.too_old"),
    # J8: audience
    ("J8 missing", raw_payload(lambda text: text.replace('"aud"', '"xaud"')), "identity.audience_mismatch"),
    ("J8 with a stranger", lambda live: live.provider.token([live.url, "https://other.example"]), "identity.audience_mismatch"),
    # J9: issuer
    *[(f"J9 {iss}", with_claims(iss=iss), "identity.issuer_unknown")
      for iss in ("https://issuer.evil.example", "file:///etc/passwd", "http://169.254.169.254/")],
    # J11: payloads that are not objects of plain text
    ("J11 UTF-16", raw_payload(lambda text: text.encode("utf-16")), "identity.malformed"),
    ("J11 NUL", with_claims(s="\x00"), "identity.malformed"),
    # J12: near misses of registered ids and names
    *[(f"J12 repository_id {value!r}", with_claims(repository_id=value), "integration.unknown")
      for value in ("70000000", "\uff1700000001", "700000001\u200b", 700000001)],
    *[(f"J12 ref {value!r}", with_claims(ref=value), "identity.claim_mismatch")
      for value in ("refs/heads/main2", "refs/heads/main\n", "refs/heads/m\u0430in", "REFS/HEADS/MAIN")],
    *[(f"J12 workflow_ref {value!r}", with_claims(workflow_ref=value), "identity.claim_mismatch") for value in (
        "example-org/inspect-evals/.github/workflows/a.yml@evil.yml@refs/heads/main",
        "evil/example-org/inspect-evals/.github/workflows/a.yml@refs/heads/main")],
    ("J12 required claim missing", raw_payload(lambda text: text.replace('"ref"', '"xref"')), "identity.claim_missing"),
    # J13: events that strangers can cause
    *[(f"J13 {event}", with_claims(event_name=event), "identity.event_forbidden")
      for event in ("pull_request", "pull_request_target", "workflow_run", "issue_comment", "PUSH")],
]  # fmt: skip


def test_an_attack_by_an_identity_token_is_refused_with_its_code(service: Running) -> None:
    service.post(service.token())  # the provider's keys are now known
    for name, forge, code in ROWS:
        identity, before = forge(service), service.provider.connections
        answer = service.post(identity)
        problem = answer.json()
        assert problem["code"] == code, (name, problem)
        is_verified = code.startswith("integration.") or "claim" in code or "event" in code
        assert answer.status_code == (403 if is_verified else 401), name
        assert answer.headers["content-type"] == "application/problem+json", name
        if not is_verified:
            assert answer.headers["www-authenticate"].startswith('Bearer error="invalid_token", resource'), name
            assert problem["errors"] == [], "an unverified token gets its code alone"
        assert identity not in answer.text, name
        assert service.provider.connections == before, name


def test_j2_a_kid_that_is_a_path_or_url_is_only_looked_up(service: Running) -> None:
    for kid in ("../../../etc/passwd", "http://169.254.169.254/", "k:*"):
        answer = service.post(with_header(kid=kid)(service))
        assert (answer.status_code, answer.json()["code"]) in {
            (401, "identity.key_unknown"), (503, "dependency.issuer_keys"),
        }  # fmt: skip


def test_what_a_genuine_github_token_may_have_changes_nothing(service: Running) -> None:
    """The header's `x5t`, an audience that is alone in a list, and both formats of `sub`."""
    sub = ("repo:example-org/inspect-evals:ref:refs/heads/main", "repo:evil@1/evil@2:pull_request", None)
    forges = [with_header(x5t="AAAA"), lambda live: live.provider.token([live.url]), *(with_claims(sub=s) for s in sub)]
    assert [service.post(forge(service)).status_code for forge in forges] == [201] * 5


def test_j10_a_key_set_with_a_low_order_key_gives_no_key(service: Running) -> None:
    jwk = {"kty": "OKP", "crv": "Ed25519", "kid": "low", "x": b64(b"\x01" + bytes(31))}
    published = {"keys": [jwk, dict(service.provider.rs256.jwk)]}
    keys = jose.parse_key_set(json.dumps(published).encode())
    assert list(keys.keys) == [service.provider.rs256.kid]
    # Why: under that key one signature fits everything.
    forged = ed25519.Ed25519PublicKey.from_public_bytes(b"\x01" + bytes(31))
    forged.verify(b"\x01" + bytes(63), b"any message at all")


def test_j14_a_second_token_with_the_same_jti_is_the_same_identity(service: Running) -> None:
    changes: list[dict[str, Any]] = [{}, {"iat": int(time.time()) + 1}, {"run_id": "2"}]
    for change in changes:
        first = service.provider.claims(aud=service.url)
        assert service.post(service.provider.sign(header(service), first), numbered(1)).status_code == 201
        answer = service.post(service.provider.sign(header(service), {**first, **change}), numbered(2))
        assert (answer.status_code, answer.json()["code"]) == (409, "identity.replayed")


def test_j14_a_replay_within_the_leeway_after_expiry_is_refused(service: Running) -> None:
    identity = with_times(iat=-290, nbf=-290, exp=-10)(service)
    first = service.post(identity, numbered(1))
    assert first.json().get("code", "issued") in {"issued", "dependency.state_reset"}
    assert service.post(identity, numbered(2)).status_code in {409, 503}


def test_j14_without_a_jti_the_signing_input_is_the_identity(service: Running) -> None:
    text = {name: value for name, value in claims(service).items() if name != "jti"}
    identity = service.provider.sign(header(service), text)
    assert service.post(identity, numbered(1)).status_code == 201
    assert service.post(identity, numbered(2)).json()["code"] == "identity.replayed"


def test_j14_32_parallel_replays_with_other_bodies_give_exactly_one_token(service: Running) -> None:
    identity = service.token()
    with ThreadPoolExecutor(16) as pool:
        answers = pool.map(lambda number: service.post(identity, numbered(number)).status_code, range(32))
    assert sorted(answers) == [201] + [409] * 31


def test_without_one_bearer_credential_there_is_no_identity(service: Running) -> None:
    for authorization in (
        None, "", "Bearer", "Basic dXNlcjpwYXNz", "bearer a b", "Bearer a,b", "Token abc", "Bearer =", "Bearer a\tb",
    ):  # fmt: skip
        headers = {} if authorization is None else {"Authorization": authorization}
        answer = service.post(None, BODY, **headers)
        assert (answer.status_code, answer.json()["code"]) == (401, "identity.missing"), authorization
        assert answer.headers["www-authenticate"].startswith("Bearer resource_metadata=")
    twice = [*[("Authorization", f"Bearer {service.token()}")] * 2, ("Content-Type", "application/json")]
    assert service.http.post("/tokens", json=BODY, headers=twice).json()["code"] == "identity.missing"
    in_query = service.http.post("/tokens", params={"access_token": service.token()}, json=BODY)
    assert in_query.json()["code"] == "identity.missing"
