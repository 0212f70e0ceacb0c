"""Reusable identities and their nonces (contract section 5, uses): personal access tokens, and OAuth's JWTs and opaque tokens."""

import hashlib
import itertools
import json
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
import redis

from issuer.dev.provider import LocalProvider
from issuer.identity.pat import token_id
from issuer.service.admission.embedded import EmbeddedValkey
from issuer.service.admission.script import EPOCH_KEY
from tests.support.leaks import assert_nothing_secret
from tests.support.reusable import KINDS, OTHER_SUBJECT, WIDE, Issuers, issuers, new_nonce, with_nonce
from tests.support.running import Running, body, numbered, running
from tests.support.stores import expire

ENDPOINTS = ("/tokens", "/tokens/batch", "/tokens/explain")
DAY_MS = 86_400_000


@dataclass
class Site:
    """Two services on one store, and the issuers of the credentials that they know."""

    services: tuple[Running, ...]
    issuers: Issuers
    store: str

    @property
    def live(self) -> Running:
        return self.services[0]

    def credential(self, kind: str, **claims: Any) -> str:
        return self.issuers.credential(self.live, kind, **claims)

    def post(self, credential: str, nonce: object, number: int = 0) -> httpx.Response:
        """Send the request of this number; the services take turns."""
        return self.services[number % len(self.services)].post(credential, with_nonce(nonce, number))

    def outcome(self, credential: str, nonce: object, number: int = 0) -> tuple[int, str]:
        answer = self.post(credential, nonce, number)
        return answer.status_code, answer.json().get("code") or answer.json()["jti"]


@pytest.fixture(scope="module")
def known(provider: LocalProvider) -> Iterator[Issuers]:
    with issuers(provider) as found:
        yield found


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, known: Issuers) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("nonces")
    known.write(folder)
    with (
        EmbeddedValkey() as store,
        running(folder, known.local, store_url=store) as one,
        running(folder, known.local, store_url=store, url=one.url) as other,
    ):
        yield Site((one, other), known, store)
        for live in (one, other):
            live.process.terminate()
            assert live.process.wait(60) == 0
            assert_nothing_secret(live)


FOUR = {"count": 1, "per_s": 3600, "burst": 4}


@pytest.fixture(scope="module")
def mean(tmp_path_factory: pytest.TempPathFactory, known: Issuers) -> Iterator[Site]:
    """A service that allows an identity four requests, and needs 30 seconds to trust a new store."""
    folder = tmp_path_factory.mktemp("mean")
    known.write(folder, {"limits": {**WIDE["limits"], "identity": FOUR}})
    with EmbeddedValkey() as store, running(folder, known.local, store_url=store, store_epoch_leeway_s=30) as live:
        yield Site((live,), known, store)


def in_batch(*numbers: int, **members: Any) -> dict[str, Any]:
    return {"results": [numbered(number) for number in numbers], **members}


def at(endpoint: str, **members: Any) -> dict[str, Any]:
    return in_batch(1, 2, **members) if endpoint == "/tokens/batch" else {**numbered(1), **members}


REUSED = (409, "nonce.reused")


# -- the member ---------------------------------------------------------------------------------------------------------


def nonce_fault(answer: httpx.Response) -> tuple[int, str, list[str]]:
    """Return the status, the code and the places of a refusal."""
    problem = answer.json()
    return answer.status_code, problem["code"], [fault["pointer"] for fault in problem["errors"]]


def test_a_reusable_identity_must_send_a_nonce_and_a_limited_one_none(site: Site) -> None:
    for kind, endpoint in itertools.product(KINDS, ENDPOINTS):
        credential = site.credential(kind)
        answer = site.live.post(credential, at(endpoint), endpoint)
        assert nonce_fault(answer) == (400, "nonce.required", ["/nonce"])
        assert answer.json()["retryable"] is False
        assert "16" in answer.json()["errors"][0]["detail"], "it says how to make a nonce"
        assert site.live.post(credential, at(endpoint, nonce=new_nonce()), endpoint).status_code in {200, 201}

    for endpoint in ENDPOINTS:
        identity = site.credential("limited")
        answer = site.live.post(identity, at(endpoint, nonce=new_nonce()), endpoint)
        assert nonce_fault(answer) == (400, "nonce.invalid", ["/nonce"])
        assert site.live.post(identity, at(endpoint), endpoint).status_code in {200, 201}, "it has its use"


GOOD = "abcdefghijklmnopqrst-_"


def test_a_nonce_is_22_to_128_base64url_characters(site: Site) -> None:
    for nonce in ("", GOOD[:-1], "A" * 129, GOOD + "=", GOOD[:-1] + "+", GOOD + "\n", GOOD[:-1] + "é"):
        for kind in ("pat", "limited"):
            assert nonce_fault(site.post(site.credential(kind), nonce)) == (400, "nonce.invalid", ["/nonce"]), nonce
    for not_text in (None, 5, [GOOD]):
        assert nonce_fault(site.post(site.credential("pat"), not_text)) == (400, "request.malformed", ["/nonce"])
    for nonce in (GOOD, "A" * 128):
        assert site.outcome(site.credential("pat"), nonce)[0] == 201


# -- what it does -------------------------------------------------------------------------------------------------------


def test_a_nonce_names_one_request_of_a_credential(site: Site) -> None:
    for kind in KINDS:
        credential, nonce = site.credential(kind), new_nonce()
        first = site.post(credential, nonce, 2)
        assert (first.status_code, "idempotent-replay" in first.headers) == (201, False)
        for number in (1, 3, 4):
            answer = site.post(credential, nonce, number)
            assert (answer.status_code, answer.json()["code"], answer.json()["retryable"]) == (*REUSED, False)
        for live in site.services:
            again = live.post(credential, with_nonce(nonce, 2))
            assert (again.status_code, again.headers["idempotent-replay"]) == (200, "true")
            assert again.content == first.content
        jtis = {site.outcome(credential, new_nonce(), 2)[1] for _ in range(3)}
        assert len({*jtis, first.json()["jti"]}) == 4, "the same request with another nonce is another request"


def test_a_nonce_belongs_to_the_client_and_not_to_its_token(site: Site) -> None:
    nonce = new_nonce()
    for kind in KINDS:  # other credentials may use it too
        one, other = site.credential(kind), site.credential(kind, sub=OTHER_SUBJECT)
        found = [site.outcome(one, nonce), site.outcome(other, nonce), site.outcome(other, nonce, 1)]
        assert [status for status, _ in found] == [201, 201, 409], kind
        assert found[0][1] != found[1][1]
        if kind != "pat":
            fresh = site.credential(kind)
            assert fresh != one
            assert site.outcome(fresh, nonce) == (200, found[0][1]), "the same request"
            assert site.outcome(fresh, nonce, 1) == REUSED


def test_a_nonce_names_a_request_of_one_endpoint(site: Site) -> None:
    credential, nonce = site.credential("pat"), new_nonce()
    batch = in_batch(1, 2, 3, nonce=nonce)
    first = site.live.post(credential, batch, "/tokens/batch")
    assert (first.status_code, len(first.json()["tokens"])) == (201, 3)
    again = site.live.post(credential, batch, "/tokens/batch")
    assert (again.status_code, again.content) == (200, first.content)
    for other in (in_batch(1, 2, nonce=nonce), in_batch(3, 2, 1, nonce=nonce)):
        assert site.live.post(credential, other, "/tokens/batch").json()["code"] == "nonce.reused"
    assert site.outcome(credential, nonce, 1) == REUSED
    alone = new_nonce()
    assert site.outcome(credential, alone, 1)[0] == 201
    one = site.live.post(credential, in_batch(1, nonce=alone), "/tokens/batch")
    assert one.json()["code"] == "nonce.reused", "a batch of one is another request"


def test_explanations_and_refusals_spend_no_nonce_and_do_not_say_whether_one_is(site: Site) -> None:
    credential, nonce = site.credential("pat"), new_nonce()

    def explained(number: int, sent: str = nonce) -> Any:
        answer = site.live.post(credential, with_nonce(sent, number), "/tokens/explain").json()
        return {name: value for name, value in answer.items() if name != "request_id"}

    before = explained(1)
    assert before["verdict"] == "granted"
    refused = {**body(model_revision="9f3c2c9"), "nonce": nonce}
    assert site.live.post(credential, refused).json()["code"] == "claims.revision"
    assert site.outcome(credential, nonce, 2)[0] == 201
    after, other = explained(1), explained(1, new_nonce())
    assert after == other
    assert {**after, "standing": None} == {**before, "standing": None}
    assert site.outcome(credential, nonce, 1) == REUSED
    for kind in KINDS:  # an explanation of the caller alone needs no nonce
        answer = site.live.post(site.credential(kind), b"{}", "/tokens/explain").json()
        assert (answer["verdict"], answer["identity"]) == ("granted", kind)


def test_of_32_requests_at_once_with_one_nonce_one_gets_a_token(site: Site) -> None:
    credential, nonce = site.credential("opaque"), new_nonce()
    with ThreadPoolExecutor(32) as pool:
        answers = Counter(pool.map(lambda number: site.outcome(credential, nonce, number), range(32)))
    assert answers.pop(REUSED) == 31
    assert [status for status, _ in answers] == [201]


def test_a_refusal_for_its_nonce_is_audited_under_its_code(site: Site) -> None:
    credential, nonce = site.credential("pat"), new_nonce()
    site.outcome(credential, nonce)
    wrong = {"nonce.required": numbered(1), "nonce.invalid": with_nonce("short"), "nonce.reused": with_nonce(nonce, 2)}
    ids = {site.live.post(credential, sent).json()["request_id"]: code for code, sent in wrong.items()}
    events = {event["request_id"]: event for event in site.live.audit() if event.get("request_id") in ids}
    assert {(each, event["verdict"], event["code"], event["identity"]) for each, event in events.items()} == {
        (each, "refused", code, "pat") for each, code in ids.items()
    }


# -- the record of a nonce ----------------------------------------------------------------------------------------------


def record_of(provider: str, credential_id: str, nonce: str) -> str:
    """Name the record as the contract does; of plain ASCII, this is the canonical JSON."""
    parts = json.dumps(["nonce", provider, credential_id, nonce], separators=(",", ":"))
    return f"{{evi1}}:use:{hashlib.sha256(parts.encode()).hexdigest()}"


def test_the_record_of_a_nonce_has_the_contract_s_name_and_lives_a_day(site: Site) -> None:
    credential, nonce = site.credential("pat"), new_nonce()
    record = record_of("pat", str(token_id(credential)), nonce)
    with redis.Redis.from_url(site.store) as client:
        assert client.exists(record) == 0
        site.outcome(credential, nonce)
        assert DAY_MS - 60_000 < client.pttl(record) <= DAY_MS
        assert client.hget(record, "n") == b"1"
        client.pexpire(record, 600_000)
        site.outcome(credential, nonce)
        assert DAY_MS - 60_000 < client.pttl(record) <= DAY_MS
        assert client.hget(record, "n") == b"1"
        pins = json.dumps([site.issuers.jwts.client_id, OTHER_SUBJECT], separators=(",", ":"))
        for kind in ("jwt", "opaque"):  # it outlives the access token
            credential = site.credential(kind, sub=OTHER_SUBJECT, exp=int(time.time()) + 120)
            assert site.outcome(credential, nonce)[0] == 201
            assert DAY_MS - 60_000 < client.pttl(record_of(kind, pins, nonce)) <= DAY_MS


def test_a_nonce_whose_token_has_expired_gets_no_other(site: Site) -> None:
    credential, nonce = site.credential("pat"), new_nonce()
    ends = site.post(credential, nonce).json()["expires_at"]
    assert site.outcome(credential, nonce)[0] == 200
    expire(site.store, ends)
    assert site.outcome(credential, nonce) == REUSED
    assert site.outcome(credential, new_nonce())[0] == 201


@pytest.mark.parametrize("loss", ["flushed", pytest.param("restored", marks=pytest.mark.long)])
def test_a_store_that_lost_its_records_admits_a_nonce_once(mean: Site, loss: str) -> None:
    """Unlike an identity token: the holder of the credential could always have sent another nonce."""
    kind = {"flushed": "opaque", "restored": "jwt"}[loss]  # neither loss uses up what the other one may use
    credential, nonce, identity = mean.credential(kind), new_nonce(), mean.credential("limited")
    first = mean.outcome(credential, nonce)
    assert first[0] == 201
    assert mean.live.post(identity, numbered(1)).json()["code"] == "dependency.state_reset", "within the leeway"
    with redis.Redis.from_url(mean.store) as client:
        if loss == "flushed":
            client.flushall()
        else:  # a snapshot has the epoch of another run
            client.delete(*client.keys("{evi1}:use:*"))
            client.set(EPOCH_KEY, f"{int(time.time()) - 1000} {'0' * 40}")
    assert mean.live.post(identity, numbered(1)).json()["code"] == "dependency.state_reset"
    second = mean.outcome(credential, nonce)
    assert (second[0], second[1] != first[1]) == (201, True)
    assert mean.outcome(credential, nonce) == (200, second[1])
    assert mean.outcome(credential, nonce, 1) == REUSED


# -- rates -------------------------------------------------------------------------------------------------------------


def test_each_new_nonce_costs_the_rate_of_the_identity_and_a_repeat_does_not(mean: Site) -> None:
    credential, other, nonce = mean.credential("pat"), mean.credential("pat"), new_nonce()
    found = [mean.outcome(credential, nonce), mean.outcome(credential, nonce), mean.outcome(credential, nonce, 1),
             *(mean.outcome(other, new_nonce()) for _ in range(4)), mean.outcome(credential, nonce)]  # fmt: skip
    assert [status for status, _ in found] == [201, 200, 409, 201, 201, 201, 429, 200]
    assert found[-2][1] == "rate.identity", "all tokens of an account have one rate"
    assert mean.outcome(mean.credential("jwt"), new_nonce())[0] == 201
