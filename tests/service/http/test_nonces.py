"""Reusable identities and their nonces (contract section 5, uses): personal access tokens and both kinds of OAuth's."""

from __future__ import annotations

import hashlib
import json
import signal
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis

from issuer.dev.provider import LocalProvider
from issuer.identity.pat import token_id
from issuer.service.admission.embedded import EmbeddedValkey
from issuer.service.admission.script import EPOCH_KEY
from issuer.service.authn.pat_records import revoke
from tests.support.leaks import assert_nothing_secret
from tests.support.reusable import KINDS, OTHER_SUBJECT, Issuers, issuers, new_nonce, with_nonce
from tests.support.running import Running, body, numbered, running
from tests.support.stores import expire

each_kind = pytest.mark.parametrize("kind", KINDS)
ENDPOINTS = ("/tokens", "/tokens/batch", "/tokens/explain")
DAY_MS = 86_400_000
KILLED = ("-m", "tests.support.broken_log", "kill")


@dataclass
class Site:
    """Two services on one store, and who issues the credentials that they know."""

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
        """Return the status, and the code or the jti."""
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


@contextmanager
def serving(folder: Path, known: Issuers, policy: dict[str, Any] | None = None, **settings: Any) -> Iterator[Site]:
    """Run one service of the test's own."""
    known.write(folder, policy or {})
    with EmbeddedValkey() as store, running(folder, known.local, store_url=store, **settings) as live:
        yield Site((live,), known, store)


def in_batch(*numbers: int, **members: Any) -> dict[str, Any]:
    return {"results": [numbered(number) for number in numbers], **members}


def at(endpoint: str, **members: Any) -> dict[str, Any]:
    """Return a good body of this endpoint."""
    return in_batch(1, 2, **members) if endpoint == "/tokens/batch" else {**numbered(1), **members}


REUSED = (409, "nonce.reused")


# -- who must send one, and of which form -------------------------------------------------------------------------------


@each_kind
@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_a_reusable_identity_must_send_a_nonce(site: Site, kind: str, endpoint: str) -> None:
    credential = site.credential(kind)
    answer = site.live.post(credential, at(endpoint), endpoint)
    problem = answer.json()
    assert (answer.status_code, problem["code"], problem["retryable"]) == (400, "nonce.required", False)
    assert [fault["pointer"] for fault in problem["errors"]] == ["/nonce"]
    assert "16" in problem["errors"][0]["detail"], "how to make one"
    assert site.live.post(credential, at(endpoint, nonce=new_nonce()), endpoint).status_code in {200, 201}


@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_a_limited_identity_must_not_and_is_not_used_up(site: Site, endpoint: str) -> None:
    identity = site.credential("limited")
    answer = site.live.post(identity, at(endpoint, nonce=new_nonce()), endpoint)
    assert (answer.status_code, answer.json()["code"]) == (400, "nonce.invalid")
    assert [fault["pointer"] for fault in answer.json()["errors"]] == ["/nonce"]
    assert site.live.post(identity, at(endpoint), endpoint).status_code in {200, 201}


GOOD = "abcdefghijklmnopqrst-_"
BAD_FORMS = [
    "", GOOD[:-1], GOOD * 6, GOOD + "=", GOOD + "==", GOOD[:-1] + "+", GOOD[:-1] + "/", GOOD + " ", GOOD + "\n",
    " " + GOOD, GOOD[:-1] + ".", GOOD[:-1] + "é", "\uff21" * 22, GOOD[:-1] + "\u200b",
]  # fmt: skip


@pytest.mark.parametrize("nonce", BAD_FORMS, ids=ascii)
def test_a_nonce_is_22_to_128_base64url_characters(site: Site, nonce: str) -> None:
    for credential in (site.credential("pat"), site.credential("limited")):
        answer = site.post(credential, nonce)
        assert (answer.status_code, answer.json()["code"]) == (400, "nonce.invalid")
        assert [fault["pointer"] for fault in answer.json()["errors"]] == ["/nonce"]


@pytest.mark.parametrize("nonce", [None, 5, 10**30, True, [GOOD], {"nonce": GOOD}], ids=repr)
def test_a_nonce_is_text(site: Site, nonce: object) -> None:
    answer = site.post(site.credential("pat"), nonce)
    assert (answer.status_code, answer.json()["code"]) == (400, "request.malformed")
    assert [fault["pointer"] for fault in answer.json()["errors"]] == ["/nonce"]


@pytest.mark.parametrize("nonce", [GOOD, "A" * 128, "-" * 22, "_" * 64])
def test_the_longest_and_the_shortest_nonce_are_taken(site: Site, nonce: str) -> None:
    assert site.outcome(site.credential("pat"), nonce)[0] == 201


# -- what it does -------------------------------------------------------------------------------------------------------


@each_kind
def test_the_same_request_again_gets_the_same_token(site: Site, kind: str) -> None:
    credential, nonce = site.credential(kind), new_nonce()
    first = site.post(credential, nonce, 2)
    assert (first.status_code, "idempotent-replay" in first.headers) == (201, False)
    for live in site.services:
        again = live.post(credential, with_nonce(nonce, 2))
        assert (again.status_code, again.headers["idempotent-replay"], again.content) == (200, "true", first.content)


@each_kind
def test_another_request_under_a_used_nonce_is_refused(site: Site, kind: str) -> None:
    credential, nonce = site.credential(kind), new_nonce()
    first = site.post(credential, nonce)
    assert first.status_code == 201
    for number in (1, 2, 3):
        answer = site.post(credential, nonce, number)
        assert (answer.status_code, answer.json()["code"], answer.json()["retryable"]) == (*REUSED, False)
    assert site.post(credential, nonce).content == first.content, "the request that it names keeps its token"


@each_kind
def test_one_credential_makes_as_many_tokens_as_it_sends_nonces(site: Site, kind: str) -> None:
    credential = site.credential(kind)
    told = [site.outcome(credential, new_nonce()) for _ in range(12)]
    assert [status for status, _ in told] == [201] * 12
    assert len({jti for _, jti in told}) == 12, "the same request under another nonce is another request"


@pytest.mark.parametrize("kind", ["jwt", "opaque"])
def test_a_retry_with_a_fresh_access_token_of_the_client_is_the_same_request(site: Site, kind: str) -> None:
    nonce = new_nonce()
    first, fresh = site.credential(kind), site.credential(kind)
    assert first != fresh
    assert site.post(fresh, nonce).content == site.post(first, nonce).content
    assert site.outcome(fresh, nonce, 1) == REUSED


@each_kind
def test_another_credential_of_the_provider_may_use_the_same_nonce(site: Site, kind: str) -> None:
    nonce = new_nonce()
    one, other = site.credential(kind), site.credential(kind, sub=OTHER_SUBJECT)
    told = [site.outcome(one, nonce), site.outcome(other, nonce), site.outcome(other, nonce, 1)]
    assert [status for status, _ in told] == [201, 201, 409]
    assert told[0][1] != told[1][1], "nobody gets the token of another one's nonce"


def test_another_provider_s_credential_may_use_the_same_nonce(site: Site) -> None:
    nonce = new_nonce()
    told = [site.outcome(site.credential(kind), nonce, number) for number, kind in enumerate(KINDS)]
    assert [status for status, _ in told] == [201] * len(KINDS)


def test_the_nonce_names_a_request_at_its_endpoint(site: Site) -> None:
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


def test_an_explanation_uses_no_nonce_up_and_does_not_tell_of_one(site: Site) -> None:
    credential, nonce = site.credential("pat"), new_nonce()

    def explained(number: int, asked: str = nonce) -> Any:
        told = site.live.post(credential, with_nonce(asked, number), "/tokens/explain").json()
        return {name: value for name, value in told.items() if name != "request_id"}

    before = explained(1)
    assert before["verdict"] == "granted"
    assert site.outcome(credential, nonce, 2)[0] == 201
    after, other = explained(1), explained(1, new_nonce())
    assert after == other, "whether its nonce is used up or not"
    assert {**after, "standing": None} == {**before, "standing": None}
    assert site.outcome(credential, nonce, 1) == REUSED


def test_a_refused_request_uses_no_nonce_up(site: Site) -> None:
    credential, nonce = site.credential("pat"), new_nonce()
    refused = {**body(model_revision="9f3c2c9"), "nonce": nonce}
    assert site.live.post(credential, refused).json()["code"] == "claims.revision"
    assert site.outcome(credential, nonce)[0] == 201


@each_kind
def test_of_32_requests_at_once_under_one_nonce_one_gets_a_token(site: Site, kind: str) -> None:
    credential, nonce = site.credential(kind), new_nonce()
    with ThreadPoolExecutor(32) as pool:
        answers = list(pool.map(lambda number: site.outcome(credential, nonce, number), range(32)))
    assert sorted(status for status, _ in answers) == [201] + [409] * 31
    assert Counter(answers)[REUSED] == 31


@each_kind
def test_one_request_32_times_at_once_gets_one_token(site: Site, kind: str) -> None:
    credential, nonce, sent = site.credential(kind), new_nonce(), with_nonce(new_nonce())
    assert nonce != sent["nonce"]
    with ThreadPoolExecutor(32) as pool:
        answers = list(pool.map(lambda turn: site.services[turn % 2].post(credential, sent), range(32)))
    assert sorted(answer.status_code for answer in answers) == [200] * 31 + [201]
    assert len({answer.content for answer in answers}) == 1


def test_a_revoked_token_gets_not_even_a_repeat(site: Site) -> None:
    credential, nonce = site.credential("pat"), new_nonce()
    assert site.outcome(credential, nonce)[0] == 201
    revoke(site.live.folder / "data" / "pats", str(token_id(credential)), int(time.time()))
    assert site.outcome(credential, nonce) == site.outcome(credential, nonce, 1) == (401, "identity.inactive")


def test_a_refusal_for_its_nonce_is_audited_under_its_code(site: Site) -> None:
    credential, nonce = site.credential("pat"), new_nonce()
    site.outcome(credential, nonce)
    for sent, code in ((numbered(1), "nonce.required"), (with_nonce("short"), "nonce.invalid"),
                       (with_nonce(nonce, 2), "nonce.reused")):  # fmt: skip
        site.live.post(credential, sent)
        event = site.live.audit()[-1]
        assert (event["verdict"], event["code"], event["identity"]) == ("refused", code, "pat")


# -- how long it is remembered ------------------------------------------------------------------------------------------


def record_of(provider: str, credential_id: str, nonce: str) -> str:
    """Name the record as the contract does; of plain ASCII, this is the canonical JSON."""
    parts = json.dumps(["nonce", provider, credential_id, nonce], separators=(",", ":"))
    return f"{{evi1}}:use:{hashlib.sha256(parts.encode()).hexdigest()}"


def test_its_record_has_the_contract_s_name_counts_one_and_lives_a_day_from_its_last_use(site: Site) -> None:
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


@pytest.mark.parametrize("kind", ["jwt", "opaque"])
def test_it_outlives_the_access_token_that_it_came_with(site: Site, kind: str) -> None:
    credential, nonce = site.credential(kind, sub=OTHER_SUBJECT, exp=int(time.time()) + 120), new_nonce()
    client_id = site.issuers.jwts.client_id
    record = record_of(kind, json.dumps([client_id, OTHER_SUBJECT], separators=(",", ":")), nonce)
    assert site.outcome(credential, nonce)[0] == 201
    with redis.Redis.from_url(site.store) as client:
        assert DAY_MS - 60_000 < client.pttl(record) <= DAY_MS


def test_when_its_token_has_expired_it_names_a_request_that_is_over(site: Site) -> None:
    credential, nonce = site.credential("pat"), new_nonce()
    ends = site.post(credential, nonce).json()["expires_at"]
    assert site.outcome(credential, nonce)[0] == 200
    expire(site.store, ends)
    assert site.outcome(credential, nonce) == REUSED
    assert site.outcome(credential, new_nonce())[0] == 201


@pytest.mark.parametrize("loss", ["flushed", pytest.param("restored", marks=pytest.mark.long)])
def test_a_store_that_forgot_serves_a_nonce_at_once_and_once(tmp_path: Path, known: Issuers, loss: str) -> None:
    """Unlike an identity token: who presents a nonce could always have presented another one."""
    with serving(tmp_path, known, store_epoch_leeway_s=30) as site, redis.Redis.from_url(site.store) as client:
        credential, nonce, identity = site.credential("pat"), new_nonce(), site.credential("limited")
        first = site.outcome(credential, nonce)
        assert first[0] == 201
        assert site.live.post(identity, numbered(1)).json()["code"] == "dependency.state_reset", "within the leeway"
        if loss == "flushed":
            client.flushall()
        else:  # what a snapshot brings along is another run's
            client.delete(*client.keys("{evi1}:use:*"))
            client.set(EPOCH_KEY, f"{int(time.time()) - 1000} {'0' * 40}")
        assert site.live.post(identity, numbered(1)).json()["code"] == "dependency.state_reset"
        second = site.outcome(credential, nonce)
        assert (second[0], second[1] != first[1]) == (201, True)
        assert site.outcome(credential, nonce) == (200, second[1])
        assert site.outcome(credential, nonce, 1) == REUSED


@pytest.mark.long  # as test_faults.py has it of an identity token
def test_killed_between_admission_and_signature_a_retry_gives_the_token_that_would_have_been(
    tmp_path: Path, known: Issuers
) -> None:
    known.write(tmp_path)
    with EmbeddedValkey() as store:
        with running(tmp_path, known.local, command=KILLED, store_url=store) as deadly:
            credential, sent, port = (
                known.credential(deadly, "pat"),
                with_nonce(new_nonce()),
                deadly.settings.listen.port,
            )
            with pytest.raises(httpx.TransportError):
                deadly.post(credential, sent)
            assert deadly.process.wait(60) == -signal.SIGKILL
        time.sleep(1.1)  # a token that were drafted anew would have another iat
        with running(tmp_path, known.local, store_url=store, port=port) as alive:
            issued = alive.post(credential, sent)
            assert (issued.status_code, issued.headers["idempotent-replay"]) == (200, "true")
            assert issued.json()["issued_at"] < int(time.time())
            assert alive.post(credential, sent).content == issued.content
            assert alive.post(credential, {**sent, "details": {"notes": "x"}}).json()["code"] == "nonce.reused"


# -- what it costs ------------------------------------------------------------------------------------------------------


def narrow(**limits: Any) -> dict[str, Any]:
    wide = {"count": 1_000_000, "per_s": 60, "burst": 50_000}
    return {"limits": {**dict.fromkeys(("identity", "integration", "refusals"), wide), "quarantine_s": 60, **limits}}


@each_kind
def test_a_question_of_the_caller_alone_takes_no_nonce(site: Site, kind: str) -> None:
    told = site.live.post(site.credential(kind), b"{}", "/tokens/explain").json()
    assert (told["verdict"], told["identity"]) == ("granted", kind)


@pytest.fixture(scope="module")
def mean(tmp_path_factory: pytest.TempPathFactory, known: Issuers) -> Iterator[Site]:
    """A service that lets four requests of an identity through, and forgives two refusals."""
    limits = narrow(identity={"count": 1, "per_s": 3600, "burst": 4}, refusals={"count": 1, "per_s": 3600, "burst": 2})
    with serving(tmp_path_factory.mktemp("mean"), known, limits) as site:
        yield site


def test_every_new_request_costs_the_rate_of_the_identity_whichever_nonce_it_has(mean: Site) -> None:
    credential, other, nonce = mean.credential("pat"), mean.credential("pat"), new_nonce()
    told = [mean.outcome(credential, nonce), mean.outcome(credential, nonce), mean.outcome(credential, nonce, 1),
            *(mean.outcome(other, new_nonce()) for _ in range(4)), mean.outcome(credential, nonce)]  # fmt: skip
    assert [status for status, _ in told] == [201, 200, 409, 201, 201, 201, 429, 200], "a repeat costs its nonce alone"
    assert told[-2][1] == "rate.identity", "one account, one rate, however many tokens it has"
    assert mean.outcome(mean.credential("jwt"), new_nonce())[0] == 201


@pytest.mark.long
def test_who_keeps_forgetting_its_nonce_is_quarantined(mean: Site) -> None:
    credential = mean.credential("opaque")
    codes = [mean.live.post(credential, numbered(1)).json()["code"] for _ in range(4)]
    assert codes == ["nonce.required"] * 3 + ["abuse.quarantined"]
    assert mean.outcome(credential, new_nonce()) == (403, "abuse.quarantined")
