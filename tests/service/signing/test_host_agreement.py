"""Rows of hosts in a real Valkey: the keys that each publishes, and how long a table must know all hosts to be believed."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from redis import Redis

from issuer.io.shared_memory import SharedPage
from issuer.service.admission.embedded import EmbeddedValkey
from issuer.service.signing.active_keys import HOSTS_KEY, Hosts
from issuer.service.signing.bounds import HOST_AGAIN_S, HOST_S
from tests.support.key_hosts import Seconds, another_worker
from tests.support.stores import Proxy, Store


@pytest.fixture(scope="module")
def valkey() -> Iterator[str]:
    with EmbeddedValkey() as url:
        yield url


class Place:
    """Hosts on one store, and the clock of that store."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.clock = Seconds()
        self.hosts: list[Hosts] = []
        self.pages: list[SharedPage] = []

    def host(self, *kids: str, url: str = "", durable: bool = False) -> Hosts:
        self.pages.append(SharedPage())
        hosts = Hosts(
            url or self.url, self.pages[-1], durable_store=durable, now=self.clock, seconds=lambda: float(self.clock())
        )
        hosts.publish(kids)
        self.hosts.append(hosts)
        return hosts

    def rows(self) -> set[bytes]:
        with Redis.from_url(self.url) as client:
            return set(client.hkeys(HOSTS_KEY.decode())) - {b"since"}


@pytest.fixture
async def place(valkey: str) -> AsyncIterator[Place]:
    with Redis.from_url(valkey) as client:
        client.flushall()
    built = Place(valkey)
    yield built
    for hosts in built.hosts:
        await hosts.aclose()


async def known(place: Place, *hosts: Hosts) -> None:
    """Let the table know these hosts for as long as it must."""
    for _ in range(0, HOST_S + 1, HOST_AGAIN_S):
        for each in hosts:
            await each.agree(ask=True)
        place.clock.now += HOST_AGAIN_S


async def test_a_table_is_believed_when_it_has_known_its_hosts_for_the_life_of_a_row(place: Place) -> None:
    one = place.host("a")
    for age_s in range(0, HOST_S, HOST_AGAIN_S):
        assert not await one.agree(ask=True), age_s
        place.clock.now += HOST_AGAIN_S
    assert await one.agree(ask=True)


async def test_all_agree_when_each_publishes_the_same_keys_in_whatever_order(place: Place) -> None:
    one, other = place.host("a", "b"), place.host("b", "a")
    await known(place, one, other)
    assert await one.agree(ask=True)
    other.publish(["a"])
    await other.agree(ask=False)
    assert not await one.agree(ask=True)
    assert not await other.agree(ask=True)
    one.publish(["a"])
    assert await one.agree(ask=False), "a change is written at once"


async def test_a_row_that_is_not_renewed_is_forgotten_and_its_place_with_it(place: Place) -> None:
    one, other = place.host("a"), place.host("b")
    await known(place, one, other)
    place.clock.now += HOST_S - HOST_AGAIN_S
    assert not await one.agree(ask=True), "its life is not over"
    place.clock.now += 1
    assert await one.agree(ask=True)
    assert len(place.rows()) == 1


async def test_a_row_is_renewed_in_time_and_not_for_each_question(place: Place) -> None:
    one = place.host("a")
    await known(place, one)
    assert await one.agree(ask=True)
    with Redis.from_url(place.url) as client:
        client.delete(HOSTS_KEY.decode())
        assert not await one.agree(ask=False)
        assert not client.exists(HOSTS_KEY.decode()), "it was not asked"
        place.clock.now += HOST_AGAIN_S
        await one.agree(ask=False)
        assert client.ttl(HOSTS_KEY.decode()) in {HOST_S - 1, HOST_S}, "a table without writes is forgotten"


async def test_a_store_with_another_run_id_has_to_hear_its_hosts_first(place: Place) -> None:
    """It came back from a snapshot, or was a replica: a host may be missing that joined after that."""
    with Redis.from_url(place.url) as client:
        for durable in (False, True):
            client.flushall()
            one = place.host("a", durable=durable)
            await known(place, one)
            since = client.hget(HOSTS_KEY.decode(), "since")
            assert isinstance(since, bytes)
            time_s, _, run = since.partition(b" ")
            assert (run == b"-") is durable
            client.hset(HOSTS_KEY.decode(), "since", time_s + b" " + (b"-" if durable else b"f" * 40))
            assert await one.agree(ask=True) is durable


async def test_a_table_that_somebody_has_spoiled_is_not_believed(place: Place) -> None:
    one = place.host("a")
    await known(place, one)
    with Redis.from_url(place.url) as client:
        client.hset(HOSTS_KEY.decode(), "since", b"%d x" % (place.clock.now + 10**6))
        assert not await one.agree(ask=True)
        await known(place, one)
        client.hset(HOSTS_KEY.decode(), "someone", b"nonsense")
        assert await one.agree(ask=True), "an unreadable row does not count"
        client.set(HOSTS_KEY.decode(), b"nonsense")
        assert not await one.agree(ask=True)


async def test_a_host_whose_workers_disagree_agrees_with_nobody(place: Place) -> None:
    one, other = place.host("a"), place.host("a")
    await known(place, one, other)
    with another_worker(place.pages[0], bytes(32)), another_worker(place.pages[1], bytes(32)):
        for each in (one, other, one):
            assert not await each.agree(ask=True)
    for each in (one, other):
        await each.agree(ask=True)
    assert await one.agree(ask=True)


async def test_a_store_that_is_silent_holds_nobody_up(place: Place, tmp_path: Path) -> None:
    with Store(tmp_path) as store, Proxy(store.port) as proxy:
        one = place.host("a", url=f"redis://127.0.0.1:{proxy.port}")
        await one.agree(ask=True)
        proxy.silent = True
        assert not await one.agree(ask=True), "and it returns"
        await one.aclose()
