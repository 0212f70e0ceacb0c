"""An HTTP client for an issuer: bounded in size and time, without redirects, with retries that are safe.

We considered urllib3's Retry (no deadline for all attempts together), stamina and httpx2 (one more dependency).
"""

from __future__ import annotations

import functools
import math
import os
import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit

from msgspec import Struct

from issuer.codes import Code
from issuer.errors import SetupError, Undecided
from issuer.formats.url import UrlError, UrlFault, split_url

if TYPE_CHECKING:
    from urllib3 import BaseHTTPResponse, PoolManager
    from urllib3.exceptions import HTTPError

Answer = TypeVar("Answer")

MAX_ANSWER_BYTES = 4 * 1024 * 1024
CONNECT_S = 5
READ_S = 15
# The time for one answer, to the last byte of a slow body: the service gives a request 10 s, and its store some more.
DEADLINE_S = 30.0
_CHUNK = 64 * 1024
RETRIED = frozenset({429, 502, 503, 504})
ATTEMPTS = 4
# The time for all attempts and the waits between them: GitHub's identity tokens are valid for five minutes.
PATIENCE_S = 120.0


class HttpRequest(Struct, frozen=True):
    """An HTTP request. `max_bytes` is the largest body that its answer may have."""

    method: str
    url: str
    headers: Mapping[str, str] = {}
    body: bytes | None = None
    max_bytes: int = MAX_ANSWER_BYTES


class HttpAnswer(Struct, frozen=True):
    """A complete HTTP answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def retry_after_s(self) -> int | None:
        """The wait that Retry-After asks for, in seconds. None if the header is absent or malformed."""
        return seconds_of(self.headers.get("retry-after", ""))


def seconds_of(retry_after: str) -> int | None:
    """Return the wait in a Retry-After header (RFC 9110 10.2.3: seconds, or a date). None if it is malformed."""
    text = retry_after.strip()
    if text.isascii() and text.isdigit():
        return int(text[:9])
    try:
        return max(0, math.ceil((parsedate_to_datetime(text) - datetime.now(UTC)).total_seconds()))
    except (TypeError, ValueError, OverflowError):  # not a date, or a date without a time zone
        return None


class NoAnswer(Undecided):
    """The client got no complete answer: no connection, a lost one, or one that took too long."""


def check_url(url: str, *, query: bool = False) -> str:
    """Return an issuer's URL without the slash at its end. Plain http is for loopback addresses only. Raises
    SetupError(`url.invalid`), which never quotes credentials or a query."""
    try:
        split_url(url, http="loopback", query=query)
    except UrlError as error:
        raise SetupError(Code.URL_INVALID, _describe(error.fault, url)) from None
    return url.rstrip("/")


def _describe(fault: UrlFault, url: str) -> str:
    match fault:
        case "credentials":
            return "a URL has a name or password in it; give https://HOST"
        case "query":
            return "a URL has a query or a fragment; give https://HOST"
        case "scheme":
            return f"{_origin(url)} must be https (http for a loopback address only)"
        case _:
            return f"{url!r} is not a URL; give https://HOST"


# -- one exchange -----------------------------------------------------------------------------------------------------


def send(request: HttpRequest, *, deadline_s: float = DEADLINE_S) -> HttpAnswer:
    """Send one request and return the answer. Raises NoAnswer, and Undecided for an answer larger than `max_bytes`.
    `deadline_s` is for everything: resolving the name, the connection, the handshake, the headers and the body."""
    until = time.monotonic() + deadline_s
    return within(deadline_s, lambda: _exchange(request, until), _origin(request.url))


def within(deadline_s: float, work: Callable[[], Answer], origin: str) -> Answer:
    """Return the result of `work`, or raise its exception. Raises NoAnswer if it takes longer than `deadline_s`."""
    from concurrent.futures import Future

    answer: Future[Answer] = Future()

    def run() -> None:
        try:
            answer.set_result(work())
        except BaseException as error:  # noqa: BLE001  (the caller's thread raises it)
            answer.set_exception(error)

    # A thread is needed because socket timeouts bound single reads only, and resolving a name has no timeout.
    threading.Thread(target=run, daemon=True).start()
    try:
        return answer.result(deadline_s)
    except TimeoutError:
        detail = f"no complete answer from {origin} within {deadline_s:.3g} s"
        raise NoAnswer(Code.DEPENDENCY_SERVER, detail) from None


def _exchange(request: HttpRequest, until: float) -> HttpAnswer:
    from urllib3.exceptions import HTTPError

    origin = _origin(request.url)
    try:
        response = _pool().request(
            request.method, request.url, headers=request.headers, body=request.body, redirect=False,
            preload_content=False, decode_content=False,
        )  # fmt: skip
        try:
            data = _read(response, request.max_bytes, until)
        finally:
            response.close()
    except HTTPError as error:
        raise NoAnswer(Code.DEPENDENCY_SERVER, f"no answer from {origin}: {_why(error)}") from None
    if len(data) > request.max_bytes:
        raise Undecided(Code.DEPENDENCY_SERVER, f"the answer of {origin} is larger than {request.max_bytes} bytes")
    return HttpAnswer(response.status, {name.lower(): value for name, value in response.headers.items()}, data)


def _why(error: HTTPError) -> str:
    """Return the reason why there was no answer. The error's own text may quote the request."""
    kinds = [type(cause).__name__ for cause in (error, error.__cause__, error.__context__)]
    return next((_REASONS[kind] for kind in kinds if kind in _REASONS), type(error).__name__)


_REASONS = {
    "NameResolutionError": "the host name does not resolve",
    "ConnectTimeoutError": f"no connection within {CONNECT_S} s",
    "ReadTimeoutError": f"silent for {READ_S} s",
    "SSLError": "its TLS certificate or version is not accepted",
    "NewConnectionError": "the connection was refused, or the network is unreachable",
    "ProtocolError": "the connection was lost",
}


def _read(response: BaseHTTPResponse, max_bytes: int, until: float) -> bytes:
    """Read a body in chunks. After the deadline, when the caller has given up, the thread ends with the next read."""
    data = bytearray()
    while len(data) <= max_bytes and (part := response.read1(_CHUNK)):
        data += part
        if time.monotonic() > until:
            raise TimeoutError
    return bytes(data)


@functools.cache
def _pool() -> PoolManager:
    # Imported late, because `issuer verify` with a local key set needs no HTTP and starts a fifth faster without it.
    from urllib3 import PoolManager, Timeout

    return PoolManager(retries=False, timeout=Timeout(connect=CONNECT_S, read=READ_S))


# A forked process must not share connections: two processes would read each other's answers.
os.register_at_fork(after_in_child=_pool.cache_clear)


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname}" + (f":{parts.port}" if parts.port else "")


# -- a request that is safe to repeat ---------------------------------------------------------------------------------


def is_decided(answer: HttpAnswer) -> bool:
    """Say whether an answer is final. Only 429, 502, 503 and 504 are worth a repeat."""
    return answer.status not in RETRIED


def send_until_decided(
    request: HttpRequest, *, patience_s: float = PATIENCE_S, enough: Callable[[HttpAnswer], bool] = is_decided
) -> HttpAnswer:
    """Send the same bytes until an answer is `enough`, at most ATTEMPTS times. Return the last answer.

    Wait between attempts as long as Retry-After says, or else 1, 2 and 3 s. Stop if that would exceed `patience_s`
    since the first attempt. Raises NoAnswer if the last attempt got no answer, and Undecided if one is too large.
    """
    until = time.monotonic() + patience_s
    attempt = 0
    while True:
        attempt += 1
        outcome = _attempt(request, min(DEADLINE_S, until - time.monotonic()))
        if isinstance(outcome, HttpAnswer) and enough(outcome):
            return outcome
        asked_s = outcome.retry_after_s if isinstance(outcome, HttpAnswer) else None
        wait_s = attempt if asked_s is None else asked_s
        if attempt >= ATTEMPTS or time.monotonic() + wait_s >= until:
            break
        time.sleep(wait_s)
    if isinstance(outcome, NoAnswer):
        raise outcome
    return outcome


def _attempt(request: HttpRequest, left_s: float) -> HttpAnswer | NoAnswer:
    try:
        return send(request, deadline_s=max(0.1, left_s))
    except NoAnswer as lost:
        return lost
