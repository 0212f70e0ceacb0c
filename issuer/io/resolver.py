"""The addresses of host names, from the system's resolver. A look-up hangs while a name server is silent.

A look-up can be neither bounded nor cancelled, so each has a daemon thread: no other host and no exit of the process
waits for it. The look-ups of an event loop (`getaddrinfo`, and every connection to a name) share a few threads, which
one silent name server would block, and the process could not exit.

We considered aiodns and dnspython: they do not follow nsswitch.conf, and would be one more dependency.
"""

from __future__ import annotations

import asyncio
import functools
import ipaddress
import math
import os
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future

from issuer.io.bounds import LATE_KEPT_S, LOOKUP_KEPT_S, LOOKUP_S, MAX_LOOKUPS, MAX_NAMES

Addresses = tuple[str, ...]


class NameTimeout(socket.gaierror):
    """The look-up of a name hangs."""

    def __init__(self) -> None:
        super().__init__(socket.EAI_AGAIN, "its name server does not answer")


def ask_system(host: str) -> Addresses:
    """Return a host's addresses, in the order in which to try them (RFC 6724). May hang."""
    return tuple(str(address[0]) for *_, address in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM))


class LookUp:
    """One look-up of a host. Its answer is the addresses or the failure."""

    def __init__(self, host: str) -> None:
        self.host = host
        self.answer: Future[Addresses | socket.gaierror] = Future()
        self.answer.set_running_or_notify_cancel()  # a caller that gives up must not cancel it for the others
        self._began, self._ended, self._is_late = time.monotonic(), math.inf, False

    def settle(self, answer: Addresses | socket.gaierror) -> None:
        """Give the answer to all callers."""
        self._ended = time.monotonic()
        self._is_late = isinstance(answer, tuple) and self._ended - self._began > LOOKUP_S
        self.answer.set_result(answer)

    def serves(self) -> bool:
        """Say whether it is in progress, or ended so recently that its answer is kept: one that came too late for its
        callers until they ask again."""
        return time.monotonic() - self._ended < (LATE_KEPT_S if self._is_late else LOOKUP_KEPT_S)

    def left_s(self) -> float:
        """Return how long a caller waits for the answer: not at all if the look-up hangs."""
        return LOOKUP_S if self.answer.done() else max(0.0, self._began + LOOKUP_S - time.monotonic())


class Resolver:
    """Resolves the hosts of one `client`, for all threads and event loops. `ask` replaces the system's resolver.

    Callers for the same host share a look-up. If it takes longer than LOOKUP_S they fail, and later callers fail at
    once, until it ends. Its answer is then kept for LOOKUP_KEPT_S. A host has at most one thread, all hosts together
    have MAX_LOOKUPS, and further look-ups wait in line for one of these.
    """

    def __init__(self, client: str, ask: Callable[[str], Addresses] = ask_system) -> None:
        self._client, self._ask = client, ask
        self._lock = threading.Lock()
        self._known: dict[str, LookUp] = {}
        self._line: deque[LookUp] = deque()
        self._threads = 0

    async def find(self, host: str) -> Addresses:
        """Return a host's addresses, in the order in which to try them. Raises socket.gaierror."""
        look_up = self._look_up(host)
        try:
            async with asyncio.timeout(look_up.left_s()):
                answer = await asyncio.wrap_future(look_up.answer)
        except TimeoutError:
            raise NameTimeout from None
        if isinstance(answer, socket.gaierror):
            raise socket.gaierror(*answer.args)  # a new one: each raise adds to an exception's traceback
        return answer

    def find_all(self, hosts: Iterable[str]) -> dict[str, Addresses | socket.gaierror]:
        """Return the addresses of each host or its failure, after at most LOOKUP_S. Blocks."""
        return {each.host: _wait(each) for each in [*map(self._look_up, hosts)]}

    def _look_up(self, host: str) -> LookUp:
        """Return the host's look-up that is in progress or kept, or begin one."""
        if _is_address(host):  # needs no thread: no look-up that hangs may delay it
            look_up = LookUp(host)
            look_up.settle((host,))
            return look_up
        with self._lock:
            known = self._known.get(host)
            if known is None or not known.serves():
                known = self._begin(LookUp(host))
            return known

    def _begin(self, look_up: LookUp) -> LookUp:
        if len(self._known) >= MAX_NAMES:
            self._known = {host: known for host, known in self._known.items() if not known.answer.done()}
        self._known[look_up.host] = look_up
        if self._threads >= MAX_LOOKUPS:
            self._line.append(look_up)
            return look_up
        try:
            threading.Thread(
                target=self._work, args=(look_up,), daemon=True, name=f"resolver of {self._client}"
            ).start()
            self._threads += 1
        except RuntimeError:
            look_up.settle(socket.gaierror(socket.EAI_AGAIN, "the system has no thread left for its look-up"))
        return look_up

    def _work(self, look_up: LookUp | None) -> None:
        """Do a look-up, and then those in the line."""
        while look_up is not None:
            look_up.settle(self._answer(look_up.host))
            with self._lock:
                look_up = self._line.popleft() if self._line else None
                self._threads -= look_up is None

    def _answer(self, host: str) -> Addresses | socket.gaierror:
        try:
            return self._ask(host)
        except socket.gaierror as error:
            return socket.gaierror(*error.args)
        except Exception as error:  # noqa: BLE001 (or its callers would wait for ever); UnicodeError: not a name
            return socket.gaierror(socket.EAI_NONAME, f"its name cannot be looked up ({type(error).__name__})")


def _wait(look_up: LookUp) -> Addresses | socket.gaierror:
    try:
        return look_up.answer.result(look_up.left_s())
    except TimeoutError:
        return NameTimeout()


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


@functools.cache
def resolver_of(client: str) -> Resolver:
    """Return this process's resolver for the hosts of one client. Hosts of another client use none of its threads."""
    return Resolver(client)


# A forked process has none of its parent's threads, so it would wait for their look-ups for ever.
os.register_at_fork(after_in_child=resolver_of.cache_clear)
