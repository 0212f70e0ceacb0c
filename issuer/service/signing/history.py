"""The history of the signing keys in a file of JSON Lines, beside the audit: what happened to each, who did it and why.

It only grows. All hosts that share the folder write to one file, under one lock, and by replacing it: a crash leaves
the old history or the new one. life.py says what follows from it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from functools import lru_cache
from pathlib import Path

import msgspec
from msgspec.structs import replace

from issuer import files
from issuer.codes import Code
from issuer.errors import FormatError, InputError, SetupError
from issuer.formats import jose
from issuer.formats.strict_json import convert, loads
from issuer.service.signing.life import KeyEvent, Lives, fold

FILE = "key-history.jsonl"
# Some thousand events; a rotation adds five.
MAX_BYTES = 4 * 1024 * 1024


class KeyHistory:
    """The history in a folder. Reads and writes block: call them from a thread.

    `wait_s` is how long `record` waits for its turn; None: for ever.
    """

    def __init__(self, folder: Path, wait_s: float | None = None) -> None:
        self.path = folder / FILE
        self._wait_s = wait_s

    def read(self) -> Lives:
        """Return the life of each key; none where there is no history yet. Raises SetupError and OSError."""
        return fold(self._parse(self._raw()))

    def record(self, decide: Callable[[Lives], Iterable[KeyEvent]]) -> Lives:
        """Add the events that `decide` returns for the history as it is now, and return the lives after them.

        They are on the disk when this returns. No event is dated before the last one, whatever the clock says. Raises
        SetupError and OSError, and what `decide` raises; then nothing was added. `decide` is called while nobody else
        can add anything, so that what it does to the keys themselves is told by nobody else.
        """
        files.make_folder(self.path.parent, shared=True)
        with files.locked(self.path.with_suffix(".lock"), shared=True, wait_s=self._wait_s):
            raw = self._raw()
            before = self._parse(raw)
            earliest = before[-1].time if before else 0
            new = [replace(event, time=max(event.time, earliest)) for event in decide(fold(before))]
            if not new:
                return fold(before)
            raw += b"".join(msgspec.json.encode(event) + b"\n" for event in new)
            after = self._parse(raw)  # nothing is written that could not be read again
            if len(raw) > MAX_BYTES:
                raise SetupError(Code.KEY_HISTORY, f"{self.path} would have more than {MAX_BYTES} bytes")
            files.replace(self.path, raw, mode=0o600, durable=True, shared=True)
            return fold(after)

    def _raw(self) -> bytes:
        try:
            os.lstat(self.path)
        except FileNotFoundError:  # a folder that cannot be searched is no empty history: PermissionError
            return b""
        try:
            return files.read(self.path, MAX_BYTES, follow=False)
        except InputError as error:
            raise SetupError(Code.KEY_HISTORY, f"{self.path}: {error.detail}") from None

    def _parse(self, raw: bytes) -> list[KeyEvent]:
        events: list[KeyEvent] = []
        for number, line in enumerate(raw.splitlines(), 1):
            try:
                events.append(_read(line, events[-1].time if events else 0))
            except FormatError as error:
                at = f"{error.pointer} " if error.pointer else ""
                raise SetupError(Code.KEY_HISTORY, f"{self.path}:{number}: {at}{error.detail}") from None
        if raw and not raw.endswith(b"\n"):
            raise SetupError(Code.KEY_HISTORY, f"{self.path}:{len(events)}: the line has no end")
        return events


def _read(line: bytes, earliest: int) -> KeyEvent:
    event = convert(loads(line, max_bytes=MAX_BYTES, max_depth=4), KeyEvent)
    if not _is_key(event.kid, event.x):
        raise FormatError(Code.FILE_RULE, "is not the thumbprint of a good Ed25519 key `x`", "/kid")
    if event.time < earliest:
        raise FormatError(Code.FILE_RULE, "is before that of the line above", "/time")
    return event


@lru_cache(1024)
def _is_key(kid: str, x: str) -> bool:
    jwk = {"crv": "Ed25519", "kty": "OKP", "x": x, "kid": kid}
    return jose.parse_key(jwk) is not None and jose.thumbprint(jwk) == kid
