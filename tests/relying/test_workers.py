"""Worker processes: the order of answers, deaths, and that none survives."""

import gc
import multiprocessing
import os
import signal
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection

from issuer.relying.workers import WorkerPool
from tests.support.processes import is_running
from tests.support.waiting import eventually


def doubled(message: bytes) -> bytes:
    time.sleep(0.001 * (int(message) % 7))  # a slow peer: they do not end in the order in which they began
    return str(2 * int(message)).encode()


def numbers(count: int) -> list[bytes]:
    return [str(number).encode() for number in range(count)]


def test_answers_come_in_the_order_of_the_messages() -> None:
    for jobs in (1, 5):
        with WorkerPool(jobs, doubled) as pool:
            answers = list(pool.map(numbers(50)))
        assert answers == [(message, str(2 * int(message)).encode()) for message in numbers(50)], jobs


def test_all_processes_work_at_once() -> None:
    together = multiprocessing.get_context("fork").Barrier(3)

    def work(_: bytes) -> bytes:
        together.wait(60)
        return str(os.getpid()).encode()

    with WorkerPool(3, work) as pool:
        pids = {answer for _, answer in pool.map(numbers(3))}
        assert pids == {str(worker._process.pid).encode() for worker in pool._workers}


def test_large_messages_and_answers_do_not_block_each_other() -> None:
    large = [bytes([number]) * 2_000_000 for number in range(12)]
    with WorkerPool(2, lambda message: message * 2) as pool:
        for number, (_, answer) in enumerate(pool.map(large)):
            assert answer == large[number] * 2


def test_the_source_is_not_read_far_ahead_of_a_slow_message() -> None:
    taken = 0

    def source() -> Iterator[bytes]:
        nonlocal taken
        for message in numbers(100):
            taken += 1
            yield message

    def work(message: bytes) -> bytes:
        time.sleep(0.3 if message == b"0" else 0)  # a slow peer
        return message

    with WorkerPool(2, work) as pool:
        answers = pool.map(source())
        next(answers)
        assert taken <= 9
        assert len(list(answers)) == 99


def test_a_process_that_dies_costs_one_message() -> None:
    def work(message: bytes) -> bytes:
        if message in {b"3", b"17"}:
            os.kill(os.getpid(), signal.SIGKILL)
        return message

    with WorkerPool(2, work) as pool:
        answers = list(pool.map(numbers(40)))
    assert [message for message, answer in answers if answer is None] == [b"3", b"17"]
    assert [message for message, _ in answers] == numbers(40)


def test_none_survives_the_block_even_one_that_hangs() -> None:
    def work(message: bytes) -> bytes:
        signal.pause()
        return message

    with WorkerPool(2, work) as pool:
        pids = [worker._process.pid or 0 for worker in pool._workers]
        for worker in pool._workers:
            worker.pipe.send_bytes(b"x")
    assert not any(map(is_running, pids))


def parent(pids: Connection) -> None:
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)  # as in a new process, and not as in that of the tests or under `nohup`
    with WorkerPool(3, lambda message: message) as pool:
        pids.send([worker._process.pid for worker in pool._workers])
        signal.pause()


def test_none_survives_its_parent() -> None:
    forking = multiprocessing.get_context("fork")
    for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGHUP):
        ours, theirs = forking.Pipe()
        running = forking.Process(target=parent, args=(theirs,))
        running.start()
        theirs.close()  # otherwise `recv` would wait for a child that has died
        try:
            pids = ours.recv()
            assert len(pids) == 3
            os.kill(running.pid or 0, number)
            running.join(60)
            assert running.exitcode == -number
        finally:
            running.kill()
        eventually(lambda pids=pids: not any(map(is_running, pids)))  # type: ignore[misc]


def test_ctrl_c_is_the_parent_s_alone() -> None:
    with WorkerPool(2, doubled) as pool:
        for worker in pool._workers:
            os.kill(int(worker._process.pid or 0), signal.SIGINT)
        assert [message for message, answer in pool.map(numbers(20)) if answer is None] == []
        assert all(worker._process.is_alive() for worker in pool._workers)


def test_objects_that_the_caller_froze_stay_frozen_and_others_do_not() -> None:
    try:
        for by_caller in (True, False):
            (gc.freeze if by_caller else gc.unfreeze)()
            with WorkerPool(1, doubled):
                assert gc.get_freeze_count() > 0
            assert (gc.get_freeze_count() > 0) == by_caller
    finally:
        gc.freeze()
