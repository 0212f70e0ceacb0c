"""`POST /tokens` and `/tokens/batch` over HTTP: what is issued, what repeats, what is refused."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import msgspec
import pytest
from joserfc import jws
from joserfc.errors import SecurityWarning
from joserfc.jwk import KeySet as JoseKeySet

from issuer.dev.provider import LocalProvider
from issuer.dev.sandbox import AUDIENCE
from issuer.formats import jcs, jose
from issuer.identity.table import Provider
from issuer.results.entry import read_entries
from issuer.token.verify_token import batch_jtis, read_unverified
from issuer.verify import Context, verify_entries
from issuer.verify.trust import Trust, TrustedIssuer
from tests.support.running import BODY, Running, body, numbered, running


def payload_of(answer: dict[str, str]) -> bytes:
    return jose.parse_compact(answer["verify_token"]).unverified_payload


def test_identity_and_claims_give_a_token_that_binds_them(service: Running) -> None:
    answer = service.post(service.token())
    assert answer.status_code == 201
    assert answer.headers["cache-control"] == "no-store"
    assert "idempotent-replay" not in answer.headers
    issued = answer.json()
    claims, run = read_unverified(payload_of(issued))
    assert claims.iss == service.url
    assert claims.aud == AUDIENCE
    assert claims.exp - claims.iat == 3600
    assert run.to_json()["model_repo"] == "acme/open-model"
    assert run.digest == claims.claims_digest == issued["claims_digest"]
    assert claims.caller["repository_id"] == "700000001"
    assert not {"actor", "repository", "sub"} & claims.caller.keys()
    header = jose.parse_compact(issued["verify_token"]).header
    assert header == {"alg": "EdDSA", "kid": issued["kid"], "typ": "eval-verify+jwt"}
    assert jcs.canonical(msgspec.json.decode(payload_of(issued))) == payload_of(issued)


def test_a_second_implementation_verifies_the_token_with_the_published_keys(service: Running) -> None:
    issued = service.post(service.token()).json()
    keys = JoseKeySet.import_key_set(service.http.get("/.well-known/jwks.json").json())
    with pytest.warns(SecurityWarning, match="RFC 9864"):  # the name EdDSA is on its way out; the contract keeps it
        checked = jws.deserialize_compact(issued["verify_token"], keys, algorithms=["EdDSA"])
    assert checked.payload == payload_of(issued)


def test_the_entry_that_is_answered_verifies_as_it_stands(service: Running) -> None:
    issued = service.post(service.token()).json()
    keys = jose.parse_key_set(service.http.get("/.well-known/jwks.json").content)
    trust = Trust(AUDIENCE, {service.url: TrustedIssuer(service.url, keys)})
    entries = read_entries(issued["entry"].encode(), "gsm8k.yaml")
    now = int(time.time())
    (report,) = verify_entries(entries, "acme/open-model", ".eval_results/gsm8k.yaml", trust, now, Context(now))
    assert report.verdict == "verified", report


def test_the_same_request_again_gets_the_same_token(service: Running) -> None:
    identity = service.token()
    first, second = service.post(identity), service.post(identity)
    assert (first.status_code, second.status_code) == (201, 200)
    assert second.headers["idempotent-replay"] == "true"
    assert first.content == second.content


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


def test_an_identity_with_another_body_is_refused(service: Running) -> None:
    identity = service.token()
    assert service.post(identity, numbered(1)).status_code == 201
    assert service.post(identity, numbered(2)).json()["code"] == "identity.replayed"
    assert service.post(identity, numbered(1)).status_code == 200


def test_32_in_parallel_with_different_bodies_give_one_token(service: Running) -> None:
    identity = service.token()
    with ThreadPoolExecutor(32) as pool:
        answers = list(pool.map(lambda number: service.post(identity, numbered(number)), range(32)))
    codes = sorted(answer.status_code for answer in answers)
    assert codes == [201] + [409] * 31


def test_32_in_parallel_with_one_body_give_one_token_32_times(service: Running) -> None:
    identity = service.token()
    with ThreadPoolExecutor(32) as pool:
        answers = list(pool.map(lambda _: service.post(identity), range(32)))
    assert sorted(answer.status_code for answer in answers) == [200] * 31 + [201]
    assert len({answer.content for answer in answers}) == 1


def test_a_refusal_does_not_use_the_identity_up(service: Running) -> None:
    identity = service.token()
    assert service.post(identity, body(benchmark_repo="other/benchmark")).json()["code"] == "policy.benchmark"
    assert service.post(identity, body(model_revision="9f3c2c9")).json()["code"] == "claims.revision"
    assert service.post(identity).status_code == 201


def test_a_batch_gives_one_token_a_result_for_one_use_of_the_identity(service: Running) -> None:
    identity = service.token()
    batch = {"results": [numbered(number) for number in range(100)]}
    answer = service.post(identity, batch, "/tokens/batch")
    assert answer.status_code == 201
    tokens = answer.json()["tokens"]
    assert len({token["jti"] for token in tokens}) == 100
    assert [read_entries(token["entry"].encode(), "e")[0].form["notes"] for token in tokens] == [
        f"run {number}" for number in range(100)
    ]
    assert service.post(identity, batch, "/tokens/batch").content == answer.content
    assert service.post(identity, numbered(0)).json()["code"] == "identity.replayed"


def test_items_of_a_batch_derive_their_jti_from_one_template(service: Running) -> None:
    tokens = service.post(service.token(), {"results": [numbered(1), numbered(2)]}, "/tokens/batch").json()["tokens"]
    own = "AAAAAAAAAAAAAAAAAAAAAA"
    assert len({own, *batch_jtis(own, 2)}) == 3
    assert tokens[0]["issued_at"] == tokens[1]["issued_at"]


@pytest.mark.parametrize(
    ("results", "code", "pointer"),
    [
        ([], "request.malformed", "/results"),
        ([numbered(0)] * 2, "claims.duplicate_metric", "/results/1"),
        ([numbered(0), body(task_id="a b")], "claims.invalid", "/results/1/claims/task_id"),
        ([numbered(0), body(benchmark_repo="not/granted")], "policy.benchmark", "/results/1/claims/benchmark_repo"),
        ([numbered(number) for number in range(101)], "request.malformed", "/results"),
    ],
)
def test_a_batch_is_refused_whole_and_says_where(
    service: Running, results: list[object], code: str, pointer: str
) -> None:
    problem = service.post(service.token(), {"results": results}, "/tokens/batch").json()
    assert problem["code"] == code
    assert problem["errors"][0]["pointer"] == pointer


@pytest.mark.parametrize(
    ("sent", "status", "code", "pointer"),
    [
        (b"{", 400, "request.malformed", ""),
        (b"[]", 400, "request.malformed", ""),
        (b"\xff", 400, "request.malformed", ""),
        (b"[" * 30000, 400, "request.malformed", ""),
        (b'{"claims": {}, "claims": {}}', 400, "request.duplicate_member", "/claims"),
        (b'{"claims": {}, "cl\\u0061ims": {}}', 400, "request.duplicate_member", "/claims"),
        ({**BODY, "notes": "x"}, 400, "request.unknown_member", "/notes"),
        ({**BODY, "nonce": "A" * 22}, 400, "nonce.invalid", "/nonce"),
        ({**BODY, "audience": "https://other.example"}, 403, "policy.audience", "/audience"),
        ({**BODY, "integration": "lm-eval"}, 403, "integration.unknown", "/integration"),
        ({**BODY, "claims_digest": "sha256:" + "0" * 64}, 422, "claims.digest_mismatch", "/claims_digest"),
        ({**BODY, "content_digest": "sha256:" + "0" * 64}, 422, "claims.digest_mismatch", "/content_digest"),
        ({**BODY, "details": {"source": {"name": "x"}}}, 422, "details.invalid", "/details/source"),
        ({**BODY, "details": {"date": "yesterday"}}, 422, "details.invalid", "/details/date"),
        ({**BODY, "details": {"verify_token": "x"}}, 422, "details.invalid", "/details/verify_token"),
        (body(extra=1), 422, "claims.invalid", "/claims/extra"),
        (body(model_revision="9f3c2c9"), 422, "claims.revision", "/claims/model_revision"),
        (body(model_repo="acme"), 422, "claims.invalid", "/claims/model_repo"),
        (body(metrics=[]), 422, "claims.invalid", "/claims/metrics"),
        (body(metrics=[{"metric_id": "a", "value": True}]), 422, "claims.invalid", "/claims/metrics/0/value"),
        (body(metrics=[{"metric_id": "a", "value": "1"}]), 422, "claims.invalid", "/claims/metrics/0/value"),
        (body(metrics=[{"metric_id": "a", "value": 1}] * 2), 422, "claims.duplicate_metric", "/claims/metrics/1"),
        (body(metrics=[{"metric_id": "a", "value": 2**53}]), 422, "claims.number", "/claims/metrics/0/value"),
        (body(framework={"name": "inspect-ai", "version": "0.3.285", "command": "x HF_TOKEN=hf_" + "a" * 30}), 422,
         "claims.secret", "/claims/framework/command"),
        (body(framework={"name": "helm", "version": "0.3.285"}), 403, "policy.framework", "/claims/framework/name"),
        (body(framework={"name": "inspect-ai", "version": "0.2"}), 403, "policy.version", "/claims/framework/version"),
        (body(benchmark_repo="openai/gsm8k2"), 403, "policy.benchmark", "/claims/benchmark_repo"),
        (body(metrics=[{"metric_id": "m" * 120 + str(i), "value": i} for i in range(120)]), 422, "claims.too_large", "/claims"),
    ],
)  # fmt: skip
def test_a_bad_body_of_a_good_caller_is_refused_with_its_place(
    service: Running, sent: object, status: int, code: str, pointer: str
) -> None:
    answer = service.post(service.token(), sent)
    problem = answer.json()
    assert (answer.status_code, problem["code"]) == (status, code), problem
    assert problem["errors"][0]["pointer"] == pointer
    assert problem["retryable"] is False


def test_numbers_that_no_double_carries_are_refused(service: Running) -> None:
    for text in ("1e16", "NaN", "1e400", "1e-400", "0.123456789012345678", "-Infinity"):
        sent = msgspec.json.encode(BODY).replace(b"0.62437518", text.encode())
        answer = service.post(service.token(), sent)
        assert (answer.status_code, answer.json()["code"]) == (422, "claims.number"), text


def test_an_issuer_whose_keys_have_other_uses_names_its_policy_by_digest(service: Running) -> None:
    issued = service.post(service.token()).json()
    kept = service.folder / "data" / "policies" / (issued["policy"].removeprefix("sha256:") + ".json")
    value = kept.read_bytes()
    assert jcs.digest_of_bytes(value) == issued["policy"]
    judged = msgspec.json.decode(value)
    assert judged["policy"]["integration"] == "inspect-ai"
    assert judged["policy"]["limits"]["quarantine_s"] == 900, "defaults are filled in"
    assert judged["provider"]["algorithms"] == ["RS256"], "profile defaults are filled in"
    assert set(judged["provider"]) == set(Provider.__struct_fields__) - {"introspection"}, "which it has not"


def test_a_name_that_differs_beside_its_id_only_warns(service: Running) -> None:
    answer = service.post(service.token(repository_owner="renamed"))
    assert answer.status_code == 201
    assert "repository" in answer.json()["warnings"][0]


def test_every_decision_is_audited_and_says_what_was_read(tmp_path: Path, provider: LocalProvider) -> None:
    with running(tmp_path, provider) as service:
        _every_decision_is_audited(service)


def _every_decision_is_audited(service: Running) -> None:
    issued = service.post(service.token(), numbered(77)).json()
    event = service.audit()[-1]
    assert event["verdict"] == "issued"
    assert event["jti"] == [issued["jti"]]
    assert event["results"][0]["metrics"] == [{"metric_id": "accuracy"}]
    assert event["policy"] == issued["policy"]
    assert event["caller"]["claims"]["repository_id"] == "700000001"
    service.post(service.token(), body(benchmark_repo="x/y"))
    assert (service.audit()[-1]["verdict"], service.audit()[-1]["code"]) == ("refused", "policy.benchmark")
    service.post(service.token(repository_id="1"), numbered(78))
    *_, stranger = (
        event for event in service.audit() if event["event"] == "decision"
    )  # beside that it has a known name
    assert stranger["code"] == "integration.unknown"
    before = len(service.audit())
    service.post("not.a.token")
    assert len(service.audit()) == before, "a stranger cannot fill the audit's disk"


def test_a_stranger_with_a_genuine_token_learns_nothing_of_any_policy(service: Running) -> None:
    def shown(sent: object) -> str:
        problem = service.post(service.token(repository_id="99", repository="evil/x"), sent).json()
        assert problem["code"] == "integration.unknown"
        return str({name: value for name, value in problem.items() if name not in {"request_id", "instance"}})

    answers = {
        shown(BODY),
        shown(b"{"),
        shown({**BODY, "integration": "inspect-ai"}),
        shown({**BODY, "integration": "no"}),
    }
    assert len(answers) == 1
    assert "99" in answers.pop(), "the caller's own claims are shown"


def test_limits_refuse_with_the_time_to_wait(tmp_path_factory: pytest.TempPathFactory, service: Running) -> None:
    narrow = """limits:
  identity: {count: 60, per_s: 3600, burst: 3}
  integration: {count: 3600, per_s: 3600, burst: 1000}
  refusals: {count: 60, per_s: 3600, burst: 2}
  quarantine_s: 60
"""
    with running(tmp_path_factory.mktemp("narrow"), service.provider, limits=narrow) as live:
        answers: list[httpx.Response] = [live.post(live.token()) for _ in range(4)]
        assert [answer.status_code for answer in answers] == [201, 201, 201, 429]
        assert answers[-1].json()["code"] == "rate.identity"
        assert 1 <= int(answers[-1].headers["retry-after"]) <= 60
        assert answers[-1].json()["retryable"] is True
