"""`POST /tokens` and `/tokens/batch` over HTTP: tokens, repeats and refusals."""

import time
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest
from joserfc import jws
from joserfc.errors import SecurityWarning
from joserfc.jwk import KeySet as JoseKeySet

from issuer.dev.sandbox import AUDIENCE
from issuer.formats import jcs, jose
from issuer.results.entry import read_entries
from issuer.token.verify_token import read_unverified
from issuer.verify import Context, verify_entries
from issuer.verify.trust import Trust, TrustedIssuer
from tests.support.request_events import event_of, refusal_event
from tests.support.running import BODY, Running, body, numbered


def test_identity_and_claims_give_a_token_that_binds_them_and_an_entry_that_verifies(service: Running) -> None:
    answer = service.post(service.token(repository_owner="renamed"))
    assert answer.status_code == 201
    assert answer.headers["cache-control"] == "no-store"
    assert "idempotent-replay" not in answer.headers
    issued = answer.json()
    assert "repository" in issued["warnings"][0], "another name, and the pinned id: only a warning"
    token = jose.parse_compact(issued["verify_token"])
    claims, run = read_unverified(token.unverified_payload)
    assert (claims.iss, claims.aud) == (service.url, AUDIENCE)
    assert claims.exp - claims.iat == 3600
    assert run.to_json()["model_repo"] == "acme/open-model"
    assert run.digest == claims.claims_digest == issued["claims_digest"]
    assert claims.caller["repository_id"] == "700000001"
    assert not {"actor", "repository", "sub"} & claims.caller.keys()
    assert token.header == {"alg": "EdDSA", "kid": issued["kid"], "typ": "eval-verify+jwt"}
    assert jcs.canonical(msgspec.json.decode(token.unverified_payload)) == token.unverified_payload
    keys = JoseKeySet.import_key_set(service.http.get("/.well-known/jwks.json").json())
    with pytest.warns(SecurityWarning, match="RFC 9864"):  # it deprecates the name EdDSA; the contract keeps it
        checked = jws.deserialize_compact(issued["verify_token"], keys, algorithms=["EdDSA"])
    assert checked.payload == token.unverified_payload, "another implementation verifies it with the published keys"
    own_keys = jose.parse_key_set(service.http.get("/.well-known/jwks.json").content)
    trust = Trust(AUDIENCE, {service.url: TrustedIssuer(service.url, own_keys)})
    entries = read_entries(issued["entry"].encode(), "gsm8k.yaml")
    now = int(time.time())
    (report,) = verify_entries(entries, "acme/open-model", ".eval_results/gsm8k.yaml", trust, now, Context(now))
    assert report.verdict == "verified", report


def test_an_identity_gets_one_token_and_repeats_of_it(service: Running) -> None:
    identity = service.token()
    for member, code in (("benchmark_repo", "policy.benchmark"), ("model_revision", "claims.revision")):
        assert service.post(identity, body(**{member: "a/b"})).json()["code"] == code, "a refusal spends no use"
    first, second = service.post(identity), service.post(identity)
    assert (first.status_code, second.status_code) == (201, 200)
    assert second.headers["idempotent-replay"] == "true"
    assert first.content == second.content
    assert service.post(identity, numbered(2)).json()["code"] == "identity.replayed"
    assert service.post(identity).content == first.content


def test_the_same_request_in_another_spelling_is_the_same_request(service: Running) -> None:
    identity = service.token()
    first = service.post(identity, body(metrics=[{"metric_id": "a", "value": 20.90}, {"metric_id": "b", "value": 1}]))
    text = (
        b'{"details":{"notes":"no tools","date":"2026-11-21T09:00:00Z"},"audience":"https://huggingface.co","claims":'
    )
    claims = body(metrics=[{"value": 1.0, "metric_id": "b"}, {"value": 20.9, "metric_id": "a"}])["claims"]
    second = service.post(identity, text + msgspec.json.encode(claims).replace(b"20.9", b"2.09e1") + b"}")
    assert second.status_code == 200
    assert first.content == second.content


def test_one_request_32_times_at_once_gets_one_token(service: Running) -> None:
    identity = service.token()
    with ThreadPoolExecutor(32) as pool:
        answers = list(pool.map(lambda _: service.post(identity), range(32)))
    assert sorted(answer.status_code for answer in answers) == [200] * 31 + [201]
    assert len({answer.content for answer in answers}) == 1


def test_a_batch_spends_one_use_for_a_token_a_result(service: Running) -> None:
    identity = service.token()
    batch = {"results": [numbered(number) for number in range(100)]}
    answer = service.post(identity, batch, "/tokens/batch")
    assert answer.status_code == 201
    tokens = answer.json()["tokens"]
    assert [len({token[member] for token in tokens}) for member in ("jti", "issued_at")] == [100, 1]
    assert [read_entries(token["entry"].encode(), "e")[0].form["notes"] for token in tokens] == [
        f"run {number}" for number in range(100)
    ]
    assert service.post(identity, batch, "/tokens/batch").content == answer.content
    assert service.post(identity, numbered(0)).json()["code"] == "identity.replayed"


BATCHES: dict[tuple[str, str], list[object]] = {
    ("request.malformed", "/results"): [],
    ("claims.duplicate_metric", "/results/1"): [numbered(0)] * 2,
    ("claims.invalid", "/results/1/claims/task_id"): [numbered(0), body(task_id="a b")],
    ("policy.benchmark", "/results/1/claims/benchmark_repo"): [numbered(0), body(benchmark_repo="not/granted")],
}
REFUSALS: dict[tuple[int, str, str], object] = {
    (400, "request.malformed", ""): b"[" * 30000,
    (400, "request.duplicate_member", "/claims"): b'{"claims": {}, "cl\\u0061ims": {}}',
    (400, "request.unknown_member", "/notes"): {**BODY, "notes": "x"},
    (400, "nonce.invalid", "/nonce"): {**BODY, "nonce": "A" * 22},
    (403, "policy.audience", "/audience"): {**BODY, "audience": "https://other.example"},
    (403, "integration.unknown", "/integration"): {**BODY, "integration": "lm-eval"},
    (422, "claims.digest_mismatch", "/content_digest"): {**BODY, "content_digest": "sha256:" + "0" * 64},
    (422, "details.invalid", "/details/verify_token"): {**BODY, "details": {"verify_token": "x"}},
    (422, "claims.revision", "/claims/model_revision"): body(model_revision="9f3c2c9"),
    (422, "claims.number", "/claims/metrics/0/value"): msgspec.json.encode(BODY).replace(b"0.62437518", b"NaN"),
    (422, "claims.secret", "/claims/framework/command"): body(
        framework={"name": "inspect-ai", "version": "0.3.285", "command": "x HF_TOKEN=hf_" + "a" * 30}
    ),
    (403, "policy.framework", "/claims/framework/name"): body(framework={"name": "helm", "version": "0.3.285"}),
    (403, "policy.version", "/claims/framework/version"): body(framework={"name": "inspect-ai", "version": "0.2"}),
    (422, "claims.too_large", "/claims"): body(
        metrics=[{"metric_id": "m" * 120 + str(number), "value": number} for number in range(120)]
    ),
}


def test_a_bad_body_of_a_good_caller_is_refused_with_its_place(service: Running) -> None:
    for wanted, sent in REFUSALS.items():
        answer = service.post(service.token(), sent)
        problem = answer.json()
        assert (answer.status_code, problem["code"], problem["errors"][0]["pointer"]) == wanted
        assert problem["retryable"] is False
    for place, results in BATCHES.items():
        problem = service.post(service.token(), {"results": results}, "/tokens/batch").json()
        assert (problem["code"], problem["errors"][0]["pointer"]) == place


def test_every_decision_about_a_verified_caller_is_audited(service: Running) -> None:
    answer = service.post(service.token(), numbered(77))
    event, issued = event_of(service, answer), answer.json()
    assert event is not None
    assert (event["verdict"], event["jti"], event["policy"]) == ("issued", [issued["jti"]], issued["policy"])
    assert event["results"][0]["metrics"] == [{"metric_id": "accuracy"}]
    assert event["caller"]["claims"]["repository_id"] == "700000001"
    refused = refusal_event(service, lambda: service.post(service.token(), body(benchmark_repo="x/y")))
    assert (refused["verdict"], refused["code"]) == ("refused", "policy.benchmark")
    stranger = refusal_event(service, lambda: service.post(service.token(repository_id="1"), numbered(78)))
    assert stranger["code"] == "integration.unknown"
    assert event_of(service, service.post("not.a.token")) is None, "anyone could fill the audit's disk"
