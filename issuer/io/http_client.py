"""HTTP to an issuer: bounded in size and time, no redirects, and repeated only where nothing was decided.

urllib3's own Retry was weighed: it has no deadline over all attempts together. stamina and httpx2 would be one more
dependency for everyone who installs the client.
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
# For one answer, to the last byte of a body that drips: the service gives a request 10 s and its store some more.
DEADLINE_S = 30.0
_CHUNK = 64 * 1024
RETRIED = frozenset({429, 502, 503, 504})
ATTEMPTS = 4
# For all attempts and the waits between them: an identity token of GitHub's lives for five minutes.
PATIENCE_S = 120.0


class HttpRequest(Struct, frozen=True):
    """What is sent, and how many bytes of an answer to it are read at most."""

    method: str
    url: str
    headers: Mapping[str, str] = {}
    body: bytes | None = None
    max_bytes: int = MAX_ANSWER_BYTES


class HttpAnswer(Struct, frozen=True):
    """An HTTP answer, read whole."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def retry_after_s(self) -> int | None:
        """How long Retry-After asks to wait (RFC 9110 10.2.3: seconds, or a date); None where it says nothing."""
        return seconds_of(self.headers.get("retry-after", ""))


def seconds_of(retry_after: str) -> int | None:
    """Read the value of a Retry-After header; None where it says nothing."""
    text = retry_after.strip()
    if text.isascii() and text.isdigit():
        return int(text[:9])
    try:
        return max(0, math.ceil((parsedate_to_datetime(text) - datetime.now(UTC)).total_seconds()))
    except (TypeError, ValueError, OverflowError):  # no date, or one without a zone
        return None


class NoAnswer(Undecided):
    """No whole answer came: no connection, a lost one, or one that took too long."""


def check_url(url: str, *, query: bool = False) -> str:
    """Return a URL that may be asked, without the slash at its end; plain http is for loopback addresses only. Raises
    SetupError(`url.invalid`), which quotes no credentials and no query."""
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
            return f"{url!r} is no URL; give https://HOST"


# -- one exchange -----------------------------------------------------------------------------------------------------


def send(request: HttpRequest, *, deadline_s: float = DEADLINE_S) -> HttpAnswer:
    """Send one request and read the answer. Raises NoAnswer, and Undecided for one larger than `max_bytes`.
    `deadline_s` bounds all of it together: the name, the connection, the handshake, the headers and the body."""
    until = time.monotonic() + deadline_s
    return within(deadline_s, lambda: _exchange(request, until), _origin(request.url))


def within(deadline_s: float, work: Callable[[], Answer], origin: str) -> Answer:
    """Return what `work` returns, or raise what it raises; NoAnswer where it takes longer."""
    from concurrent.futures import Future

    answer: Future[Answer] = Future()

    def run() -> None:
        try:
            answer.set_result(work())
        except BaseException as error:  # noqa: BLE001  (carried to the caller, who raises it)
            answer.set_exception(error)

    # A thread, because only each single read of a socket can be bounded, and resolving a name not at all.
    threading.Thread(target=run, daemon=True).start()
    try:
        return answer.result(deadline_s)
    except TimeoutError:
        detail = f"no whole answer from {origin} within {deadline_s:.3g} s"
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
    """Say in words why there was no answer; the error's own text may quote what was sent."""
    kinds = [type(one).__name__ for one in (error, error.__cause__, error.__context__) if one is not None]
    return next((_REASONS[kind] for kind in kinds if kind in _REASONS), type(error).__name__)


_REASONS = {
    "NameResolutionError": "no machine has this name",
    "ConnectTimeoutError": f"no connection within {CONNECT_S} s",
    "ReadTimeoutError": f"silent for {READ_S} s",
    "SSLError": "its TLS certificate or version is not accepted",
    "NewConnectionError": "nobody listens there, or there is no way there",
    "ProtocolError": "the connection was lost",
}


def _read(response: BaseHTTPResponse, max_bytes: int, until: float) -> bytes:
    """Read a body, as it comes: an abandoned thread ends with the read in which its deadline passes."""
    data = bytearray()
    while len(data) <= max_bytes and (part := response.read1(_CHUNK)):
        data += part
        if time.monotonic() > until:
            raise TimeoutError
    return bytes(data)


@functools.cache
def _pool() -> PoolManager:
    # Imported here: `issuer verify` with a key set at hand needs no HTTP, and starts a fifth faster without.
    from urllib3 import PoolManager, Timeout

    return PoolManager(retries=False, timeout=Timeout(connect=CONNECT_S, read=READ_S))


# Two processes that read from one connection read each other's answers.
os.register_at_fork(after_in_child=_pool.cache_clear)


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname}" + (f":{parts.port}" if parts.port else "")


# -- a request that is safe to repeat ---------------------------------------------------------------------------------


def is_decided(answer: HttpAnswer) -> bool:
    """Say whether repeating the request would be pointless: 429, 502, 503 and 504 alone say that it is not."""
    return answer.status not in RETRIED


def send_until_decided(
    request: HttpRequest, *, patience_s: float = PATIENCE_S, enough: Callable[[HttpAnswer], bool] = is_decided
) -> HttpAnswer:
    """Send the same bytes until an answer is `enough`, at most ATTEMPTS times; return the last answer as it is.

    Between two attempts it waits as long as Retry-After says, or 1, 2, 3 s where it says nothing; where that would
    pass `patience_s`, counted from the first attempt, it waits no more. Raises NoAnswer where the last attempt had
    none, and Undecided for an answer that is too large, which is not repeated.
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
