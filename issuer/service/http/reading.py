"""What is read of a request: its source, its one credential, its framing, its body."""

from __future__ import annotations

import asyncio
import functools
import ipaddress
import time
from string import ascii_letters, digits
from typing import Any

from litestar import Request as HttpRequest
from litestar.datastructures import State

from issuer.codes import Code
from issuer.errors import Refused
from issuer.service.bounds import BODY_DEADLINE_S

# The characters of a bearer credential, before its padding (RFC 6750 2.1).
_B64TOKEN = f"{ascii_letters}{digits}-._~+/".encode()


Http = HttpRequest[Any, Any, State]


@functools.lru_cache(1024)
def source_of(address: str) -> str:
    """Name the sender behind an address: an IPv6 customer has at least a /64, so 2^64 addresses to be refused under.

    All texts that are not addresses, as a trusted proxy may pass on, are one sender.
    """
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        return "unknown"
    if isinstance(ip, ipaddress.IPv4Address):
        return str(ip)
    return str(ip.ipv4_mapped or ipaddress.IPv6Network((int(ip), 64), strict=False))


def bearer_of(request: Http) -> str:
    """Return the one bearer credential of the Authorization header (RFC 6750 2.1); other places are ignored."""
    values = header_values(request, b"authorization")
    scheme, _, rest = values[0].partition(" ") if len(values) == 1 else ("", "", "")
    credential = rest.strip(" ")
    token = credential.encode("latin-1").rstrip(b"=")
    if scheme.lower() != "bearer" or not token or token.translate(None, _B64TOKEN):
        raise Refused(Code.IDENTITY_MISSING)
    return credential


async def read_json_body(request: Http, max_bytes: int) -> bytes:
    """Read the whole body: JSON by its media type, within size and deadline."""
    check_framing(request, max_bytes)
    return await read_whole(request, max_bytes)


def check_framing(request: Http, max_bytes: int) -> None:
    """Refuse by the head a body that is not JSON, or too large."""
    media_type, _, parameters = ",".join(header_values(request, b"content-type")).partition(";")
    charset = parameters.strip().lower().replace('"', "")
    if media_type.strip().lower() != "application/json" or charset not in {"", "charset=utf-8"}:
        raise Refused(Code.REQUEST_MEDIA_TYPE)
    if not {"identity"}.issuperset(header_values(request, b"content-encoding")):
        raise Refused(Code.REQUEST_MEDIA_TYPE)
    for length in header_values(request, b"content-length"):
        if length.isdigit() and len(length) < 19 and int(length) > max_bytes:
            raise Refused(Code.REQUEST_TOO_LARGE)


def header_values(request: Http, name: bytes) -> list[str]:
    """Return the values of a header, in order; the server has its names in lowercase. The bytes are read as latin-1.

    Not by `request.headers`, which decodes and sorts all of them first.
    """
    return [value.decode("latin-1") for header, value in request.scope["headers"] if header == name]


async def read_whole(request: Http, max_bytes: int) -> bytes:
    """Read the whole body, within size and deadline."""
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_DEADLINE_S):
            while (part := await request.receive())["type"] == "http.request":
                body += part["body"]
                if len(body) > max_bytes:
                    raise Refused(Code.REQUEST_TOO_LARGE)
                if not part["more_body"]:
                    return bytes(body)
    except TimeoutError:
        raise Refused(Code.REQUEST_TIMEOUT, retry_after_s=1) from None
    raise Refused(Code.REQUEST_TIMEOUT, retry_after_s=1)  # the client hung up: not a fault of the service, so not a 500


def ms_since(began: float) -> float:
    """Return how many milliseconds have passed since `began`, a `time.perf_counter()`."""
    return round((time.perf_counter() - began) * 1000, 2)
