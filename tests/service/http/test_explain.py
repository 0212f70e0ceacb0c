"""`POST /tokens/explain`, and the same checks in refusals of `/tokens`: all is judged, without a token or a use."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import msgspec
import pytest

from issuer.dev.provider import LocalProvider
from issuer.results.claims import read_claims
from issuer.results.entry import Submission
from tests.support.audited import recorded
from tests.support.http_load import answer_to_head
from tests.support.policies import POLICY, changed, load
from tests.support.request_events import event_of, refusal_event
from tests.support.running import BODY, METRIC_VALUE, Running, body, numbered, register, running, write_folder
from tests.support.waiting import ask_until

EXPLAIN = "/tokens/explain"
NARROW = """limits:
  identity: {count: 1, per_s: 3600, burst: 8}
  integration: {count: 3600, per_s: 3600, burst: 1000}
  refusals: {count: 1, per_s: 3600, burst: 2}
  quarantine_s: 60
"""


def explain(live: Running, identity: str, sent: Any = BODY) -> httpx.Response:
    return live.post(identity, sent, EXPLAIN)


def without_ids(answer: httpx.Response) -> dict[str, Any]:
    """Return a problem without the members that differ from request to request."""
    return {name: value for name, value in answer.json().items() if name not in {"request_id", "instance"}}


def failed(explained: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {check["code"]: check for check in explained["checks"] if not check["passed"]}


# -- answers --------------------------------------------------------------------------------------------------------------


def test_an_explanation_does_not_say_whether_a_use_is_spent(service: Running) -> None:
    identity = service.token()
    assert service.post(identity, numbered(1)).status_code == 201
    spent, fresh = (explain(service, each, numbered(2)).json() for each in (identity, service.token()))
    assert {**spent, "request_id": ""} == {**fresh, "request_id": ""}


def test_a_grant_is_explained_with_every_check_and_the_future_token(service: Running) -> None:
    answer = explain(service, service.token(repository_owner="renamed"))
    assert answer.status_code == 200
    assert answer.headers["cache-control"] == "no-store"
    found = answer.json()
    assert (found["verdict"], found["integration"], found["identity"]) == ("granted", "inspect-ai", "evaluate-main")
    assert (found["audience"], found["ttl_s"]) == ("https://huggingface.co", 3600)
    assert found["policy"] == service.post(service.token()).json()["policy"]
    assert found["request_id"] == answer.headers["x-request-id"]
    assert "repository" in found["warnings"][0]
    assert len(found["checks"]) > 8
    assert all(check["passed"] and check["hint"] == "" for check in found["checks"])
    assert not {"code", "verify_token", "jti", "kid", "entry"} & found.keys()
    assert not {"throttled_until", "released_until"} & found["standing"].keys()


def test_a_refusal_is_explained_with_the_checks_of_the_real_refusal(service: Running) -> None:
    sent = body(benchmark_repo="other/benchmark", framework={"name": "inspect-ai", "version": "9"})
    answer = explain(service, service.token(), sent)
    assert answer.status_code == 200
    found = answer.json()
    assert (found["verdict"], found["code"]) == ("refused", "policy.version")
    assert "audience" not in found
    assert failed(found).keys() == {"policy.version", "policy.benchmark"}
    assert all(check["hint"] for check in failed(found).values())
    benchmark = failed(found)["policy.benchmark"]
    assert (benchmark["expected"], benchmark["pointer"]) == ("", "/claims/benchmark_repo"), "it is not disclosed"
    refused = service.post(service.token(), sent)
    assert (refused.status_code, refused.json()["code"]) == (403, found["code"])
    assert refused.json()["checks"] == found["checks"]
    assert len(refused.json()["errors"]) == 2


def test_a_caller_that_fails_the_requirements_sees_them_before_its_body_is_judged(service: Running) -> None:
    answer = explain(service, service.token(ref="refs/heads/evil"), b"{ not JSON")
    assert answer.status_code == 200
    found = answer.json()
    assert (found["verdict"], found["code"]) == ("refused", "identity.claim_mismatch")
    (check,) = failed(found).values()
    assert (check["code"], check["expected"]) == ("identity.claim_mismatch", "refs/heads/main")
    assert "refs/heads/evil" in check["actual"]
    assert not any(check["pointer"] for check in found["checks"]), "no check is about the body"
    assert service.post(service.token(ref="refs/heads/evil"), b"{").json()["checks"] == found["checks"]


def test_the_checks_of_a_batch_point_into_it(service: Running) -> None:
    results = [numbered(0), body(benchmark_repo="not/granted"), numbered(2)]
    problem = service.post(service.token(), {"results": results}, "/tokens/batch").json()
    assert [check["pointer"] for check in failed(problem).values()] == ["/results/1/claims/benchmark_repo"]
    assert any(check["pointer"].startswith("/results/2/claims") for check in problem["checks"] if check["passed"])


def test_an_empty_body_asks_about_the_caller_alone(service: Running) -> None:
    answer = explain(service, service.token(), b"{}")
    found = answer.json()
    assert (found["verdict"], found["integration"], found["identity"]) == ("granted", "inspect-ai", "evaluate-main")
    assert (found["audience"], found["ttl_s"]) == ("https://huggingface.co", 3600)
    assert not any(check["pointer"].startswith("/claims") for check in found["checks"])
    assert not {"code", "standing"} & found.keys()
    event = event_of(service, answer)
    assert event is not None
    assert (event["verdict"], event["endpoint"], event["results"]) == ("granted", EXPLAIN, [])
    branch = service.token(ref="refs/heads/evil")
    assert explain(service, branch, b"{}").json()["code"] == "identity.claim_mismatch"
    for path in ("/tokens", "/tokens/batch"):
        problem = service.post(service.token(), b"{}", path).json()
        assert (problem["status"], problem["code"]) == (400, "request.malformed")


# -- requests without a policy's verdict ----------------------------------------------------------------------------------


def assert_same_problem(service: Running, identity: str, sent: Any) -> httpx.Response:
    """Demand that both endpoints refuse a request with the same problem, without checks. Return it."""
    answer = explain(service, identity, sent)
    assert without_ids(answer) == without_ids(service.post(identity, sent))
    assert "checks" not in answer.json()
    return answer


def test_an_unverified_token_gets_only_a_code_and_a_stranger_is_shown_its_own_claims(service: Running) -> None:
    other_audience = service.provider.token("https://other.example")
    for identity in ("not.a.token", service.token()[:-9] + "AAAAAAAAA", other_audience):
        answer = assert_same_problem(service, identity, BODY)
        assert (answer.status_code, answer.json()["errors"]) == (401, [])
    assert service.post(None, BODY, EXPLAIN).json()["code"] == "identity.missing"
    for sent in (BODY, b"{", {**BODY, "integration": "inspect-ai"}):
        answer = assert_same_problem(service, service.token(repository_id="99", repository="evil/x"), sent)
        assert (answer.status_code, answer.json()["code"]) == (403, "integration.unknown")
        assert "repository_id=99" in answer.json()["detail"]


def test_a_body_that_cannot_be_judged_is_refused_as_by_tokens(service: Running) -> None:
    bodies: list[Any] = [
        b"{", b"[]", {"nonce": "A" * 22}, {"integration": "inspect-ai"}, {"details": {}}, {**BODY, "notes": "x"},
        {**BODY, "nonce": "A" * 22}, {"results": [BODY]}, body(model_revision="9f3c2c9"), body(metrics=[]),
        body(metrics=[{"metric_id": "m" * 120 + str(i), "value": i} for i in range(120)]),
    ]  # fmt: skip
    for sent in bodies:
        assert assert_same_problem(service, service.token(), sent).status_code in {400, 422}


# -- limits, audit, log ---------------------------------------------------------------------------------------------------


@dataclass
class Narrow:
    """A service with narrow limits, and three callers."""

    live: Running
    callers: list[str]

    def explain(self, caller: int, sent: Any = BODY) -> httpx.Response:
        return explain(self.live, self.token(caller), sent)

    def token(self, caller: int) -> str:
        return self.live.token(repository_id=self.callers[caller])


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory, provider: LocalProvider) -> Iterator[Narrow]:
    folder = tmp_path_factory.mktemp("narrow")
    write_folder(folder, provider, limits=NARROW)
    callers = register(folder, 3)
    with running(folder, provider) as live:
        yield Narrow(live, callers)


def test_explanations_also_of_the_caller_alone_spend_the_rate_of_the_identity(narrow: Narrow) -> None:
    for caller, sent in ((0, BODY), (1, b"{}")):
        assert [narrow.explain(caller, sent).status_code for _ in range(9)] == [200] * 8 + [429]
        refused = narrow.explain(caller, sent)
        assert refused.json()["code"] == "rate.identity"
        assert int(refused.headers["retry-after"]) >= 1
        assert narrow.live.post(narrow.token(caller)).json()["code"] == "rate.identity"


def test_refused_explanations_count_towards_a_quarantine(narrow: Narrow) -> None:
    assert narrow.explain(2, b"{}").json()["verdict"] == "granted", "it is not a refusal"
    wrong = body(benchmark_repo="x/y")
    assert [narrow.explain(2, wrong).status_code for _ in range(4)] == [200, 200, 200, 403]
    for sent in (BODY, b"{}"):
        assert narrow.explain(2, sent).json()["code"] == "abuse.quarantined"
    assert narrow.live.post(narrow.token(2)).json()["code"] == "abuse.quarantined"
    for path in ("/tokens", "/tokens/batch", EXPLAIN):
        unread = answer_to_head(narrow.live.settings.listen.port, path, narrow.token(2), b"{" * 10_000)
        assert b" 403 " in unread, "the body was not awaited"
        assert b'"code":"abuse.quarantined"' in unread


def test_an_explanation_is_audited_under_its_own_endpoint(service: Running) -> None:
    granted = event_of(service, explain(service, service.token()))
    assert granted is not None
    assert (granted["event"], granted["endpoint"], granted["verdict"]) == ("decision", EXPLAIN, "granted")
    assert not {"jti", "kid", "code"} & granted.keys()
    sent = body(benchmark_repo="x/y", task_id="t")
    refused = refusal_event(service, lambda: explain(service, service.token(), sent))
    assert (refused["endpoint"], refused["verdict"], refused["code"]) == (EXPLAIN, "refused", "policy.benchmark")
    assert refused["failed"] == ["policy.benchmark"]
    assert refused["results"][0]["benchmark_repo"] == "x/y"
    stranger = refusal_event(service, lambda: explain(service, service.token(repository_id="99")))
    assert (stranger["endpoint"], stranger["code"]) == (EXPLAIN, "integration.unknown")


def logged(live: Running, said: str) -> dict[str, Any]:
    """Return the decision in the log stream that says this; every line is JSON. A signal may say it, too."""

    def decisions() -> list[dict[str, Any]]:
        whole, _, _ = (live.folder / "service.log").read_text("utf-8").rpartition("\n")
        found = [msgspec.json.decode(line) for line in whole.splitlines()]
        return [event for event in found if event["event"] == "decision" and said in str(event)]

    (event,) = ask_until(decisions, len)
    return event


def test_the_log_stream_names_the_identity_and_the_policy_of_a_decision(service: Running) -> None:
    issued = service.post(service.token()).json()
    policy, event = issued["policy"], logged(service, issued["jti"])
    assert (event["event"], event["outcome"], event["integration"]) == ("decision", "issued", "inspect-ai")
    assert event["jti"] == [issued["jti"]]
    assert {"kid", "policy", "ms", "request_id", "timestamp", "level"} <= event.keys()
    refused = service.post(service.token(), body(benchmark_repo="x/y")).json()
    event = logged(service, refused["request_id"])
    assert (event["outcome"], event["code"]) == ("no", "policy.benchmark")
    assert (event["integration"], event["identity"], event["policy"]) == ("inspect-ai", "evaluate-main", policy)
    malformed = service.post(service.token(), b"{").json()
    assert logged(service, malformed["request_id"])["integration"] == "inspect-ai"
    stranger = service.post(service.token(repository_id="99")).json()
    assert not {"integration", "identity", "policy"} & logged(service, stranger["request_id"]).keys()
    event = logged(service, explain(service, service.token()).json()["request_id"])
    assert (event["outcome"], event["verdict"], event["integration"]) == ("explained", "granted", "inspect-ai")


# -- the audit file ------------------------------------------------------------------------------------------------------


def test_the_audit_holds_a_value_only_where_a_rule_reads_it(tmp_path: Path) -> None:
    ranged = 'metrics: [{id: "accuracy", min: 0, max: 1}, "loss"]\n  command: required'
    policies = load(tmp_path, inspect_ai=changed(POLICY, 'metrics: ["*"]', ranged))
    metrics = [{"metric_id": "accuracy", "value": METRIC_VALUE, "slice": "easy"}, {"metric_id": "loss", "value": 0.11}]
    sent = body(benchmark_repo="openai/gsm8k", metrics=metrics)["claims"]
    for verdict, claims in (
        ("issued", sent),
        ("refused", {**sent, "framework": {"name": "inspect-ai", "version": "0.3.285"}}),
    ):
        line = recorded(policies, Submission.of(read_claims(claims), {}))
        event = msgspec.json.decode(line)
        (result,) = event["results"]
        assert event["verdict"] == verdict
        assert result["metrics"][0] == {"metric_id": "accuracy", "slice": "easy", "value": METRIC_VALUE}
        assert result["metrics"][1] == {"metric_id": "loss"}
        assert result["has_command"] is (verdict == "issued")
        assert b"inspect eval" not in line


def test_the_audit_has_the_claims_that_were_read_and_those_that_were_absent(service: Running) -> None:
    claims = service.provider.claims(aud=service.url, environment={"a": 1})
    del claims["runner_environment"]
    header, other = {"alg": "RS256", "kid": service.provider.rs256.kid}, {**BODY, "audience": "https://x.example"}

    def post_again() -> httpx.Response:
        return service.post(service.provider.sign(header, {**claims, "jti": uuid4().hex}), other)

    event = refusal_event(service, post_again)
    assert event["caller"]["provider"] == "github-actions"
    assert event["caller"]["issuer"] == service.provider.issuer
    assert event["caller"]["claims"]["ref"] == "refs/heads/main"
    assert "runner_environment" in event["caller"]["absent"]
    assert "runner_environment" not in event["caller"]["claims"]
    assert not {"actor", "environment", "sub"} & event["caller"]["claims"].keys(), "no rule reads them"
    assert event["failed"] == ["identity.claim_missing"]
    assert not {"named", "results"} & event.keys(), "its body was not read"
    refused = refusal_event(service, lambda: service.post(service.token(), other))
    assert refused["named"] == {"audience": "https://x.example"}
    caller = refusal_event(service, lambda: service.post(service.token(ref="r" * 600)))["caller"]
    assert "ref" not in [*caller["claims"], *caller["absent"]], "it was present, and is too long to keep"
