"""HTTP requests to hosts that may be slow, broken or hostile (SECURITY.md).

Knows where a connection may go, and how long and how large an answer may be. It connects to the very address that it
checked, and follows no redirect.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import cache
from typing import TypeAlias
from urllib.parse import SplitResult

import httpcore

from issuer.errors import FormatError, InputError
from issuer.formats import jose
from issuer.formats.url import UrlError, UrlFault, split_url
from issuer.io.bounds import ADDRESS_S, FETCH_S

HEADERS = (("Accept", "application/json"), ("Accept-Encoding", "identity"), ("User-Agent", "eval-token-issuer"))
Pool: TypeAlias = httpcore.AsyncConnectionPool
MAX_DOCUMENT_BYTES = jose.MAX_KEY_SET_BYTES

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]


class FetchRefused(Exception):
    """The provider's answer, or its address, is not acceptable. The text is ours, never the provider's."""


class NotServed(FetchRefused):
    """The provider has no such page: 4xx."""


# The errors of fetching from a stranger; any other exception is our own mistake.
# OSError covers deadlines, TLS and names that do not resolve; ValueError Authlib's verdicts, bad ports and IDNA.
FAILURES = (
    FetchRefused,
    FormatError,
    InputError,
    OSError,
    ValueError,
    httpcore.NetworkError,
    httpcore.ProtocolError,
    httpcore.TimeoutException,
)


def reason(failure: Exception) -> str:
    """Describe for the operator's log why a fetch failed, in words that the other side cannot choose."""
    match failure:
        case FormatError() | InputError():
            return f"{failure.code}: {failure.detail}"
        case FetchRefused() | httpcore.ConnectError():
            return str(failure)
        case socket.gaierror():
            return "its name is not found (DNS)"
        case _:  # an h11 message would quote the provider's bytes
            return type(failure).__name__


async def addresses_of(host: str, port: int) -> Sequence[str]:
    """Ask the system for a host's addresses, in the order in which to try them (RFC 6724)."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(address[0]) for *_, address in found]


# -- one fetch --------------------------------------------------------------------------------------------------------


@cache
def system_roots() -> ssl.SSLContext:
    """Return what trusts the system's and certifi's roots. They take 20 to 70 ms and 6 MB: once, before others wait."""
    return httpcore.default_ssl_context()


class Fetcher:
    """Sends requests over the network, within the bounds, or raises one of FAILURES.

    `development` allows hosts on loopback addresses, there also on plain http. `deadline_s` covers all fetches for
    one request; `resolve` and `ssl_context` replace the system's.
    """

    def __init__(
        self,
        *,
        development: bool = False,
        deadline_s: float = FETCH_S,
        resolve: Resolve = addresses_of,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        self.deadline_s = deadline_s
        self._development = development
        self._resolve = resolve
        self._context = system_roots() if ssl_context is None else ssl_context

    async def send(
        self, method: str, uri: str, headers: Sequence[tuple[str, str]], content: bytes, max_bytes: int
    ) -> tuple[int, bytes]:
        """Send one request, and return the status and the body of the answer. The caller bounds its time."""
        async with self._pool() as pool:
            return await self._exchange(pool, method, uri, headers, content, max_bytes)

    def _pool(self) -> Pool:
        """Return a pool for one fetch: a connection that outlived it would outlive the check of its address. httpcore
        reads no proxy from the environment and follows no redirect."""
        backend = CheckedBackend(self._resolve, development=self._development)
        return httpcore.AsyncConnectionPool(ssl_context=self._context, network_backend=backend)

    async def _get(self, pool: Pool, uri: str) -> bytes:
        status, body = await self._exchange(pool, "GET", uri, (), b"", MAX_DOCUMENT_BYTES)
        if status != 200:
            detail = f"the provider answered {status}"
            raise NotServed(detail) if 400 <= status < 500 else FetchRefused(detail)
        return body

    async def _exchange(
        self,
        pool: Pool,
        method: str,
        uri: str,
        own: Sequence[tuple[str, str]],
        content: bytes,
        max_bytes: int,
    ) -> tuple[int, bytes]:
        parts = split_fetched(uri, development=self._development)
        target = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
        # Built from the parts that were checked, so that no second parser sees another host.
        url = httpcore.URL(scheme=parts.scheme, host=str(parts.hostname), port=parts.port, target=target)
        length = [("Content-Length", str(len(content)))] if content else []
        headers = [("Host", parts.netloc), *HEADERS, *own, *length]
        async with pool.stream(method, url, headers=headers, content=content or None) as response:
            return response.status, await read_body(response, max_bytes)


def split_fetched(url: str, *, development: bool) -> SplitResult:
    """Take apart a URL that may be fetched, in development also http at a loopback address. Raises FetchRefused."""
    try:
        return split_url(url, http="loopback" if development else "nowhere", query=True)
    except UrlError as error:
        raise FetchRefused(_NOT_FETCHED.get(error.fault, "a URL is not a plain one: host, path, query")) from None


_NOT_FETCHED: dict[UrlFault, str] = {
    "characters": "a URL has characters that no URL has",
    "scheme": "a URL is not https (http only for a loopback address in development)",
}


async def read_body(response: httpcore.Response, max_bytes: int) -> bytes:
    """Read a plain answer, counting what arrives: Content-Length is only a claim."""
    # A few bytes of gzip unpack to gigabytes; we did not ask for it.
    if any(name.lower() == b"content-encoding" and value.lower() != b"identity" for name, value in response.headers):
        raise FetchRefused("the answer is compressed, though identity was asked for")
    body = bytearray()
    async for chunk in response.aiter_stream():
        body += chunk
        if len(body) > max_bytes:
            raise FetchRefused(f"the answer is larger than {max_bytes} bytes")
    return bytes(body)


# -- where a connection may go ----------------------------------------------------------------------------------------


class CheckedBackend(httpcore.AsyncNetworkBackend):
    """Resolves a host once, checks every address, and connects to the checked ones: no second look-up to rebind. TLS
    still verifies the host's name: httpcore takes it from the URL, not from here."""

    def __init__(self, resolve: Resolve, *, development: bool) -> None:
        self._resolve = resolve
        self._development = development
        self._network = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ARG002, ASYNC109  (httpcore's signature; the deadline is around it all)
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Connect to the first address that answers. Raises FetchRefused if any address may not be connected to."""
        addresses = await self._resolve(host, port)
        # One bad address among good ones is a split horizon or an attack: neither is a provider.
        if not all(may_connect(address, development=self._development) for address in addresses):
            raise FetchRefused("the provider's host has an address that is not public")
        failure: Exception = FetchRefused("the provider's host has no address")
        for address in addresses:
            try:
                return await self._network.connect_tcp(address, port, ADDRESS_S, local_address, socket_options)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failure = error
        raise failure


_GLOBAL_UNICAST = ipaddress.IPv6Network("2000::/3")
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")


def may_connect(address: str, *, development: bool = False) -> bool:
    """Say whether a provider may have this address: public, or in development this machine. Raises ValueError."""
    bare = ipaddress.ip_address(address)
    if isinstance(bare, ipaddress.IPv6Address):  # with an IPv4 address inside (mapped, 6to4, NAT64): that counts
        translated = ipaddress.IPv4Address(int(bare) & 0xFFFFFFFF) if bare in _NAT64 else None
        bare = bare.ipv4_mapped or bare.sixtofour or translated or bare
    if isinstance(bare, ipaddress.IPv6Address):
        public = bare in _GLOBAL_UNICAST and bare.is_global
    else:
        public = bare.is_global and not bare.is_multicast
    return public or (development and bare.is_loopback)
