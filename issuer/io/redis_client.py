"""From the store's URL to a client with short deadlines, and exchanges over its connections.

The URL names one server, or a master that Sentinels know:

    redis://[[USER]:PASSWORD@]HOST[:PORT][/DB]        rediss:// the same over TLS        unix://PATH
    redis+sentinel://[[USER]:PASSWORD@]HOST:PORT[,HOST:PORT...]/MASTER[/DB]              rediss+sentinel:// over TLS

The credentials are for the store; Sentinels get none. Query parameters are redis-py's (`ssl_ca_certs`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, cast
from urllib.parse import urlsplit

from hiredis import pack_command
from msgspec import Struct
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.connection import SSLConnection, parse_url
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, OutOfMemoryError, ReadOnlyError, RedisError, ResponseError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from issuer.codes import Code
from issuer.errors import SetupError
from issuer.io.bounds import MOST_SKEW_S, SENTINEL_S, STORE_CONNECT_S

# One hash tag: a cluster keeps all keys of a call in one slot, which a script demands. The number is the version of all
# that is kept: another one finds no epoch, and so refuses what was issued under this one, as after a loss.
PREFIX = b"{evi1}:"
# The errors of the store and of the way to it. redis-py's own TimeoutError is a RedisError.
Failure = (RedisError, OSError, TimeoutError)
# A command and its arguments, as they go to the store.
Command: TypeAlias = tuple[bytes | int, ...]
_pack = cast("Callable[[Command], bytes]", pack_command)  # its own type knows commands of one word
SENTINEL_SCHEMES = {"redis+sentinel": "redis", "rediss+sentinel": "rediss"}


def connect(url: str, connections: int) -> Redis:
    """Make a client of at most this many connections, none of them open yet. Raises SetupError (`settings.invalid`)."""
    try:
        scheme = url.partition("://")[0]
        if scheme in SENTINEL_SCHEMES:
            return _to_master(url.replace(scheme, SENTINEL_SCHEMES[scheme], 1), connections)
        pool = BlockingConnectionPool.from_url(url, max_connections=connections, timeout=STORE_CONNECT_S, **_patience())
        return Redis.from_pool(pool)
    except ValueError as cause:
        detail = (
            "The store's URL cannot be read. Write redis://HOST:PORT, rediss://HOST:PORT, unix:///PATH or "
            "redis+sentinel://HOST:PORT,HOST:PORT/MASTER."
        )
        raise SetupError(Code.SETTINGS_INVALID, detail) from cause


class Connections:
    """The open connections of a client, as many as there are exchanges at once.

    redis-py's own pool and pipeline lock, pack and watch themselves in Python: that took as long as two exchanges, 8 %
    of a whole request (`make bench-instructions`).
    """

    def __init__(self, client: Redis) -> None:
        self._pool: Any = client.connection_pool
        self._idle: list[Any] = []

    async def exchange(self, commands: Sequence[Command]) -> list[object]:
        """Send commands in one write, and return the answer of each, or the error in its place. Raises what is no
        answer: RedisError and OSError."""
        packed = b"".join(map(_pack, commands))
        connection: Any = self._idle.pop() if self._idle else self._pool.make_connection()

        async def ask() -> list[object]:
            await connection.send_packed_command(packed)
            return [await _read_answer(connection) for _ in commands]

        try:
            if connection.is_connected and await connection.can_read():  # its end, or what nobody has asked for
                await connection.disconnect()
            if not connection.is_connected:
                await connection.connect()
            answers: list[object] = await connection.retry.call_with_retry(ask, lambda _: connection.disconnect())
            return answers
        finally:
            self._idle.append(connection)

    async def disconnect(self) -> None:
        """Close every connection that has no exchange; the next exchange connects anew."""
        for connection in self._idle:
            await connection.disconnect()


async def _read_answer(connection: Any) -> object:
    try:
        return await connection.read_response()
    except ResponseError as error:  # of this command alone
        return error


class Memory(Struct, frozen=True):
    """How many bytes a store uses, the most that it may use (`maxmemory`; 0: no bound is set), and how many its machine
    has (0: it does not say)."""

    used: int
    most: int
    machine: int


async def memory_of(client: Redis) -> Memory | None:
    """Ask a store for its memory; None where it does not tell. Raises RedisError and OSError."""
    try:
        told = await client.info("memory")
    except ResponseError:  # denied, as managed stores do
        return None
    used, most, machine = (told.get(name, 0) for name in ("used_memory", "maxmemory", "total_system_memory"))
    return Memory(used, most, machine) if used else None


class Bearing(Struct, frozen=True):
    """What a store says of itself: its role (`master`, `replica`, or `unknown` where it does not tell), and since when
    it remembers uses, Unix seconds (None: it does not say)."""

    role: str
    epoch: int | None


async def bearing_of(client: Redis, epoch_key: bytes) -> Bearing:
    """Ask a store for its role and its epoch. Raises RedisError and OSError."""
    kept: Any = await client.get(epoch_key)
    epoch = (kept or b"").decode("ascii", "replace").partition(" ")[0]
    try:
        role = str((await client.info("replication")).get("role"))
    except ResponseError:  # denied, as managed stores do
        role = ""
    known = {"master": "master", "slave": "replica", "replica": "replica"}
    return Bearing(known.get(role, "unknown"), int(epoch) if epoch.isdecimal() and len(epoch) < 19 else None)


def place_of(url: str) -> str:
    """Name the store without its credentials. Raises SetupError (`settings.invalid`)."""
    try:
        parts = urlsplit(url)
        if parts.scheme in SENTINEL_SCHEMES:
            return parts.netloc.rpartition("@")[2] + parts.path
        port = f":{parts.port}" if parts.port else ""
    except ValueError as cause:
        raise SetupError(Code.SETTINGS_INVALID, "The store's URL cannot be read.") from cause
    return parts.path if parts.scheme == "unix" else f"{parts.hostname or 'localhost'}{port}"


async def skew_of(client: Redis) -> int:
    """Ask how many seconds a store's clock is ahead of this machine's, to a second. Raises RedisError and OSError."""
    return int((await client.time())[0]) - int(time.time())


async def wrong_time(client: Redis) -> str:
    """Say how far a store's clock is off, and what to do; "" where it is near this machine's. Raises as `skew_of`."""
    skew_s = await skew_of(client)
    if abs(skew_s) <= MOST_SKEW_S:
        return ""
    way = "ahead of" if skew_s > 0 else "behind"
    return f"its clock is {abs(skew_s)} s {way} this machine's: set both, by NTP"


# What a store says of itself that takes no write, and what helps.
_SAID: tuple[tuple[type[Exception], str, str], ...] = (
    (AuthenticationError, "", "it refuses the name or password that its URL has, or lacks"),
    (ReadOnlyError, "", "it is a replica, and takes no write: name its master as `store.url`, or let Sentinels do it"),
    (OutOfMemoryError, "", "it is full: give it more `maxmemory`"),
    (ResponseError, "MISCONF", "it cannot write to its own disk: make room there"),
    (ResponseError, "NOREPLICAS", "it has fewer replicas than its `min-replicas-to-write`: bring them back"),
)


def why_of(failure: BaseException) -> str:
    """Say why the store did not answer, in the system's words: its own, or redis-py's, may hold credentials."""
    cause: BaseException | None = failure
    while cause is not None:
        for kind, word, said in _SAID:
            if isinstance(cause, kind) and str(cause).startswith(word):
                return said
        if isinstance(cause, OSError) and cause.errno is not None:
            return os.strerror(cause.errno) if cause.errno > 0 else str(cause.strerror)
        cause = cause.__cause__ or cause.__context__
    return "no answer in time" if isinstance(failure, TimeoutError | RedisTimeoutError) else type(failure).__name__


def _patience() -> dict[str, Any]:
    """Return the options of every connection to the store.

    redis-py's own defaults, 5 s and 10 retries, let a stalled store hold a request for over 12 s. One retry, and only
    on a lost connection: repeating is safe, since the same request digest gets the same template. No timeout of its own
    for each read: the caller bounds the whole call (`redis.py`), and a second clock cost a sixth of an admission.
    RESP2, because the handshake of RESP3 buys nothing here.
    """
    return {
        "socket_timeout": None,
        "socket_connect_timeout": STORE_CONNECT_S,
        "retry": Retry(NoBackoff(), 1, (RedisConnectionError,)),
        "protocol": 2,
        "driver_info": None,
    }


def _to_master(url: str, connections: int) -> Redis:
    """Make a client that asks the Sentinels who the master is, whenever it has to connect."""
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
    asked: Any = Sentinel(sentinels, sentinel_kwargs=once)  # type: ignore[no-untyped-call]
    found: Redis = asked.master_for(master, max_connections=4 * connections, **options, **_patience())
    return found
