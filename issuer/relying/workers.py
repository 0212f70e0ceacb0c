"""Forked processes that answer messages; answers come in the order of the messages.

We fork, because the workers inherit keys, which no message could carry. This file does not know the work. A process
that dies costs only its current message. We considered ProcessPoolExecutor, which one death breaks;
multiprocessing.Pool, which then hangs; and Pebble, which needs three threads for this.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait

from msgspec import Struct

Work = Callable[[bytes], bytes]


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _Task(Struct):
    """A message that a worker has, its answer, and whether the worker has answered or died (`over`)."""

    message: bytes
    over: bool = False
    answer: bytes | None = None


class WorkerPool:
    """A number of workers, which start with `with WorkerPool(...)` and end with the block or with the parent."""

    def __init__(self, jobs: int, work: Work) -> None:
        self._work = work
        self._jobs = jobs
        self._workers: list[_Worker] = []
        self._froze = False

    def __enter__(self) -> WorkerPool:
        """Start the workers."""
        self._froze = not gc.get_freeze_count()  # the caller may have frozen its objects already
        if self._froze:
            gc.collect()
            gc.freeze()  # else a worker's collection would write to, and so copy, every shared page
        for _ in range(self._jobs):
            self._workers.append(_Worker(self._work, self._workers))
        return self

    def __exit__(self, *_: object) -> None:
        """Kill every worker, even during its work."""
        for worker in self._workers:
            worker.end()
        if self._froze:
            gc.unfreeze()

    def map(self, messages: Iterable[bytes]) -> Iterator[tuple[bytes, bytes | None]]:
        """Yield each message with its answer, in order; None if its process died."""
        source, tasks = iter(messages), deque[_Task]()
        while True:
            for worker in self._workers:
                # Limit how far others get ahead of a slow message, because their answers are kept until it is done.
                if worker.task is None and len(tasks) < 4 * self._jobs and (message := next(source, None)) is not None:
                    tasks.append(_Task(message))
                    worker.send(tasks[-1])
            busy = {worker.pipe: worker for worker in self._workers if worker.task is not None}
            if not busy:
                return
            for pipe in wait(list(busy)):
                if not busy[pipe].receive():  # type: ignore[index]
                    self._replace(busy[pipe])  # type: ignore[index]
            while tasks and tasks[0].over:
                task = tasks.popleft()
                yield task.message, task.answer

    def _replace(self, dead: _Worker) -> None:
        dead.end()
        others = [worker for worker in self._workers if worker is not dead]
        self._workers = [*others, _Worker(self._work, others)]


class _Worker:
    """A process at the other end of a pipe. It gets one message at a time: two could fill both directions and block."""

    def __init__(self, work: Work, others: Iterable[_Worker]) -> None:
        forking = get_context("fork")
        self.task: _Task | None = None
        self.pipe, theirs = forking.Pipe()
        inherited = [self.pipe, *(other.pipe for other in others)]
        self._process = forking.Process(target=_serve, args=(theirs, inherited, work), daemon=True)
        # Ctrl-C goes to the whole process group. Only the parent may act on it, even while this worker starts.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            self._process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        theirs.close()

    def send(self, task: _Task) -> None:
        """Send a message."""
        self.task = task
        with contextlib.suppress(OSError):  # it has died: `receive` notices
            self.pipe.send_bytes(task.message)

    def receive(self) -> bool:
        """Receive the answer; False if the process died."""
        task, self.task = self.task, None
        if task is not None:
            task.over = True
            try:
                task.answer = self.pipe.recv_bytes()
            except (EOFError, OSError):
                return False
        return True

    def end(self) -> None:
        """End the process."""
        self.pipe.close()
        self._process.kill()
        self._process.join()


def _serve(pipe: Connection, inherited: Iterable[Connection], work: Work) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    for other in inherited:  # else other workers would not notice that the parent ended
        other.close()
    with contextlib.suppress(EOFError, OSError):
        while True:
            pipe.send_bytes(work(pipe.recv_bytes()))
