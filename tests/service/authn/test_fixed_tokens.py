"""Providers that hand a job one fixed token (contract section 5, uses): N different requests, repeats, 409."""

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis

from issuer.service.admission.embedded import EmbeddedValkey
from tests.support.every_provider import FIXED, Providers, providers_of
from tests.support.reusable import WIDE
from tests.support.running import Running, body, numbered, running
from tests.support.samples import BY_NAME, Sample
from tests.support.stores import expire
from tests.support.waiting import eventually

GITLAB, KUBERNETES, SPIFFE = (BY_NAME[name] for name in ("gitlab-ci", "kubernetes", "spiffe"))
USES, USES_STATED = 10, {"google": 1, "azure": 3}
REPEATS = 60


@dataclass
class Job:
    """A job with its one token, and the services that it asks in turn."""

    token: str
    services: Sequence[Running]

    def post(self, number: int, turn: int = 0) -> httpx.Response:
        """Send the request that has this number; two of one number are one request."""
        return self.services[turn % len(self.services)].post(self.token, numbered(number))

    def statuses(self, numbers: Sequence[int]) -> list[int]:
        return [self.post(number, turn).status_code for turn, number in enumerate(numbers)]


def assert_spent(job: Job, number: int = 999) -> None:
    answer = job.post(number)
    assert (answer.status_code, answer.json()["code"]) == (409, "identity.replayed")


@dataclass
class Site:
    """Services on one store, and the providers of the jobs."""

    services: Sequence[Running]
    providers: Providers
    store: str

    def job(self, sample: Sample, alg: str = "RS256", **claims: Any) -> Job:
        audience = self.services[0].url
        token = self.providers.sign(sample, self.providers.claims(sample, audience, **claims), alg)
        return Job(token, self.services)


@pytest.fixture(scope="module")
def providers() -> Iterator[Providers]:
    with providers_of(FIXED) as found:
        yield found


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, providers: Providers) -> Iterator[Site]:
    """Two processes on one store, and every provider with the uses of its profile."""
    folder = tmp_path_factory.mktemp("fixed")
    providers.write(folder, FIXED, WIDE)
    local = providers.locals["gitlab-ci"]
    with (
        EmbeddedValkey() as store,
        running(folder, local, store_url=store) as one,
        running(folder, local, store_url=store, url=one.url) as other,
    ):
        yield Site((one, other), providers, store)


@pytest.mark.parametrize("sample", [GITLAB, SPIFFE], ids=["with a jti", "without"])
def test_a_token_has_n_different_requests_and_repeats_cost_none(site: Site, sample: Sample) -> None:
    job = site.job(sample)
    issued = [job.post(number, turn=number) for number in range(USES)]
    assert [answer.status_code for answer in issued] == [201] * USES
    assert len({answer.json()["jti"] for answer in issued}) == USES
    assert_spent(job)
    repeated = [job.post(number, turn=number + 1) for number in range(USES)]
    assert {(answer.status_code, answer.headers["idempotent-replay"]) for answer in repeated} == {(200, "true")}
    assert [answer.content for answer in repeated] == [answer.content for answer in issued], "nor after exhaustion"
    assert_spent(job)


@pytest.mark.parametrize("sample", [GITLAB, SPIFFE], ids=["with a jti", "without"])
def test_a_token_has_60_repeats_an_hour_whichever_requests_they_repeat(site: Site, sample: Sample) -> None:
    job = site.job(sample)
    assert job.statuses(range(USES - 1)) == [201] * (USES - 1)
    repeated = [job.post(number % (USES - 1), turn=number) for number in range(REPEATS + 5)]
    assert [answer.status_code for answer in repeated[:REPEATS]] == [200] * REPEATS
    last = repeated[-1]
    assert (last.status_code, last.json()["code"], last.json()["retryable"]) == (429, "rate.identity", True)
    assert int(last.headers["retry-after"]) > 0
    assert job.statuses([USES]) == [201], "the last use is left"
    assert_spent(job)
    assert site.job(sample).statuses([0, 0]) == [201, 200], "the next job has its own repeats"


@pytest.mark.parametrize("sample", [GITLAB, SPIFFE], ids=["with a jti", "without"])
def test_of_32_different_requests_at_once_n_get_a_token(site: Site, sample: Sample) -> None:
    job = site.job(sample)
    with ThreadPoolExecutor(32) as pool:
        first, again = ([answer.status_code for answer in pool.map(job.post, range(32), range(32))] for _ in range(2))
    assert Counter(first) == {201: USES, 409: 32 - USES}
    assert again == [{201: 200, 409: 409}[status] for status in first]


def test_a_batch_is_one_request_and_refusals_and_explanations_are_none(site: Site) -> None:
    job, service, batch = site.job(GITLAB), site.services[0], {"results": [numbered(n) for n in range(100, 150)]}
    for _ in range(2):
        assert service.post(job.token, batch, "/tokens/batch").status_code in {200, 201}
    for _ in range(USES + 1):
        assert service.post(job.token, body(model_revision="9f3c2c9")).json()["code"] == "claims.revision"
        assert service.post(job.token, numbered(7), "/tokens/explain").json()["verdict"] == "granted"
    assert job.statuses(range(USES - 1)) == [201] * (USES - 1)
    assert_spent(job)


def test_providers_yaml_states_the_number_of_uses(site: Site) -> None:
    assert {sample.profile for sample in FIXED} >= {*USES_STATED, "gitlab-ci", "kubernetes", "spiffe"}
    for sample in FIXED:
        uses = USES_STATED.get(sample.profile, USES)
        assert site.job(sample).statuses(range(uses + 1)) == [201] * uses + [409], sample.profile


def test_without_a_jti_a_token_that_is_signed_again_in_its_second_is_the_same_token(site: Site) -> None:
    for sample, alg in ((KUBERNETES, "RS256"), (KUBERNETES, "ES256"), (SPIFFE, "ES512"), (SPIFFE, "PS384")):
        claims = site.providers.claims(sample, site.services[0].url)
        claims.pop("jti", None)
        first, second = (Job(site.providers.sign(sample, claims, alg), site.services) for _ in range(2))
        assert (first.token != second.token) == (alg[:2] in {"ES", "PS"}), "these sign one text in many ways"
        issued = first.post(0)
        assert second.post(0).content == issued.content
        assert [job.post(n).status_code for n, job in enumerate([second, first] * 5, 1)] == [201] * 9 + [409]
        assert_spent(first)
        assert_spent(second)
        later = Job(site.providers.sign(sample, {**claims, "exp": claims["exp"] + 1}, alg), site.services)
        assert later.statuses(range(USES)) == [201] * USES, "of another second"


def test_tokens_with_one_jti_of_one_provider_share_their_uses(site: Site) -> None:
    """A kubelet renews a token under a new jti; a job that gets the old one again has its remaining uses."""
    job = site.job(KUBERNETES, jti="the-same")
    later = site.job(KUBERNETES, alg="ES256", jti="the-same", exp=int(time.time()) + 900)
    assert job.statuses(range(USES - 1)) == [201] * (USES - 1)
    assert later.statuses([500, 501]) == [201, 409]
    assert site.job(GITLAB, jti="the-same").statuses([0]) == [201]


def test_a_repeat_after_the_token_has_expired_costs_one_use(site: Site) -> None:
    job = site.job(GITLAB)
    first = job.post(0)
    assert job.post(0).content == first.content
    expire(site.store, first.json()["expires_at"])
    second = job.post(0)  # the second use
    assert (second.status_code, second.json()["jti"] != first.json()["jti"]) == (201, True)
    assert job.post(0).content == second.content
    assert job.statuses(range(1, USES - 1)) == [201] * (USES - 2)
    assert_spent(job)
    expire(site.store, second.json()["expires_at"])
    assert job.post(0).status_code == 409, "no use is left for another token"


@pytest.mark.long
def test_kill_9_under_load_costs_no_honest_retry_its_token(tmp_path: Path, providers: Providers) -> None:
    local = providers.locals["gitlab-ci"]
    providers.write(tmp_path, FIXED, WIDE)
    with EmbeddedValkey() as store:
        with running(tmp_path, local, store_url=store) as live:
            site = Site((live,), providers, store)
            jobs = [site.job(sample) for sample in FIXED if sample.profile not in USES_STATED]
            assert site.job(GITLAB).statuses([0]) == [201]  # the key sets are now known
            with ThreadPoolExecutor(16) as pool:
                under_way = [pool.submit(job.post, number) for number in range(USES) for job in jobs]
                eventually(lambda: sum(task.done() for task in under_way) >= len(under_way) // 4)
                live.kill()
                answered = [task.result() for task in under_way if task.exception() is None]
        assert answered
        with running(tmp_path, local, store_url=store, url=live.url) as live:
            again = [Job(job.token, (live,)) for job in jobs]
            issued = {answer.json()["verify_token"] for answer in answered}
            retried = [job.post(number) for number in range(USES) for job in again]
            assert {answer.status_code for answer in retried} == {200, 201}
            assert issued <= {answer.json()["verify_token"] for answer in retried}
            for job in again:
                assert_spent(job)


def test_after_the_store_has_lost_its_memory_the_job_s_token_is_refused(site: Site) -> None:
    jobs = [site.job(sample) for sample in FIXED]
    for job in jobs:
        assert job.statuses([0]) == [201]
    with redis.Redis.from_url(site.store) as client:
        client.flushall()
    codes = {job.post(number).json()["code"] for job in jobs for number in (0, 1)}
    assert codes == {"dependency.state_reset"}
    eventually(lambda: site.job(GITLAB).statuses([0]) == [201])  # the token of a later second
