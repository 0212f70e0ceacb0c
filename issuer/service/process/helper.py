"""The helper process beside the workers: it follows the folder of policies, and answers scrapes.

    helper --change--> supervisor --the same change--> each worker

A change travels as the descriptor of a file in memory. So a change of any size fits, the workers share one copy, and a
full disk does not matter. The supervisor applies each change to its own state: a worker or a helper that dies is forked
again with the newest state, and reads no file.
"""

from __future__ import annotations

import os
import pickle
import signal
import tempfile
from collections.abc import Iterator
from typing import BinaryIO, NoReturn

from issuer.io.bounds import LOOK_S
from issuer.policy.authoring.load import FolderStep
from issuer.service.policies.watcher import FailedLoad, Follower, WatchedPolicies
from issuer.service.process.bounds import RECEIVE_S
from issuer.service.process.fair_queue import Progress
from issuer.service.process.fd_channel import Channel, channel
from issuer.service.process.metrics_listener import MetricsListener
from issuer.service.process.supervisor import Beat, beating


class Helper:
    """The helper as its supervisor sees it: the newest `state` of the policies, and the channel from the helper.

    Both ends of the channel stay open in the supervisor, for the next helper.
    """

    def __init__(self, follower: Follower, progress: Progress, metrics: MetricsListener | None) -> None:
        self.state = follower.state
        self.metrics = metrics
        self._follower = follower
        self._progress = progress
        self._receiver, self._sender = channel()

    def changes(self) -> Iterator[int]:
        """Apply, in the supervisor, the changes that the helper has sent; yield each one's descriptor to pass on."""
        for descriptor in self._receiver.receive():
            self.state = self.state.after(_read(descriptor))
            yield descriptor

    def run(self, beat: Beat) -> NoReturn:
        """Follow the folder and answer scrapes, in the helper. After SIGHUP it reads the whole folder again.

        If either of them hangs, the beat stops, and the supervisor replaces the helper.
        """
        self._receiver.close()
        if self._follower.state is not self.state:
            self._follower.resume(self.state)
        signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGHUP,))
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # sigtimedwait never returns an ignored signal
        if self.metrics is not None:
            self.metrics.start(self._follower)
        with beating(beat, lambda: self._progress.count):
            while True:
                if self.metrics is None or self.metrics.turned():
                    self._progress.note()
                asked = signal.sigtimedwait((signal.SIGHUP,), LOOK_S) is not None
                change = self._follower.turn(asked)
                if change is not None:
                    self._send(change)

    def close(self) -> None:
        """Close, in a worker, the helper's sockets: a worker that could send changes could replace every policy."""
        self._receiver.close()
        self._sender.close()
        if self.metrics is not None:
            self.metrics.close()

    def _send(self, change: FolderStep | FailedLoad) -> None:
        with _written(change) as file:
            self._sender.send(file.fileno())
        os.kill(os.getppid(), signal.SIGCHLD)  # wakes the supervisor, which waits for signals


class PolicyUpdates:
    """The policies of a worker: the state that its supervisor had at the fork, and the changes since."""

    every_s = RECEIVE_S

    def __init__(self, state: WatchedPolicies, receiver: Channel) -> None:
        self.state = state.decided()
        self._receiver = receiver

    def follow(self, _asked: bool) -> WatchedPolicies | None:
        """Apply the changes that have come, and return the newest state, or None if there was no change."""
        before = self.state
        for descriptor in self._receiver.receive():
            change = _read(descriptor)
            self.state = self.state.after(change.decided() if isinstance(change, FolderStep) else change)
        return None if self.state is before else self.state


def _written(change: FolderStep | FailedLoad) -> BinaryIO:
    """Write a change to a file without a name: in memory, if the system has memfd."""
    in_memory = hasattr(os, "memfd_create")
    file: BinaryIO = os.fdopen(os.memfd_create("policies"), "w+b") if in_memory else tempfile.TemporaryFile()  # noqa: SIM115
    file.write(pickle.dumps(change, pickle.HIGHEST_PROTOCOL))
    file.flush()
    return file


def _read(descriptor: int) -> FolderStep | FailedLoad:
    """Read a change. All readers share the file's position, so each read names its offset."""
    raw = b""
    while more := os.pread(descriptor, 1 << 24, len(raw)):
        raw += more
    change: FolderStep | FailedLoad = pickle.loads(raw)  # noqa: S301 (only our own helper holds the sending end)
    return change
