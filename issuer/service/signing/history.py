"""The history of the signing keys in JSON Lines: what happened to each, who did it and why.

It only grows. All hosts write one history, each in its turn (io/common_documents.py). lifecycle.py says what follows
from it.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import lru_cache

import structlog
from msgspec import UNSET
from msgspec.structs import replace

from issuer.codes import Code
from issuer.errors import FormatError, InputError, SetupError
from issuer.formats import jose
from issuer.formats.strict_json import VersionOne, convert, loads, read_lines, to_line
from issuer.io.common_documents import HISTORY, Home, Turn
from issuer.io.followed import Followed, Reading
from issuer.service.signing.bounds import HISTORY_TURN_S, MAX_SIGNED_KEYS
from issuer.service.signing.lifecycle import KeyEvent, Lives, Untold, fold, keys_left, latest, may_sign_from

# Some thousand events; a rotation adds five.
MAX_BYTES = 4 * 1024 * 1024
_FULL = (
    f"{MAX_SIGNED_KEYS} keys have signed, and relying parties read an archive of no more: no other key may begin. Go "
    "on with one of them (`issuer keys rotate KID --to next` publishes an archived one anew), or under another url"
)


class KeyHistory:
    """The history in its home. Reads and writes block: call them from a thread. `wait_s` is how long `record` waits for
    its turn; None: for ever."""

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
            lines = b"".join(map(to_line, new))
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

    def _parse(self, raw: bytes) -> tuple[KeyEvent, ...]:
        events, error = read_lines(raw, _read, self.place)
        if error is not None:
            at = f"{error.pointer} " if error.pointer else ""
            raise SetupError(Code.KEY_HISTORY, f"{self.place}:{error.place.line}: {at}{error.detail}")
        if raw and not raw.endswith(b"\n"):
            raise SetupError(Code.KEY_HISTORY, f"{self.place}:{len(events)}: the line has no end")
        return events


def _read(line: bytes, before: KeyEvent | None) -> KeyEvent:
    value = loads(line, max_bytes=MAX_BYTES, max_depth=4)
    convert(value, VersionOne)
    event = convert(value, KeyEvent)
    if not _is_key(event.kid, event.x):
        raise FormatError(Code.FILE_RULE, "is not the thumbprint of a good Ed25519 key `x`", "/kid")
    if before is not None and event.time < before.time:
        raise FormatError(Code.FILE_RULE, "is before that of the line above", "/time")
    return event


@lru_cache(1024)
def _is_key(kid: str, x: str) -> bool:
    jwk = {"crv": "Ed25519", "kty": "OKP", "x": x, "kid": kid}
    return jose.parse_key(jwk) is not None and jose.thumbprint(jwk) == kid


# -- the history in a process that runs --------------------------------------------------------------------------------

_log = structlog.get_logger("issuer")


class LiveHistory:
    """The history as a process last read it, and the way to add to it. The constructor reads it, and raises SetupError.

    A history that cannot be read, or that has forgotten a key, is not believed, and nothing is added to it: a lost file
    would make every key the first one of an issuer, which signs at once. Reads and writes block, and are for one thread
    at a time; `wait_s` is how long a write waits for its turn.
    """

    def __init__(self, home: Home, wait_s: float = HISTORY_TURN_S) -> None:
        self._history = KeyHistory(home, wait_s)
        self._who = f"service on {socket.gethostname()}"
        try:
            self._followed = Followed(self._history.look, lambda last: Reading(self._believed(last or {})))
        except OSError as error:
            raise SetupError(Code.KEY_HISTORY, f"{self._history.place}: {error.strerror}") from None

    @property
    def lives(self) -> Lives:
        """What the history last said of each key; replaced as a whole."""
        return self._followed.value

    def follow(self) -> None:
        """Read the history, where it looks different. Raises SetupError and OSError."""
        self._followed.turn()
        if self._followed.error is not None:
            raise self._followed.error

    def tell(self, untold: Callable[[Lives], Sequence[Untold]], now: int) -> None:
        """Add what the history lacks, if anything; durable when this returns. Raises SetupError and OSError. `untold`
        is asked again of the history as it is then: several processes and hosts tell a thing once."""
        if not untold(self.lives):
            return
        events: list[KeyEvent] = []

        def decide(lives: Lives) -> list[KeyEvent]:
            self._demand_all(self.lives, lives)
            events[:] = [self._event(each, now, latest(lives)) for each in untold(lives)]
            return events

        self._followed.value = self._history.record(decide)
        for event in events:
            _log.info(
                f"key {event.what}", kid=event.kid, why=event.why, may_sign_from=may_sign_from(self.lives, event.kid)
            )

    def _event(self, each: Untold, now: int, latest: int) -> KeyEvent:
        """Write an event. None is dated before the `latest`, whatever the clock says; the tokens of a key are."""
        since = now if each.what == "active" and each.since is UNSET and now < latest else each.since
        return KeyEvent(now, each.what, each.kid, each.x, self._who, each.why, since)

    def _believed(self, before: Lives) -> Lives:
        lives = self._history.read()
        self._demand_all(before, lives)
        return lives

    def _demand_all(self, before: Lives, lives: Lives) -> None:
        """Raise SetupError where a history has forgotten a key."""
        if lost := before.keys() - lives.keys():
            raise SetupError(Code.KEY_HISTORY, f"{self._history.place} does not know the key {min(lost)} any more")
