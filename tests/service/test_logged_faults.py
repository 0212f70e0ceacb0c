"""Services with a log. The tests kill and stop its processes, and set its database back, kill it and fail it over.

The promises of the log (tests/support/promised.py) hold for all answers of all clients, and the service continues by
itself or refuses with a message.
"""

import itertools
import os
import random
import shutil
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import httpx
import pytest

from issuer.dev.provider import LocalProvider
from issuer.dev.sandbox import LOG_POLICY, environment
from issuer.service.admission.embedded import EmbeddedValkey
from issuer.service.log.sequencer.setup import log_settings
from tests.support.command import issuer
from tests.support.logged import logged_service, second_host, sequencers
from tests.support.no_tls import NO_TLS
from tests.support.postgresql import PostgreSQL, postgresql
from tests.support.postgresql_proxy import Proxy, passes
from tests.support.processes import family
from tests.support.promised import Promised
from tests.support.running import Running, serve, start, until_live
from tests.support.struck import thread_of, traced
from tests.support.waiting import eventually, within

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]


@pytest.fixture
def provider() -> Iterator[LocalProvider]:
    with LocalProvider() as local:
        yield local


@pytest.fixture
def store() -> Iterator[str]:
    """A store that outlives the service, so that earlier requests may be repeated."""
    with EmbeddedValkey() as url:
        yield url


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
    """Say whether the service is ready."""
    with suppress(httpx.TransportError):
        return service.http.get("/health/ready").status_code == 200
    return False


def not_ready(service: Running) -> str:
    """Return the code of readiness."""
    return str(service.http.get("/health/ready").json()["code"])


def end(service: Running) -> None:
    """Stop a service by SIGTERM."""
    service.process.terminate()
    service.process.wait(60)


@contextmanager
def again(service: Running) -> Iterator[None]:
    """Start a service again that has ended."""
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
        assert not_ready(service) == "dependency.log"
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
        assert not_ready(service) == "dependency.log"
        for pid in sequencers(service):  # the next one learns of the newer tree by the record
            os.kill(pid, signal.SIGKILL)
        assert not within(2, lambda: any(promised.ask(service, request) for request in refused))
        assert set(promised.outcomes) == {"answered", "503 dependency.log"}
        assert not any(request.tokens for request in refused)
        end(service)
        service.process = start(service.settings, service.folder)
        assert service.process.wait(60) == 6
        assert "log.rollback" in service.log_text()
        put_back(tmp_path / "newest", database)
        with again(service):
            promised.settle(service)
            promised.demand_promises(service, tmp_path / "tree")


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


@pytest.fixture
def primary() -> Iterator[PostgreSQL]:
    with postgresql() as server:
        yield server


def test_a_server_that_is_killed_between_commit_and_answer_loses_no_leaf(
    primary: PostgreSQL, store: str, provider: LocalProvider, tmp_path: Path
) -> None:
    killed = threading.Event()

    def kills() -> bool:
        primary.kill()
        killed.set()
        return False

    with (
        Proxy(primary) as proxy,
        logged_service(tmp_path / "service", provider, proxy.url(), store_url=store, command=serve(2)) as service,
    ):
        promised = Promised(service)
        promised.settle(service, [promised.request(service, number) for number in range(3)])
        for number in range(3):
            proxy.at_commit = kills
            assert not promised.ask(service, promised.request(service, 10 + number))
            proxy.at_commit = passes
            assert not promised.ask(service, promised.request(service, 20 + number))
            assert not_ready(service) == "dependency.log"
            assert killed.wait(60)
            killed.clear()
            primary.start()
            promised.settle(service)
        promised.demand_promises(service, tmp_path / "tree")


def test_a_failover_that_lost_commits_latches_the_log_until_they_are_restored(
    primary: PostgreSQL, store: str, provider: LocalProvider, tmp_path: Path
) -> None:
    with (
        Proxy(primary) as proxy,
        logged_service(tmp_path / "service", provider, proxy.url(), store_url=store, command=serve(2)) as service,
    ):
        promised = Promised(service)
        promised.settle(service, [promised.request(service, number) for number in range(3)])
        replica = primary.replica("second")
        replica.caught_up_with(primary)
        replica.stop()
        promised.settle(service, [promised.request(service, number) for number in range(10, 13)])
        promised.demand_promises(service, tmp_path / "tree")
        primary.kill()
        replica.start()
        replica.promote()
        proxy.lead_to(replica)
        lost = [promised.request(service, number) for number in range(20, 25)]
        assert not any(promised.ask(service, request) for request in [*lost, *promised.requests[:6]])
        assert not_ready(service) == "dependency.log"
        assert not any(request.tokens for request in lost)
        end(service)
        service.process = start(service.settings, service.folder)
        assert service.process.wait(60) == 6
        assert "log.rollback" in service.log_text()
        primary.start()
        restored = issuer("log", "restore", primary.url(), env=environment(service.settings))
        assert "appended" in restored.stdout, restored
        primary.stop()
        with again(service):
            promised.settle(service)
            promised.demand_promises(service, tmp_path / "restored")


@pytest.mark.parametrize("fault", ["nothing", "sequencers", "stopped", "connections"])
def test_two_services_with_one_database_and_64_clients_make_one_log(
    fault: str, store: str, primary: PostgreSQL, provider: LocalProvider, tmp_path: Path
) -> None:
    with logged_service(tmp_path / "service", provider, primary.url(), store_url=store, command=serve(2)) as one:  # noqa: SIM117
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
                    primary.execute(
                        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'issuer-log'"
                    )

            hurt_under([one, two], promised, 64, 20, hurt)
            promised.settle(one)
            promised.settle(two, promised.requests[::10])
            seen = promised.demand_promises(one, tmp_path / "tree")
    print(f"\n{fault}: {len(promised.requests)} requests, {seen.size} leaves: {dict(promised.outcomes)}")
