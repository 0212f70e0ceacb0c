"""A client for the store, made from its URL, with short deadlines.

The URL names one server, or the name of a master for which to ask Sentinels:

    redis://[[USER]:PASSWORD@]HOST[:PORT][/DB]        rediss:// the same over TLS        unix://PATH
    redis+sentinel://[[USER]:PASSWORD@]HOST:PORT[,HOST:PORT...]/MASTER[/DB]              rediss+sentinel:// over TLS

The credentials are for the store; Sentinels do not get them. Query parameters are redis-py's (`ssl_ca_certs`).
"""

from __future__ import annotations

import asyncio
import functools
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, cast
from urllib.parse import urlsplit

from hiredis import pack_command
from msgspec import Struct
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.connection import Connection, SSLConnection, parse_url
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, OutOfMemoryError, ReadOnlyError, RedisError, ResponseError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from issuer.codes import Code
from issuer.errors import SetupError
from issuer.io.bounds import MOST_SKEW_S, SENTINEL_S, STORE_CONNECT_S
from issuer.io.resolver import resolver_of

# All keys have one hash tag, so a cluster keeps them in one slot, which a script demands. The number is the version of
# the stored data. A service with another version finds no epoch, so it refuses everything from before, as after a loss.
PREFIX = b"{evi1}:"
# The errors of the store and of the connection to it. redis-py's own TimeoutError is a RedisError.
Failure = (RedisError, OSError, TimeoutError)
# A command and its arguments.
Command: TypeAlias = tuple[bytes | int, ...]
_pack = cast("Callable[[Command], bytes]", pack_command)  # hiredis declares only commands of one word
SENTINEL_SCHEMES = {"redis+sentinel": "redis", "rediss+sentinel": "rediss"}


def connect(url: str, connections: int) -> Redis:
    """Return a client for at most this many connections, without opening one. Raises SetupError(`settings.invalid`)."""
    try:
        scheme = url.partition("://")[0]
        if scheme in SENTINEL_SCHEMES:
            return _to_master(url.replace(scheme, SENTINEL_SCHEMES[scheme], 1), connections)
        pool = BlockingConnectionPool.from_url(url, max_connections=connections, timeout=STORE_CONNECT_S, **_patience())
        _use_resolver(pool)
        return Redis.from_pool(pool)
    except ValueError as cause:
        detail = (
            "The store's URL cannot be read. Write redis://HOST:PORT, rediss://HOST:PORT, unix:///PATH or "
            "redis+sentinel://HOST:PORT,HOST:PORT/MASTER."
        )
        raise SetupError(Code.SETTINGS_INVALID, detail) from cause


def _use_resolver(pool: Any) -> None:
    """Let a pool's connections resolve their hosts with our resolver, whose look-ups no one else waits for."""
    if issubclass(pool.connection_class, Connection):  # and not of a unix socket
        pool.connection_class = _resolving(pool.connection_class)


@functools.cache
def _resolving(kind: Any) -> type[Connection]:
    return type(kind.__name__, (_Resolving, kind), {})


class _Resolving(Connection):
    """A connection to the first address of its host that answers."""

    _address = ""

    async def _connect(self) -> None:
        failure = OSError(0, "the store's host has no address")
        async with asyncio.timeout(self.socket_connect_timeout):
            addresses = await resolver_of("store").find(self.host)
            for address in addresses:
                self._address = address
                try:
                    async with asyncio.timeout(STORE_CONNECT_S / len(addresses)):
                        await super()._connect()  # type: ignore[no-untyped-call]
                except OSError as error:
                    failure = error
                else:
                    return
        raise failure

    def _connection_arguments(self) -> Mapping[str, Any]:
        arguments: Mapping[str, Any] = super()._connection_arguments()
        tls = {"server_hostname": self.host} if "ssl" in arguments else {}  # the certificate is for the name
        return {**arguments, **tls, "host": self._address}


class Connections:
    """The open connections of a client, one for each concurrent exchange.

    redis-py's own pool and pipeline do their locking, packing and watching in Python, which took as long as two
    exchanges: 8 % of a whole request (`make bench-instructions`).
    """

    def __init__(self, client: Redis) -> None:
        self._pool: Any = client.connection_pool
        self._idle: list[Any] = []

    async def exchange(self, commands: Sequence[Command]) -> list[object]:
        """Send commands in one write, and return the answer or error of each. Raises RedisError and OSError."""
        packed = b"".join(map(_pack, commands))
        connection: Any = self._idle.pop() if self._idle else self._pool.make_connection()

        async def ask() -> list[object]:
            await connection.send_packed_command(packed)
            return [await _read_answer(connection) for _ in commands]

        try:
            if connection.is_connected and await connection.can_read():  # it has ended, or has an unexpected answer
                await connection.disconnect()
            if not connection.is_connected:
                await connection.connect()
            answers: list[object] = await connection.retry.call_with_retry(ask, lambda _: connection.disconnect())
            return answers
        finally:
            self._idle.append(connection)

    async def disconnect(self) -> None:
        """Close every idle connection. The next exchange connects again."""
        for connection in self._idle:
            await connection.disconnect()


async def _read_answer(connection: Any) -> object:
    try:
        return await connection.read_response()
    except ResponseError as error:  # it belongs to this command only
        return error


class Memory(Struct, frozen=True):
    """The memory of a store in bytes: used, allowed (`maxmemory`; 0: no bound), and its machine's (0: unknown)."""

    used: int
    most: int
    machine: int


async def memory_of(client: Redis) -> Memory | None:
    """Return the memory of a store, None if it does not tell. Raises RedisError and OSError."""
    try:
        info = await client.info("memory")
    except ResponseError:  # managed stores deny the command
        return None
    used, most, machine = (info.get(name, 0) for name in ("used_memory", "maxmemory", "total_system_memory"))
    return Memory(used, most, machine) if used else None


class Bearing(Struct, frozen=True):
    """The state of a store: its role (`master`, `replica` or `unknown`), and its epoch, the time in Unix seconds since
    which it has recorded uses (None: unknown)."""

    role: str
    epoch: int | None


async def bearing_of(client: Redis, epoch_key: bytes) -> Bearing:
    """Return the role and the epoch of a store. Raises RedisError and OSError."""
    stored: Any = await client.get(epoch_key)
    epoch = (stored or b"").decode("ascii", "replace").partition(" ")[0]
    try:
        role = str((await client.info("replication")).get("role"))
    except ResponseError:  # managed stores deny the command
        role = ""
    known = {"master": "master", "slave": "replica", "replica": "replica"}
    return Bearing(known.get(role, "unknown"), int(epoch) if epoch.isdecimal() and len(epoch) < 19 else None)


def place_of(url: str) -> str:
    """Return the store's address without credentials. Raises SetupError(`settings.invalid`)."""
    try:
        parts = urlsplit(url)
        if parts.scheme in SENTINEL_SCHEMES:
            return parts.netloc.rpartition("@")[2] + parts.path
        port = f":{parts.port}" if parts.port else ""
    except ValueError as cause:
        raise SetupError(Code.SETTINGS_INVALID, "The store's URL cannot be read.") from cause
    return parts.path if parts.scheme == "unix" else f"{parts.hostname or 'localhost'}{port}"


async def skew_of(client: Redis) -> int:
    """Return by how many seconds a store's clock is ahead of this machine's. Raises RedisError and OSError."""
    return int((await client.time())[0]) - int(time.time())


async def wrong_time(client: Redis) -> str:
    """Return a message if a store's clock is too far from this machine's, otherwise "". Raises as `skew_of`."""
    skew_s = await skew_of(client)
    if abs(skew_s) <= MOST_SKEW_S:
        return ""
    way = "ahead of" if skew_s > 0 else "behind"
    return f"its clock is {abs(skew_s)} s {way} this machine's: synchronize both clocks with NTP"


# The errors of a store that accepts no writes: the type, the beginning of its text, and the message for the operator.
_REASONS: tuple[tuple[type[Exception], str, str], ...] = (
    (AuthenticationError, "", "it refuses the user name or password in its URL, or demands one"),
    (ReadOnlyError, "", "it is a read-only replica: set `store.url` to its master, or to Sentinels that know it"),
    (OutOfMemoryError, "", "it is full: give it more `maxmemory`"),
    (ResponseError, "MISCONF", "it cannot write to its disk: free some space there"),
    (ResponseError, "NOREPLICAS", "it has fewer replicas than its `min-replicas-to-write`: bring them back"),
)


def why_of(failure: BaseException) -> str:
    """Return why the store did not answer. Texts of the store and redis-py may contain credentials, so it has none."""
    cause: BaseException | None = failure
    while cause is not None:
        for kind, beginning, reason in _REASONS:
            if isinstance(cause, kind) and str(cause).startswith(beginning):
                return reason
        if isinstance(cause, OSError) and cause.errno is not None:
            return os.strerror(cause.errno) if cause.errno > 0 else str(cause.strerror)
        cause = cause.__cause__ or cause.__context__
    return "no answer in time" if isinstance(failure, TimeoutError | RedisTimeoutError) else type(failure).__name__


def _patience() -> dict[str, Any]:
    """Return the options of every connection to the store.

    With redis-py's defaults, 5 s and 10 retries, a stalled store can hold a request for over 12 s. One retry is enough,
    and only for a lost connection. It is safe, because the same request digest gets the same template. Reads have no
    timeout: the caller bounds the whole call, and a second timer took a sixth of an admission's time. The protocol is
    RESP2, because the handshake of RESP3 has no benefit here.
    """
    return {
        "socket_timeout": None,
        "socket_connect_timeout": STORE_CONNECT_S,
        "retry": Retry(NoBackoff(), 1, (RedisConnectionError,)),
        "protocol": 2,
        "driver_info": None,
    }


def _to_master(url: str, connections: int) -> Redis:
    parts = urlsplit(url)
    credentials, _, places = parts.netloc.rpartition("@")
    master, _, database = parts.path.strip("/").partition("/")
    sentinels = [(host, int(port)) for host, _, port in (place.rpartition(":") for place in places.split(","))]
    if not master or not all(host for host, _ in sentinels):
        raise ValueError("no master, or no host")
    options: dict[str, Any] = dict(
        parse_url(f"{parts.scheme}://{credentials and credentials + '@'}x/{database or 0}?{parts.query}")
    )
    options.pop("host", None)
    tls = issubclass(options.pop("connection_class", object), SSLConnection)
    once: dict[str, Any] = {"socket_timeout": SENTINEL_S, "socket_connect_timeout": SENTINEL_S, "protocol": 2}
    once["retry"] = Retry(NoBackoff(), 0)
    if tls:
        once |= {"ssl": True} | {name: value for name, value in options.items() if name.startswith("ssl_")}
        options["ssl"] = True
    sentinel: Any = Sentinel(sentinels, sentinel_kwargs=once)  # type: ignore[no-untyped-call]
    client: Redis = sentinel.master_for(master, max_connections=4 * connections, **options, **_patience())
    for each in (client, *sentinel.sentinels):
        _use_resolver(each.connection_pool)
    return client
