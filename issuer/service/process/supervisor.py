"""The supervisor: it forks the workers and the helper, restarts them, and ends them.

uvicorn's own supervisor pickles the application, answers SIGHUP by replacing every worker, restarts without a pause,
waits for ever at the end, and leaves orphans when it is killed. gunicorn's arbiter ends if one worker fails to boot,
and kills a worker that is only draining; granian brings its own server. This one forks: a worker is back in 0.1 s,
and shares what was imported. The supervisor has no event loop and no connection; it only waits for signals.

Each worker has its own socket (SO_REUSEPORT). On a shared one the first worker that wakes takes a whole burst: we
measured 8 of 8 connections at one of four workers. The kernel skips a worker that is dead or still starting.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import NoReturn, Protocol

import structlog

from issuer.codes import Code
from issuer.errors import InputError, IssuerError, SetupError
from issuer.io.bounds import SILENT_S
from issuer.service.process.bounds import LOADING_S
from issuer.service.process.fd_channel import Channel, channel
from issuer.service.settings.bounds import BEAT_S, MAX_RESTART_PAUSE_S, RESTART_PAUSE_S, STEADY_S

STOPS = (signal.SIGTERM, signal.SIGINT)
_WATCHED = (*STOPS, signal.SIGHUP, signal.SIGCHLD)
# The exit code of a worker that must not start and has reported why; EX_CONFIG of sysexits.h.
REFUSED = 78

Beat = Callable[[], None]
# The work of a worker: it gets the number of its place, its beat, and its end of the channel.
Run = Callable[[int, Beat, Channel], None]
# Raises SetupError if another process, without which the service cannot work, has ended.
Demand = Callable[[], None]
_log = structlog.get_logger("issuer")


class Pipes:
    """Three pipes between the supervisor and its processes: for beats, for refusals to start, and one that is never
    written: its end of file shows a process that the supervisor is dead."""

    def __init__(self, grace_s: float) -> None:
        self._grace_s = grace_s
        self._beats_in, self._beats_out = os.pipe()
        self._why_in, self._why_out = os.pipe()
        self._end, self._held = os.pipe()
        for descriptor in (self._beats_in, self._beats_out, self._why_in, self._why_out):
            os.set_blocking(descriptor, False)

    def beat(self) -> None:
        """Report, in a child, that the child is alive. Each report is one write, and is lost while the pipe is full."""
        with suppress(BlockingIOError):
            os.write(self._beats_out, os.getpid().to_bytes(4, "big"))

    def heard(self) -> set[int]:
        """Return, in the supervisor, the children that have reported since the last call."""
        reported = b""
        with suppress(BlockingIOError):
            while more := os.read(self._beats_in, 4096):
                reported += more
        return {int.from_bytes(reported[at : at + 4], "big") for at in range(0, len(reported), 4)}

    def refuse(self, error: IssuerError) -> None:
        """Report, in a child, why it must not start, in one write. The first unread report wins."""
        said = f"{error.code}\0{error if isinstance(error, InputError) else error.detail}\n"
        with suppress(BlockingIOError):
            os.write(self._why_out, said.encode("utf-8", "replace")[: select.PIPE_BUF - 1].rstrip(b"\n") + b"\n")

    def refusal(self) -> SetupError:
        """Return, in the supervisor, the first reason that a child reported."""
        said = b""
        with suppress(BlockingIOError):
            said = os.read(self._why_in, select.PIPE_BUF)
        code, _, detail = said.partition(b"\n")[0].decode("utf-8", "replace").partition("\0")
        return SetupError(Code.named(code) or Code.SETTINGS_INVALID, detail or "a worker did not start")

    def follow_parent(self) -> None:
        """Close the supervisor's ends, in a child. End as the supervisor would end this process, if the supervisor dies
        for any reason: the kernel then closes its end of the third pipe."""
        for descriptor in (self._beats_in, self._why_in, self._held):
            os.close(descriptor)
        threading.Thread(target=self._end_with_parent, daemon=True).start()

    def _end_with_parent(self) -> None:
        os.read(self._end, 1)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(self._grace_s)
        os.kill(os.getpid(), signal.SIGKILL)

    def close(self) -> None:
        """Close all ends."""
        ends = self._beats_in, self._beats_out, self._why_in, self._why_out, self._end, self._held
        for descriptor in ends:
            os.close(descriptor)


@contextmanager
def beating(beat: Beat, progress: Callable[[], int]) -> Iterator[None]:
    """Call `beat` from a thread, as long as `progress` returns a new number each time.

    A worker that is busy for long in one turn of its loop still makes progress; one that is stopped, or in an endless
    loop, does not. While the number is zero, the worker is loading, and sends no beat.
    """
    ended = threading.Event()

    def watch() -> None:
        before = 0
        while not ended.wait(BEAT_S / 2):
            if (now := progress()) != before:
                before = now
                beat()

    threading.Thread(target=watch, daemon=True).start()
    try:
        yield
    finally:
        ended.set()


class HelperProcess(Protocol):
    """One process beside the workers. `run` is its work; `changes` takes, in the supervisor, what it has sent, and
    yields descriptors to pass on to every worker."""

    def run(self, beat: Beat) -> NoReturn:
        """Do the work, in the helper."""

    def changes(self) -> Iterator[int]:
        """Take the changes, in the supervisor."""


class Worker:
    """The place of one worker or of the helper, and its process, if any. `name` is its name in the log stream."""

    def __init__(self, run: Callable[[Beat, Channel], None], silent_s: int, name: str = "worker") -> None:
        self.pid: int | None = None
        self._name = name
        self._run = run
        self._channel: Channel | None = None
        self.due = 0.0
        self._started = 0.0
        self._starts = 0
        self._failures = 0
        self._silent_s = silent_s
        self._patience = 0

    def start(self, pipes: Pipes, places: Sequence[Worker] = ()) -> None:
        """Fork. The child runs, and never returns. It closes the supervisor's channels to all `places`: it could send
        changes to the other processes by these."""
        self._started = time.monotonic()
        self._starts += 1
        self._patience = LOADING_S
        self.close()  # drops the changes that the previous process did not receive
        self._channel, end = channel()
        pid = os.fork()
        if pid == 0:
            for place in (self, *places):
                place.close()
            _work(lambda beat: self._run(beat, end), pipes)
        end.close()
        self.pid = pid
        _log.info(f"{self._name} started", pid=pid)

    def reap(self, pipes: Pipes) -> None:
        """Note the end of the process, and when the next one is due.

        Raises SetupError, with the reason, if the first process must not start: no later one could.
        """
        if self.pid is None:
            return
        ended, status = os.waitpid(self.pid, os.WNOHANG)
        if not ended:
            return
        self.pid, code = None, os.waitstatus_to_exitcode(status)
        if code == REFUSED:
            refusal = pipes.refusal()
            if self._starts == 1:
                raise refusal
            _log.error("start refused", code=str(refusal.code), detail=refusal.detail)
        now = time.monotonic()
        self._failures = 0 if now - self._started > STEADY_S else self._failures + 1
        pause_s = min(MAX_RESTART_PAUSE_S, RESTART_PAUSE_S * 2 ** min(self._failures, 10))
        self.due = now + pause_s
        _log.warning(f"{self._name} ended", pid=ended, code=code, next_in_s=pause_s)

    def listen(self, heard: Collection[int]) -> None:
        """Note, once a second, which processes were heard; kill this one if it has been silent for too long.

        The supervisor counts its own seconds: while it was stopped itself, no process counts as silent.
        """
        if self.pid is None:
            return
        self._patience = self._silent_s if self.pid in heard else self._patience - 1
        if self._patience < 0:
            _log.error(f"{self._name} hangs", pid=self.pid)
            self.signal(signal.SIGKILL)

    def pass_on(self, descriptor: int) -> None:
        """Send a change. If the process no longer receives changes, kill it: the next one begins with all of them."""
        if self.pid is None or self._channel is None:
            return
        try:
            self._channel.send(descriptor)
        except OSError as error:
            _log.error(f"{self._name} received no change", pid=self.pid, detail=error.strerror)
            self.signal(signal.SIGKILL)

    def close(self) -> None:
        """Close the channel to the process."""
        if self._channel is not None:
            self._channel.close()

    def signal(self, number: int) -> None:
        """Send a signal to the process, if there is one."""
        if self.pid is not None:
            os.kill(self.pid, number)


def supervise(
    count: int,
    run: Run,
    grace_s: float,
    silent_s: int = SILENT_S,
    helper: HelperProcess | None = None,
    demands: Sequence[Demand] = (),
) -> None:
    """Keep `count` workers and the helper alive until SIGTERM or SIGINT, then end them; pass SIGHUP on to each.

    `run` must call its beat at least once in `silent_s` seconds, as soon as it has loaded. Workers that have not ended
    `grace_s` after the signal are killed. The helper has the same rules. Raises SetupError if one must not start, or
    from one of the `demands`, which is called at least once in `BEAT_S` seconds.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)  # for good: sigtimedwait takes them one by one
    pipes = Pipes(grace_s)
    workers = [Worker(partial(run, number), silent_s) for number in range(count)]
    places = [*([Worker(lambda beat, _: helper.run(beat), silent_s, "helper")] if helper else []), *workers]
    listens_at = time.monotonic()
    try:
        while (number := _turn(places, pipes)) not in STOPS:
            for demand in demands:
                demand()
            for descriptor in helper.changes() if helper else ():
                for worker in workers:
                    worker.pass_on(descriptor)
            if number == signal.SIGHUP:
                _signal(places, signal.SIGHUP)
            if (now := time.monotonic()) >= listens_at:
                listens_at = now + BEAT_S
                heard = pipes.heard()
                for place in places:
                    place.listen(heard)
    finally:
        _end(places, grace_s)
        pipes.close()


def _turn(workers: Sequence[Worker], pipes: Pipes) -> int | None:
    """Start what is due, wait for a signal or the next beat, and reap what has ended. Return the signal, or None."""
    now = time.monotonic()
    for worker in workers:
        if worker.pid is None and worker.due <= now:
            worker.start(pipes, workers)
    number = _wait(min([BEAT_S, *(worker.due - now for worker in workers if worker.pid is None)]))
    for worker in workers:  # always: several may have ended for one SIGCHLD
        worker.reap(pipes)
    return number


def _wait(seconds: float) -> int | None:
    arrived = signal.sigtimedwait(_WATCHED, max(0.0, seconds))
    return arrived.si_signo if arrived else None


def _signal(workers: Sequence[Worker], number: int) -> None:
    for worker in workers:
        worker.signal(number)


def _end(workers: Sequence[Worker], grace_s: float) -> None:
    """End every process: each may finish its requests, and is killed if it still runs after `grace_s`."""
    _signal(workers, signal.SIGTERM)
    deadline = time.monotonic() + grace_s
    while (left := [worker for worker in workers if worker.pid]) and (wait_s := deadline - time.monotonic()) > 0:
        _wait(wait_s)
        for worker in left:
            _forget(worker, os.WNOHANG)
    _signal(workers, signal.SIGKILL)
    for worker in workers:
        _forget(worker, 0)


def _forget(worker: Worker, options: int) -> None:
    if worker.pid is not None and os.waitpid(worker.pid, options)[0]:
        worker.pid = None


# -- the child --------------------------------------------------------------------------------------------------------


def _work(run: Callable[[Beat], None], pipes: Pipes) -> NoReturn:
    """Run in the child, and exit without unwinding the supervisor's frames: the child must not stop the store."""
    code = 1
    try:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until the files are watched: the start loads them anyway
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _WATCHED)
        pipes.follow_parent()
        run(pipes.beat)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0
    except IssuerError as error:
        pipes.refuse(error)
        code = REFUSED
    except BaseException as error:  # noqa: BLE001 (the frames below are the supervisor's)
        _log.error("worker failed", exc_info=error)
    finally:
        with suppress(OSError):  # even a lost log stream must not unwind the supervisor's frames
            sys.stderr.flush()
        os._exit(code)
