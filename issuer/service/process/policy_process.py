"""Policies of several workers: one process follows the folder, the parent keeps what it finds, and tells all.

    keeper process --change--> parent --the same change--> each worker

A change lies in memory that is passed on by its descriptor, so that no message is too large, none is copied for each
worker, and none needs a disk that may be full. The parent takes each change itself: a worker, or a keeper, that dies is
forked again with the newest state, and parses nothing. A keeper that fails takes along all that it had taken.
"""

from __future__ import annotations

import os
import pickle
import signal
import tempfile
from collections.abc import Iterator
from typing import BinaryIO, NoReturn

from issuer.io.bounds import LOOK_S
from issuer.policy.authoring.load import Step
from issuer.service.policies.watcher import Follower, Setback, State
from issuer.service.process.bounds import TOLD_S
from issuer.service.process.fair_queue import Progress
from issuer.service.process.fd_channel import Line, line
from issuer.service.process.supervisor import Beat, beating


class PolicyKeeper:
    """What the parent has of the policies: the newest `state`, and the line from the process that follows the folder.

    Both ends of the line stay open in the parent, for the next process.
    """

    name = "policy keeper"

    def __init__(self, follower: Follower, progress: Progress) -> None:
        self.state = follower.state
        self._follower = follower
        self._progress = progress
        self._here, self._there = line()

    def changes(self) -> Iterator[int]:
        """Take, in the parent, what the keeper has found; yield a descriptor of each change, to be passed on."""
        for descriptor in self._here.take():
            self.state = self.state.after(_read(descriptor))
            yield descriptor

    def run(self, beat: Beat) -> NoReturn:
        """Follow the folder, in a process of its own; SIGHUP has all of it read again."""
        if self._follower.state is not self.state:
            self._follower.resume(self.state)
        signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGHUP,))
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # what is ignored is never waited for
        with beating(beat, lambda: self._progress.count):
            while True:
                self._progress.note()
                asked = signal.sigtimedwait((signal.SIGHUP,), LOOK_S) is not None
                change = self._follower.turn(asked)
                if change is not None:
                    self._tell(change)

    def _tell(self, change: Step | Setback) -> None:
        with _written(change) as file:
            self._there.tell(file.fileno())
        os.kill(os.getppid(), signal.SIGCHLD)  # it sleeps until a signal comes


class Following:
    """The state of a worker, which goes on from the one that its parent had when it was forked."""

    every_s = TOLD_S

    def __init__(self, state: State, told: Line) -> None:
        self.state = state.decided()
        self._told = told

    def follow(self, _asked: bool) -> State | None:
        """Return the newest state, None where nothing is new."""
        before = self.state
        for descriptor in self._told.take():
            change = _read(descriptor)
            self.state = self.state.after(change.decided() if isinstance(change, Step) else change)
        return None if self.state is before else self.state


def _written(change: Step | Setback) -> BinaryIO:
    """Write a change into a file without a name; in memory, where the system has that."""
    in_memory = hasattr(os, "memfd_create")
    file: BinaryIO = os.fdopen(os.memfd_create("policies"), "w+b") if in_memory else tempfile.TemporaryFile()  # noqa: SIM115
    file.write(pickle.dumps(change, pickle.HIGHEST_PROTOCOL))
    file.flush()
    return file


def _read(descriptor: int) -> Step | Setback:
    """Read a change of our own keeper's: all readers share the file's position, so it is given."""
    raw = b""
    while more := os.pread(descriptor, 1 << 24, len(raw)):
        raw += more
    change: Step | Setback = pickle.loads(raw)  # noqa: S301 (of a process of ours, over a line that nobody else has)
    return change
