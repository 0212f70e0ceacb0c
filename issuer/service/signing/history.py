"""The history of the signing keys in a file of JSON Lines, beside the audit: what happened to each, who did it and why.

It only grows. All hosts that share the folder write to one file, under one lock, and by replacing it: a crash leaves
the old history or the new one. life.py says what follows from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
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
MAX_BYTES = 4 * 1024 * 1024


class KeyHistory:
    """The history in a folder. Reads and writes block: call them from a thread."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE

    def read(self) -> Lives:
        """Return the life of each key; none where there is no history yet. Raises SetupError and OSError."""
        return fold(self._events())

    def record(self, decide: Callable[[Lives], Iterable[KeyEvent]]) -> Lives:
        """Add the events that `decide` returns for the history as it is now, and return the lives after them.

        They are on the disk when this returns. No event is dated before the last one, whatever the clock says. Raises
        SetupError and OSError, and what `decide` raises; then nothing was added.
        """
        files.make_folder(self.path.parent)
        with files.locked(self.path.with_suffix(".lock"), shared=True):
            events = self._events()
            earliest = max((event.time for event in events), default=0)
            new = [replace(event, time=max(event.time, earliest)) for event in decide(fold(events))]
            if new:
                raw = b"".join(msgspec.json.encode(event) + b"\n" for event in [*events, *new])
                if len(raw) > MAX_BYTES:
                    raise SetupError(Code.KEY_HISTORY, f"{self.path} would have more than {MAX_BYTES} bytes")
                files.replace(self.path, raw, mode=0o600, durable=True, shared=True)
            return fold([*events, *new])

    def _events(self) -> list[KeyEvent]:
        try:
            raw = files.read(self.path, MAX_BYTES, follow=False)
        except FileNotFoundError:
            return []
        except InputError as error:
            raise SetupError(Code.KEY_HISTORY, f"{self.path}: {error.detail}") from None
        return [self._event(number, line) for number, line in enumerate(raw.splitlines(), 1)]

    def _event(self, number: int, line: bytes) -> KeyEvent:
        try:
            return _read(line)
        except FormatError as error:
            raise SetupError(Code.KEY_HISTORY, f"{self.path}:{number}: {error.pointer} {error.detail}") from None


def _read(line: bytes) -> KeyEvent:
    event = convert(loads(line, max_bytes=MAX_BYTES, max_depth=4), KeyEvent)
    if jose.thumbprint({"crv": "Ed25519", "kty": "OKP", "x": event.x}) != event.kid:
        raise FormatError(Code.FILE_RULE, "is not the thumbprint of x", "/kid")
    return event
