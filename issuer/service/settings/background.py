"""The tasks that a worker has beside its requests: none ends for an error of one turn, and none ends unnoticed.

asyncio keeps quiet about a task that nobody awaits, and a worker whose watching task has ended would serve for months
by policies that nobody can change any more.
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

# One look at what a task watches. The argument says whether a signal asked for it.
Turn = Callable[[bool], Awaitable[None]]

_log = structlog.get_logger("issuer")


def _leave() -> NoReturn:
    """End the process at once: its parent, or whoever else started it, starts another."""
    os._exit(1)


class OwnThreads:
    """Threads for one purpose alone: the event loop's few are shared, and a slow name server may hold all of them."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._pool = ThreadPoolExecutor(count)

    async def run(self, work: Callable[[], T]) -> T:
        """Do blocking work. Returns and raises what it does, and RuntimeError in place of StopIteration."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, _finish, work)

    async def aclose(self, last: Callable[[], object]) -> None:
        """Do some last work once in each thread, after what was asked for before, and end them."""
        all_there = threading.Barrier(self._count)

        def end() -> None:
            all_there.wait()  # so that no thread takes the work of two
            last()

        await asyncio.gather(*(self.run(end) for _ in range(self._count)))
        self._pool.shutdown(wait=False)


class OwnThread(OwnThreads):
    """One thread: what it does is done in the order in which it was asked for."""

    def __init__(self) -> None:
        super().__init__(1)


def apart(work: Callable[[], T], name: str) -> Future[T]:
    """Do the work in a thread that keeps no process from ending. A pool's would: it waits for each of its threads. The
    future cannot be cancelled: it is done when the work is."""
    done: Future[T] = Future()
    done.set_running_or_notify_cancel()

    def run() -> None:
        try:
            done.set_result(work())
        except BaseException as error:  # noqa: BLE001 (whatever it is, who asked gets it)
            done.set_exception(error)

    threading.Thread(target=run, daemon=True, name=name).start()
    return done


def _finish(work: Callable[[], T]) -> T:
    """Do the work in a thread. A future takes no StopIteration: who awaits it would wait for ever."""
    try:
        return work()
    except StopIteration as error:
        raise RuntimeError("blocking work raised StopIteration") from error


class Background:
    """The background tasks of one worker; `leave` ends the process where one of them ends by itself."""

    def __init__(self, leave: Callable[[], object] = _leave) -> None:
        self._leave = leave
        self._tasks: dict[asyncio.Task[Any], str] = {}
        self._asked: list[asyncio.Event] = []

    def start(self, name: str, work: Coroutine[Any, Any, Any]) -> None:
        """Run `work`, which has no end of its own, until `aclose`."""
        task = asyncio.create_task(work, name=name)
        self._tasks[task] = name
        task.add_done_callback(self._ended)

    def watch(self, name: str, turn: Turn, every_s: float = LOOK_S) -> None:
        """Call `turn` every so many seconds, and on SIGHUP; whatever it raises is told, and the next call is made."""
        asked = asyncio.Event()
        self._asked.append(asked)
        self.start(name, _repeat(name, turn, every_s, asked))

    def take_hangups(self) -> None:
        """Make SIGHUP call every watch at once, unless the signal already has a meaning: it ends `issuer dev`."""
        main = threading.current_thread() is threading.main_thread()
        if main and not callable(signal.getsignal(signal.SIGHUP)):
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self.wake)

    def wake(self) -> None:
        """Have every watch look at once."""
        for asked in self._asked:
            asked.set()

    async def aclose(self) -> None:
        """End all tasks."""
        tasks = [*self._tasks]
        self._tasks.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        if task not in self._tasks:
            return  # by `aclose`
        error = None if task.cancelled() else task.exception()
        _log.critical("background task ended", task=self._tasks[task], exc_info=error)
        self._leave()


async def _repeat(name: str, turn: Turn, every_s: float, asked: asyncio.Event) -> NoReturn:
    while True:
        with suppress(TimeoutError):
            async with asyncio.timeout(every_s):
                await asked.wait()
        woken = asked.is_set()
        asked.clear()
        try:
            await turn(woken)
        except Exception as error:  # noqa: BLE001 (whatever it is: the next turn may succeed)
            _log.error("background turn failed", task=name, exc_info=error)
