"""What the log stream tells an operator first: where a worker listens, on which store and keys, and when the store goes."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import redis
import structlog

from issuer.codes import Code
from issuer.errors import Undecided
from issuer.io.redis_client import Memory
from issuer.service.admission.embedded import EmbeddedValkey
from issuer.service.admission.redis import RedisAdmission
from issuer.service.admission.store_watch import StoreWatch
from tests.support.running import Running


def test_a_worker_says_where_it_listens_and_on_what_and_every_line_has_its_pid(service: Running) -> None:
    assert service.post(service.token()).status_code == 201
    lines: list[dict[str, Any]] = [msgspec.json.decode(line) for line in service.log_text().splitlines()]
    listening = next(line for line in lines if line["event"] == "listening")
    loaded = next(line for line in lines if line["event"] == "keys loaded")
    assert (listening["url"], listening["address"]) == (service.url, f"127.0.0.1:{service.settings.listen.port}")
    assert (listening["integrations"], listening["store"].endswith("/s")) == (2, True), listening
    assert listening["keys"] == loaded["keys"]
    assert list(loaded["keys"].values()) == ["active"]
    assert {line["pid"] for line in lines} == {service.process.pid}


def test_a_store_that_goes_and_comes_back_is_told_once_each() -> None:
    class Store:
        place, there = "a store", True

        async def ready(self) -> None:
            if not self.there:
                raise Undecided(Code.DEPENDENCY_STATE)

        async def memory(self) -> Memory | None:
            return Memory(1, 100, 0)

    store = Store()
    watch = StoreWatch(store)
    with structlog.testing.capture_logs() as told:
        for there in (True, False, False, True, True, False):
            store.there = there
            asyncio.run(watch.turn(False))
    assert [line["event"] for line in told] == ["store lost", "store back", "store lost"]
    assert {line["store"] for line in told} == {"a store"}


def test_a_real_store_that_is_gone_is_lost() -> None:
    store = EmbeddedValkey()

    async def look(url: str) -> None:
        admission = RedisAdmission(url)
        watch = StoreWatch(admission)
        await watch.turn(False)
        store.close()
        await watch.turn(False)
        await admission.aclose()

    with store as url, structlog.testing.capture_logs() as told:
        asyncio.run(look(url))
    assert [line["event"] for line in told] == ["store lost"]


def test_a_store_that_fills_is_told_from_seven_tenths_of_its_bound_on_and_a_full_one_too() -> None:
    """On a real store: what of it is used is its own word."""

    async def look(url: str) -> list[object]:
        admission, said = RedisAdmission(url), list[object]()
        client = redis.Redis.from_url(url)
        watch = StoreWatch(admission)
        for part in (0.0, 0.5, 0.75, 2.0, 0.5):
            client.config_set("maxmemory", int(client.info("memory")["used_memory"] / part) if part else 0)
            await watch.turn(False)
            said.append(watch.status["warnings"])
        await admission.aclose()
        client.close()
        return said

    with EmbeddedValkey() as url, structlog.testing.capture_logs() as told:
        unbounded, half, most, full, again = asyncio.run(look(url))
    assert "has no maxmemory" in str(unbounded)
    assert (half, again) == ((), ())
    assert "uses 7" in str(most)
    assert "% of its memory" in str(full)
    assert [line["event"] for line in told] == ["store fills", "store lost", "store back", "store has room"]


def test_a_store_that_does_not_tell_its_memory_is_said_to() -> None:
    async def look(url: str) -> object:
        client = redis.Redis.from_url(url)
        client.acl_setuser("shy", enabled=True, nopass=True, keys="*", commands=["+@all", "-info"])
        client.close()
        admission = RedisAdmission(url.replace("unix://", "unix://shy:x@"))
        watch = StoreWatch(admission)
        await watch.turn(False)
        await admission.aclose()
        return watch.status["warnings"]

    with EmbeddedValkey() as url, structlog.testing.capture_logs() as told:
        assert "does not report its memory" in str(asyncio.run(look(url)))
    assert told == []
