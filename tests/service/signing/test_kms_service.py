"""The service with a signing key in AWS KMS: what callers get while it signs, and while it does not."""

import json
from collections.abc import Iterator

import pytest

from issuer.dev.provider import LocalProvider
from issuer.service.signing import bounds
from issuer.tlog.leaf import TokenLeaf, read_leaf
from tests.support import make
from tests.support.http_load import drive, request
from tests.support.kms import ARN, SECRET, LocalKms
from tests.support.logged import Begun, leaf_of, leaves_in
from tests.support.running import Running, body, numbered, write_folder
from tests.support.waiting import ask_until


@pytest.fixture(scope="module")
def kms() -> Iterator[LocalKms]:
    with LocalKms(make.KEY) as local:
        yield local


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, provider: LocalProvider, kms: LocalKms) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("kms")
    write_folder(folder, provider)
    (old,) = (folder / "keys" / "active").iterdir()
    path = old.with_name("kms.yaml")
    path.touch(0o600)
    path.write_text(kms.file(kid=make.KID), "utf-8")
    old.unlink()
    with Begun(folder).served(provider) as live:
        yield live
        assert kms.faults == []
        assert not any(secret in live.log_text() for secret in (SECRET, ARN, "secret detail"))


def test_what_kms_does_not_take_is_refused_before_a_use_is_spent(service: Running, kms: LocalKms) -> None:
    asked, identity = kms.asked["Sign"], service.token()
    metrics = [{"metric_id": f"metric-{number:030}", "value": 0.5} for number in range(60)]
    for path, sent in (
        ("/tokens", body(metrics=metrics)),
        ("/tokens/batch", {"results": [body(), body(metrics=metrics)]}),
    ):
        refused = service.post(identity, sent, path)
        assert (refused.status_code, refused.json()["code"]) == (422, "claims.too_large")
    assert kms.asked["Sign"] == asked
    assert service.post(identity).status_code == 201


def test_while_kms_does_not_sign_callers_get_503_and_then_a_token_of_the_known_key(
    service: Running, kms: LocalKms
) -> None:
    for fault, wrong, right, reason in (
        ("refuses", "ThrottlingException", "", "ThrottlingException"),
        ("signs_with", make.STRANGER, None, "the published key does not verify its signature"),
    ):
        identity = service.token()
        setattr(kms, fault, wrong)
        late = service.post(identity)
        setattr(kms, fault, right)
        assert (late.status_code, late.json()["code"]) == (503, "dependency.signer")
        assert "verify_token" not in late.text
        assert late.headers["Retry-After"] == "1"
        service.until_log_says(reason)
        answers = [service.post(identity).json() for _ in range(2)]
        assert answers[0]["verify_token"] == answers[1]["verify_token"], "a retry gets the same bytes"
        payload = json.loads(make.payload_by_joserfc(answers[0]["verify_token"]))
        assert (payload["iss"], payload["claims_digest"]) == (service.url, answers[0]["claims_digest"])
    (published,) = service.http.get("/.well-known/jwks.json").json()["keys"]
    assert published["kid"] == make.KID


def test_while_kms_does_not_sign_only_the_first_leaf_is_added_and_the_audit_says_why(
    service: Running, kms: LocalKms
) -> None:
    assert service.post(service.token()).status_code == 201  # no probe is due
    before, identity = token_leaves(service), service.token()
    kms.refuses = "DisabledException"
    requests = [(identity, body()), *((service.token(), numbered(number)) for number in range(29))]
    answers = [service.post(*each) for each in requests]
    ready = ask_until(lambda: service.http.get("/health/ready"), lambda answer: answer.status_code == 503)
    kms.refuses = ""
    assert {(each.status_code, each.json()["code"]) for each in (*answers, ready)} == {(503, "dependency.signer")}
    (leaf,) = token_leaves(service)[len(before) :]
    answer = ask_until(lambda: service.post(identity), lambda answer: answer.status_code == 200).json()
    assert read_leaf(leaf_of(answer["verify_token"])) == leaf
    events = [json.loads(line) for line in service.settings.audit_file.read_text().splitlines()]
    unsigned = [(each["jti"], each["leaves"]) for each in events if each["event"] == "logged_not_signed"]
    assert unsigned[-1] == ([answer["jti"]], [answer["log"]["index"]])


def token_leaves(service: Running) -> list[TokenLeaf]:
    return [leaf for leaf in leaves_in(service) if isinstance(leaf, TokenLeaf)]


def test_a_slow_kms_is_asked_a_few_times_at_once(service: Running, kms: LocalKms) -> None:
    kms.delay_s, most = 0.1, bounds.SIGNER_CALLS
    made = [request("/tokens", service.token(), json.dumps(numbered(n)).encode()) for n in range(4 * most)]
    answered = drive(service.settings.listen.port, made, len(made))
    kms.delay_s = 0.0
    assert answered.statuses == {201: len(made)}
    assert kms.most_at_once == most
