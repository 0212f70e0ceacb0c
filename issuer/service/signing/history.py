"""The history of the signing keys in JSON Lines: each event of a key, with its actor and reason.

It only grows. All hosts append to one history, in turn (io/common_documents.py). lifecycle.py derives from it which
keys may sign.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Sequence

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
from issuer.service.signing.lifecycle import KeyEvent, Lives, MissingEvent, fold, keys_left, latest, may_sign_from

# Room for some thousand events; a rotation adds five.
MAX_BYTES = 4 * 1024 * 1024
_FULL = (
    f"{MAX_SIGNED_KEYS} keys have signed, and relying parties read no larger archive, so no new key may sign. Use "
    "one of these keys again (`issuer keys rotate KID --to next` publishes an archived one anew), or begin an issuer "
    "under another url"
)

_log = structlog.get_logger("issuer")


class KeyHistory:
    """The stored history. Reads and writes block. `record` waits `wait_s` seconds for its turn, for ever if None."""

    def __init__(self, home: Home, wait_s: float | None = None) -> None:
        self.place = home.place(HISTORY)
        self._home = home
        self._wait_s = wait_s

    def read(self) -> Lives:
        """Return the life of each key: empty before the first event. Raises SetupError and OSError."""
        return fold(self._parse(self._raw(self._home)))

    def record(self, decide: Callable[[Lives], Iterable[KeyEvent]]) -> Lives:
        """Append the events that `decide` returns for the current history, and return the lives after them.

        They are durable when this returns, and never dated before the last event, whatever the clock says. While
        `decide` runs no other process can append, so no other process reports the changes that `decide` makes to the
        key files. Raises SetupError, OSError and the errors of `decide`; the history is then unchanged.
        """
        with self._home.turn(HISTORY, self._wait_s) as turn:
            raw = self._raw(turn)
            before = self._parse(raw)
            earliest = before[-1].time if before else 0
            new = [replace(event, time=max(event.time, earliest)) for event in decide(fold(before))]
            if not new:
                return fold(before)
            lines = b"".join(map(to_line, new))
            after = self._parse(raw + lines)  # an unreadable history would stop every later reader
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
        events, error = read_lines(raw, _read_event, self.place)
        if error is not None:
            at = f"{error.pointer} " if error.pointer else ""
            raise SetupError(Code.KEY_HISTORY, f"{self.place}:{error.place.line}: {at}{error.detail}")
        if raw and not raw.endswith(b"\n"):
            raise SetupError(Code.KEY_HISTORY, f"{self.place}:{len(events)}: the line has no end")
        return events


def _read_event(line: bytes, before: KeyEvent | None) -> KeyEvent:
    value = loads(line, max_bytes=MAX_BYTES, max_depth=4)
    convert(value, VersionOne)
    event = convert(value, KeyEvent)
    if not _is_key(event.kid, event.x):
        raise FormatError(Code.FILE_RULE, "is not the thumbprint of a good Ed25519 key `x`", "/kid")
    if before is not None and event.time < before.time:
        raise FormatError(Code.FILE_RULE, "is before that of the line above", "/time")
    return event


def _is_key(kid: str, x: str) -> bool:
    jwk = {"crv": "Ed25519", "kty": "OKP", "x": x, "kid": kid}
    return jose.parse_key(jwk) is not None and jose.thumbprint(jwk) == kid


class LiveHistory:
    """The history as a process last read it. The constructor reads it and raises SetupError.

    A history that is unreadable or lacks a key that it had is refused, and gets no events. Otherwise a lost file would
    make every key the first key of an issuer, which signs at once. Reads and writes block; call them from one thread at
    a time. A write waits `wait_s` seconds for its turn.
    """

    def __init__(self, home: Home, wait_s: float = HISTORY_TURN_S) -> None:
        self._history = KeyHistory(home, wait_s)
        self._who = f"service on {socket.gethostname()}"
        try:
            self._followed = Followed(lambda: home.look(HISTORY), lambda last: Reading(self._read(last or {})))
        except OSError as error:
            raise SetupError(Code.KEY_HISTORY, f"{self._history.place}: {error.strerror}") from None

    @property
    def lives(self) -> Lives:
        """The life of each key at the last reading; replaced as a whole."""
        return self._followed.value

    def follow(self) -> None:
        """Read the history if it has changed. Raises SetupError and OSError."""
        self._followed.turn()
        if self._followed.error is not None:
            raise self._followed.error

    def add(self, missing: Callable[[Lives], Sequence[MissingEvent]], now: int) -> None:
        """Append the events that `missing` returns, durably. `missing` is called again with the history at the time of
        writing, so several processes and hosts record an event once. Raises SetupError and OSError."""
        if not missing(self.lives):
            return
        events: list[KeyEvent] = []

        def decide(lives: Lives) -> list[KeyEvent]:
            self._demand_all(self.lives, lives)
            events[:] = [self._event(event, now, latest(lives)) for event in missing(lives)]
            return events

        self._followed.value = self._history.record(decide)
        for event in events:
            _log.info(
                f"key {event.what}", kid=event.kid, why=event.why, may_sign_from=may_sign_from(self.lives, event.kid)
            )

    def _event(self, event: MissingEvent, now: int, latest: int) -> KeyEvent:
        """Complete an event. If the clock is behind `latest`, `record` moves the event's time forward. The key's tokens
        still have the clock's time, so an `active` event keeps that as `since`."""
        since = now if event.what == "active" and event.since is UNSET and now < latest else event.since
        return KeyEvent(now, event.what, event.kid, event.x, self._who, event.why, since)

    def _read(self, before: Lives) -> Lives:
        lives = self._history.read()
        self._demand_all(before, lives)
        return lives

    def _demand_all(self, before: Lives, lives: Lives) -> None:
        """Raise SetupError if a history lacks a key that it had."""
        if lost := before.keys() - lives.keys():
            raise SetupError(Code.KEY_HISTORY, f"{self._history.place} no longer has the key {min(lost)}")
