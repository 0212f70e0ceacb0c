"""HTTP requests to providers, which may be slow, broken or hostile (SECURITY.md).

It checks the address of each connection, connects to exactly this address, follows no redirect, and bounds the size of
answers. The caller enforces the deadline.
"""

from __future__ import annotations

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
from issuer.io.resolver import NameTimeout, resolver_of

HEADERS = (("Accept", "application/json"), ("Accept-Encoding", "identity"), ("User-Agent", "eval-token-issuer"))
Pool: TypeAlias = httpcore.AsyncConnectionPool
MAX_DOCUMENT_BYTES = jose.MAX_KEY_SET_BYTES

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]


class FetchRefused(Exception):
    """An error for a provider's answer or address that is not acceptable. Its text never quotes the provider."""


class NotServed(FetchRefused):
    """An error for a 4xx answer: the provider has no such page."""


# The expected errors of a fetch. Any other exception is a bug in this service. OSError includes deadlines, TLS and
# names that do not resolve; ValueError includes Authlib's verdicts, bad ports and IDNA.
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
    """Return the reason why a fetch failed, for the log stream. The provider cannot choose its words."""
    match failure:
        case FormatError() | InputError():
            return f"{failure.code}: {failure.detail}"
        case FetchRefused() | httpcore.ConnectError():
            return str(failure)
        case NameTimeout():
            return "its name server does not answer (DNS)"
        case socket.gaierror():
            return "its name is not found (DNS)"
        case _:  # h11's messages quote the provider's bytes
            return type(failure).__name__


async def addresses_of(host: str, _port: int) -> Sequence[str]:
    """Return a host's addresses, in the order in which to try them. Raises socket.gaierror."""
    return await resolver_of("providers").find(host)


# -- one fetch --------------------------------------------------------------------------------------------------------


@cache
def system_roots() -> ssl.SSLContext:
    """Return a context with the system's and certifi's roots. Load it early and once: it takes 20 to 70 ms and 6 MB."""
    return httpcore.default_ssl_context()


class Fetcher:
    """A sender of requests within the bounds, which raises one of FAILURES.

    `development` allows loopback addresses, for them also plain http. `deadline_s` is for all fetches of one request
    together. `resolve` and `ssl_context` replace the system's.
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
        """Send one request, and return the status and body of the answer. The caller must bound its time."""
        async with self._pool() as pool:
            return await self._exchange(pool, method, uri, headers, content, max_bytes)

    def _pool(self) -> Pool:
        """Return a pool for one fetch. A longer life would make the check of the address stale. httpcore reads no proxy
        from the environment and follows no redirect."""
        backend = CheckedBackend(self._resolve, development=self._development)
        return httpcore.AsyncConnectionPool(ssl_context=self._context, network_backend=backend)

    async def _get(self, pool: Pool, uri: str) -> bytes:
        status, body = await self._exchange(pool, "GET", uri, (), b"", MAX_DOCUMENT_BYTES)
        if status != 200:
            detail = f"the provider answered {status}"
            raise NotServed(detail) if 400 <= status < 500 else FetchRefused(detail)
        return body

    async def _exchange(
        self, pool: Pool, method: str, uri: str, own: Sequence[tuple[str, str]], content: bytes, max_bytes: int
    ) -> tuple[int, bytes]:
        parts = split_fetched(uri, development=self._development)
        target = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
        # Build the URL from the parts that were checked: a second parser might see another host.
        url = httpcore.URL(scheme=parts.scheme, host=str(parts.hostname), port=parts.port, target=target)
        length = [("Content-Length", str(len(content)))] if content else []
        headers = [("Host", parts.netloc), *HEADERS, *own, *length]
        async with pool.stream(method, url, headers=headers, content=content or None) as response:
            return response.status, await read_body(response, max_bytes)


def split_fetched(url: str, *, development: bool) -> SplitResult:
    """Split a URL that may be fetched: https, in development also http at a loopback address. Raises FetchRefused."""
    try:
        return split_url(url, http="loopback" if development else "nowhere", query=True)
    except UrlError as error:
        raise FetchRefused(_NOT_FETCHED.get(error.fault, "a URL has more than a host, path and query")) from None


_NOT_FETCHED: dict[UrlFault, str] = {
    "characters": "a URL has characters that a URL cannot have",
    "scheme": "a URL is not https (http only for a loopback address in development)",
}


async def read_body(response: httpcore.Response, max_bytes: int) -> bytes:
    """Read the body of an uncompressed answer. Count its bytes, because Content-Length may be wrong."""
    # A few bytes of gzip unpack to gigabytes, and the request asked for `identity`.
    if any(name.lower() == b"content-encoding" and value.lower() != b"identity" for name, value in response.headers):
        raise FetchRefused("the answer is compressed, although the request asked for identity")
    body = bytearray()
    async for chunk in response.aiter_stream():
        body += chunk
        if len(body) > max_bytes:
            raise FetchRefused(f"the answer is larger than {max_bytes} bytes")
    return bytes(body)


# -- where a connection may go ----------------------------------------------------------------------------------------


class CheckedBackend(httpcore.AsyncNetworkBackend):
    """A network backend that resolves a host once, checks every address, and connects to the checked ones. Without a
    second look-up, DNS rebinding has no effect. TLS still verifies the host name, which httpcore takes from the URL."""

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
        """Connect to the first address that answers. Raises FetchRefused if any of the addresses is not allowed."""
        addresses = await self._resolve(host, port)
        # One bad address among good ones means split-horizon DNS or an attack. A provider has only public addresses.
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
    """Say whether a provider may have this address: public, or in development loopback. Raises ValueError."""
    bare = ipaddress.ip_address(address)
    if isinstance(bare, ipaddress.IPv6Address):  # an IPv4 address inside it (mapped, 6to4, NAT64) decides
        translated = ipaddress.IPv4Address(int(bare) & 0xFFFFFFFF) if bare in _NAT64 else None
        bare = bare.ipv4_mapped or bare.sixtofour or translated or bare
    if isinstance(bare, ipaddress.IPv6Address):
        public = bare in _GLOBAL_UNICAST and bare.is_global
    else:
        public = bare.is_global and not bare.is_multicast
    return public or (development and bare.is_loopback)
