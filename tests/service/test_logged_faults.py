"""Services with a log. The tests kill and stop its processes, and set its database back, kill it and fail it over.

The promises of the log (tests/support/promised.py) hold for all answers of all clients, and the service continues by
itself or refuses with a message. Two hosts announce, and have one log cosigned.
"""

import itertools
import os
import random
import re
import shutil
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

import httpx
import pytest

from issuer.dev.provider import LocalProvider
from issuer.dev.sandbox import LOG_POLICY, environment
from issuer.service.log.database.engines import reading_at
from issuer.service.log.database.postgres import NO_STANDBY
from issuer.service.log.database.store import Reader
from issuer.service.log.sequencer.setup import log_settings
from issuer.tlog.leaf import KeyLeaf, PolicyLeaf, RevocationsLeaf
from tests.support.command import issuer
from tests.support.logged import Begun, check_proof, leaves_in, log_status, logged_service, second_host, sequencers
from tests.support.no_tls import NO_TLS
from tests.support.postgresql import PostgreSQL
from tests.support.postgresql_proxy import Proxy, passes
from tests.support.processes import family
from tests.support.promised import Promised, demand_no_alarm
from tests.support.running import Running, numbered, rewrite, serve, start, until_live
from tests.support.struck import thread_of, traced
from tests.support.waiting import eventually, within
from tests.support.witnessing import witnessing

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]


def work(services: list[Running], promised: Promised, number: int, ended: threading.Event) -> None:
    """Act as one client: request single results and batches, each until it is answered, some of them twice."""
    dice = random.Random(number)
    with ExitStack() as stack:
        clients = [
            stack.enter_context(httpx.Client(base_url=str(each.http.base_url), timeout=60, verify=NO_TLS))
            for each in services
        ]
        for first in itertools.count(number * 1_000_000, 10):
            here = dice.randrange(len(services))
            request = promised.request(services[here], *range(first, first + dice.choice([1, 1, 1, 5])))
            for _ in range(dice.choice([1, 1, 2])):
                while not promised.ask(services[here], request, clients[here]):
                    if ended.wait(dice.uniform(0.05, 0.5)):
                        return
            if ended.is_set():
                return


def read(services: list[Running], ended: threading.Event) -> Counter[int]:
    """Rebuild and verify the public tree again and again. Return how often the command had which exit code."""
    policy, seen = services[0].folder / LOG_POLICY, Counter[int]()
    for service in itertools.cycle(services):
        done = issuer("log", "verify", f"{service.url}/log", "--policy", policy)
        seen[done.returncode] += 1
        assert done.returncode in {0, 4}, done
        if ended.wait(1):
            return seen
    raise AssertionError


def hurt_under(
    services: list[Running], promised: Promised, clients: int, seconds: float, hurt: Callable[[], None]
) -> None:
    """Cause a fault again and again for so long, beside so many clients and a reader of the tree."""
    ended = threading.Event()
    with ThreadPoolExecutor(clients + 1) as pool:
        working = [pool.submit(work, services, promised, number, ended) for number in range(clients)]
        reading = pool.submit(read, services, ended)
        dice, until = random.Random(7), time.monotonic() + seconds
        try:
            while time.monotonic() < until:
                ended.wait(dice.uniform(0.1, 1.2))
                hurt()
        finally:
            ended.set()
        for each in working:
            each.result()
        print(f"\npublic tree verified, and unavailable: {reading.result()[0]}, {reading.result()[4]}")
        assert reading.result()[0]


def is_ready(service: Running) -> bool:
    with suppress(httpx.TransportError):
        return service.http.get("/health/ready").status_code == 200
    return False


def code_of_readiness(service: Running) -> str:
    return str(service.http.get("/health/ready").json()["code"])


def end(service: Running) -> None:
    service.process.terminate()
    service.process.wait(60)


def demand_refused_start(service: Running) -> None:
    """End a service, and demand that it does not start again, for its log was set back."""
    end(service)
    service.process = start(service.settings, service.folder)
    assert service.process.wait(60) == 6
    assert "log.rollback" in service.log_text()


@contextmanager
def again(service: Running) -> Iterator[None]:
    service.process = start(service.settings, service.folder, serve(2))
    try:
        until_live(service.http, service.process, service.folder)
        yield
    finally:
        end(service)


def test_workers_and_sequencer_are_killed_for_a_minute_under_8_clients(
    store: str, provider: LocalProvider, tmp_path: Path
) -> None:
    dice, killed = random.Random(7), {"worker": 0, "sequencer": 0}
    with logged_service(tmp_path / "service", provider, store_url=store, command=serve(2)) as service:
        promised = Promised(service)

        def kill() -> None:
            kind = dice.choice(["worker", "sequencer"])
            found = family(service.process.pid)[1:] if kind == "worker" else sequencers(service)
            if found:
                with suppress(ProcessLookupError):
                    os.kill(dice.choice(found), signal.SIGKILL)
                    killed[kind] += 1

        hurt_under([service], promised, 8, 60, kill)
        eventually(lambda: is_ready(service))
        promised.settle(service)
        seen = promised.demand_promises(service, tmp_path / "tree")
        end(service)
        with again(service):
            promised.settle(service, promised.requests[-50:])
            promised.demand_promises(service, tmp_path / "tree")
    print(f"\nkilled {killed}; {len(promised.requests)} requests, {seen.size} leaves: {dict(promised.outcomes)}")
    assert min(killed.values()) > 5


@pytest.mark.needs_tool("strace")
@pytest.mark.parametrize(("call", "number"), [("pwrite64", 1), ("fdatasync", 1), ("fdatasync", 2)])
def test_a_sequencer_stopped_in_its_critical_section_is_replaced(
    call: str, number: int, provider: LocalProvider, tmp_path: Path
) -> None:
    """It is stopped as it writes a leaf, commits, or syncs its record."""
    with logged_service(tmp_path / "service", provider, command=serve(2)) as service:
        promised = Promised(service)
        promised.settle(service, [promised.request(service, number) for number in range(3)])
        (pid,) = sequencers(service)
        with traced(thread_of(pid), tmp_path / "trace", f"{call}:signal=STOP:when={number}"):
            assert not promised.ask(service, promised.request(service, 10))
        for each in range(20, 25):
            assert not promised.ask(service, promised.request(service, each))
        assert code_of_readiness(service) == "dependency.log"
        eventually(lambda: is_ready(service) and sequencers(service) != [pid])
        promised.settle(service)
        promised.demand_promises(service, tmp_path / "tree")


def test_an_old_copy_of_the_file_under_running_workers_latches_the_log(
    store: str, provider: LocalProvider, tmp_path: Path
) -> None:
    with logged_service(tmp_path / "service", provider, store_url=store, command=serve(2)) as service:
        promised = Promised(service)
        database = Path(log_settings(service.settings, "").database)
        promised.settle(service, [promised.request(service, number) for number in range(5)])
        copied(database, tmp_path / "old")
        promised.settle(service, [promised.request(service, number) for number in range(10, 15)])
        copied(database, tmp_path / "newest")
        put_back(tmp_path / "old", database)
        refused = [promised.request(service, number) for number in range(20, 24)]
        for request in [*refused, *refused, promised.requests[0]]:
            assert not promised.ask(service, request)
        assert code_of_readiness(service) == "dependency.log"
        for pid in sequencers(service):  # the next one learns of the newer tree by the record
            os.kill(pid, signal.SIGKILL)
        assert not within(2, lambda: any(promised.ask(service, request) for request in refused))
        assert set(promised.outcomes) == {"answered", "503 dependency.log"}
        assert not any(request.tokens for request in refused)
        demand_refused_start(service)
        put_back(tmp_path / "newest", database)
        with again(service):
            promised.settle(service)
            promised.demand_promises(service, tmp_path / "tree")


@pytest.mark.parametrize("away", ["data/log/log.sqlite", "data/log", "data"])
def test_a_log_that_was_away_for_a_while_is_used_again(away: str, provider: LocalProvider, tmp_path: Path) -> None:
    with logged_service(tmp_path / "service", provider, command=serve(2)) as service:
        promised = Promised(service)
        promised.settle(service, [promised.request(service, number) for number in range(5)])
        hidden = (place := service.folder / away).rename(tmp_path / "hidden")
        assert not promised.ask(service, promised.request(service, 10))
        eventually(lambda: "there is no log at" in service.log_text())
        assert code_of_readiness(service) in {"dependency.log", "dependency.audit"}
        if place.exists():  # something took the place of `data`
            shutil.rmtree(place)
        hidden.rename(place)
        promised.settle(service)
        promised.demand_promises(service, tmp_path / "tree")
        assert "log latched" not in service.log_text()


def copied(database: Path, folder: Path) -> None:
    """Copy a SQLite file and its write-ahead log, while no process writes."""
    folder.mkdir()
    for file in database.parent.glob(f"{database.name}*"):
        shutil.copy(file, folder)


def put_back(folder: Path, database: Path) -> None:
    """Replace a SQLite file by a copy."""
    for file in database.parent.glob(f"{database.name}*"):
        if file.suffix != ".lock":
            file.unlink()
    for file in folder.iterdir():
        shutil.copy(file, database.parent)


# -- PostgreSQL ------------------------------------------------------------------------------------------------------------


def test_a_server_that_is_killed_between_commit_and_answer_loses_no_leaf(
    server: PostgreSQL, store: str, provider: LocalProvider, tmp_path: Path
) -> None:
    killed = threading.Event()

    def kills() -> bool:
        server.kill()
        killed.set()
        return False

    with (
        Proxy(server) as proxy,
        logged_service(tmp_path / "service", provider, proxy.url(), store_url=store, command=serve(2)) as service,
    ):
        promised = Promised(service)
        promised.settle(service, [promised.request(service, number) for number in range(3)])
        for number in range(3):
            proxy.at_commit = kills
            assert not promised.ask(service, promised.request(service, 10 + number))
            proxy.at_commit = passes
            assert not promised.ask(service, promised.request(service, 20 + number))
            assert code_of_readiness(service) == "dependency.log"
            assert killed.wait(60)
            killed.clear()
            server.start()
            promised.settle(service)
        promised.demand_promises(service, tmp_path / "tree")


def test_a_failover_that_lost_commits_latches_the_log_until_they_are_restored(
    server: PostgreSQL, store: str, provider: LocalProvider, tmp_path: Path
) -> None:
    with (
        Proxy(server) as proxy,
        logged_service(tmp_path / "service", provider, proxy.url(), store_url=store, command=serve(2)) as service,
    ):
        promised = Promised(service)
        promised.settle(service, [promised.request(service, number) for number in range(3)])
        replica = server.replica("second")
        replica.caught_up_with(server)
        replica.stop()
        promised.settle(service, [promised.request(service, number) for number in range(10, 13)])
        promised.demand_promises(service, tmp_path / "tree")
        server.kill()
        replica.start()
        replica.promote()
        proxy.lead_to(replica)
        lost = [promised.request(service, number) for number in range(20, 25)]
        assert not any(promised.ask(service, request) for request in [*lost, *promised.requests[:6]])
        assert code_of_readiness(service) == "dependency.log"
        assert not any(request.tokens for request in lost)
        demand_refused_start(service)
        server.start()
        restored = issuer("log", "restore", server.url(), env=environment(service.settings))
        assert "appended" in restored.stdout, restored
        server.stop()
        with again(service):
            promised.settle(service)
            promised.demand_promises(service, tmp_path / "restored")


@pytest.mark.parametrize("fault", ["nothing", "sequencers", "stopped", "connections"])
def test_two_services_with_one_database_and_64_clients_make_one_log(
    fault: str, store: str, server: PostgreSQL, provider: LocalProvider, tmp_path: Path
) -> None:
    with logged_service(tmp_path / "service", provider, server.url(), store_url=store, command=serve(2)) as one:  # noqa: SIM117
        with second_host(one, command=serve(2)) as two:
            promised, dice = Promised(one), random.Random(11)

            def hurt() -> None:
                if fault == "sequencers":
                    for pid in dice.choice([sequencers(one), sequencers(two)]):
                        os.kill(pid, signal.SIGKILL)
                if fault == "stopped":
                    for pid in dice.choice([sequencers(one), sequencers(two)]):
                        os.kill(pid, signal.SIGSTOP)
                        time.sleep(dice.choice([0.1, 3]))  # a slow peer
                        os.kill(pid, signal.SIGCONT)
                if fault == "connections":
                    server.execute(
                        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'issuer-log'"
                    )

            hurt_under([one, two], promised, 64, 20, hurt)
            promised.settle(one)
            promised.settle(two, promised.requests[::10])
            seen = promised.demand_promises(one, tmp_path / "tree")
    print(f"\n{fault}: {len(promised.requests)} requests, {seen.size} leaves: {dict(promised.outcomes)}")


# -- what the database must be -----------------------------------------------------------------------------------------


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
