"""The file by which a second shell finds the throw-away issuer that runs in the first.

The file contains the request token, which is enough to get tokens of the issuer's providers, so only its owner may read
it. It is valid while the issuer holds the lock beside it. After a kill the lock is free, and another process may have
the port.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec import Struct

from issuer.codes import Code
from issuer.errors import InputError, SetupError
from issuer.io import files

_MAX_BYTES = 4096
_LOOK_S = 0.5  # `find` also holds the lock for a moment
FOLDER = "dev"


class RunningIssuer(Struct, frozen=True):
    """A throw-away issuer: its URL, its local provider's URL, and the token that the provider requires of callers."""

    issuer: str
    provider: str
    request_token: str

    @property
    def port(self) -> str:
        """The port of the issuer, as text."""
        return self.issuer.rpartition(":")[2]


@contextlib.contextmanager
def announced(state: Path | None, running: RunningIssuer) -> Iterator[None]:
    """Keep the file while the block runs. `state` is this program's folder for the user; without one, do nothing."""
    if state is None:
        yield
        return
    path = state / FOLDER / f"{running.port}.json"
    files.make_folder(path.parent)
    _demand_own(path.parent)
    with files.locked(_lock_of(path), wait_s=_LOOK_S):
        files.replace(path, msgspec.json.encode(running), mode=0o600, durable=False)
        try:
            yield
        finally:
            path.unlink(missing_ok=True)
            _lock_of(path).unlink(missing_ok=True)


def find(state: Path | None, port: int | None) -> RunningIssuer:
    """Return the only running issuer, or the one on this port. Raises SetupError."""
    folder = None if state is None else state / FOLDER
    paths = [] if folder is None or not folder.is_dir() else sorted(folder.glob("*.json"))
    if folder is not None and paths:
        _demand_own(folder)
    running = [issuer for issuer in map(_read, paths) if issuer is not None]
    chosen = [issuer for issuer in running if port in {None, int(issuer.port)}]
    if len(chosen) == 1:
        return chosen[0]
    ports = ", ".join(issuer.port for issuer in running)
    if not running:
        raise SetupError(Code.DEV_ABSENT, "`issuer dev` is not running here")
    if port is None:
        raise SetupError(Code.DEV_ABSENT, f"several are running, on the ports {ports}: choose one with --port")
    raise SetupError(Code.DEV_ABSENT, f"port {port} has no `issuer dev`; the running ones have {ports}")


def _read(path: Path) -> RunningIssuer | None:
    """Return the issuer of a file. If the issuer has ended, remove the file and return None."""
    running = None
    try:
        running = msgspec.json.decode(files.read(path, _MAX_BYTES, private=True, follow=False), type=RunningIssuer)
        with files.locked(_lock_of(path), wait_s=0):
            path.unlink(missing_ok=True)
    except BlockingIOError:  # the issuer holds the lock
        return running
    except (InputError, OSError, SetupError, msgspec.MsgspecError):
        pass
    return None


def _lock_of(path: Path) -> Path:
    return path.with_suffix(".lock")


def _demand_own(folder: Path) -> None:
    """Raise SetupError for a folder that other users can write: they could direct this user's requests to a server."""
    status = folder.stat()
    if status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o022:
        detail = f"other users can write to the folder {folder}. Run `chmod 700 {folder}`"
        raise SetupError(Code.CACHE_UNSAFE, detail)
