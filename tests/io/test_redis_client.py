"""The store's URL: the servers that the client connects to, its deadlines, and the text that it may show."""

from typing import Any

import pytest
from redis.asyncio.connection import SSLConnection
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import SentinelConnectionPool
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from issuer.codes import Code
from issuer.errors import SetupError
from issuer.io.bounds import SENTINEL_S, STORE_CONNECT_S
from issuer.io.redis_client import Bearing, bearing_of, connect, memory_of, place_of, why_of
from issuer.service.admission.embedded import EmbeddedValkey


def test_the_place_of_the_store_has_no_credentials_and_a_bad_url_is_a_setup_error() -> None:
    places = {
        "redis://user:secret@store.example:6380/0": "store.example:6380",
        "rediss://:secret@store.example": "store.example",
        "redis://": "localhost",
        "unix:///run/valkey.sock": "/run/valkey.sock",
        "redis+sentinel://:secret@one:26379,two:26380/mymaster/1": "one:26379,two:26380/mymaster/1",
    }
    assert {url: place_of(url) for url in places} == places
    with pytest.raises(SetupError) as refused:
        place_of("redis://store:port")
    assert refused.value.code is Code.SETTINGS_INVALID
    for rest in ("one:26379/", "/mymaster", ":26379/mymaster", "one:26379,:26380/mymaster", "one/mymaster"):
        with pytest.raises(SetupError) as refused:
            connect(f"redis+sentinel://{rest}", 1)
        assert refused.value.code is Code.SETTINGS_INVALID, rest


def patience(options: dict[str, Any]) -> tuple[float | None, float, int, int]:
    retry = options["retry"]
    assert isinstance(retry, Retry)
    return options["socket_timeout"], options["socket_connect_timeout"], options["protocol"], retry.get_retries()


def test_one_server_gets_a_second_try_after_a_lost_connection_and_no_read_timeout() -> None:
    pool = connect("redis://:secret@store.example:6380/2", 7).connection_pool
    assert pool.max_connections == 7
    assert patience(pool.connection_kwargs) == (None, STORE_CONNECT_S, 2, 1)
    assert {name: pool.connection_kwargs[name] for name in ("host", "port", "db", "password")} == {
        "host": "store.example", "port": 6380, "db": 2, "password": "secret",
    }  # fmt: skip


def test_sentinels_name_the_master_get_none_of_its_credentials_and_share_its_tls() -> None:
    secret = "redis+sentinel"  # as the scheme is called
    pool = connect(f"redis+sentinel://:{secret}@one:26379,two:26380/mymaster/3", 7).connection_pool
    assert isinstance(pool, SentinelConnectionPool)
    assert (pool.service_name, pool.max_connections) == ("mymaster", 28)  # the master may change under all of them
    options = pool.connection_kwargs
    assert patience(options) == (None, STORE_CONNECT_S, 2, 1)
    assert {name: options.get(name) for name in ("host", "db", "password")} == {
        "host": None, "db": 3, "password": secret,
    }  # fmt: skip
    sentinels = [each.connection_pool.connection_kwargs for each in pool.sentinel_manager.sentinels]
    assert [(each["host"], each["port"], each.get("password")) for each in sentinels] == [
        ("one", 26379, None), ("two", 26380, None),
    ]  # fmt: skip
    assert {patience(each) for each in sentinels} == {(SENTINEL_S, SENTINEL_S, 2, 0)}
    tls = "?ssl_ca_certs=/etc/store.pem&ssl_min_version=771"
    for scheme, query, encrypted in (("redis+sentinel", "", False), ("rediss+sentinel", tls, True)):
        master = connect(f"{scheme}://:secret@one:26379/mymaster{query}", 1).connection_pool
        assert isinstance(master, SentinelConnectionPool)
        assert master.connection_kwargs["db"] == 0
        (asked,) = (each.connection_pool for each in master.sentinel_manager.sentinels)
        for pool in (master, asked):
            assert issubclass(pool.connection_class, SSLConnection) is encrypted
            assert pool.connection_kwargs.get("ssl_ca_certs") == ("/etc/store.pem" if encrypted else None)


async def test_a_store_tells_its_memory_and_since_when_it_has_recorded_uses() -> None:
    epochs = {"12 x": 12, "9" * 18: int("9" * 18), "9" * 19: None, "x": None, "-1": None, "": None}
    with EmbeddedValkey() as url:
        client = connect(url, 1)
        memory = await memory_of(client)
        assert memory is not None
        assert (memory.used > 0, memory.most, memory.machine > 0) == (True, 0, True)
        assert await bearing_of(client, b"epoch") == Bearing("master", None)
        for text, epoch in epochs.items():
            await client.set("epoch", text)
            assert await bearing_of(client, b"epoch") == Bearing("master", epoch), text
        await client.aclose()


def test_a_failure_of_the_store_is_explained_by_its_first_known_cause() -> None:
    refused, unknown, zero = ConnectionRefusedError(111, "x"), OSError(-2, "Name or service not known"), OSError(0, "x")
    assert [why_of(error) for error in (refused, OSError(1, "x"), unknown, zero)] == [
        "Connection refused", "Operation not permitted", "Name or service not known", "x",
    ]  # fmt: skip
    for name in ("__cause__", "__context__"):
        outer = RedisConnectionError("redis://user:secret@store")
        setattr(outer, name, refused)
        assert why_of(outer) == "Connection refused"
    late = (TimeoutError(), RedisTimeoutError(), RedisConnectionError("redis://user:secret@store"))
    assert [why_of(error) for error in late] == ["no answer in time", "no answer in time", "ConnectionError"]
