"""A worker's background tasks, and threads for blocking work.

A task survives an error in one of its turns. If a task ends anyway, the process ends too: asyncio does not report the
end of a task that is not awaited, and a worker without its watcher could serve outdated policies for months.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any, NoReturn, TypeVar

import structlog

from issuer.io.bounds import LOOK_S

T = TypeVar("T")

# One check of a watched thing. The argument says whether a signal requested it.
Turn = Callable[[bool], Awaitable[None]]

_log = structlog.get_logger("issuer")


def _leave() -> NoReturn:
    """End the process at once. Its supervisor, or systemd, starts another."""
    os._exit(1)


class OwnThreads:
    """Threads for a single purpose. A slow name server may block all of the event loop's few shared threads."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._pool = ThreadPoolExecutor(count)

    async def run(self, work: Callable[[], T]) -> T:
        """Do blocking work in a thread, and pass on its result or exception: StopIteration as RuntimeError."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, _finish, work)

    async def aclose(self, last: Callable[[], object]) -> None:
        """Finish all work, call `last` once in each thread, and end the threads."""
        barrier = threading.Barrier(self._count)

        def end() -> None:
            barrier.wait()  # no thread may do this twice in place of another
            last()

        await asyncio.gather(*(self.run(end) for _ in range(self._count)))
        self._pool.shutdown(wait=False)


class OwnThread(OwnThreads):
    """A single thread. It does its work in the order of the calls."""

    def __init__(self) -> None:
        super().__init__(1)


def apart(work: Callable[[], T], name: str) -> Future[T]:
    """Do the work in a daemon thread, and return its future, which cannot be cancelled. A thread of a pool would keep
    the process from ending."""
    done: Future[T] = Future()
    done.set_running_or_notify_cancel()

    def run() -> None:
        try:
            done.set_result(work())
        except BaseException as error:  # noqa: BLE001 (the future passes it on)
            done.set_exception(error)

    threading.Thread(target=run, daemon=True, name=name).start()
    return done


def _finish(work: Callable[[], T]) -> T:
    """Do the work, and replace StopIteration: a future does not accept it, and its awaiter would wait for ever."""
    try:
        return work()
    except StopIteration as error:
        raise RuntimeError("blocking work raised StopIteration") from error


class Background:
    """The background tasks of one worker. If one of them ends before `aclose`, `leave` ends the process."""

    def __init__(self, leave: Callable[[], object] = _leave) -> None:
        self._leave = leave
        self._tasks: set[asyncio.Task[Any]] = set()
        self._requests: list[asyncio.Event] = []

    def start(self, name: str, work: Coroutine[Any, Any, Any]) -> None:
        """Run `work`, an endless coroutine, until `aclose`."""
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def watch(self, name: str, turn: Turn, every_s: float = LOOK_S) -> None:
        """Call `turn` every `every_s` seconds, and on SIGHUP. Exceptions are logged and do not stop the calls."""
        requested = asyncio.Event()
        self._requests.append(requested)
        self.start(name, _repeat(name, turn, every_s, requested))

    def take_hangups(self) -> None:
        """Make SIGHUP wake every watch, unless the signal has a handler: it ends `issuer dev`."""
        main = threading.current_thread() is threading.main_thread()
        if main and not callable(signal.getsignal(signal.SIGHUP)):
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self.wake)

    def wake(self) -> None:
        """Make every watch call its turn at once."""
        for requested in self._requests:
            requested.set()

    async def aclose(self) -> None:
        """Cancel all tasks, and wait for their end."""
        tasks = [*self._tasks]
        self._tasks.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        if task not in self._tasks:
            return  # `aclose` cancelled it
        error = None if task.cancelled() else task.exception()
        _log.critical("background task ended", task=task.get_name(), exc_info=error)
        self._leave()


async def _repeat(name: str, turn: Turn, every_s: float, requested: asyncio.Event) -> NoReturn:
    while True:
        with suppress(TimeoutError):
            async with asyncio.timeout(every_s):
                await requested.wait()
        is_requested = requested.is_set()
        requested.clear()
        try:
            await turn(is_requested)
        except Exception as error:  # noqa: BLE001 (any error: the next turn may succeed)
            _log.error("background turn failed", task=name, exc_info=error)
