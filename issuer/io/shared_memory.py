"""One page of memory that all processes of a service share: which stops each has in force and which keys it publishes,
and a stop of everything.

It is made before the workers are forked, and needs no disk, no store and no network: an emergency stop must work, and
be seen to work, when all of these fail.
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

# What each process tells of, by a digest.
About = Literal["stops", "keys"]
# The flag, then the slots: a pid, 0 for none, and the digests.
_FLAG, _SLOT = struct.Struct("=?"), struct.Struct("=I32s32s")

_log = structlog.get_logger("issuer")


class SharedPage:
    """The page: a flag, and a slot for each process with its pid and its digests. `host` names it among all hosts.

    Nothing is locked. Two processes that take one slot at the same moment notice when they next `tell`; half of a
    digest, read while it is written, is no digest that anybody asks for.
    """

    def __init__(self) -> None:
        self._page = mmap.mmap(-1, _FLAG.size + MAX_WORKERS * _SLOT.size)
        self.host = os.urandom(16).hex()

    @property
    def everything_stopped(self) -> bool:
        """Whether a signal has stopped everything."""
        return bool(_FLAG.unpack_from(self._page)[0])

    def stop_everything(self, stopped: bool) -> None:
        """Stop everything in every process of the service, or lift that."""
        _FLAG.pack_into(self._page, 0, stopped)

    def take_signals(self) -> None:
        """Make SIGUSR1 stop everything and SIGUSR2 lift that, in the process that gets them and in those it forks."""
        signal.signal(signal.SIGUSR1, lambda _number, _frame: self._obey(True))
        signal.signal(signal.SIGUSR2, lambda _number, _frame: self._obey(False))

    def _obey(self, stopped: bool) -> None:
        self.stop_everything(stopped)
        _log.critical("everything is stopped" if stopped else "the stop of everything is lifted", by="signal")

    def tell(self, about: About, digest: bytes) -> None:
        """Say which stops this process has in force, or which keys it publishes: 32 bytes; of the other it keeps what
        it has told, and zeros where that is nothing yet."""
        place = self._own_place()
        pid, stops, keys = _SLOT.unpack_from(self._page, place)
        if pid != os.getpid():
            stops = keys = bytes(32)
        told = (digest, keys) if about == "stops" else (stops, digest)
        _SLOT.pack_into(self._page, place, os.getpid(), *told)

    def told(self, about: About) -> list[bytes]:
        """Return what each living process has told."""
        return [stops if about == "stops" else keys for _, pid, stops, keys in self._slots() if _is_alive(pid)]

    def _slots(self) -> Iterator[tuple[int, int, bytes, bytes]]:
        """Yield the place, the pid and the digests of each slot."""
        for place in range(_FLAG.size, len(self._page), _SLOT.size):
            yield place, *_SLOT.unpack_from(self._page, place)

    def _own_place(self) -> int:
        """Return the place of this process, or else one that no living process has."""
        own = (place for place, pid, *_ in self._slots() if pid == os.getpid())
        free = (place for place, pid, *_ in self._slots() if not _is_alive(pid))
        return next(chain(own, free))


def _is_alive(pid: int) -> bool:
    if not pid:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
