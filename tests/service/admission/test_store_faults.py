"""The store killed, stopped, full, read-only, forgetful, behind a bad network, failed over, restored: real processes.

In each fault every request is answered within a second with 503 `dependency.state`, what needs no store goes on, and
when the store is back so is the service, by itself: with the same token for an honest retry and none for a replay.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import signal
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import redis
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from issuer.dev.provider import LocalProvider
from issuer.dev.sandbox import free_port
from issuer.errors import SetupError
from issuer.service.admission.redis import RedisAdmission
from tests.support.judging import ask, write_trust
from tests.support.running import FIVE_TIMES, Running, numbered, running
from tests.support.stores import Proxy, Store, sentinel
from tests.support.waiting import eventually

# The contract promises a second; the rest is for a machine that does something else. Who is kept waiting is kept for
# as long as the fault lasts, or its client's patience, 60 s.
WITHIN_S = 8.0
BACK_S = 60.0


class Hurt:
    """A service, its store, the way between them, and an entry that it has signed."""

    def __init__(self, live: Running, store: Store, proxy: Proxy, entry: str) -> None:
        self.live, self.store, self.proxy, self.entry = live, store, proxy, entry


@pytest.fixture(scope="module")
def hurt(tmp_path_factory: pytest.TempPathFactory, provider: LocalProvider) -> Iterator[Hurt]:
    folder, port = tmp_path_factory.mktemp("hurt"), free_port()
    trust = write_trust(folder, f"http://127.0.0.1:{port}")
    with Store(folder / "store", password="right") as store, Proxy(store.port) as proxy:
        url = f"redis://:right@127.0.0.1:{proxy.port}/0"
        with running(folder, provider, port=port, store_url=url, trust=str(trust)) as live:
            yield Hurt(live, store, proxy, live.post(live.token()).json()["entry"])
            assert "unforeseen" not in live.log_text()


# -- faults: each a block in which the store cannot be used -----------------------------------------------------------


@contextlib.contextmanager
def stopped(hurt: Hurt) -> Iterator[None]:
    hurt.store.signal(signal.SIGSTOP)
    yield
    hurt.store.signal(signal.SIGCONT)


@contextlib.contextmanager
def full(hurt: Hurt) -> Iterator[None]:
    with hurt.store.client as client:
        client.config_set("maxmemory", 1)
        yield
        client.config_set("maxmemory", 0)


@contextlib.contextmanager
def read_only(hurt: Hurt) -> Iterator[None]:
    with hurt.store.client as client:
        client.replicaof("127.0.0.1", "1")
        yield
        client.replicaof("NO", "ONE")


@contextlib.contextmanager
def without_replicas(hurt: Hurt) -> Iterator[None]:
    with hurt.store.client as client:
        client.config_set("min-replicas-to-write", 1)
        yield
        client.config_set("min-replicas-to-write", 0)


@contextlib.contextmanager
def another_password(hurt: Hurt) -> Iterator[None]:
    with hurt.store.client as client:
        client.config_set("requirepass", "changed")
        hurt.proxy.cut()
        yield
        client.config_set("requirepass", "right")


@contextlib.contextmanager
def slow(hurt: Hurt) -> Iterator[None]:
    hurt.proxy.delay_s = 3.0
    yield
    hurt.proxy.delay_s = 0.0


@contextlib.contextmanager
def silent(hurt: Hurt) -> Iterator[None]:
    hurt.proxy.silent = True
    yield
    hurt.proxy.silent = False
    hurt.proxy.cut()  # what was swallowed never comes: TCP would have


@contextlib.contextmanager
def cut_off(hurt: Hurt) -> Iterator[None]:
    hurt.proxy.closed = True
    hurt.proxy.cut()
    yield
    hurt.proxy.closed = False


@contextlib.contextmanager
def too_many_clients(hurt: Hurt) -> Iterator[None]:
    with hurt.store.client as client:
        client.config_set("maxclients", 1)
        hurt.proxy.cut()
        yield
        client.config_set("maxclients", 1000)


# Of those that a store answers alike, one is enough for every day.
ALIKE = (slow, without_replicas, too_many_clients)
FAULTS = [
    pytest.param(fault, id=fault.__name__, marks=[pytest.mark.long] * (fault in ALIKE))
    for fault in (stopped, full, read_only, another_password, silent, cut_off, *ALIKE)
]


def asked(live: Running, identity: str, number: int) -> tuple[int, str, float]:
    """Post once; return status, code and how long it took."""
    began = time.monotonic()
    answer = live.post(identity, numbered(number))
    return answer.status_code, answer.json().get("code", ""), time.monotonic() - began


def assert_down(live: Running, identities: list[str]) -> None:
    """Assert what the module's docstring says about a fault, for many requests at once, so that the pool is exhausted too."""
    with ThreadPoolExecutor(len(identities) + 1) as pool:
        not_ready = pool.submit(live.http.get, "/health/ready")
        answers = list(pool.map(lambda pair: asked(live, pair[1], pair[0]), enumerate(identities)))
    assert {answer[:2] for answer in answers} == {(503, "dependency.state")}
    assert max(answer[2] for answer in answers) < WITHIN_S
    not_ready.result()  # it may have been asked a moment before
    eventually(lambda: live.http.get("/health/ready").json().get("code") == "dependency.state")
    for path in (
        "/health/live",
        "/.well-known/jwks.json",
        "/.well-known/jwks-archive.json",
        "/errors/dependency.state",
        "/.well-known/eval-token-issuer",
    ):
        assert live.http.get(path).status_code == 200


def assert_judges(hurt: Hurt) -> None:
    """Assert that verification needs no store."""
    answer = ask(hurt.live, yaml=hurt.entry)
    if answer.status_code != 429:  # 60 questions a minute
        assert answer.json()["reports"][0]["verdict"] == "verified"


def decided(live: Running, identity: str, number: int) -> tuple[int, str]:
    """Ask until it is decided; return status and code."""
    deadline = time.monotonic() + BACK_S
    while (answer := asked(live, identity, number)[:2]) == (503, "dependency.state"):
        assert time.monotonic() < deadline, "it did not come back"
        time.sleep(0.05)
    return answer


def assert_back(live: Running, identities: list[str]) -> None:
    """Assert that an honest retry gets its token, and that nobody gets two."""
    for number, identity in enumerate(identities):
        assert decided(live, identity, number)[0] in {200, 201}, "an honest retry is no replay"
        assert decided(live, identity, 1000 + number) == (409, "identity.replayed")
    deadline = time.monotonic() + BACK_S
    while live.http.get("/health/ready").status_code != 200:
        assert time.monotonic() < deadline
        time.sleep(0.05)


@FIVE_TIMES
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_the_store_is_said_within_a_second_and_passes_by_itself(
    hurt: Hurt, fault: Callable[[Hurt], contextlib.AbstractContextManager[None]], round_number: int
) -> None:
    spent, fresh = hurt.live.token(), [hurt.live.token() for _ in range(12)]
    assert decided(hurt.live, spent, 0)[0] in {200, 201}
    with fault(hurt):
        assert_down(hurt.live, [spent, *fresh])
        assert_judges(hurt)
    assert_back(hurt.live, [spent, *fresh])


@pytest.mark.long  # a fault as above, for longer and under load
@pytest.mark.parametrize("round_number", range(5))
@pytest.mark.parametrize("seconds", [1, 5, 30])
def test_a_store_that_stands_still_under_load_keeps_nobody_waiting(hurt: Hurt, seconds: int, round_number: int) -> None:
    identities = [hurt.live.token() for _ in range(120 + 20 * seconds)]
    ended, answers = threading.Event(), []

    def keep_asking(worker: int) -> None:
        for number in range(worker, len(identities), 16):
            if ended.is_set():
                return
            answers.append(asked(hurt.live, identities[number], number))
            time.sleep(0.05)

    with ThreadPoolExecutor(16) as pool:
        under_way = [pool.submit(keep_asking, worker) for worker in range(16)]
        time.sleep(0.2)
        with stopped(hurt):
            time.sleep(seconds)
            assert_judges(hurt)
            ended.set()
        for each in under_way:
            each.result()
    assert {answer[:2] for answer in answers} <= {(201, ""), (503, "dependency.state")}
    assert (503, "dependency.state") in {answer[:2] for answer in answers}
    assert max(answer[2] for answer in answers) < WITHIN_S
    assert_back(hurt.live, identities[:20])


@FIVE_TIMES
def test_a_flushed_script_cache_is_noticed_by_nobody(hurt: Hurt, round_number: int) -> None:
    with hurt.store.client as client, ThreadPoolExecutor(8) as pool:
        identities = [hurt.live.token() for _ in range(80)]
        under_way = [pool.submit(asked, hurt.live, identity, n) for n, identity in enumerate(identities)]
        for _ in range(10):
            client.script_flush()
            time.sleep(0.02)
        assert {answer.result()[0] for answer in under_way} == {201}


@FIVE_TIMES
def test_a_killed_store_that_comes_back_empty_or_with_an_old_snapshot_gives_no_second_token(
    tmp_path: Path, provider: LocalProvider, round_number: int
) -> None:
    with Store(tmp_path / "store") as store, running(tmp_path, provider, store_url=store.url) as live:
        assert decided(live, live.token(), 0)[0] in {200, 201}
        with store.client as client:
            client.save()
        dump = tmp_path / "store" / "dump.rdb"
        dump.rename(tmp_path / "old.rdb")
        for restored in (False, True):
            spent = [live.token() for _ in range(8)]
            assert {decided(live, identity, 0)[0] for identity in spent} <= {200, 201}
            store.kill()
            assert_down(live, spent)
            if restored:
                shutil.copyfile(tmp_path / "old.rdb", dump)
            store.start()
            with store.client as client:
                assert bool(client.get("{evi1}:epoch")) == restored, "the snapshot brought an epoch along"
            assert_fresh_is_served(live)
            for identity in spent:
                assert asked(live, identity, 0)[:2] == (503, "dependency.state_reset")
                assert asked(live, identity, 1)[:2] == (503, "dependency.state_reset")


@pytest.mark.long  # what `durable_store` says is in test_state.py; this is how it bears a crash
@pytest.mark.parametrize("round_number", range(5))
def test_a_store_that_loses_nothing_is_killed_under_load_and_no_retry_is_lost_and_no_use_spent_twice(
    tmp_path: Path, provider: LocalProvider, round_number: int
) -> None:
    """With `appendfsync always` and `durable_store` a restart is not even a reason for fresh identity tokens."""
    safe = ("--appendonly", "yes", "--appendfsync", "always")
    with (
        Store(tmp_path / "store", *safe) as store,
        running(tmp_path, provider, store_url=store.url, store_durable=True) as live,
        ThreadPoolExecutor(8) as pool,
    ):
        identities = [live.token() for _ in range(60)]
        before = [live.post(identity, numbered(n)).content for n, identity in enumerate(identities[:20])]
        under_way = [pool.submit(asked, live, identity, n) for n, identity in enumerate(identities)]
        time.sleep(0.02 * (round_number + 1))
        store.kill()
        assert {answer.result()[:2] for answer in under_way} <= {(200, ""), (201, ""), (503, "dependency.state")}
        store.start()
        assert_back(live, identities)
        assert [live.post(identity, numbered(n)).content for n, identity in enumerate(identities[:20])] == before


def assert_fresh_is_served(live: Running) -> None:
    deadline = time.monotonic() + BACK_S
    while (answer := asked(live, live.token(), 5))[0] != 201:
        assert answer[1].startswith("dependency.state"), answer
        assert time.monotonic() < deadline, answer
        time.sleep(0.1)


# -- failover ---------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def running_patiently(folder: Path, provider: LocalProvider, **settings: Any) -> Iterator[Running]:
    """Run a service, again where its machine stood still for the tenth of a second that a Sentinel has to answer."""
    with contextlib.ExitStack() as stack:
        for _ in range(20):
            with contextlib.suppress(AssertionError):
                live = stack.enter_context(running(folder, provider, **settings))
                break
        else:
            live = stack.enter_context(running(folder, provider, **settings))
        yield live


@contextlib.contextmanager
def replicated(folder: Path, provider: LocalProvider) -> Iterator[tuple[Running, Store, Store]]:
    """Run a service on the master that a Sentinel names, with one replica."""
    with (
        Store(folder / "one", password="right") as one,
        Store(folder / "two", password="right") as two,
        sentinel(folder / "sentinel", one) as port,
    ):
        two.is_replica_of(one)
        url = f"redis+sentinel://:right@127.0.0.1:1,127.0.0.1:{port}/mymaster/0"  # the first Sentinel is not there
        until_it_knows_a_replica(port)
        with running_patiently(folder, provider, store_url=url) as live:
            yield live, one, two


def until_it_knows_a_replica(port: int) -> None:
    """Wait for a Sentinel, which asks its master once in ten seconds, and one second after it learnt of it."""
    deadline = time.monotonic() + 60
    with redis.Redis(port=port, decode_responses=True, protocol=2) as client:
        while not client.execute_command("SENTINEL", "REPLICAS", "mymaster"):
            assert time.monotonic() < deadline, "the Sentinel does not know of the replica"
            time.sleep(0.05)


def is_master(store: Store) -> bool:
    """Ask a store; a Sentinel that promotes it cuts its connections off."""
    with contextlib.suppress(redis.exceptions.ConnectionError), store.client as client:
        return bool(client.info("replication")["role"] == "master")
    return False


@FIVE_TIMES
def test_a_lagging_replica_that_a_sentinel_promotes_gives_no_second_token(
    tmp_path: Path, provider: LocalProvider, round_number: int
) -> None:
    with replicated(tmp_path, provider) as (live, one, two):
        assert decided(live, live.token(), 0)[0] in {200, 201}
        time.sleep(0.3)
        two.signal(signal.SIGSTOP)  # it lags: what follows it has not got
        spent = [live.token() for _ in range(8)]
        assert {decided(live, identity, 0)[0] for identity in spent} <= {200, 201}
        one.kill()
        two.signal(signal.SIGCONT)
        deadline = time.monotonic() + 90  # the Sentinel's time, not ours
        while not is_master(two):
            assert time.monotonic() < deadline, "the Sentinel did not fail over"
            time.sleep(0.05)
        assert_fresh_is_served(live)
        for identity in spent:
            assert asked(live, identity, 1)[:2] == (503, "dependency.state_reset")


@pytest.mark.long
def test_an_address_that_leads_to_another_master_is_followed(tmp_path: Path, provider: LocalProvider) -> None:
    """The old master lives on as a replica and keeps its connections: its READONLY is the only sign."""
    with (
        Store(tmp_path / "one", password="right") as one,
        Store(tmp_path / "two", password="right") as two,
        Proxy(one.port) as proxy,
        running(tmp_path, provider, store_url=f"redis://:right@127.0.0.1:{proxy.port}/0") as live,
    ):
        assert decided(live, live.token(), 0)[0] in {200, 201}
        one.is_replica_of(two)
        proxy.target = two.port
        assert_fresh_is_served(live)


@FIVE_TIMES
def test_with_wait_replicas_a_master_without_its_replica_gives_no_token(
    tmp_path: Path, provider: LocalProvider, round_number: int
) -> None:
    """Both halves of a split have a master: only the one that a replica follows may issue."""
    with (
        Store(tmp_path / "one") as one,
        Store(tmp_path / "two") as two,
        running(tmp_path, provider, store_url=one.url, store_wait_replicas=1) as live,
    ):
        two.is_replica_of(one)
        assert decided(live, live.token(), 0)[0] in {200, 201}
        two.signal(signal.SIGSTOP)
        identity = live.token()
        status, code, took_s = asked(live, identity, 0)
        assert (status, code) == (503, "dependency.state")
        assert took_s < WITHIN_S
        two.signal(signal.SIGCONT)
        assert decided(live, identity, 0)[0] == 200
        assert decided(live, identity, 1)[0] == 409


# -- TLS --------------------------------------------------------------------------------------------------------------


def certificate(folder: Path) -> tuple[Path, ssl.SSLContext]:
    """Make a certificate for 127.0.0.1 that signs itself; return its file, and a context that serves it."""
    import ipaddress

    key = ec.generate_private_key(ec.SECP256R1())
    name, now = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "store")]), datetime.now(UTC)
    made = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
        .serial_number(1).not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
        .add_extension(x509.BasicConstraints(True, None), True)
        .sign(key, hashes.SHA256())
    )  # fmt: skip
    public, private = folder / "store.pem", folder / "store.key"
    public.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    private.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(public, private)
    return public, context


async def started(state: RedisAdmission) -> None:
    """Start, again where the machine stood still for as long as a connection may take."""
    for _ in range(20):
        with contextlib.suppress(SetupError):
            return await state.start()
    return await state.start()


async def test_a_store_behind_tls_is_asked_and_one_that_cannot_be_verified_is_not(tmp_path: Path) -> None:
    trusted, context = certificate(tmp_path)
    with Store(tmp_path / "store", password="right") as store, Proxy(store.port, context) as proxy:
        url = f"rediss://:right@127.0.0.1:{proxy.port}/0"
        state = RedisAdmission(f"{url}?ssl_ca_certs={trusted}")
        await started(state)
        await asyncio.to_thread(proxy.cut)
        before = proxy.handshakes
        await started(state)
        await state.aclose()
        assert proxy.handshakes > before > 0
        state = RedisAdmission(url)
        with pytest.raises(SetupError, match=r"state\.unreachable"):
            await state.start()
        await state.aclose()


@pytest.mark.long
def test_a_sentinel_behind_tls_is_asked_and_one_that_cannot_be_verified_is_not(
    tmp_path: Path, provider: LocalProvider
) -> None:
    trusted, context = certificate(tmp_path)
    with (
        Store(tmp_path / "store", password="right") as store,
        Proxy(store.port, context) as to_store,
        sentinel(tmp_path / "sentinel", store, at=to_store.port) as port,
        Proxy(port, context) as to_sentinel,
    ):
        url = f"rediss+sentinel://:right@127.0.0.1:{to_sentinel.port}/mymaster/0"
        with running_patiently(tmp_path, provider, store_url=f"{url}?ssl_ca_certs={trusted}") as live:
            assert decided(live, live.token(), 0)[0] in {200, 201}
            assert to_sentinel.handshakes
            assert to_store.handshakes
        with pytest.raises(AssertionError, match=r"state\.unreachable"), running(tmp_path, provider, store_url=url):
            pass


@pytest.mark.long  # a failover as above, over the ways of the test before
@pytest.mark.parametrize("round_number", range(5))
def test_sentinels_and_stores_behind_tls_are_followed_through_a_failover(
    tmp_path: Path, provider: LocalProvider, round_number: int
) -> None:
    trusted, context = certificate(tmp_path)
    with contextlib.ExitStack() as stack:
        one, two = (stack.enter_context(Store(tmp_path / name, password="right")) for name in ("one", "two"))
        to_one, to_two = (stack.enter_context(Proxy(store.port, context)) for store in (one, two))
        with two.client as client:
            client.config_set("replica-announce-port", to_two.port)
        two.is_replica_of(one, to_one.port)
        port = stack.enter_context(sentinel(tmp_path / "sentinel", one, at=to_one.port))
        to_sentinel = stack.enter_context(Proxy(port, context))
        url = f"rediss+sentinel://:right@127.0.0.1:{to_sentinel.port}/mymaster/0"
        until_it_knows_a_replica(port)
        live = stack.enter_context(running_patiently(tmp_path, provider, store_url=f"{url}?ssl_ca_certs={trusted}"))
        assert {decided(live, live.token(), n)[0] for n in range(8)} <= {200, 201}
        assert to_sentinel.handshakes
        assert (to_one.handshakes > 0, to_two.handshakes > 0) == (True, False)
        one.kill()
        deadline = time.monotonic() + 90  # the Sentinel's time, not ours
        while not is_master(two):
            assert time.monotonic() < deadline, "the Sentinel did not fail over"
            time.sleep(0.05)
        assert_fresh_is_served(live)
        assert to_two.handshakes
        with pytest.raises(AssertionError, match=r"state\.unreachable"), running(tmp_path, provider, store_url=url):
            pass


async def test_a_wrong_password_is_refused_at_the_start_and_not_shown(tmp_path: Path) -> None:
    with Store(tmp_path / "store", password="right") as store:
        state = RedisAdmission(f"redis://:wr0ng-secret@127.0.0.1:{store.port}/0")
        with pytest.raises(SetupError, match=r"state\.unreachable") as refused:
            await state.start()
        await state.aclose()
        assert "wr0ng-secret" not in str(refused.value)
