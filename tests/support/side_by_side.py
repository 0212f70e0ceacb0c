"""Runs the tests of a session side by side: they are collected once, by a process that then forks.

Each fork takes the next file that no other fork has taken, until no file is left, and sends its reports. To collect in
every process, as pytest-xdist does, takes a sixth of each one's time, and more where nothing is compiled yet.
"""

import atexit
import mmap
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from itertools import chain, groupby, pairwise
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any, NamedTuple, NoReturn

import pytest

NUMBER = 4  # bytes of a number, of a file or a test
NONE = b"\xff" * NUMBER
File = list[tuple[int, pytest.Item]]  # its tests, each with its number in the session


class Fork(NamedTuple):
    """A process that runs tests, as the one that started it sees it."""

    pid: int
    running: mmap.mmap  # the number of its test, or none when it has run its last one; both processes see it
    found: Connection  # for each test its reports, as pytest serializes them


class Found:
    """A plugin: the reports of the test that runs."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self.reports: list[dict[str, Any]] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        hook = self._config.hook
        self.reports.append(hook.pytest_report_to_serializable(config=self._config, report=report))


def run(session: pytest.Session, processes: int) -> None:
    """Run what was collected in this many forks of this process, and report each test here."""
    assert len(os.listdir("/proc/self/task")) == 1, "a file of tests has started a thread, which no fork copies"
    files = [list(tests) for _, tests in groupby(enumerate(session.items), lambda test: test[1].path)]
    files.sort(key=long_tests, reverse=True)  # a file that takes minutes must not be the last one
    files_left, writer = os.pipe()
    os.write(writer, b"".join(number.to_bytes(NUMBER, "big") for number in range(len(files))))
    os.close(writer)
    sys.stdout.flush()
    forks = []
    for _ in range(processes):
        running = mmap.mmap(-1, NUMBER)
        receiver, sender = Pipe(duplex=False)
        pid = os.fork()
        if pid == 0:
            os.register_at_fork(after_in_child=sender.close)  # so that it ends when this process does
            run_files(session, taken(files, files_left), running, sender)
            end()
        sender.close()
        forks.append(Fork(pid, running, receiver))
    follow(session, forks)


def long_tests(file: File) -> int:
    """Return how many tests of a file are long."""
    return sum(item.get_closest_marker("long") is not None for _, item in file)


def taken(files: Sequence[File], files_left: int) -> Iterator[File]:
    """Take files that no other process takes: only one process reads each byte of a pipe (pipe(7))."""
    while number := os.read(files_left, NUMBER):
        yield files[int.from_bytes(number, "big")]


def run_files(session: pytest.Session, files: Iterator[File], running: mmap.mmap, sender: Connection) -> None:
    """Run their tests. The next file is taken before the last test of one ends: what both share stays."""
    leave_the_terminal(session.config)
    found = Found(session.config)
    session.config.pluginmanager.register(found)
    for (number, item), (_, following) in pairwise(chain(chain.from_iterable(files), [(0, None)])):
        assert item is not None
        running[:] = number.to_bytes(NUMBER, "big")
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        sender.send((number, found.reports))
        found.reports.clear()
    running[:] = NONE
    sender.close()


def leave_the_terminal(config: pytest.Config) -> None:
    """Print nothing, and keep what tests print in files of this process."""
    capture = config.pluginmanager.getplugin("capturemanager")
    assert capture is not None
    capture.stop_global_capturing()
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    capture.start_global_capturing()


def end() -> NoReturn:
    """End this process, and wait for no thread that a test has left."""
    atexit._run_exitfuncs()
    os._exit(pytest.ExitCode.OK)


def follow(session: pytest.Session, forks: list[Fork]) -> None:
    """Report what the forks found, until each has ended. A fork that dies fails the test that it ran."""
    by_receiver = {fork.found: fork for fork in forks}
    while by_receiver:
        for receiver in wait(list(by_receiver)):
            assert isinstance(receiver, Connection)
            try:
                report(session, *receiver.recv())
            except EOFError:
                ended(session, by_receiver.pop(receiver))
        if session.shouldfail:  # -x
            stop(list(by_receiver.values()))
            raise session.Failed(session.shouldfail)


def report(session: pytest.Session, number: int, reports: list[dict[str, Any]]) -> None:
    """Say of a test what its fork has found."""
    config, item = session.config, session.items[number]
    for data in reports:
        config.hook.pytest_runtest_logreport(
            report=config.hook.pytest_report_from_serializable(config=config, data=data)
        )
    config.hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)


def ended(session: pytest.Session, fork: Fork) -> None:
    """Wait for a fork. Where it did not run its last test to the end, fail that test."""
    code = os.waitstatus_to_exitcode(os.waitpid(fork.pid, 0)[1])
    if fork.running[:] != NONE:
        item = session.items[int.from_bytes(fork.running, "big")]
        died = f"its process ended with {code}, and what it had left to run did not run"
        lost = pytest.TestReport(item.nodeid, item.location, {}, "failed", died, "call")
        session.config.hook.pytest_runtest_logreport(report=lost)


def stop(forks: Sequence[Fork]) -> None:
    """End forks that still run, as Ctrl-C does, and wait for them."""
    for fork in forks:
        os.kill(fork.pid, signal.SIGINT)
    for fork in forks:
        os.waitpid(fork.pid, 0)
