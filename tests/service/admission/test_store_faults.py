"""The store killed, stopped, full, read-only, forgetful, behind a bad network, failed over, restored: real processes.

In each fault every request is answered within a second with 503 `dependency.state`, what needs no store goes on, and
when the store is back so is the service, by itself: with the same token for an honest retry and none for a replay.
"""

import asyncio
import contextlib
import itertools
import shutil
import signal
import socket
import ssl
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import redis

from issuer.dev.provider import LocalProvider
from issuer.dev.sandbox import free_port
from issuer.errors import SetupError
from issuer.io import redis_client
from issuer.io.resolver import Resolver
from issuer.service.admission.redis import RedisAdmission
from tests.support.judging import ask, write_trust
from tests.support.running import FIVE_TIMES, Running, numbered, running
from tests.support.stores import Proxy, Store, sentinel
from tests.support.tls import make_certificates
from tests.support.waiting import ask_until, eventually


@dataclass
class Hurt:
    """A service, its store, an operator's connection to that, the way between them, and an entry that it has signed."""

    live: Running
    store: Store
    admin: redis.Redis
    proxy: Proxy
    entry: str


@pytest.fixture(scope="module")
def hurt(tmp_path_factory: pytest.TempPathFactory, provider: LocalProvider) -> Iterator[Hurt]:
    folder, port = tmp_path_factory.mktemp("hurt"), free_port()
    trust = write_trust(folder, f"http://127.0.0.1:{port}")
    with Store(folder / "store", password="right") as store, store.client as admin, Proxy(store.port) as proxy:
        url = f"redis://:right@127.0.0.1:{proxy.port}/0"
        with running(folder, provider, port=port, store_url=url, trust=str(trust)) as live:
            yield Hurt(live, store, admin, proxy, live.post(live.token()).json()["entry"])
            assert "unforeseen" not in live.log_text()


# -- faults that begin and end ----------------------------------------------------------------------------------------


def stopped(hurt: Hurt, on: bool) -> None:
    hurt.store.signal(signal.SIGSTOP if on else signal.SIGCONT)


def full(hurt: Hurt, on: bool) -> None:
    hurt.admin.config_set("maxmemory", int(on))


def read_only(hurt: Hurt, on: bool) -> None:
    hurt.admin.replicaof(*(("127.0.0.1", "1") if on else ("NO", "ONE")))


def another_password(hurt: Hurt, on: bool) -> None:
    hurt.admin.config_set("requirepass", "changed" if on else "right")
    hurt.proxy.cut()


def silent(hurt: Hurt, on: bool) -> None:
    hurt.proxy.silent = on
    if not on:
        hurt.proxy.cut()  # TCP would have lost no byte


def cut_off(hurt: Hurt, on: bool) -> None:
    hurt.proxy.closed = on
    hurt.proxy.cut()


def asked(live: Running, identity: str, number: int) -> tuple[int, str]:
    answer = live.post(identity, numbered(number))
    return answer.status_code, answer.json().get("code", "")


def assert_down(live: Running, identities: list[str]) -> None:
    """Assert what the module's docstring says about a fault, for many requests at once, so that the pool is exhausted too."""
    with ThreadPoolExecutor(len(identities)) as pool:
        answers = list(pool.map(lambda pair: asked(live, pair[1], pair[0]), enumerate(identities)))
    assert set(answers) == {(503, "dependency.state")}
    eventually(lambda: live.http.get("/health/ready").json().get("code") == "dependency.state")
    well_known = ("jwks.json", "jwks-archive.json", "eval-token-issuer")
    for path in ("/health/live", "/errors/dependency.state", *(f"/.well-known/{name}" for name in well_known)):
        assert live.http.get(path).status_code == 200


def decided(live: Running, identity: str, number: int) -> tuple[int, str]:
    """Ask until it is decided; return status and code."""
    return ask_until(lambda: asked(live, identity, number), lambda answer: answer != (503, "dependency.state"))


def assert_back(live: Running, identities: list[str]) -> None:
    """Assert that an honest retry gets its token, and that no identity gets two."""
    for number, identity in enumerate(identities):
        assert decided(live, identity, number)[0] in {200, 201}, "an honest retry gets its token"
        assert decided(live, identity, 1000 + number) == (409, "identity.replayed")
    eventually(lambda: live.http.get("/health/ready").status_code == 200)


@FIVE_TIMES
@pytest.mark.parametrize(
    "fault",
    [stopped, read_only, another_password, cut_off, *(pytest.param(f, marks=pytest.mark.long) for f in (full, silent))],
)
def test_a_fault_of_the_store_is_told_and_passes(
    hurt: Hurt, fault: Callable[[Hurt, bool], None], round_number: int
) -> None:
    spent, fresh = hurt.live.token(), [hurt.live.token() for _ in range(12)]
    assert decided(hurt.live, spent, 0)[0] in {200, 201}
    fault(hurt, True)
    assert_down(hurt.live, [spent, *fresh])
    judged = ask(hurt.live, yaml=hurt.entry)
    assert judged.status_code == 429 or judged.json()["reports"][0]["verdict"] == "verified", "60 questions a minute"
    fault(hurt, False)
    assert_back(hurt.live, [spent, *fresh])


@FIVE_TIMES
def test_a_killed_store_that_comes_back_with_less_gives_no_second_token(
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
            for identity, number in itertools.product(spent, (0, 1)):
                answer = live.post(identity, numbered(number))
                lost = answer.json()["code"], answer.json()["retryable"], int(answer.headers["retry-after"]) >= 1
                assert (answer.status_code, lost) == (503, ("dependency.state_reset", True, True))


def assert_fresh_is_served(live: Running) -> None:
    status, code = ask_until(
        lambda: asked(live, live.token(), 5), lambda answer: not answer[1].startswith("dependency.state")
    )
    assert (status, code) == (201, "")


# -- failover ---------------------------------------------------------------------------------------------------------


def running_patiently(stack: contextlib.ExitStack, folder: Path, provider: LocalProvider, **settings: Any) -> Running:
    """Run a service, again where its machine stood still for the tenth of a second that a Sentinel has to answer."""
    for _ in range(20):
        with contextlib.suppress(AssertionError):
            return stack.enter_context(running(folder, provider, **settings))
    return stack.enter_context(running(folder, provider, **settings))


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
        # It asks its master once in ten seconds, and one second after it learnt of it.
        with redis.Redis(port=port, decode_responses=True, protocol=2) as client:
            eventually(lambda: client.execute_command("SENTINEL", "REPLICAS", "mymaster"))
        with contextlib.ExitStack() as stack:
            yield running_patiently(stack, folder, provider, store_url=url), one, two


def has_all_of(replica: Store, master: Store) -> bool:
    with replica.client as one, master.client as other:
        offsets = one.info("replication")["slave_repl_offset"], other.info("replication")["master_repl_offset"]
    return bool(offsets[0] == offsets[1])


def is_master(store: Store) -> bool:
    """Ask a store; a Sentinel that promotes it cuts its connections off."""
    with contextlib.suppress(redis.exceptions.ConnectionError), store.client as client:
        return bool(client.info("replication")["role"] == "master")
    return False


@FIVE_TIMES
def test_a_promoted_lagging_replica_gives_no_second_token(
    tmp_path: Path, provider: LocalProvider, round_number: int
) -> None:
    with replicated(tmp_path, provider) as (live, one, two):
        assert decided(live, live.token(), 0)[0] in {200, 201}
        eventually(lambda: has_all_of(two, one))
        two.signal(signal.SIGSTOP)  # it lags: it does not get what follows
        spent = [live.token() for _ in range(8)]
        assert {decided(live, identity, 0)[0] for identity in spent} <= {200, 201}
        one.kill()
        two.signal(signal.SIGCONT)
        eventually(lambda: is_master(two), 90)  # the Sentinel's time, not ours
        assert_fresh_is_served(live)
        for identity in spent:
            assert asked(live, identity, 1) == (503, "dependency.state_reset")


def test_a_master_without_its_replica_gives_no_token(tmp_path: Path, provider: LocalProvider) -> None:
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
        assert asked(live, identity, 0) == (503, "dependency.state")
        two.signal(signal.SIGCONT)
        assert [decided(live, identity, number)[0] for number in (0, 1)] == [200, 409]


# -- TLS --------------------------------------------------------------------------------------------------------------


def certificate(folder: Path) -> tuple[Path, ssl.SSLContext]:
    """Make a certificate for 127.0.0.1; return the file of its CA, and a context that serves it."""
    make_certificates(folder)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "fullchain.pem", folder / "key.pem")
    return folder / "ca.pem", context


async def started(state: RedisAdmission) -> None:
    """Start, again where the machine stood still for as long as a connection may take."""
    for _ in range(20):
        with contextlib.suppress(SetupError):
            return await state.start()
    return await state.start()


async def test_a_store_behind_tls_is_asked_if_it_can_be_verified(tmp_path: Path) -> None:
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
        named = f"{url.replace('127.0.0.1', 'localhost')}?ssl_ca_certs={trusted}"  # the certificate is for the address
        for unverified in (url, named):
            state = RedisAdmission(unverified)
            with pytest.raises(SetupError, match=r"state\.unreachable"):
                await started(state)
            await state.aclose()


async def test_a_silent_address_of_the_store_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis_client, "STORE_CONNECT_S", 4.0)  # time for a slow machine
    found = Resolver("test", lambda _: ("127.0.0.9", "127.0.0.1"))
    monkeypatch.setattr(redis_client, "resolver_of", lambda _: found)
    with Store(tmp_path / "store") as store, contextlib.ExitStack() as stack:
        silent = ("127.0.0.9", store.port)
        stack.enter_context(socket.create_server(silent, backlog=0))
        for _ in range(3):  # its queue is full, so the kernel drops the next
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(silent)
        client = redis_client.connect(f"redis://store.example:{store.port}/0", 1)
        assert await client.ping()
        await client.aclose()


@pytest.mark.long
def test_a_sentinel_behind_tls_is_asked_if_it_can_be_verified(tmp_path: Path, provider: LocalProvider) -> None:
    trusted, context = certificate(tmp_path)
    with (
        Store(tmp_path / "store", password="right") as store,
        Proxy(store.port, context) as to_store,
        sentinel(tmp_path / "sentinel", store, at=to_store.port) as port,
        Proxy(port, context) as to_sentinel,
    ):
        url = f"rediss+sentinel://:right@127.0.0.1:{to_sentinel.port}/mymaster/0"
        with contextlib.ExitStack() as stack:
            live = running_patiently(stack, tmp_path, provider, store_url=f"{url}?ssl_ca_certs={trusted}")
            assert decided(live, live.token(), 0)[0] in {200, 201}
            assert to_sentinel.handshakes
            assert to_store.handshakes
        with pytest.raises(AssertionError, match=r"state\.unreachable"), running(tmp_path, provider, store_url=url):
            pass
