"""Folders and files that the settings name: who may read and write them, and whether what is in them can be read."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from issuer import files
from issuer.codes import Code
from issuer.diagnosis import Line, failed, looked, surviving
from issuer.errors import SetupError, reading
from issuer.formats.times import show_span
from issuer.service.admission.secret_file import read_secret
from issuer.service.backed_up import backed_up_at
from issuer.service.bounds import BACKUP_OLD_S, FEW_FREE_BYTES, MAX_TRUST_BYTES, MIN_FREE_BYTES
from issuer.service.settings import Settings
from issuer.tlog.witness_policy import MAX_POLICY_BYTES, parse_policy
from issuer.verify.trust import read_trust_file

_MIB = 1024 * 1024
_AS_ITS_USER = "Run this as the service's user; else `chown -R USER {data}`, and `chmod 700 {data}`."


def look_at_places(settings: Settings) -> Iterator[Line]:
    """Yield a line for each folder and file that is named."""
    for doubt in settings.doubts:
        yield Line("settings", "warning", doubt, "Name the proxies alone.")
    yield looked("policies folder", lambda: _guarded(settings.policies_folder, group=True))
    yield looked("keys folder", lambda: _guarded(settings.keys_folder, group=False))
    yield looked("data folder", lambda: _writable(Path(settings.data)), step=_AS_ITS_USER.format(data=settings.data))
    yield from surviving("secrets", _look_at_secrets(settings))
    yield from surviving("documents", _look_at_documents(settings))


def look_at_disk(settings: Settings) -> Iterator[Line]:
    """Yield how much room there is, where the service writes: below 1 MiB it is not ready any more."""
    for name, path in (("disk of data", settings.data), ("disk of log records", settings.log.records)):
        if path and (folder := _there(Path(path))) is not None:
            yield _look_at_room(name, folder)


def _there(path: Path) -> Path | None:
    """Return the folder, or where it is missing the one that it would be made in."""
    return next((each for each in (path, *path.absolute().parents) if each.is_dir()), None)


def _look_at_room(name: str, folder: Path) -> Line:
    free = shutil.disk_usage(folder).free
    detail = f"{free // _MIB} MiB are free at {folder}"
    if free < MIN_FREE_BYTES:
        error = SetupError(Code.MACHINE_FAILED, detail)
        return failed(name, error, step=f"Make room, or give it a volume of its own: `df -h {folder}`.")
    if free < FEW_FREE_BYTES:
        return Line(name, "warning", detail, f"Make room before the audit cannot be written: `df -h {folder}`.")
    return Line(name, "pass", detail)


def look_at_backup(settings: Settings, now: int) -> Iterator[Line]:
    """Yield how old the last copy is of what must not be lost, at `now` in Unix seconds."""
    at, step = backed_up_at(Path(settings.data)), "Run deploy/backup.sh by its timer, as deploy/STATE.md says."
    if at is None:
        yield Line("backup", "warning", f"{settings.data} was never copied by deploy/backup.sh", step)
    elif now - at > BACKUP_OLD_S:
        step = "Look why it does not run: `systemctl status issuer-backup.timer issuer-backup.service`."
        yield Line("backup", "warning", f"{settings.data} was last copied {show_span(now - at)} ago", step)
    else:
        yield Line("backup", "pass", f"{settings.data} was copied {show_span(max(0, now - at))} ago")


def _guarded(folder: Path, *, group: bool) -> str:
    files.demand_guarded(folder, group=group)
    return f"{folder}: nobody else may write to it"


def _writable(data: Path) -> str:
    folder = _there(data)
    if folder is None or not os.access(folder, os.W_OK | os.X_OK):
        raise SetupError(Code.MACHINE_FAILED, f"{data} may not be written")
    return f"{data} may be written" if data.is_dir() else f"{data} is made at the start"


def _look_at_secrets(settings: Settings) -> Iterator[Line]:
    if settings.keys.passphrase_file:
        yield looked("passphrase", lambda: _read_passphrase(settings))
    if settings.store.secret_file or settings.store_secret.exists():
        yield looked("store secret", lambda: _read_store_secret(settings))


def _read_passphrase(settings: Settings) -> str:
    settings.passphrase()
    return f"{settings.keys.passphrase_file} can be read, and by nobody else"


def _read_store_secret(settings: Settings) -> str:
    read_secret(settings.store_secret)
    return f"{settings.store_secret} can be read, and by nobody else"


def _look_at_documents(settings: Settings) -> Iterator[Line]:
    parsers: tuple[tuple[str, str, int, Callable[[bytes, str], object]], ...] = (
        ("trust file", settings.trust, MAX_TRUST_BYTES, read_trust_file),
        ("witness policy", settings.log.witness_policy, MAX_POLICY_BYTES, parse_policy),
    )
    for name, path, most, parse in parsers:
        if path:
            yield looked(name, partial(_parsed, path, most, parse))


def _parsed(path: str, most: int, parse: Callable[[bytes, str], object]) -> str:
    with reading(path):
        parse(files.read(Path(path), most), path)
    return f"{path} is one"
