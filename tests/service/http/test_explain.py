"""`POST /tokens/explain`, and the same checks in refusals of `/tokens`: everything judged, nothing signed or used up."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import msgspec
import pytest
import redis

from issuer.dev.provider import LocalProvider
from issuer.service.admission.embedded import EmbeddedValkey
from tests.support.http_load import answer_to_head
from tests.support.running import BODY, METRIC_VALUE, Running, body, numbered, register, rewrite, running, write_folder
from tests.support.waiting import eventually

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
    """Return a problem without what differs from request to request."""
    return {name: value for name, value in answer.json().items() if name not in {"request_id", "instance"}}


# -- what it answers ------------------------------------------------------------------------------------------------------


def test_a_grant_is_explained_with_every_check_and_what_the_token_would_be(service: Running) -> None:
    answer = explain(service, service.token(repository_owner="renamed"))
    assert answer.status_code == 200
    assert answer.headers["cache-control"] == "no-store"
    told = answer.json()
    assert (told["verdict"], told["integration"], told["identity"]) == ("granted", "inspect-ai", "evaluate-main")
    assert (told["audience"], told["ttl_s"]) == ("https://huggingface.co", 3600)
    assert told["policy"] == service.post(service.token()).json()["policy"]
    assert told["request_id"] == answer.headers["x-request-id"]
    assert "repository" in told["warnings"][0]
    assert "code" not in told
    assert len(told["checks"]) > 8
    assert all(check["passed"] and check["hint"] == "" for check in told["checks"])
    assert not {"verify_token", "jti", "kid", "entry"} & told.keys()


def test_a_refusal_of_a_policy_is_an_answer_with_every_check_failed_and_passed(service: Running) -> None:
    sent = body(benchmark_repo="other/benchmark", framework={"name": "inspect-ai", "version": "9"})
    answer = explain(service, service.token(), sent)
    assert answer.status_code == 200
    told = answer.json()
    assert (told["verdict"], told["code"]) == ("refused", "policy.version")
    assert "audience" not in told
    failed = {check["code"]: check for check in told["checks"] if not check["passed"]}
    assert failed.keys() == {"policy.version", "policy.benchmark"}
    assert failed["policy.benchmark"]["expected"] == "", "the policy does not disclose its benchmarks"
    assert failed["policy.benchmark"]["pointer"] == "/claims/benchmark_repo"
    assert all(check["hint"] for check in failed.values())


def test_who_fails_the_requirements_is_shown_their_checks_and_its_body_is_not_judged(service: Running) -> None:
    answer = explain(service, service.token(ref="refs/heads/evil"), b"{ whatever this is")
    assert answer.status_code == 200
    told = answer.json()
    assert (told["verdict"], told["code"]) == ("refused", "identity.claim_mismatch")
    (failed,) = [check for check in told["checks"] if not check["passed"]]
    assert (failed["code"], failed["expected"]) == ("identity.claim_mismatch", "refs/heads/main")
    assert "refs/heads/evil" in failed["actual"]
    assert not any(check["pointer"] for check in told["checks"]), "none is about the body"
    assert service.post(service.token(ref="refs/heads/evil"), b"{").json()["checks"] == told["checks"]


def test_the_real_request_is_refused_with_the_same_checks(service: Running) -> None:
    sent = body(benchmark_repo="other/benchmark", task_id="x", framework={"name": "helm", "version": "1"})
    told = explain(service, service.token(), sent).json()
    refused = service.post(service.token(), sent)
    assert refused.status_code == 403
    problem = refused.json()
    assert problem["code"] == told["code"]
    assert problem["checks"] == told["checks"]
    assert len(problem["errors"]) == sum(not check["passed"] for check in told["checks"])


def test_the_checks_of_a_batch_point_into_it(service: Running) -> None:
    results = [numbered(0), body(benchmark_repo="not/granted"), numbered(2)]
    problem = service.post(service.token(), {"results": results}, "/tokens/batch").json()
    (failed,) = [check for check in problem["checks"] if not check["passed"]]
    assert failed["pointer"] == "/results/1/claims/benchmark_repo"
    assert any(check["pointer"].startswith("/results/2/claims") for check in problem["checks"] if check["passed"])


def test_only_a_policy_s_refusal_carries_checks(service: Running) -> None:
    for answer in (
        service.post("not.a.token"),
        service.post(service.token(repository_id="99")),
        service.post(service.token(), b"{"),
        service.post(service.token(), body(model_revision="9f3c2c9")),
    ):
        assert answer.status_code in {400, 401, 403, 422}
        assert "checks" not in answer.json()


def test_a_body_of_nothing_asks_of_the_caller_alone(service: Running) -> None:
    told = explain(service, service.token(), b"{}").json()
    assert (told["verdict"], told["integration"], told["identity"]) == ("granted", "inspect-ai", "evaluate-main")
    assert (told["audience"], told["ttl_s"]) == ("https://huggingface.co", 3600)
    assert not any(check["pointer"].startswith("/claims") for check in told["checks"])
    assert not {"code", "standing"} & told.keys()
    event = service.audit()[-1]
    assert (event["verdict"], event["endpoint"], event["results"]) == ("granted", EXPLAIN, [])
    branch = service.token(ref="refs/heads/evil")
    assert explain(service, branch, b"{}").json()["code"] == "identity.claim_mismatch"
    for path in ("/tokens", "/tokens/batch"):
        problem = service.post(service.token(), b"{}", path).json()
        assert (problem["status"], problem["code"]) == (400, "request.malformed")


# -- where no policy was asked, the answer is that of /tokens -------------------------------------------------------------


def test_an_unverified_token_learns_a_code_and_nothing_else(service: Running) -> None:
    for identity in (
        "not.a.token",
        service.token()[:-9] + "AAAAAAAAA",
        service.provider.token("https://other.example"),
    ):
        answer = explain(service, identity)
        assert answer.status_code == 401
        assert answer.json()["errors"] == []
        assert without_ids(answer) == without_ids(service.post(identity))
    assert service.post(None, BODY, EXPLAIN).json()["code"] == "identity.missing"


@pytest.mark.parametrize(
    "sent",
    [b"{", b"[]", {"nonce": "A" * 22}, {"integration": "inspect-ai"}, {"details": {}}, {**BODY, "notes": "x"}, {**BODY, "nonce": "A" * 22}, {"results": [BODY]}, body(model_revision="9f3c2c9"),
     body(metrics=[]), body(metrics=[{"metric_id": "m" * 120 + str(i), "value": i} for i in range(120)])],
)  # fmt: skip
def test_a_body_that_cannot_be_judged_is_refused_as_tokens_refuses_it(service: Running, sent: Any) -> None:
    answer = explain(service, service.token(), sent)
    assert answer.status_code in {400, 422}
    assert without_ids(answer) == without_ids(service.post(service.token(), sent))


def test_a_stranger_is_told_its_own_claims_whatever_it_sends(service: Running) -> None:
    for sent in (BODY, b"{", {**BODY, "integration": "inspect-ai"}):
        answer = explain(service, service.token(repository_id="99", repository="evil/x"), sent)
        assert (answer.status_code, answer.json()["code"]) == (403, "integration.unknown")
        assert "repository_id=99" in answer.json()["detail"]
        assert without_ids(answer) == without_ids(
            service.post(service.token(repository_id="99", repository="evil/x"), sent)
        )


# -- nothing is used up, and nothing is said of uses ----------------------------------------------------------------------


def test_an_explanation_uses_nothing_up_and_does_not_say_what_is_used_up(service: Running) -> None:
    identity = service.token()
    before = explain(service, identity, numbered(1)).json()
    assert service.post(identity, numbered(1)).status_code == 201, "the identity was not used up"
    assert service.post(identity, numbered(2)).json()["code"] == "identity.replayed"
    for asked in (numbered(1), numbered(2)):
        spent, fresh = (explain(service, token, asked).json() for token in (identity, service.token()))
        assert {**spent, "request_id": ""} == {**fresh, "request_id": ""}
        assert {**spent, "request_id": "", "standing": ""} == {**before, "request_id": "", "standing": ""}


def kinds_of_keys(client: redis.Redis) -> set[str]:
    return {str(key, "ascii").split(":")[1] for key in client.scan_iter("{evi1}:*")}


def fields_of_payer(client: redis.Redis) -> set[bytes]:
    (key,) = client.scan_iter("{evi1}:payer:*")
    return set(client.hkeys(key))  # type: ignore[arg-type]


# -- limits, audit, log ---------------------------------------------------------------------------------------------------


@dataclass
class Narrow:
    """A service with narrow limits, its store, and three callers."""

    live: Running
    store: str
    callers: list[str]

    def explain(self, caller: int, sent: Any = BODY) -> httpx.Response:
        return explain(self.live, self.token(caller), sent)

    def token(self, caller: int) -> str:
        return self.live.token(repository_id=self.callers[caller])


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory, provider: LocalProvider) -> Iterator[Narrow]:
    folder = tmp_path_factory.mktemp("narrow")
    write_folder(folder, provider, limits=NARROW)
    callers = register(folder, 4)
    with EmbeddedValkey() as store, running(folder, provider, store_url=store) as live:
        yield Narrow(live, store, callers)


def test_the_store_holds_no_use_and_no_refusal_of_a_grant_that_was_explained(narrow: Narrow) -> None:
    with redis.Redis.from_url(narrow.store) as client:
        for key in client.scan_iter("{evi1}:*"):
            if not key.endswith(b":epoch"):
                client.delete(key)
        assert narrow.explain(0).json()["verdict"] == "granted"
        assert kinds_of_keys(client) == {"epoch", "payer", "integration"}
        assert fields_of_payer(client) == {b"state"}, "its rates alone"
        assert narrow.explain(0, body(benchmark_repo="x/y")).json()["verdict"] == "refused"
        assert kinds_of_keys(client) == {"epoch", "payer", "integration"}
        assert fields_of_payer(client) == {b"state", b"refusals"}


def test_explanations_spend_the_rate_of_the_identity(narrow: Narrow) -> None:
    codes = [narrow.explain(1).status_code for _ in range(9)]
    assert codes == [200] * 8 + [429], "grants alone never quarantine"
    refused = narrow.explain(1)
    assert refused.json()["code"] == "rate.identity"
    assert int(refused.headers["retry-after"]) >= 1
    assert narrow.live.post(narrow.token(1)).json()["code"] == "rate.identity", "it is the rate of the real request"


def test_refused_explanations_count_as_refusals_and_quarantine_ends_them(narrow: Narrow) -> None:
    wrong = body(benchmark_repo="x/y")
    verdicts = [narrow.explain(2, wrong).status_code for _ in range(4)]
    assert verdicts == [200, 200, 200, 403]
    assert narrow.explain(2).json()["code"] == "abuse.quarantined"
    assert narrow.live.post(narrow.token(2)).json()["code"] == "abuse.quarantined"
    for path in ("/tokens", "/tokens/batch", EXPLAIN):
        unread = answer_to_head(narrow.live.settings.listen.port, path, narrow.token(2), b"{" * 10_000)
        assert b" 403 " in unread, "the body was not waited for"
        assert b'"code":"abuse.quarantined"' in unread


def test_questions_of_the_caller_alone_spend_its_rate_and_are_no_refusals(narrow: Narrow) -> None:
    assert [narrow.explain(3, b"{}").status_code for _ in range(9)] == [200] * 8 + [429]
    assert narrow.explain(3, b"{}").json()["code"] == "rate.identity"
    verdicts = [narrow.explain(3, body(benchmark_repo="x/y")).status_code for _ in range(4)]
    assert verdicts == [200, 200, 200, 403], "as if nothing had been asked before"
    assert narrow.explain(3, b"{}").json()["code"] == "abuse.quarantined"


def told(service: Running, ask: Callable[[], object]) -> dict[str, Any]:
    """Return the event of a refusal. Of many in a second it would only be counted: then it is asked for again."""
    before = len(service.audit())

    def is_told() -> bool:
        ask()
        return len(service.audit()) > before

    eventually(is_told)
    return service.audit()[-1]


def fresh(claims: dict[str, Any]) -> dict[str, Any]:
    """Return the claims of another identity token of the same job."""
    return {**claims, "jti": uuid4().hex}


def test_it_is_audited_like_the_real_request_by_its_own_name(service: Running) -> None:
    explain(service, service.token())
    granted = service.audit()[-1]
    assert (granted["event"], granted["endpoint"], granted["verdict"]) == ("decision", EXPLAIN, "granted")
    assert not {"jti", "kid", "code"} & granted.keys()
    refused = told(service, lambda: explain(service, service.token(), body(benchmark_repo="x/y", task_id="t")))
    assert (refused["endpoint"], refused["verdict"], refused["code"]) == (EXPLAIN, "refused", "policy.benchmark")
    assert refused["failed"] == ["policy.benchmark"]
    assert refused["results"][0]["benchmark_repo"] == "x/y"
    explain(service, service.token(repository_id="99"))
    stranger = [event for event in service.audit() if event["event"] == "decision"][-1]
    assert (stranger["endpoint"], stranger["code"]) == (EXPLAIN, "integration.unknown")


def logged(live: Running, request_id: str) -> dict[str, Any]:
    lines = [msgspec.json.decode(line) for line in live.log_text().splitlines() if request_id in line]
    assert len(lines) == 1
    found: dict[str, Any] = lines[0]
    return found


def test_the_log_names_who_was_refused_and_by_which_policy(service: Running) -> None:
    policy = service.post(service.token()).json()["policy"]
    refused = service.post(service.token(), body(benchmark_repo="x/y")).json()
    event = logged(service, refused["request_id"])
    assert (event["outcome"], event["code"]) == ("no", "policy.benchmark")
    assert (event["integration"], event["identity"], event["policy"]) == ("inspect-ai", "evaluate-main", policy)
    malformed = service.post(service.token(), b"{").json()
    assert logged(service, malformed["request_id"])["integration"] == "inspect-ai"
    stranger = service.post(service.token(repository_id="99")).json()
    assert not {"integration", "identity", "policy"} & logged(service, stranger["request_id"]).keys()
    told = explain(service, service.token()).json()
    event = logged(service, told["request_id"])
    assert (event["outcome"], event["verdict"], event["integration"]) == ("explained", "granted", "inspect-ai")


# -- what the audit holds -------------------------------------------------------------------------------------------------


def test_the_audit_holds_a_value_only_where_a_rule_reads_it(tmp_path: Path, provider: LocalProvider) -> None:
    write_folder(tmp_path, provider)
    ranged = '  metrics: [{id: "accuracy", min: 0, max: 1}, "loss"]\n  command: required'
    rewrite(tmp_path, r"^  metrics: .*$", ranged)
    rewrite(tmp_path, r"(?s)^tests:.*?(?=^limits:)", "")
    with running(tmp_path, provider) as live:
        metrics = [
            {"metric_id": "accuracy", "value": METRIC_VALUE, "slice": "easy"},
            {"metric_id": "loss", "value": 0.11},
        ]
        answer = live.post(live.token(), body(metrics=metrics))
        assert answer.status_code == 201, answer.text
        (result,) = live.audit()[-1]["results"]
        assert result["metrics"] == [
            {"metric_id": "accuracy", "slice": "easy", "value": METRIC_VALUE},
            {"metric_id": "loss"},
        ]
        assert result["has_command"] is True
        assert "inspect eval" not in live.settings.audit_file.read_text("utf-8")
        refused = live.post(live.token(), body(framework={"name": "inspect-ai", "version": "0.3.285"}))
        assert refused.json()["code"] == "policy.command"
        assert live.audit()[-1]["results"][0]["has_command"] is False


def test_the_audit_says_which_claims_were_read_and_which_were_not_there(service: Running) -> None:
    claims = service.provider.claims(aud=service.url, environment={"a": 1})
    del claims["runner_environment"]
    header, other = {"alg": "RS256", "kid": service.provider.rs256.kid}, {**BODY, "audience": "https://x.example"}
    event = told(service, lambda: service.post(service.provider.sign(header, fresh(claims)), other))
    assert event["caller"]["provider"] == "github-actions"
    assert event["caller"]["issuer"] == service.provider.issuer
    assert event["caller"]["claims"]["ref"] == "refs/heads/main"
    assert "runner_environment" in event["caller"]["absent"]
    assert "runner_environment" not in event["caller"]["claims"]
    assert not {"actor", "environment", "sub"} & event["caller"]["claims"].keys(), "nobody reads them"
    assert event["failed"] == ["identity.claim_missing"]
    assert not {"named", "results"} & event.keys(), "its body was not read"
    assert told(service, lambda: service.post(service.token(), other))["named"] == {"audience": "https://x.example"}
    caller = told(service, lambda: service.post(service.token(ref="r" * 600)))["caller"]
    assert "ref" not in [*caller["claims"], *caller["absent"]], "it was there, and is too long to keep"
