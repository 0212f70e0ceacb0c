"""One fetch of a provider's key set, from a host that may be slow, broken or hostile (SECURITY.md).

Knows where a connection may go, how long and how large an answer may be, and what a discovery document must say. It
connects to the very address that was checked, and follows neither a URL in a token nor a redirect.

Weighed: PyJWKClient and pyjwt-key-fetcher, which check no address, and the second not even whose discovery document it
got.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import cache
from urllib.parse import SplitResult, urlsplit

import httpcore
from authlib.oidc.discovery import OpenIDProviderMetadata  # type: ignore[import-untyped]
from msgspec import UNSET

from issuer.errors import FormatError, InputError
from issuer.formats import jose
from issuer.formats.strict_json import loads
from issuer.identity.provider import KeySource, Provider
from issuer.service.bounds import ADDRESS_S, FETCH_S
from issuer.url import UrlError, UrlFault, split_url

WELL_KNOWN = "/.well-known/openid-configuration"
OAUTH_WELL_KNOWN = "/.well-known/oauth-authorization-server"

HEADERS = (("Accept", "application/json"), ("Accept-Encoding", "identity"), ("User-Agent", "eval-token-issuer"))
MAX_DOCUMENT_BYTES = jose.MAX_KEY_SET_BYTES

ReportFailure = Callable[[Provider, str], None]
NoteAnswer = Callable[[Provider], None]
Resolve = Callable[[str, int], Awaitable[Sequence[str]]]


class FetchRefused(Exception):
    """The provider's answer, or its address, is not acceptable. The text is ours, never the provider's."""


class NoUsableKey(FetchRefused):
    """The provider publishes a key set, and no key of it may verify anything."""


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
    """Gets what a provider publishes or answers over the network, within the bounds, or raises one of FAILURES.

    `development` allows providers on loopback addresses, there also on plain http. `deadline_s` covers all fetches for
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

    async def fetch(self, provider: Provider, asking: Callable[[], None]) -> jose.KeySet:
        """Return the key set that the provider publishes now; `asking` is called just before it is requested."""
        async with asyncio.timeout(self.deadline_s), self._pool() as pool:
            uri = await self._jwks_uri(pool, provider)
            asking()
            key_set = jose.parse_key_set(await self._get(pool, uri))
        if not key_set.keys:
            raise NoUsableKey("the key set has no usable key")
        return key_set

    async def discover(self, provider: Provider, member: str) -> str:
        """Return the URL in a member of the provider's metadata."""
        async with asyncio.timeout(self.deadline_s), self._pool() as pool:
            return await self._discover(pool, provider, member)

    async def send(
        self, method: str, uri: str, headers: Sequence[tuple[str, str]], content: bytes, max_bytes: int
    ) -> tuple[int, bytes]:
        """Send one request, and return the status and the body of the answer. The caller bounds its time."""
        async with self._pool() as pool:
            return await self._exchange(pool, method, uri, headers, content, max_bytes)

    def _pool(self) -> httpcore.AsyncConnectionPool:
        """Return a pool for one fetch: a connection that outlived it would outlive the check of its address.

        httpcore reads no proxy from the environment and follows no redirect.
        """
        backend = CheckedBackend(self._resolve, development=self._development)
        return httpcore.AsyncConnectionPool(ssl_context=self._context, network_backend=backend)

    async def _jwks_uri(self, pool: httpcore.AsyncConnectionPool, provider: Provider) -> str:
        """Return the URL of the key set: the registered one, or the discovered one."""
        if isinstance(provider.keys, KeySource) and provider.keys.jwks_uri is not UNSET:
            return provider.keys.jwks_uri
        return await self._discover(pool, provider, "jwks_uri")

    async def _discover(self, pool: httpcore.AsyncConnectionPool, provider: Provider, member: str) -> str:
        """Get the metadata: OpenID Connect's (Discovery 1.0, 4.1 to 4.3), or else those of OAuth (RFC 8414)."""
        try:
            raw = await self._get(pool, provider.issuer.removesuffix("/") + WELL_KNOWN)
        except NotServed:
            if not provider.rules.reusable:
                raise
            raw = await self._get(pool, oauth_metadata_url(provider.issuer))
        return find_in_metadata(raw, provider.issuer, member)

    async def _get(self, pool: httpcore.AsyncConnectionPool, uri: str) -> bytes:
        status, body = await self._exchange(pool, "GET", uri, (), b"", MAX_DOCUMENT_BYTES)
        if status != 200:
            detail = f"the provider answered {status}"
            raise NotServed(detail) if 400 <= status < 500 else FetchRefused(detail)
        return body

    async def _exchange(
        self,
        pool: httpcore.AsyncConnectionPool,
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


def oauth_metadata_url(issuer: str) -> str:
    """Return the URL of an OAuth server's metadata: its own path comes last (RFC 8414, section 3.1)."""
    parts = urlsplit(issuer)
    return f"{parts.scheme}://{parts.netloc}{OAUTH_WELL_KNOWN}{parts.path.removesuffix('/')}"


def find_in_metadata(raw: bytes, issuer: str, member: str) -> str:
    """Return a URL of a discovery document, which must be the issuer's and on the issuer's host."""
    document = loads(raw, max_bytes=MAX_DOCUMENT_BYTES, max_depth=8)
    if not isinstance(document, dict):
        raise FetchRefused("the discovery document is not an object")
    # Byte for byte, before Authlib looks at it: only the issuer itself may name its keys (Discovery 4.3).
    if document.get("issuer") != issuer:
        raise FetchRefused("the discovery document is of another issuer")
    if not isinstance(uri := document.get(member), str):
        raise FetchRefused(f"the discovery document has no {member}")
    metadata = OpenIDProviderMetadata(document)
    metadata.validate_issuer()
    getattr(metadata, f"validate_{member}")()
    if urlsplit(uri).hostname != urlsplit(issuer).hostname:
        raise FetchRefused(f"the {member} is on another host than the issuer: register it in providers.yaml")
    return uri


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
    """Resolves a host once, checks every address, and connects to the checked ones: no second look-up to rebind.

    TLS still verifies the host's name: httpcore takes it from the URL, not from here.
    """

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
        failure: Exception = FetchRefused("the provider's host has no address")
        for address in await self._checked_addresses(host, port):
            try:
                return await self._network.connect_tcp(address, port, ADDRESS_S, local_address, socket_options)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failure = error
        raise failure

    async def _checked_addresses(self, host: str, port: int) -> Sequence[str]:
        addresses = await self._resolve(host, port)
        # One bad address among good ones is a split horizon or an attack: neither is a provider.
        if not all(may_connect(address, development=self._development) for address in addresses):
            raise FetchRefused("the provider's host has an address that is not public")
        return addresses


Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_GLOBAL_UNICAST = ipaddress.IPv6Network("2000::/3")
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")


def may_connect(address: str, *, development: bool = False) -> bool:
    """Say whether a provider may have this address: public, or in development this machine. Raises ValueError."""
    bare = _unwrapped(ipaddress.ip_address(address))
    if isinstance(bare, ipaddress.IPv6Address):
        public = bare in _GLOBAL_UNICAST and bare.is_global
    else:
        public = bare.is_global and not bare.is_multicast
    return public or (development and bare.is_loopback)


def _unwrapped(address: Address) -> Address:
    """Return the IPv4 address inside an IPv6 one (mapped, 6to4, NAT64): `is_global` sees only the outside."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    translated = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF) if address in _NAT64 else None
    return address.ipv4_mapped or address.sixtofour or translated or address
