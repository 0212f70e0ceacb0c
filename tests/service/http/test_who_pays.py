"""The identity that a request is charged to: a job of another branch, and a spent token, cost their victim nothing.

A record of the store is used only if the service's HMAC covers it.
"""

import json
import socket
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import redis

from issuer.dev.provider import LocalProvider
from issuer.service.admission.bounds import AGAIN_RATE
from issuer.service.admission.embedded import EmbeddedValkey
from tests.support.http_load import request
from tests.support.request_events import event_of
from tests.support.running import BODY, Running, body, listening, numbered, register, running, serve, write_folder
from tests.support.waiting import eventually

LIMITS = """limits:
  identity: {count: 1, per_s: 3600, burst: 5}
  integration: {count: 60, per_s: 3600, burst: 60}
  refusals: {count: 1, per_s: 3600, burst: 60}
  quarantine_s: 600
"""
FEATURE = "refs/heads/feature"


@dataclass
class Site:
    """A service of two workers with narrow limits, its store, and unused identities."""

    live: Running
    store: str
    unused: list[str]

    def owner(self) -> str:
        return self.unused.pop()

    def keys(self) -> Counter[str]:
        """Count the keys of each kind, except the one that a readiness probe writes for a second."""
        with redis.Redis.from_url(self.store) as client:
            kinds = (key.decode().split(":")[1] for key in client.scan_iter("{evi1}:*"))
            return Counter(kind for kind in kinds if kind != "ready")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, provider: LocalProvider) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("pays")
    write_folder(folder, provider, limits=LIMITS)
    owners = register(folder, 11)
    with EmbeddedValkey() as store, running(folder, provider, store_url=store, command=serve(2)) as live:
        eventually(lambda: listening(live) == 2)
        yield Site(live, store, owners)


def test_refusals_of_a_branch_job_do_not_charge_the_identity_of_its_pins(site: Site) -> None:
    live, owner = site.live, site.owner()
    branch, before = live.token(repository_id=owner, ref=FEATURE), site.keys()
    answers = [live.post(branch, path=path) for _ in range(31) for path in ("/tokens", "/tokens/batch")]
    assert Counter((answer.status_code, answer.json()["code"]) for answer in answers) == {
        (403, "identity.claim_mismatch"): 61,
        (403, "abuse.quarantined"): 1,
    }
    assert site.keys() - before == {"payer": 1, "resembling": 1}, "no record of the identity"
    others = [live.token(repository_id=owner, ref=f"refs/heads/other-{number}") for number in range(8)]
    codes = Counter(live.post(other).json()["code"] for other in others)
    assert codes["identity.claim_mismatch"] >= 4, "one in 64 has the bucket of the first"
    assert [live.post(live.token(repository_id=owner), numbered(n)).status_code for n in range(5)] == [201] * 5


def test_replays_of_a_spent_token_cost_its_owner_neither_rates_nor_repeats(site: Site) -> None:
    live, owner = site.live, site.owner()
    identity = live.token(repository_id=owner)
    first = live.post(identity)
    assert first.status_code == 201
    answers = [live.post(identity, numbered(number)) for number in range(AGAIN_RATE.burst + 20)]
    statuses = Counter(answer.status_code for answer in answers)
    assert statuses.keys() == {409, 429}
    assert AGAIN_RATE.burst <= statuses[409] < AGAIN_RATE.burst + 20, "one more a minute on a slow machine"
    assert answers[-1].json()["code"] == "rate.identity"
    assert 0 < int(answers[-1].headers["retry-after"]) <= 60
    assert live.post(identity).content == first.content
    assert [live.post(live.token(repository_id=owner), numbered(n)).status_code for n in range(4)] == [201] * 4


def test_refusals_of_a_spent_token_do_not_charge_its_owner(site: Site) -> None:
    live = site.live
    cases: list[tuple[str, Any]] = [("/tokens/batch", b"{"), ("/tokens/explain", BODY)]
    for path, sent in cases:
        owner = site.owner()
        identity = live.token(repository_id=owner)
        first, before = live.post(identity), site.keys()
        answers = [live.post(identity, sent, path) for _ in range(AGAIN_RATE.burst + 10)]
        assert answers[-1].json()["code"] == "rate.identity"
        assert {answer.status_code for answer in answers} <= {200, 400, 429}
        assert site.keys() <= before, "no new record of the identity or its integration"
        assert live.post(identity).content == first.content
        assert [live.post(live.token(repository_id=owner), numbered(n)).status_code for n in range(4)] == [201] * 4


def test_the_body_of_a_job_that_only_resembles_an_identity_is_not_awaited(site: Site) -> None:
    live = site.live
    token = live.token(repository_id=site.owner(), ref=FEATURE)
    head, _, sent = request("/tokens", token, b"x" * 60_000).partition(b"\r\n\r\n")
    with socket.create_connection(("127.0.0.1", live.settings.listen.port), timeout=60) as connection:
        connection.sendall(head + b"\r\n\r\n" + sent[:1])
        answer = connection.recv(65536)
    assert answer.startswith(b"HTTP/1.1 403 ")
    problem = json.loads(answer.partition(b"\r\n\r\n")[2])
    assert problem["code"] == "identity.claim_mismatch"
    for event in live.audit():
        if event.get("request_id") == problem["request_id"]:
            assert not {"results", "named"} & event.keys()


def test_refusals_warn_from_half_of_their_limit_on(site: Site) -> None:
    live, owner = site.live, site.owner()
    identity = live.token(repository_id=owner)
    sent = [b"{", body(benchmark_repo="x/y")] * 15
    answers = [live.post(identity, each).json() for each in sent]
    assert [number for number, problem in enumerate(answers, 1) if "warnings" in problem] == [30]
    assert answers[-1]["warnings"] == [
        "30 of 60 refusals are used up: after them this identity is quarantined for 600 s"
    ]
    explained = live.post(identity, body(benchmark_repo="x/y"), "/tokens/explain")
    assert (explained.status_code, explained.json()["warnings"][0].partition(" ")[0]) == (200, "31")
    assert live.post(identity).status_code == 201


def test_a_changed_template_in_the_store_is_spent_and_reported(site: Site) -> None:
    live = site.live
    identity = live.token(repository_id=site.owner())
    issued = live.post(identity)
    with redis.Redis.from_url(site.store) as client:
        keys, jti = client.scan_iter("{evi1}:use:*"), issued.json()["jti"]
        (record,) = [key for key in keys if jti in str(client.hgetall(key))]
        ((slot, kept),) = [(name, value) for name, value in client.hgetall(record).items() if name.startswith(b"d:")]
        client.hset(record, slot, kept.replace(b'"sub":"inspect-ai"', b'"sub":"another-one"'))
    answer = live.post(identity)
    assert (answer.status_code, answer.json()["code"]) == (409, "identity.replayed")
    assert "hmac" not in answer.text
    event = event_of(live, answer)
    assert event is not None, "every forgery is audited"
    assert (event["verdict"], event["code"], event["forged"]) == ("refused", "identity.replayed", "hmac")
    log = live.until_log_says("the store holds a forged template")
    (line,) = [line for line in log.splitlines() if "the store holds a forged template" in line]
    assert '"level":"error"' in line.replace(" ", "")
    assert answer.json()["request_id"] in line


def test_a_single_host_makes_its_secret_and_its_workers_share_it(site: Site) -> None:
    live, made = site.live, site.live.settings.store_secret
    assert (made.parent, made.stat().st_mode & 0o777, made.stat().st_size) == (live.folder / "data", 0o600, 65)
    identity = live.token()
    answers = [live.post(identity, Connection="close") for _ in range(20)]
    assert Counter(answer.status_code for answer in answers) == {201: 1, 200: 19}
    assert made.read_text("utf-8").strip() not in live.log_text()
