"""Lets time pass in a history of signing keys, as if services had run."""

from pathlib import Path

import msgspec
from msgspec.structs import replace

from issuer.io.common_documents import FolderHome
from issuer.service.signing.history import KeyHistory
from issuer.service.signing.lifecycle import KeyEvent


def events(data: Path) -> list[KeyEvent]:
    raw = Path(KeyHistory(FolderHome(data)).place).read_bytes()
    return [msgspec.json.decode(line, type=KeyEvent) for line in raw.splitlines()]


def pass_time(data: Path, seconds: int) -> None:
    """Move the history into the past, after services have published the next keys."""
    history = KeyHistory(FolderHome(data))
    history.record(lambda lives: [
        KeyEvent(life.since, "published", life.kid, life.x, "service")
        for life in lives.values() if life.what == "next" and life.published is None
    ])  # fmt: skip
    aged = [replace(event, time=event.time - seconds) for event in events(data)]
    Path(history.place).write_bytes(b"".join(msgspec.json.encode(event) + b"\n" for event in aged))
