"""Folders and files that the settings name: who may read and write them, and whether what is in them can be read."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from issuer.codes import Code
from issuer.errors import SetupError, reading
from issuer.formats.findings import Line, looked, surviving
from issuer.io import files
from issuer.io.bounds import MAX_TRUST_BYTES
from issuer.service.admission.secret_file import read_secret
from issuer.service.settings.model import Settings
from issuer.tlog.witness_policy import MAX_POLICY_BYTES, parse_policy
from issuer.verify.trust import read_trust_file

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


def nearest_folder(path: Path) -> Path | None:
    """Return the folder, or where it is missing the one that it would be made in."""
    return next((each for each in (path, *path.absolute().parents) if each.is_dir()), None)


def _guarded(folder: Path, *, group: bool) -> str:
    files.demand_guarded(folder, group=group)
    return f"{folder}: nobody else may write to it"


def _writable(data: Path) -> str:
    folder = nearest_folder(data)
    if folder is None or not os.access(folder, os.W_OK | os.X_OK):
        raise SetupError(Code.MACHINE_FAILED, f"{data} may not be written")
    return f"{data} may be written" if data.is_dir() else f"{data} is made at the start"


def _look_at_secrets(settings: Settings) -> Iterator[Line]:
    def secret(path: str | Path, read: Callable[[], object]) -> str:
        read()
        return f"{path} can be read, and by nobody else"

    if file := settings.keys.passphrase_file:
        yield looked("passphrase", partial(secret, file, settings.passphrase))
    if settings.store.secret_file or settings.store_secret.exists():
        yield looked("store secret", lambda: secret(settings.store_secret, lambda: read_secret(settings.store_secret)))


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
