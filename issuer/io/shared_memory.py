"""A page of memory that all processes of a service share. It has a flag that stops everything, and for each process the
stops that it enforces and the keys that it publishes.

The supervisor makes the page before it forks the workers. The page needs no disk, store or network: operators must be
able to stop everything, and to see that it worked, when all of these fail.
"""

from __future__ import annotations

import mmap
import os
import signal
import struct
from collections.abc import Iterator
from itertools import chain
from typing import Literal

import structlog

from issuer.io.bounds import MAX_WORKERS

# A process publishes a digest of its stops and a digest of its keys.
About = Literal["stops", "keys"]
# The page has the flag, then the slots: a pid (0: the slot is free) and the two digests.
_FLAG, _SLOT = struct.Struct("=?"), struct.Struct("=I32s32s")

_log = structlog.get_logger("issuer")


class SharedPage:
    """The page: a flag, and a slot for each process with its pid and its digests. `host` is the page's random id.

    The page has no lock. If two processes take one slot at the same moment, the loser takes another slot with its next
    `tell`. A digest that is read during a write equals no real digest.
    """

    def __init__(self) -> None:
        self._page = mmap.mmap(-1, _FLAG.size + MAX_WORKERS * _SLOT.size)
        self.host = os.urandom(16).hex()

    @property
    def everything_stopped(self) -> bool:
        """Whether a signal has stopped everything."""
        return bool(_FLAG.unpack_from(self._page)[0])

    def stop_everything(self, stopped: bool) -> None:
        """Stop everything in every process of the service, or lift that stop."""
        _FLAG.pack_into(self._page, 0, stopped)

    def take_signals(self) -> None:
        """Let SIGUSR1 stop everything, and SIGUSR2 lift that stop, in this process and those it forks."""
        signal.signal(signal.SIGUSR1, lambda _number, _frame: self._obey(True))
        signal.signal(signal.SIGUSR2, lambda _number, _frame: self._obey(False))

    def _obey(self, stopped: bool) -> None:
        self.stop_everything(stopped)
        _log.critical("everything is stopped" if stopped else "the stop of everything is lifted", by="signal")

    def publish(self, about: About, digest: bytes) -> None:
        """Publish the digest (32 bytes) of this process's stops or keys. The other digest is zeros at first."""
        place = self._own_place()
        pid, stops, keys = _SLOT.unpack_from(self._page, place)
        if pid != os.getpid():
            stops = keys = bytes(32)
        digests = (digest, keys) if about == "stops" else (stops, digest)
        _SLOT.pack_into(self._page, place, os.getpid(), *digests)

    def published(self, about: About) -> list[bytes]:
        """Return the digest that each living process has published."""
        return [stops if about == "stops" else keys for _, pid, stops, keys in self._slots() if _is_alive(pid)]

    def _slots(self) -> Iterator[tuple[int, int, bytes, bytes]]:
        for place in range(_FLAG.size, len(self._page), _SLOT.size):
            yield place, *_SLOT.unpack_from(self._page, place)

    def _own_place(self) -> int:
        """Return the place of this process's slot, or else of a free one."""
        own = (place for place, pid, *_ in self._slots() if pid == os.getpid())
        free = (place for place, pid, *_ in self._slots() if not _is_alive(pid))
        return next(chain(own, free))


def _is_alive(pid: int) -> bool:
    if not pid:
        return False
    try:
        os.kill(pid, 0)
    except OSError as error:
        return isinstance(error, PermissionError)
    return True
