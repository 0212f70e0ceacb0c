"""A key that lies elsewhere, in a token or behind a network: it may be slow, gone or wrong, and never holds anybody up.

Each signature is asked for in a thread, a few at a time, has a deadline, and is verified before it leaves. A thread in
a driver cannot be ended: one that does not come back keeps its turn for as long as it is away, so that there are never
more of them, and keeps no process from ending. Which backend it is, and what is signed, are unknown here.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Protocol

import structlog
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from issuer.codes import Code
from issuer.errors import Undecided
from issuer.formats.weak_keys import is_good_point
from issuer.io.bounds import COUNT_S
from issuer.service.settings.background import apart
from issuer.service.signing.bounds import SIGNED_S, SIGNER_CHECK_S, SIGNER_S, SIGNER_TURN_S

# No JWS signing input begins with a zero byte: what is signed here can never be a token's.
_PROOF = b"\x00issuer-start"

_HANGS = (
    "a signature that was asked for has not come back, and no other one is asked for meanwhile: if the driver hangs, "
    "mend what it waits for, and restart the service"
)

_log = structlog.get_logger("issuer")


class KeyFault(Exception):
    """A key cannot be asked, or did not sign. The text is ours: what is wrong, and what to do; nothing secret."""


class Backend(Protocol):
    """A private Ed25519 key (RFC 8032) that lies elsewhere: one message has one signature, whenever it is made."""

    @property
    def max_message_bytes(self) -> int:
        """The largest message that it signs."""

    @property
    def at_once(self) -> int:
        """How many threads may call `sign` at the same time."""

    def public_key(self) -> Ed25519PublicKey:
        """Return its public half."""

    def sign(self, message: bytes) -> bytes:
        """Sign a message. May block; raises KeyFault."""


class RemoteKey:
    """The key of a backend that has proved itself, under its RFC 7638 `kid`."""

    def __init__(self, backend: Backend, kid: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.kid = kid
        self.max_message_bytes = backend.max_message_bytes
        self._backend = backend
        self._public = backend.public_key()
        self._turns = asyncio.Semaphore(backend.at_once)
        self._away: dict[Future[bytes], float] = {}  # since when, by the monotonic clock
        self._clock = clock
        self._good, self._checked = True, clock()
        self._told: dict[str, tuple[float, int]] = {}  # by reason: when, and how often since

    def public_key(self) -> Ed25519PublicKey:
        """Return its public half."""
        return self._public

    def prove(self) -> None:
        """Sign one message twice, as a start does. Raises KeyFault.

        A retry must get the bytes of the first time, so a key that gives two signatures is none of ours; nor is one
        whose signature its own public half does not verify.
        """
        if not is_good_point(self._public.public_bytes_raw()):
            raise KeyFault("its public key is of low order: make another key")
        if self.sign(_PROOF) != self.sign(_PROOF):
            raise KeyFault("it signs one message in two ways: it is not Ed25519 (RFC 8032); make a key that is")

    def sign(self, message: bytes) -> bytes:
        """Sign a message, and verify what came back. Blocks as long as the backend does. Raises KeyFault."""
        signature = self._backend.sign(message)
        try:
            self._public.verify(signature, message)
        except InvalidSignature:
            raise KeyFault("its signature is not by the published key: it goes to nobody; look who signs") from None
        return signature

    async def sign_all(self, messages: tuple[bytes, ...]) -> tuple[bytes, ...]:
        """Sign each message, a few at a time: each within a second, all within four. Raises Undecided
        (`dependency.signer`) where one of them is not signed in time; the others are then given up."""
        signatures = [b""] * len(messages)
        left = iter(enumerate(messages))

        async def ask() -> None:
            for index, message in left:
                signatures[index] = await self._ask(message)

        try:
            async with asyncio.timeout(SIGNED_S), asyncio.TaskGroup() as group:
                for _ in range(min(self._backend.at_once, len(messages))):
                    group.create_task(ask())
        except TimeoutError:
            self._tell(f"not all of {len(messages)} signatures within {SIGNED_S} s")
            raise Undecided(Code.DEPENDENCY_SIGNER) from None
        except ExceptionGroup:  # `_ask` has told why
            raise Undecided(Code.DEPENDENCY_SIGNER) from None
        return tuple(signatures)

    async def check(self, message: bytes) -> None:
        """Sign a message for readiness, where nothing has been signed for a minute. Raises Undecided
        (`dependency.signer`) where that failed, until a signature comes or the minute is over."""
        if self._clock() - self._checked >= SIGNER_CHECK_S:
            self._good, self._checked = False, self._clock()
            await self._ask(message)
        if not self._good:
            raise Undecided(Code.DEPENDENCY_SIGNER)

    async def _ask(self, message: bytes) -> bytes:
        """Ask in a thread, if it is somebody's turn in time."""
        try:
            async with asyncio.timeout(SIGNER_S):
                await self._take_turn()
                signature = await asyncio.wrap_future(self._begin(message))
        except TimeoutError:
            self._tell(f"no signature within {SIGNER_S} s")
        except KeyFault as fault:
            self._tell(str(fault))
        except Exception as error:  # noqa: BLE001 (whatever a driver raises: nothing was signed)
            self._tell(f"the backend raised {type(error).__name__}")
        else:
            self._good, self._checked = True, self._clock()
            return signature
        raise Undecided(Code.DEPENDENCY_SIGNER)

    async def _take_turn(self) -> None:
        """Wait until fewer signatures are under way than may be. Raises KeyFault."""
        try:
            async with asyncio.timeout(SIGNER_TURN_S):
                await self._turns.acquire()
        except TimeoutError:
            if any(time.monotonic() - since > SIGNER_S for since in self._away.values()):
                raise KeyFault(_HANGS) from None
            raise KeyFault(f"no turn within {SIGNER_TURN_S} s: more signatures are asked for than it makes") from None

    def _begin(self, message: bytes) -> Future[bytes]:
        """Ask for a signature. Its turn ends when the thread returns, also where the caller has given up."""
        loop, begun = asyncio.get_running_loop(), apart(partial(self.sign, message), "signer")
        self._away[begun] = time.monotonic()

        def end_turn() -> None:
            del self._away[begun]
            self._turns.release()

        def is_back(_done: Future[bytes]) -> None:
            with suppress(RuntimeError):  # the loop has ended, and the process does
                loop.call_soon_threadsafe(end_turn)

        begun.add_done_callback(is_back)
        return begun

    def _tell(self, reason: str) -> None:
        """Tell a reason at once, then how often it was there, at most once a second."""
        now = self._clock()
        since, count = self._told.get(reason, (now - COUNT_S, 0))
        if now - since < COUNT_S:
            self._told[reason] = since, count + 1
            return
        _log.error("key did not sign", kid=self.kid, reason=reason, count=count + 1)
        self._told[reason] = now, 0
