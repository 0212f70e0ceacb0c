"""The checks of folders and files that the settings name: their permissions, and whether their content is valid."""

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

_AS_ITS_USER = "Run this as the service's user. If you do, run `chown -R USER {data}` and `chmod 700 {data}`."


def look_at_places(settings: Settings) -> Iterator[Line]:
    """Yield a line for each named folder and file."""
    for doubt in settings.doubts:
        yield Line("settings", "warning", doubt, "Name only the proxies.")
    yield looked("policies folder", lambda: _guarded(settings.policies_folder, group=True))
    yield looked("keys folder", lambda: _guarded(settings.keys_folder, group=False))
    yield looked("data folder", lambda: _own(settings), step=_AS_ITS_USER.format(data=settings.data))
    yield from surviving("secrets", _look_at_secrets(settings))
    yield from surviving("documents", _look_at_documents(settings))


def nearest_folder(path: Path) -> Path | None:
    """Return the folder if it exists, else its nearest parent that does."""
    return next((each for each in (path, *path.absolute().parents) if each.is_dir()), None)


def _guarded(folder: Path, *, group: bool) -> str:
    files.demand_guarded(folder, group=group)
    return f"{folder}: no other user may write to it"


def _own(settings: Settings) -> str:
    settings.demand_own()
    data = Path(settings.data)
    folder = nearest_folder(data)
    if folder is None or not os.access(folder, os.W_OK | os.X_OK):
        raise SetupError(Code.MACHINE_FAILED, f"this user may not write to {data}")
    return f"this user may write to {data}" if data.is_dir() else f"{data} will be made at the start"


def _look_at_secrets(settings: Settings) -> Iterator[Line]:
    def secret(path: str | Path, read: Callable[[], object]) -> str:
        read()
        return f"{path} is readable only by this user"

    if file := settings.keys.passphrase_file:
        yield looked("passphrase", partial(secret, file, settings.passphrase))
    if settings.store.secret_file or settings.store_secret.exists():
        yield looked("store secret", lambda: secret(settings.store_secret, lambda: read_secret(settings.store_secret)))


def _look_at_documents(settings: Settings) -> Iterator[Line]:
    if path := settings.trust:
        yield looked("trust file", partial(_parsed, path, MAX_TRUST_BYTES, read_trust_file))
    if path := settings.log.witness_policy:
        yield looked("witness policy", partial(_parsed, path, MAX_POLICY_BYTES, parse_policy))


def _parsed(path: str, most: int, parse: Callable[[bytes, str], object]) -> str:
    with reading(path):
        parse(files.read(Path(path), most), path)
    files.demand_guarded(Path(path), group=True)
    return f"{path} is valid"
