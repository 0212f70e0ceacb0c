"""The history of the signing keys in JSON Lines: what happened to each, who did it and why.

It only grows. All hosts write one history, each in its turn (home.py). life.py says what follows from it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from functools import lru_cache

import msgspec
from msgspec.structs import replace

from issuer.codes import Code
from issuer.errors import FormatError, InputError, SetupError
from issuer.formats import jose
from issuer.formats.strict_json import convert, loads
from issuer.formats.versions import VersionOne
from issuer.service.bounds import MAX_SIGNED_KEYS
from issuer.service.home import HISTORY, Home, Turn
from issuer.service.signing.life import KeyEvent, Lives, fold, keys_left

# Some thousand events; a rotation adds five.
MAX_BYTES = 4 * 1024 * 1024
_FULL = (
    f"{MAX_SIGNED_KEYS} keys have signed, and relying parties read an archive of no more: no other key may begin. Go "
    "on with one of them (`issuer keys rotate KID --to next` publishes an archived one anew), or under another url"
)


class KeyHistory:
    """The history in its home. Reads and writes block: call them from a thread.

    `wait_s` is how long `record` waits for its turn; None: for ever.
    """

    def __init__(self, home: Home, wait_s: float | None = None) -> None:
        self.place = home.place(HISTORY)
        self._home = home
        self._wait_s = wait_s

    def look(self) -> Hashable:
        """Look at the history from outside."""
        return self._home.look(HISTORY)

    def read(self) -> Lives:
        """Return the life of each key; none where there is no history yet. Raises SetupError and OSError."""
        return fold(self._parse(self._raw(self._home)))

    def record(self, decide: Callable[[Lives], Iterable[KeyEvent]]) -> Lives:
        """Add the events that `decide` returns for the history as it is now, and return the lives after them.

        They are durable when this returns. No event is dated before the last one, whatever the clock says. Raises
        SetupError and OSError, and what `decide` raises; then nothing was added. `decide` is called while nobody else
        can add anything, so that what it does to the keys themselves is told by nobody else.
        """
        with self._home.turn(HISTORY, self._wait_s) as turn:
            raw = self._raw(turn)
            before = self._parse(raw)
            earliest = before[-1].time if before else 0
            new = [replace(event, time=max(event.time, earliest)) for event in decide(fold(before))]
            if not new:
                return fold(before)
            lines = b"".join(msgspec.json.encode(event) + b"\n" for event in new)
            after = self._parse(raw + lines)  # nothing is written that could not be read again
            if len(raw) + len(lines) > MAX_BYTES:
                raise SetupError(Code.KEY_HISTORY, f"{self.place} would have more than {MAX_BYTES} bytes")
            lives = fold(after)
            if keys_left(lives) < 0:
                raise SetupError(Code.KEY_STEP, _FULL)
            turn.append(HISTORY, lines)
        return lives

    def _raw(self, home: Home | Turn) -> bytes:
        try:
            return home.read(HISTORY, MAX_BYTES) or b""
        except InputError as error:
            raise SetupError(Code.KEY_HISTORY, f"{self.place}: {error.detail}") from None

    def _parse(self, raw: bytes) -> list[KeyEvent]:
        events: list[KeyEvent] = []
        for number, line in enumerate(raw.splitlines(), 1):
            try:
                events.append(_read(line, events[-1].time if events else 0))
            except FormatError as error:
                at = f"{error.pointer} " if error.pointer else ""
                raise SetupError(Code.KEY_HISTORY, f"{self.place}:{number}: {at}{error.detail}") from None
        if raw and not raw.endswith(b"\n"):
            raise SetupError(Code.KEY_HISTORY, f"{self.place}:{len(events)}: the line has no end")
        return events


def _read(line: bytes, earliest: int) -> KeyEvent:
    value = loads(line, max_bytes=MAX_BYTES, max_depth=4)
    convert(value, VersionOne)
    event = convert(value, KeyEvent)
    if not _is_key(event.kid, event.x):
        raise FormatError(Code.FILE_RULE, "is not the thumbprint of a good Ed25519 key `x`", "/kid")
    if event.time < earliest:
        raise FormatError(Code.FILE_RULE, "is before that of the line above", "/time")
    return event


@lru_cache(1024)
def _is_key(kid: str, x: str) -> bool:
    jwk = {"crv": "Ed25519", "kty": "OKP", "x": x, "kid": kid}
    return jose.parse_key(jwk) is not None and jose.thumbprint(jwk) == kid
