"""HTTP to an issuer: bounded in size and time, no redirects, and retries only where nothing was decided."""

from __future__ import annotations

import functools
import ipaddress
import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from issuer import jose
from issuer.errors import Code, Fault, IssuerError, Place, Refused, SetupError, Undecided
from issuer.errors import InputError as UnreadableError
from issuer.strict_json import loads

if TYPE_CHECKING:
    from urllib3 import BaseHTTPResponse, PoolManager

MAX_ANSWER_BYTES = 4 * 1024 * 1024
CONNECT_S = 5
READ_S = 15
# For one answer, to the last byte of a body that drips: the service gives a request 10 s and its store some more.
DEADLINE_S = 30.0
_CHUNK = 64 * 1024
RETRIED = frozenset({429, 502, 503, 504})
ATTEMPTS = 4
LONGEST_WAIT_S = 30


class Answer(Struct, frozen=True):
    """An HTTP answer, read whole."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def check_url(url: str) -> str:
    """Return an issuer's URL; plain http is for loopback addresses only. Raises SetupError(`settings.invalid`)."""
    try:
        parts = urlsplit(url)
        named = parts.hostname if parts.port != 0 else None  # the port is looked at only when asked
    except ValueError:
        named = None
    if not named or not url.isascii() or not url.isprintable() or " " in url:
        raise SetupError(Code.SETTINGS_INVALID, f"{url!r} is no URL; give https://HOST")
    if parts.scheme == "https" or (parts.scheme == "http" and _is_loopback(named)):
        return url.rstrip("/")
    raise SetupError(Code.SETTINGS_INVALID, f"{url} must be https (http for a loopback address only)")


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def send(
    method: str,
    url: str,
    *,
    headers: Mapping[str, str] | None = None,
    body: bytes | None = None,
    max_bytes: int = MAX_ANSWER_BYTES,
    deadline_s: float = DEADLINE_S,
) -> Answer:
    """Send one request and read the answer, up to `max_bytes`. Raises Undecided where there was none.

    `deadline_s` bounds all of it together: the name, the connection, the handshake, the headers and the body.
    """
    from concurrent.futures import Future

    until = time.monotonic() + deadline_s
    answer: Future[Answer] = Future()

    def work() -> None:
        try:
            answer.set_result(_exchange(method, url, dict(headers or {}), body, max_bytes, until))
        except BaseException as error:  # noqa: BLE001  (carried to the caller, who raises it)
            answer.set_exception(error)

    # A thread, because only each single read of a socket can be bounded, and resolving a name not at all.
    threading.Thread(target=work, daemon=True).start()
    try:
        return answer.result(deadline_s)
    except TimeoutError:
        raise Undecided(Code.DEPENDENCY_STATE, f"no whole answer from {_origin(url)} within {deadline_s:g} s") from None


def _exchange(
    method: str, url: str, headers: dict[str, str], body: bytes | None, max_bytes: int, until: float
) -> Answer:
    from urllib3.exceptions import HTTPError

    try:
        response = _pool().request(
            method, url, headers=headers, body=body, redirect=False, preload_content=False, decode_content=False
        )
        try:
            data = _read(response, max_bytes, until)
        finally:
            response.close()
    except HTTPError as error:
        raise Undecided(Code.DEPENDENCY_STATE, f"no answer from {_origin(url)} ({type(error).__name__})") from None
    if len(data) > max_bytes:
        raise Undecided(Code.DEPENDENCY_STATE, f"the answer of {_origin(url)} is larger than {max_bytes} bytes")
    return Answer(response.status, {name.lower(): value for name, value in response.headers.items()}, data)


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


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname}" + (f":{parts.port}" if parts.port else "")


Endpoint = Literal["/tokens", "/tokens/batch", "/tokens/explain"]


class Check(Struct, frozen=True):
    """One rule's outcome, as the issuer tells it to its caller; `expected` and `hint` may be ""."""

    code: str
    pointer: str
    rule: str
    passed: bool
    actual: str
    expected: str
    hint: str


class Denied(Refused):
    """A refusal by a policy: `checks` are all that were made."""

    checks: tuple[Check, ...] = ()


def request_tokens(
    issuer: str, identity_token: str, request: Mapping[str, Any], endpoint: Endpoint = "/tokens"
) -> Answer:
    """Post a request for verify tokens, or for what would be decided, and return the answer that was good.

    The same request is safe to repeat (contract section 5), so it is, where nothing was decided: 429, 502, 503, 504 and
    lost connections, up to 4 times, waiting as long as Retry-After says. Raises Refused, Denied where a policy refused,
    and Undecided.
    """
    body = msgspec.json.encode(request)
    headers = {"Authorization": f"Bearer {identity_token}", "Content-Type": "application/json"}
    url = f"{check_url(issuer)}{endpoint}"
    for attempt in range(1, ATTEMPTS + 1):
        try:
            answer = send("POST", url, headers=headers, body=body)
        except Undecided:
            if attempt == ATTEMPTS:
                raise
            time.sleep(attempt)
            continue
        if answer.status in {200, 201}:
            return answer
        error = problem_of(answer)
        # A store that lost its memory answers the same to this identity token for ever: only a fresh one helps.
        if answer.status not in RETRIED or attempt == ATTEMPTS or error.code is Code.DEPENDENCY_STATE_RESET:
            raise error
        time.sleep(min(LONGEST_WAIT_S, _retry_after(answer, attempt)))
    raise Undecided(Code.DEPENDENCY_STATE)


def _retry_after(answer: Answer, attempt: int) -> int:
    text = answer.headers.get("retry-after", "")
    return int(text) if text.isdigit() and len(text) < 6 else attempt


def problem_of(answer: Answer) -> IssuerError:
    """Turn a problem document (RFC 9457) into the error that the server meant; anything else is Undecided."""
    try:
        value = loads(answer.body, max_bytes=MAX_ANSWER_BYTES, max_depth=8)
        members = dict(value) if isinstance(value, dict) else {}
    except UnreadableError:
        members = {}
    code, detail = Code.named(str(members.get("code"))), str(members.get("detail") or f"HTTP status {answer.status}")
    if code is None or not 400 <= answer.status < 500:
        return Undecided(code or Code.DEPENDENCY_STATE, detail)
    errors = members.get("errors")
    faults = tuple(
        Fault(Code.named(str(fault.get("code"))) or code, str(fault.get("pointer", "")), str(fault.get("detail", "")))
        for fault in (errors if isinstance(errors, list) else [])
        if isinstance(fault, dict)
    )
    if code.retryable:
        return Undecided(code, detail)
    if (checks := _checks(members.get("checks"))) is None:
        return Refused(code, detail, faults)
    refusal = Denied(code, detail, faults)
    refusal.checks = checks
    return refusal


def _checks(value: object) -> tuple[Check, ...] | None:
    """Read the checks of a problem document; None where there are none that can be read."""
    try:
        return msgspec.convert(value, tuple[Check, ...])
    except msgspec.ValidationError:
        return None


def fetch_key_set(url: str) -> jose.KeySet | None:
    """Fetch a key set. Returns None where it is not to be had, and so nothing of its issuer can be decided."""
    try:
        answer = send("GET", check_url(url))
        return jose.parse_key_set(answer.body) if answer.status == 200 else None
    except (Undecided, UnreadableError):
        return None


def unreadable(path: str, reason: str) -> UnreadableError:
    """Make the error for an input file that cannot be read."""
    return UnreadableError(Code.FILE_UNREADABLE, reason, Place(path))
