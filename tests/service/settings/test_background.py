"""A worker's background tasks outlive every error of a turn; where one ends all the same, so does the process."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from issuer.service.settings.background import Background, OwnThread, OwnThreads

TICK_S = 0.01


async def test_a_turn_that_fails_is_told_and_followed_by_the_next(
    background: Background, capfd: pytest.CaptureFixture[str]
) -> None:
    errors: list[Exception] = [OSError(5, "the disk fails"), ZeroDivisionError(), StopIteration(), MemoryError()]
    left, went_on = list(errors), asyncio.Event()

    async def turn(_: bool) -> None:
        if left:
            raise left.pop()
        went_on.set()

    background.watch("policies", turn, TICK_S)
    await asyncio.wait_for(went_on.wait(), 60)
    await background.aclose()
    logged = capfd.readouterr().out
    assert [error for error in errors if type(error).__name__ not in logged] == []
    assert "background turn failed" in logged


async def test_work_in_a_thread_that_fails_in_any_way_is_heard_of() -> None:
    async with asyncio.timeout(60):
        with pytest.raises(RuntimeError, match="StopIteration"):
            await OwnThread().run(lambda: next(iter(())))
        with pytest.raises(ZeroDivisionError):
            await OwnThread().run(lambda: 1 // 0)


async def test_the_last_work_is_done_once_in_each_thread_after_all_other_work() -> None:
    threads, own, closed = OwnThreads(3), threading.local(), list[str]()

    def use() -> None:
        own.name = threading.current_thread().name

    used = [asyncio.create_task(threads.run(use)) for _ in range(50)]
    await asyncio.sleep(0)
    async with asyncio.timeout(60):
        await threads.aclose(lambda: closed.append(threading.current_thread().name))
    assert all(task.done() for task in used)
    assert len(closed) == len(set(closed)) == 3
    with pytest.raises(RuntimeError):
        await threads.run(use)


@pytest.fixture
def free_hangup() -> Iterator[None]:
    """Give SIGHUP its default action: `take_hangups` does nothing if an earlier test has left a handler."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before or signal.SIG_DFL)


@pytest.mark.usefixtures("free_hangup")
async def test_every_watch_is_woken_and_none_waits_for_another(background: Background) -> None:
    began, woken = asyncio.Event(), asyncio.Event()

    async def stuck(_: bool) -> None:
        await asyncio.Event().wait()

    async def quick(is_requested: bool) -> None:
        began.set()
        if is_requested:
            woken.set()

    background.watch("stuck", stuck, TICK_S)
    background.watch("quick", quick, TICK_S)
    background.take_hangups()
    assert signal.getsignal(signal.SIGHUP) != signal.SIG_DFL, "else the signal would end this process"
    try:
        await began.wait()
        os.kill(os.getpid(), signal.SIGHUP)
        await woken.wait()  # the timeout of pytest bounds this
    finally:
        asyncio.get_running_loop().remove_signal_handler(signal.SIGHUP)


def test_a_task_that_ends_by_itself_ends_the_process() -> None:
    """Its parent starts another; a worker that goes on unwatched takes no emergency stop."""
    program = """
import asyncio, sys
from issuer.service.settings.background import Background

async def work():
    exec(sys.argv[1])

async def main():
    Background().start("beat", work())
    await asyncio.Event().wait()

asyncio.run(main())
"""
    ends = ("pass", "raise KeyboardInterrupt", "raise asyncio.CancelledError")
    for end in ends:
        child = subprocess.run([sys.executable, "-c", program, end], stdout=subprocess.PIPE, text=True, check=False)
        assert child.returncode == 1, end
        assert "KeyboardInterrupt" in end or "background task ended" in child.stdout


async def test_tasks_that_are_closed_do_not_end_the_process() -> None:
    left: list[int] = []
    background, began = Background(leave=lambda: left.append(1)), asyncio.Event()

    async def turn(_: bool) -> None:
        began.set()
        await asyncio.Event().wait()

    background.start("beat", asyncio.Event().wait())
    background.watch("policies", turn, TICK_S)
    await began.wait()
    await background.aclose()
    assert left == []
