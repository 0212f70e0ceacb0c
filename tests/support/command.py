"""The `issuer` command as a separate process, forked from one that has loaded the packages already.

It has its own arguments, environment, streams and exit code. Loading the packages takes ten times as long as most
commands, and longer than the start of the service; unloading them takes as long again. Tests of imports and of the end of
Python start Python instead.
"""

import atexit
import contextlib
import functools
import gc
import importlib
import itertools
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import IO

from tests.support.shared import ROOT

# The commands, with the modules that they, and the packages of the service, load when they run.
LOADED = (
    *(".".join(path.relative_to(ROOT).with_suffix("").parts) for path in sorted(ROOT.glob("issuer/cli/**/[a-z]*.py"))),
    "issuer.io.keyfile",
    "issuer.relying.verifier",
    "issuer.service.log.sequencer.restore",
    "issuer.service.process.server",
    "issuer.witness.server",
    "anyio._backends._asyncio",
    "litestar.plugins.attrs",
    "uvicorn.lifespan.on",
    "uvicorn.loops.uvloop",
)
LONGEST_S = 120
_numbers = itertools.count()
_one = threading.Lock()


def clean() -> dict[str, str]:
    """Return this process's environment without the command's variables."""
    own = ("ISSUER_", "ACTIONS_", "GITHUB_")
    return {name: value for name, value in os.environ.items() if not name.startswith(own)}


class Forked:
    """A running command: the part of `subprocess.Popen` that tests use, for the child of another process."""

    def __init__(self, arguments: list[str], env: dict[str, str], streams: list[int], longest_s: int = 0) -> None:
        self.args = arguments
        self.returncode: int | None = None
        self._ends, theirs = socket.socketpair()
        with theirs:
            socket.send_fds(_starter(), [b"\n"], [theirs.fileno(), *streams])
        self._ends.sendall(json.dumps([arguments, env, str(Path.cwd()), longest_s]).encode())
        self._ends.shutdown(socket.SHUT_WR)
        self.pid = int.from_bytes(self._ends.recv(4, socket.MSG_WAITALL))

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its exit code, or minus the signal that ended it. Raises subprocess.TimeoutExpired."""
        if self.returncode is None:
            self._ends.settimeout(timeout)
            try:
                self.returncode = int(self._ends.recv(16))
            except (TimeoutError, BlockingIOError):
                raise subprocess.TimeoutExpired(self.args, timeout or 0.0) from None
            self._ends.close()
        return self.returncode

    def poll(self) -> int | None:
        """Return its exit code, None as long as it runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def issuer(*arguments: object, env: dict[str, str] | None = None, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Run the command; no stream of it is a terminal."""
    argv = list(map(str, arguments))
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        given.write(stdin.encode())
        given.seek(0)
        environment = {**clean(), "XDG_STATE_HOME": str(new_home()), **(env or {})}
        code = Forked(argv, environment, [given.fileno(), out.fileno(), err.fileno()], LONGEST_S).wait()
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(argv, code, out.read().decode(), err.read().decode())


def start_issuer(arguments: Iterable[object], env: dict[str, str], log: IO[bytes]) -> Forked:
    """Start the command, which runs until it is ended; its output and errors go to the log."""
    with open(os.devnull, "rb") as nothing:
        return Forked(list(map(str, arguments)), env, [nothing.fileno(), log.fileno(), log.fileno()])


def install_issuer(folder: Path) -> int:
    """Write the command `issuer` for a shell into a new folder; return the descriptor that the shell must inherit."""
    starter = _starter().fileno()
    folder.mkdir()
    (folder / "issuer").write_text(_SHELL_COMMAND.format(python=sys.executable, starter=starter, longest_s=LONGEST_S))
    (folder / "issuer").chmod(0o700)
    return starter


_SHELL_COMMAND = """#!{python} -IS
import json, os, socket, sys
ours, theirs = socket.socketpair()
socket.send_fds(socket.socket(fileno={starter}), [b"\\n"], [theirs.fileno(), 0, 1, 2])
theirs.close()
ours.sendall(json.dumps([sys.argv[1:], dict(os.environ), os.getcwd(), {longest_s}]).encode())
ours.shutdown(socket.SHUT_WR)
sys.exit(int(ours.makefile('rb').read()[4:]))
"""


def new_home() -> Path:
    """Return a home in which no command has run, so that it remembers nothing of another one, nor of the user."""
    return Path(_states().name, str(next(_numbers)))


@functools.cache
def _states() -> tempfile.TemporaryDirectory[str]:
    folder = tempfile.TemporaryDirectory()
    atexit.register(folder.cleanup)
    return folder


def _starter() -> socket.socket:
    with _one:
        return _start()


@functools.cache
def _start() -> socket.socket:
    """Start the process that all commands are forked from. It ends when the last holder closes the socket."""
    ours, theirs = socket.socketpair()
    with theirs:
        command = [sys.executable, "-m", "tests.support.command", str(theirs.fileno())]
        process = subprocess.Popen(
            command, cwd=ROOT, env=clean(), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, pass_fds=[theirs.fileno()]
        )  # fmt: skip
    atexit.register(process.wait)
    atexit.register(ours.close)
    return ours


def _whole(connection: socket.socket) -> bytes:
    with connection.makefile("rb") as file:
        return file.read()


def _fork_all(requests: socket.socket) -> None:
    """Fork each command, and a process that waits for it; return in the command."""
    for name in LOADED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while fds := socket.recv_fds(requests, 1, 4)[1]:
        if os.fork():
            for fd in fds:
                os.close(fd)
            continue
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        requests.close()
        with socket.socket(fileno=fds[0]) as caller:
            argv, environment, folder, longest_s = json.loads(_whole(caller))
            if command := os.fork():
                caller.sendall(command.to_bytes(4))
                code = os.waitstatus_to_exitcode(os.waitpid(command, 0)[1])
                caller.sendall(str(code).encode())
                os._exit(0)
        signal.alarm(longest_s)
        return _become(argv, environment, folder, fds[1:])
    sys.exit()


def _become(argv: list[str], environment: dict[str, str], folder: str, streams: list[int]) -> None:
    for number, fd in enumerate(streams):
        os.dup2(fd, number)
        os.close(fd)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.argv = ["issuer", *argv]


if __name__ == "__main__":
    _fork_all(socket.socket(fileno=int(sys.argv[1])))
    try:
        runpy.run_module("issuer", run_name="__main__")
    except SystemExit as end:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(int(end.code or 0))
