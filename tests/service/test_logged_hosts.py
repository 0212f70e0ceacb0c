"""Services whose log is in PostgreSQL: the demands on the database, and two hosts that announce and have one log cosigned."""

import re
import signal
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from issuer.dev.provider import LocalProvider
from issuer.service.admission.embedded import EmbeddedValkey
from issuer.service.log.database.engines import reading_at
from issuer.service.log.database.postgres import NO_STANDBY
from issuer.service.log.database.store import Reader
from issuer.tlog.leaf import KeyLeaf, PolicyLeaf, RevocationsLeaf
from tests.support.logged import Begun, check_proof, leaves_in, log_status, logged_service, second_host
from tests.support.postgresql import PostgreSQL, postgresql
from tests.support.promised import demand_no_alarm
from tests.support.running import Running, numbered, rewrite, serve
from tests.support.waiting import eventually
from tests.support.witnessing import witnessing

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]


@pytest.fixture
def provider() -> Iterator[LocalProvider]:
    with LocalProvider() as local:
        yield local


@pytest.fixture
def store() -> Iterator[str]:
    with EmbeddedValkey() as url:
        yield url


@pytest.fixture
def server() -> Iterator[PostgreSQL]:
    with postgresql() as made:
        yield made


# -- what the database must be ---------------------------------------------------------------------------------------------


def test_readiness_warns_of_a_failover_until_each_commit_waits_for_a_replica(
    server: PostgreSQL, store: str, provider: LocalProvider, tmp_path: Path
) -> None:
    with logged_service(tmp_path / "service", provider, server.url(), store_url=store) as service:
        assert service.http.get("/health/ready").status_code == 200
        assert log_status(service)["warnings"] == [NO_STANDBY]
        assert NO_STANDBY in service.log_text()
        server.replica("second")
        server.wait_for("second")
        eventually(lambda: log_status(service)["warnings"] == [])
        assert service.post(service.token()).status_code == 201
        server.set(synchronous_standby_names="''")
        server.reload()
        eventually(lambda: log_status(service)["warnings"] == [NO_STANDBY])
        assert service.log_text().count(NO_STANDBY) == 2, "once for each time that it began"


def test_a_host_whose_own_record_knows_less_is_refused_by_what_the_hosts_share(
    server: PostgreSQL, store: str, provider: LocalProvider, tmp_path: Path
) -> None:
    """A failover loses what the first host has published; the second one, which was not there, comes back."""
    log = Begun(tmp_path / "service", server.url(), store)
    with log.served(provider) as one, second_host(one) as two:
        assert two.post(two.token()).status_code == 201
        replica = server.replica("second")
        replica.caught_up_with(server)
        two.process.send_signal(signal.SIGTERM)
        two.process.wait(60)
        replica.stop()
        assert one.post(one.token()).status_code == 201
        server.kill()
        replica.start()
        replica.promote()
        moved = replica.url()
        with (
            pytest.raises(AssertionError, match=r"log\.rollback.*fewer than the store at"),
            second_host(one, log_records=two.settings.log.records, log_database=moved),
        ):
            pass


# -- two hosts -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def hosts(server: PostgreSQL, store: str, provider: LocalProvider, tmp_path: Path) -> Iterator[tuple[Running, Running]]:
    made = logged_service(tmp_path / "service", provider, server.url(), store_url=store, command=serve(2))
    with made as one, second_host(one, command=serve(2)) as two:
        yield one, two


def ask_all(hosts: tuple[Running, Running], clients: int, count: int) -> Counter[int]:
    """Have so many tokens issued, a part by each host at the same time; return how often each status was answered."""

    def ask(number: int) -> list[int]:
        live = hosts[number % 2]
        return [live.post(live.token(), numbered(number * 1000 + each)).status_code for each in range(count)]

    with ThreadPoolExecutor(clients) as pool:
        return Counter(status for part in pool.map(ask, range(clients)) for status in part)


def test_two_hosts_announce_each_thing_once_and_before_its_tokens(hosts: tuple[Running, Running]) -> None:
    one, two = hosts

    def announced() -> Counter[object]:
        return Counter(leaf for leaf in leaves_in(one) if isinstance(leaf, KeyLeaf | PolicyLeaf | RevocationsLeaf))

    assert ask_all(hosts, 8, 5) == {201: 40}
    before = announced()
    rewrite(one.folder, r"^contacts: .*$", 'contacts: ["others@example.org"]')
    for live in hosts:
        live.process.send_signal(signal.SIGHUP)
    eventually(lambda: len(announced()) > len(before))
    assert ask_all(hosts, 8, 5) == {201: 40}
    after = announced()
    assert set(after.values()) == {1}, "each once, by whichever of four workers"
    (new,) = after.keys() - before.keys()
    assert isinstance(new, PolicyLeaf)
    with closing(reading_at(two.settings.log.database)) as reading:
        demand_no_alarm(Reader(reading))


def test_tokens_of_two_hosts_come_with_proofs_that_the_quorum_has_cosigned(
    server: PostgreSQL, store: str, provider: LocalProvider, tmp_path: Path
) -> None:
    """One witness cosigns the heads of both hosts."""
    log = Begun(tmp_path / "service", server.url(), store)
    with ExitStack() as stack:
        one = stack.enter_context(witnessing(tmp_path / "w", [log.vkey]))
        log.trust(one, quorum=1)
        here = stack.enter_context(log.witnessed(provider, log_witnesses="sync", command=serve(2)))
        there = stack.enter_context(second_host(here, command=serve(2)))
        answered: list[tuple[Running, str, bytes]] = []

        def ask(number: int) -> Counter[int]:
            live, outcomes = (here, there)[number % 2], Counter[int]()
            for each in range(10):
                identity, body = live.token(), numbered(number * 1000 + each)
                answer = live.post(identity, body)
                while answer.status_code == 503:
                    assert "verify_token" not in answer.text
                    outcomes[503] += 1
                    answer = live.post(identity, body)
                outcomes[answer.status_code] += 1
                place = answer.json()
                answered.append((live, place["verify_token"], place["log"]["proof"].encode()))
            return outcomes

        with ThreadPoolExecutor(8) as pool:
            outcomes = sum(pool.map(ask, range(8)), Counter[int]())
        print(f"\ntwo hosts, sync, one witness: {dict(outcomes)}")
        assert outcomes[200] + outcomes[201] == len(answered) == 80
        assert outcomes[503] < 40
        for _, token, proof in answered:
            assert check_proof(here, token, proof).time
        for live in (here, there):
            assert log_status(live)["failing_witnesses"] == []
            assert not re.search("log contradicted|log latched", live.log_text())
