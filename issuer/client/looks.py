"""What a caller can find out of an issuer before it asks for a token: a line for each thing that was looked at.

`issuer doctor` is made of these. Nothing is signed or used up.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime

from msgspec import Struct

from issuer.client.tokens import fetch_keys
from issuer.codes import Code
from issuer.diagnosis import Line, failed
from issuer.errors import FormatError, SetupError, Undecided, VerificationError
from issuer.formats.strict_json import JSON, loads
from issuer.formats.times import show_span
from issuer.http_client import HttpAnswer, HttpRequest, NoAnswer, is_decided, send
from issuer.wire import METADATA_PATH

PATIENCE_S = 10.0
# A relying party lets a clock differ by a minute, an issuer that of a provider by half of one.
MOST_SKEW_S = 30
DOUBTFUL_SKEW_S = 5
_MAX_BYTES = 256 * 1024
_MAX_DEPTH = 16
_SET_THE_CLOCK = "Set this machine's clock, by NTP: tokens are good by the clock."


class Found(Struct, frozen=True):
    """What an issuer says of itself, as it was sent and as it was read; b"" and {} where it was not to be had."""

    document: bytes = b""
    metadata: Mapping[str, JSON] = {}


def look_at_issuer(url: str) -> tuple[Found, tuple[Line, ...]]:
    """Ask an issuer who it is, and what time it is there: its metadata, and the lines `issuer` and `clock`.

    `url` has been checked (`http_client.check_url`). Without an answer there is one line, a FAIL.
    """
    request = HttpRequest("GET", f"{url}{METADATA_PATH}", {"Accept": "application/json"}, max_bytes=_MAX_BYTES)
    before = time.time()
    try:
        answer = send(request, deadline_s=PATIENCE_S)
    except NoAnswer as error:
        return Found(), (failed("issuer", error),)
    except Undecided as error:  # an answer, and more of it than any issuer has to say
        return Found(), (failed("issuer", error, step=_ANOTHER_URL),)
    here = (before + time.time()) / 2
    found, line = _issuer(url, answer)
    return found, (line, _clock(answer, here))


_ANOTHER_URL = "Give the issuer's own URL, as its operator publishes it."


def _issuer(url: str, answer: HttpAnswer) -> tuple[Found, Line]:
    if answer.status >= 500 or not is_decided(answer):
        return Found(), failed("issuer", Undecided(Code.DEPENDENCY_SERVER, f"HTTP status {answer.status}"))
    try:
        said = loads(answer.body, max_bytes=_MAX_BYTES, max_depth=_MAX_DEPTH) if answer.status == 200 else None
    except FormatError:
        said = None
    if not isinstance(said, dict) or not isinstance(said.get("issuer"), str):
        error = Undecided(Code.DEPENDENCY_SERVER, f"what answers is no issuer (HTTP status {answer.status})")
        return Found(), failed("issuer", error, step=_ANOTHER_URL)
    if said["issuer"] != url:
        detail = f"it calls itself {str(said['issuer'])[:200]}, and its tokens are of that name"
        return Found(), failed("issuer", VerificationError(Code.ANSWER_UNVERIFIED, detail), step=_ANOTHER_URL)
    return Found(answer.body, said), Line("issuer", "pass", f"{url} answers, and publishes its metadata")


def _clock(answer: HttpAnswer, here: float) -> Line:
    """Compare this machine's clock with the Date of an answer (RFC 9110 6.6.1), which is in whole seconds."""
    try:
        there = parsedate_to_datetime(answer.headers.get("date", ""))
        skew_s = round(here - there.replace(tzinfo=there.tzinfo or UTC).timestamp())
    except (TypeError, ValueError, OverflowError):
        return Line(
            "clock", "warning", "the issuer does not say what time it is there", "Look at this machine's clock."
        )
    detail = f"{show_span(skew_s)} {'behind' if skew_s < 0 else 'ahead of'} the issuer's"
    if abs(skew_s) > MOST_SKEW_S:
        return failed("clock", SetupError(Code.MACHINE_FAILED, detail), step=_SET_THE_CLOCK)
    if abs(skew_s) > DOUBTFUL_SKEW_S:
        return Line("clock", "warning", detail, _SET_THE_CLOCK)
    return Line("clock", "pass", "as the issuer's")


def look_at_keys(url: str) -> Line:
    """Fetch the key set with which an issuer's answers are checked."""
    try:
        count = len(fetch_keys(url, patience_s=PATIENCE_S).keys)
    except Undecided as error:
        return failed("keys", error)
    if not count:
        return failed("keys", Undecided(Code.DEPENDENCY_KEY_SET, "the issuer's key set has no key"))
    return Line("keys", "pass", f"{count} in its key set")


def providers_in(found: Found) -> Iterator[Mapping[str, JSON]]:
    """Yield the identity providers that an issuer says it takes, each as it describes it."""
    listed = found.metadata.get("identity_providers")
    yield from (one for one in listed if isinstance(one, dict)) if isinstance(listed, list) else ()
