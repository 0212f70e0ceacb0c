"""How a second shell finds the throw-away issuer that runs in the first: by a file of the user's own.

The file holds the request token, by which anybody gets tokens of that issuer's providers: it is for its owner alone. It
counts while its issuer holds the lock beside it: a killed one holds none, and somebody else may listen at its port now.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from issuer.codes import Code
from issuer.errors import InputError, SetupError
from issuer.io import files

_MAX_BYTES = 4096
_LOOK_S = 0.5  # a lock is held for a moment by who looks, too
FOLDER = "dev"


class RunningIssuer(Struct, frozen=True):
    """A throw-away issuer: its URL, its local provider's, and what that demands of who asks for a token."""

    issuer: str
    provider: str
    request_token: str

    @property
    def port(self) -> str:
        """The port of the issuer, as text."""
        return self.issuer.rpartition(":")[2]


@contextlib.contextmanager
def announced(state: Path | None, found: RunningIssuer) -> Iterator[None]:
    """Keep the file while a throw-away issuer runs. `state` is this program's folder for the user, None without one."""
    if state is None:
        yield
        return
    path = state / FOLDER / f"{found.port}.json"
    files.make_folder(path.parent)
    _demand_own(path.parent)
    with files.locked(_lock_of(path), wait_s=_LOOK_S):
        files.replace(path, msgspec.json.encode(found), mode=0o600, durable=False)
        try:
            yield
        finally:
            path.unlink(missing_ok=True)
            _lock_of(path).unlink(missing_ok=True)


def find(state: Path | None, port: int | None) -> RunningIssuer:
    """Return the one that runs, or the one on this port. Raises SetupError."""
    folder = None if state is None else state / FOLDER
    paths = [] if folder is None or not folder.is_dir() else sorted(folder.glob("*.json"))
    if folder is not None and paths:
        _demand_own(folder)
    running = [found for found in map(_read, paths) if found is not None]
    chosen = [found for found in running if port in {None, int(found.port)}]
    if len(chosen) == 1:
        return chosen[0]
    raise SetupError(Code.DEV_ABSENT, _which([found.port for found in running], port))


def _which(ports: Sequence[str], port: int | None) -> str:
    if not ports:
        return "no `issuer dev` runs here"
    if port is None:
        return f"several run, on the ports {', '.join(ports)}: choose one by --port"
    return f"none runs on port {port}, but on {', '.join(ports)}"


def _read(path: Path) -> RunningIssuer | None:
    """Read one file; None for one of an issuer that is no longer there, which is removed."""
    try:
        found = msgspec.json.decode(files.read(path, _MAX_BYTES, private=True, follow=False), type=RunningIssuer)
        return None if _is_gone(path) else found
    except (InputError, OSError, SetupError, msgspec.MsgspecError):
        return None


def _is_gone(path: Path) -> bool:
    try:
        with files.locked(_lock_of(path), wait_s=0):
            path.unlink(missing_ok=True)
            return True
    except BlockingIOError:
        return False


def _lock_of(path: Path) -> Path:
    return path.with_suffix(".lock")


def _demand_own(folder: Path) -> None:
    """Raise SetupError for a folder that others can write to: they would choose who mints this user's tokens."""
    found = folder.stat()
    if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o022:
        detail = f"the folder {folder} can be written by others. Run `chmod 700 {folder}`"
        raise SetupError(Code.CACHE_UNSAFE, detail)
