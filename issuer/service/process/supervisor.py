"""Several workers on one port: a parent that starts, restarts and stops them.

uvicorn's own supervisor pickles the application, answers SIGHUP by replacing every worker, restarts without a pause,
waits for ever at the end, and leaves orphans when it is killed. gunicorn's arbiter ends where one worker fails to boot,
and takes a worker that drains for one that hangs; granian brings a server of its own. This one forks: a worker is back
in 0.1 s, and shares what was imported. The parent opens no event loop and no connection; it only waits for signals.

Each worker has its own socket (SO_REUSEPORT). On a shared one the first worker that wakes takes a whole burst: 8 of 8
connections went to one of four workers, measured. The kernel leaves out a dead or starting worker.
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
from issuer.service.process.fd_channel import Line, line
from issuer.service.settings.bounds import BEAT_S, MAX_RESTART_PAUSE_S, RESTART_PAUSE_S, STEADY_S

STOPS = (signal.SIGTERM, signal.SIGINT)
_WATCHED = (*STOPS, signal.SIGHUP, signal.SIGCHLD)
# A worker that must not start, and has said why to its parent; EX_CONFIG of sysexits.h.
REFUSED = 78


Beat = Callable[[], None]
# What a worker runs: it gets the number of its place, what it must call while it lives, and its end of the line from
# its parent.
Run = Callable[[int, Beat, Line], None]
_log = structlog.get_logger("issuer")


class Pipes:
    """Three pipes between parent and workers: on one each worker reports that it lives, on one why it must not start,
    and the end of the last shows that the parent does not live."""

    def __init__(self) -> None:
        self._beats_in, self._beats_out = os.pipe()
        self._why_in, self._why_out = os.pipe()
        self._end, self._held = os.pipe()
        for descriptor in (self._beats_in, self._beats_out, self._why_in, self._why_out):
            os.set_blocking(descriptor, False)

    def beat(self) -> None:
        """Report, in a worker, that this process lives. Four bytes are one write; a stalled parent loses them."""
        with suppress(BlockingIOError):
            os.write(self._beats_out, os.getpid().to_bytes(4, "big"))

    def heard(self) -> set[int]:
        """Return, in the parent, the workers that have reported since the last call."""
        reported = b""
        with suppress(BlockingIOError):
            while more := os.read(self._beats_in, 4096):
                reported += more
        return {int.from_bytes(reported[at : at + 4], "big") for at in range(0, len(reported), 4)}

    def refuse(self, error: IssuerError) -> None:
        """Say, in a worker, why it must not start, in one write; what nobody has read yet stays the first word."""
        said = f"{error.code}\0{error if isinstance(error, InputError) else error.detail}\n"
        with suppress(BlockingIOError):
            os.write(self._why_out, said.encode("utf-8", "replace")[: select.PIPE_BUF - 1].rstrip(b"\n") + b"\n")

    def refusal(self) -> SetupError:
        """Return, in the parent, why the first worker that must not start said so."""
        said = b""
        with suppress(BlockingIOError):
            said = os.read(self._why_in, select.PIPE_BUF)
        code, _, detail = said.partition(b"\n")[0].decode("utf-8", "replace").partition("\0")
        return SetupError(Code.named(code) or Code.SETTINGS_INVALID, detail or "a worker did not start")

    def follow_parent(self) -> None:
        """Stop as by SIGTERM when the parent is gone for any reason: the kernel closes its end of the pipe."""
        os.close(self._held)
        threading.Thread(target=self._end_with_parent, daemon=True).start()

    def _end_with_parent(self) -> None:
        os.read(self._end, 1)
        os.kill(os.getpid(), signal.SIGTERM)

    def close(self) -> None:
        """Close all ends."""
        ends = self._beats_in, self._beats_out, self._why_in, self._why_out, self._end, self._held
        for descriptor in ends:
            os.close(descriptor)


@contextmanager
def beating(beat: Beat, come_so_far: Callable[[], int]) -> Iterator[None]:
    """Call `beat` from a thread, as long as `come_so_far` returns another number each time.

    A worker whose loop is long in one turn, because it has much to do, comes on; one that is stopped, or in an endless
    loop, does not. It is silent at zero: it still loads.
    """
    ended = threading.Event()

    def watch() -> None:
        before = 0
        while not ended.wait(BEAT_S / 2):
            if (now := come_so_far()) != before:
                before = now
                beat()

    threading.Thread(target=watch, daemon=True).start()
    try:
        yield
    finally:
        ended.set()


class Beside(Protocol):
    """What a process beside the workers does: `run`, in that process, which is told what a worker is told."""

    name: str

    def run(self, beat: Beat, told: Line) -> NoReturn:
        """Do it, in the process."""


class Keeper(Protocol):
    """What one process keeps for all others: `run`, in that process, finds `changes` in the parent."""

    name: str

    def run(self, beat: Beat) -> NoReturn:
        """Do it, in the process."""

    def changes(self) -> Iterator[int]:
        """Take, in the parent, what was found; yield descriptors that are to be passed on to every other process."""


class Worker:
    """The place of one worker, and its process, if it has one. The log calls it by its `name`."""

    def __init__(self, run: Callable[[Beat, Line], None], silent_s: int, name: str = "worker") -> None:
        self.pid: int | None = None
        self._name = name
        self._run = run
        self._line: Line | None = None
        self.due = 0.0
        self._started = 0.0
        self._starts = 0
        self._failures = 0
        self._silent_s = silent_s
        self._patience = 0

    def start(self, pipes: Pipes) -> None:
        """Fork. The child runs, and never returns."""
        self._started = time.monotonic()
        self._starts += 1
        self._patience = LOADING_S
        if self._line is not None:
            self._line.close()  # what the process before it has not taken
        self._line, end = line()
        pid = os.fork()
        if pid == 0:
            _work(lambda beat: self._run(beat, end), pipes)
        end.close()
        self.pid = pid
        _log.info(f"{self._name} started", pid=pid)

    def reap(self, pipes: Pipes) -> None:
        """Note the end of the process, and when the next one is due.

        Raises SetupError, with its reason, where the first one could not start: nor could any other.
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
        """Note, once a second, who was heard; kill the process when it has been silent for too long.

        Seconds are counted here, not measured: while the parent itself was stopped, no worker counts as silent.
        """
        if self.pid is None:
            return
        self._patience = self._silent_s if self.pid in heard else self._patience - 1
        if self._patience < 0:
            _log.error(f"{self._name} hangs", pid=self.pid)
            self.send(signal.SIGKILL)

    def tell(self, descriptor: int) -> None:
        """Pass a change on. A process that leaves them untaken is killed: the next one begins with all of them."""
        if self.pid is None or self._line is None:
            return
        try:
            self._line.tell(descriptor)
        except OSError as error:
            _log.error(f"{self._name} not told", pid=self.pid, detail=error.strerror)
            self.send(signal.SIGKILL)

    def send(self, number: int) -> None:
        """Pass a signal on."""
        if self.pid is not None:
            os.kill(self.pid, number)


def supervise(
    count: int,
    run: Run,
    grace_s: float,
    silent_s: int = SILENT_S,
    keeper: Keeper | None = None,
    beside: Sequence[Beside] = (),
) -> None:
    """Keep `count` processes in `run` until SIGTERM or SIGINT, then end them; SIGHUP is passed on to each.

    `run` gets a function that it must call at least once in `silent_s` seconds, once it has loaded. Workers that have
    not ended `grace_s` after the signal are killed. A `keeper`, and each of those `beside`, has a process beside them,
    under the same rules, and what the keeper changes is passed on to each. Raises SetupError where they cannot start.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)  # for good: from here on the parent waits for them, one by one
    pipes = Pipes()
    told = [*(Worker(other.run, silent_s, other.name) for other in beside),
            *(Worker(partial(run, number), silent_s) for number in range(count))]  # fmt: skip
    places = [*([Worker(partial(_keep, keeper), silent_s, keeper.name)] if keeper else []), *told]
    listens_at = time.monotonic()
    try:
        while (number := _turn(places, pipes)) not in STOPS:
            for descriptor in keeper.changes() if keeper else ():
                for place in told:
                    place.tell(descriptor)
            if number == signal.SIGHUP:
                _send(places, signal.SIGHUP)
            if (now := time.monotonic()) >= listens_at:
                listens_at = now + BEAT_S
                heard = pipes.heard()
                for place in places:
                    place.listen(heard)
    finally:
        _end(places, grace_s)
        pipes.close()


def _keep(keeper: Keeper, beat: Beat, _told: Line) -> None:
    keeper.run(beat)


def _turn(workers: Sequence[Worker], pipes: Pipes) -> int | None:
    """Start what is due, wait for the next signal, start or beat, and see who has ended. Returns the signal."""
    now = time.monotonic()
    for worker in workers:
        if worker.pid is None and worker.due <= now:
            worker.start(pipes)
    number = _wait(min([BEAT_S, *(worker.due - now for worker in workers if worker.pid is None)]))
    for worker in workers:  # always: several may have ended for one SIGCHLD
        worker.reap(pipes)
    return number


def _wait(seconds: float) -> int | None:
    arrived = signal.sigtimedwait(_WATCHED, max(0.0, seconds))
    return arrived.si_signo if arrived else None


def _send(workers: Sequence[Worker], number: int) -> None:
    for worker in workers:
        worker.send(number)


def _end(workers: Sequence[Worker], grace_s: float) -> None:
    """End every worker: it finishes what is in flight, within its own bound, then within ours."""
    _send(workers, signal.SIGTERM)
    deadline = time.monotonic() + grace_s
    while (left := [worker for worker in workers if worker.pid]) and (wait_s := deadline - time.monotonic()) > 0:
        _wait(wait_s)
        for worker in left:
            _forget(worker, os.WNOHANG)
    _send(workers, signal.SIGKILL)
    for worker in workers:
        _forget(worker, 0)


def _forget(worker: Worker, options: int) -> None:
    if worker.pid is not None and os.waitpid(worker.pid, options)[0]:
        worker.pid = None


# -- the child --------------------------------------------------------------------------------------------------------


def _work(run: Callable[[Beat], None], pipes: Pipes) -> NoReturn:
    """Run in the child, and leave without unwinding what the parent has open: the child must not stop its store."""
    code = 1
    try:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until `reload` takes it: before that, all is loaded anyway
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _WATCHED)
        pipes.follow_parent()
        run(pipes.beat)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0
    except IssuerError as error:
        pipes.refuse(error)
        code = REFUSED
    except BaseException as error:  # noqa: BLE001 (the frames below are the parent's)
        _log.error("worker failed", exc_info=error)
    finally:
        with suppress(OSError):  # a lost log stream must not lead back into the parent's frames either
            sys.stderr.flush()
        os._exit(code)
