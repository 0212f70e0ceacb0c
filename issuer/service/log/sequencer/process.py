"""The sequencer process and its watcher, which restarts it at once, and ends it together with the service.

    with SequencerProcess(settings) as socket:      # before the supervisor forks the workers
        ... SequencerLog(socket, settings.origin) in each of them

The supervisor may be killed and then cannot clean up (as with the embedded Valkey), so the sequencer is the child of a
watcher, this module run as a program. The watcher waits for the end of a pipe that only the supervisor and its workers
hold open. It kills a silent sequencer, which may have been stopped while it held the head's lock.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import NoReturn

import msgspec
import structlog
import uvloop
from msgspec import Struct

from issuer.codes import Code
from issuer.errors import IssuerError, SetupError
from issuer.io.bounds import MAX_SOCKET_PATH_BYTES, SILENT_S
from issuer.service.log.bounds import LOG_END_S, LOG_START_S
from issuer.service.log.sequencer.server import serve
from issuer.service.log.sequencer.setup import LogSettings
from issuer.service.settings.bounds import MAX_RESTART_PAUSE_S, RESTART_PAUSE_S, STEADY_S
from issuer.service.settings.log_stream import configure_logging

_log = structlog.get_logger("issuer")


class Word(Struct, frozen=True):
    """The first line from the watcher to the supervisor: the path of the socket, or the error of the start."""

    socket: str = ""
    code: str = ""
    detail: str = ""


class SequencerProcess:
    """`with SequencerProcess(settings) as socket:` yields the path of its socket. Raises SetupError with the code of
    the error that prevented the start."""

    def __init__(self, settings: LogSettings) -> None:
        self._settings = settings
        self._watcher: subprocess.Popen[bytes] | None = None
        self._folder: Path | None = None

    def __enter__(self) -> Path:
        """Start the process, and wait until it listens."""
        # -P and a new session as in admission/embedded.py. The settings have passwords, so they are not arguments.
        self._watcher = subprocess.Popen(
            [sys.executable, "-P", "-m", "issuer.service.log.sequencer.process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        try:
            word = _first_word(self._watcher, self._settings)
        except BaseException:  # a stop signal: Python calls __exit__ only after __enter__ has returned
            self.close()
            raise
        if not word.socket:
            self.close()
            raise SetupError(Code.named(word.code) or Code.STATE_UNREACHABLE, word.detail or "the log did not start")
        self._folder = Path(word.socket).parent
        return Path(word.socket)

    def __exit__(self, *_: object) -> None:
        self.close()

    def demand_running(self) -> None:
        """Raise SetupError if the watcher has ended: the sequencer then ends, too, without a successor."""
        if self._watcher is not None and self._watcher.poll() is not None:
            raise SetupError(Code.STATE_UNREACHABLE, "the log's watcher has ended, so the service ends, too")

    def close(self) -> None:
        """Let the process finish its work, and wait until it has ended. A second call does nothing."""
        watcher, self._watcher = self._watcher, None
        if watcher is not None:
            with watcher:  # the end of the block closes the pipe, which ends the watcher, and waits for it
                pass
            if self._folder is not None:  # a killed watcher leaves it
                shutil.rmtree(self._folder, ignore_errors=True)


def _first_word(watcher: subprocess.Popen[bytes], settings: LogSettings) -> Word:
    assert watcher.stdin is not None  # noqa: S101 (for the type checker)
    assert watcher.stdout is not None  # noqa: S101
    watcher.stdin.write(msgspec.json.encode(settings) + b"\n")
    watcher.stdin.flush()
    line = watcher.stdout.readline()  # the watcher gives up after LOG_START_S
    return msgspec.json.decode(line, type=Word) if line.endswith(b"\n") else Word()


# -- the watcher -----------------------------------------------------------------------------------------------------


class Child:
    """One sequencer process. It writes to the pipe `beats` as long as it runs."""

    def __init__(self, settings: LogSettings, socket: Path, *, first: bool) -> None:
        end, self._keep_running = os.pipe()
        self.beats, beats = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            os.close(self._keep_running)
            os.close(self.beats)
            _live(settings, socket, end, beats, first=first)
        os.close(end)
        os.close(beats)

    def has_ended(self) -> bool:
        """Read the beats; return whether the process has ended."""
        return not os.read(self.beats, 65536)

    def end(self) -> None:
        """Let the process finish its work, and end it."""
        os.close(self._keep_running)
        until = time.monotonic() + LOG_END_S
        while (left := until - time.monotonic()) > 0 and _is_readable(self.beats, left) and not self.has_ended():
            pass
        self.reap()

    def reap(self) -> int:
        """Kill the process if it still runs, and return its exit code."""
        os.kill(self._pid, signal.SIGKILL)
        code = os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])
        os.close(self.beats)
        return code


def watch() -> int:
    """Keep a sequencer running until standard input ends. The first line of standard input has the settings."""
    # A service manager's SIGTERM goes to every process. Only the supervisor decides when the log may end.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    configure_logging()
    settings = msgspec.json.decode(sys.stdin.buffer.readline(), type=LogSettings)
    with tempfile.TemporaryDirectory(prefix="issuer-log-", ignore_cleanup_errors=True) as folder:
        socket = Path(folder, "s")
        if len(os.fsencode(socket)) > MAX_SOCKET_PATH_BYTES:
            _say(Word(detail=f"{folder} is too long a path for a socket: set TMPDIR to a shorter one"))
            return 1
        return _keep_alive(settings, socket)


def _keep_alive(settings: LogSettings, socket: Path) -> int:
    first, failures = True, 0
    while True:
        begun = time.monotonic()
        child = Child(settings, socket, first=first)
        listened, parent_lives = _follow(child)
        if not parent_lives:
            child.end()
            return 0
        code = child.reap()
        if first and not listened:
            return 1  # the supervisor knows the reason
        first, failures = False, 0 if time.monotonic() - begun > STEADY_S else failures + 1
        pause_s = min(MAX_RESTART_PAUSE_S, RESTART_PAUSE_S * 2 ** min(failures, 10))
        _log.warning("log process ended", code=code, next_in_s=pause_s)
        if _is_readable(0, pause_s):
            return 0


def _follow(child: Child) -> tuple[bool, bool]:
    """Wait until the child or the supervisor has ended, or the child is silent. Return whether the child has listened,
    and whether the supervisor lives."""
    listened, patience_s = False, LOG_START_S
    while ready := select.select([0, child.beats], [], [], patience_s)[0]:
        if 0 in ready:
            return listened, False
        if child.has_ended():
            return listened, True
        listened, patience_s = True, float(SILENT_S)
    _log.error("log process hangs")
    return listened, True


def _is_readable(descriptor: int, seconds: float) -> bool:
    return bool(select.select([descriptor], [], [], seconds)[0])


# -- the child -------------------------------------------------------------------------------------------------------


def _live(settings: LogSettings, socket: Path, end: int, beats: int, *, first: bool) -> NoReturn:
    """Run the sequencer, and exit without running the watcher's cleanup: the next child needs the same folder."""
    code = 1
    say = _say if first else lambda _: None  # the supervisor reads only one line
    try:
        listening = partial(say, Word(socket=str(socket)))
        uvloop.run(serve(settings, socket, end, beats, listening, again=not first))
        code = 0
    except IssuerError as error:
        if not first:  # at the first start the supervisor reports the error
            _log.error("log start refused", code=str(error.code), detail=error.detail)
        say(Word(code=str(error.code), detail=error.detail))
    except BaseException as error:  # noqa: BLE001 (the outer frames are the watcher's)
        _log.error("log process failed", exc_info=error)
    finally:
        os._exit(code)


def _say(word: Word) -> None:
    os.write(1, msgspec.json.encode(word) + b"\n")


if __name__ == "__main__":
    sys.exit(watch())
