"""From the store's URL to a client with short deadlines: for one server, or the master that Sentinels name.

    redis://[[USER]:PASSWORD@]HOST[:PORT][/DB]        rediss:// the same over TLS        unix://PATH
    redis+sentinel://[[USER]:PASSWORD@]HOST:PORT[,HOST:PORT...]/MASTER[/DB]              rediss+sentinel:// over TLS

The credentials are for the store; Sentinels get none. Query parameters are redis-py's (`ssl_ca_certs`).
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.connection import SSLConnection, parse_url
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError

from issuer.codes import Code
from issuer.errors import SetupError
from issuer.service.bounds import SENTINEL_S, STORE_CONNECT_S

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
