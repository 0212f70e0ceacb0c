"""A remote signing key, in a PKCS #11 token or a KMS. It may be slow, gone or wrong, and must not block the service.

A few threads ask the backend. Each signature has a deadline, and is verified before the service uses it. A thread in a
driver cannot be ended. A hanging one keeps its place among the few, so their number stays bounded, and it does not keep
the process from exiting. This file knows neither the kind of backend nor the meaning of the signed bytes.
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
from issuer.io.shared_answers import SharedAnswers
from issuer.service.settings.background import apart
from issuer.service.signing.bounds import SIGNED_S, SIGNER_CHECK_S, SIGNER_PROBE_S, SIGNER_S, SIGNER_TURN_S

# No JWS signing input begins with a zero byte, so these signatures can never belong to a token.
_PROOF = b"\x00issuer-start"
_PROBE = b"\x00issuer-probe"

_HANGS = (
    "an earlier signature has not returned, and the service starts no other until it does: if the driver hangs, repair "
    "its token, and restart the service"
)

_log = structlog.get_logger("issuer")


class KeyFault(Exception):
    """A remote key did not open or did not sign. The text says why, and the next step, without secrets."""


class _Busy(KeyFault):
    """The key got more requests than it can sign. It signs others, so the key itself has not failed."""


class Backend(Protocol):
    """A remote private Ed25519 key (RFC 8032), which always gives the same signature for the same message."""

    @property
    def max_message_bytes(self) -> int:
        """The largest message that it signs."""

    @property
    def at_once(self) -> int:
        """How many threads may call `sign` at the same time."""

    @property
    def public(self) -> Ed25519PublicKey:
        """The public half."""

    def sign(self, message: bytes) -> bytes:
        """Sign a message. May block. Raises KeyFault."""


class RemoteKey:
    """A backend's key with its RFC 7638 `kid`. `prove` it before use."""

    def __init__(self, backend: Backend, kid: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.kid = kid
        self.max_message_bytes = backend.max_message_bytes
        self._backend = backend
        self.public = backend.public
        self._turns = asyncio.Semaphore(backend.at_once)
        self._pending: dict[Future[bytes], float] = {}  # with the monotonic time of the start
        self._clock = clock
        self._signed_at, self._has_failed = clock(), False
        self._probes = SharedAnswers[None, None](
            Code.DEPENDENCY_SIGNER,
            kept_s=SIGNER_PROBE_S,
            keeps=lambda answer: answer is not None,
            monotonic=clock,
        )
        self._logged: dict[str, tuple[float, int]] = {}  # by reason: time of the last line, and the count since

    def prove(self) -> None:
        """Check at the start that the public half is good, and verifies two equal signatures of one message. Raises
        KeyFault. They must be equal, because a repeat must get the bytes of the first token."""
        if not is_good_point(self.public.public_bytes_raw()):
            raise KeyFault("its public key is of low order: make another key")
        if self.sign(_PROOF) != self.sign(_PROOF):
            raise KeyFault("it has two signatures for one message: that is not Ed25519 (RFC 8032); make an Ed25519 key")

    def sign(self, message: bytes) -> bytes:
        """Sign a message, and verify the signature. Blocks as long as the backend does. Raises KeyFault."""
        signature = self._backend.sign(message)
        try:
            self.public.verify(signature, message)
        except InvalidSignature:
            raise KeyFault("the published key does not verify its signature: find out which key signs") from None
        return signature

    async def sign_all(self, messages: tuple[bytes, ...]) -> tuple[bytes, ...]:
        """Sign each message, a few at a time: each within a second, all within four. If one is late or fails, give up
        the others and raise Undecided(`dependency.signer`)."""
        signatures = [b""] * len(messages)
        left = iter(enumerate(messages))

        async def sign_next() -> None:
            for index, message in left:
                signatures[index] = await self._sign_in_thread(message)

        try:
            async with asyncio.timeout(SIGNED_S), asyncio.TaskGroup() as group:
                for _ in range(min(self._backend.at_once, len(messages))):
                    group.create_task(sign_next())
        except TimeoutError:
            self._log(f"not all of {len(messages)} signatures within {SIGNED_S} s")
            raise Undecided(Code.DEPENDENCY_SIGNER) from None
        except ExceptionGroup:  # `_sign_in_thread` has logged the reason
            raise Undecided(Code.DEPENDENCY_SIGNER) from None
        return tuple(signatures)

    async def demand_live(self) -> None:
        """Sign a probe, if the key has signed nothing for a minute or its last signature failed. All callers share one
        probe. Raise Undecided(`dependency.signer`) if it fails, and for the next five seconds without a new one."""
        if self._has_failed or self._clock() - self._signed_at >= SIGNER_CHECK_S:
            await self._probes.find(None, self._probe)

    async def _probe(self) -> None:
        await self._sign_in_thread(_PROBE + str(time.time_ns()).encode())

    async def _sign_in_thread(self, message: bytes) -> bytes:
        try:
            async with asyncio.timeout(SIGNER_S):
                await self._take_turn()
                signature = await asyncio.wrap_future(self._begin(message))
        except _Busy as fault:
            self._log(str(fault))
        except TimeoutError:
            self._fail(f"no signature within {SIGNER_S} s")
        except KeyFault as fault:
            self._fail(str(fault))
        except Exception as error:  # noqa: BLE001 (a driver may raise anything)
            self._fail(f"the backend raised {type(error).__name__}")
        else:
            self._signed_at, self._has_failed = self._clock(), False
            return signature
        raise Undecided(Code.DEPENDENCY_SIGNER)

    def _fail(self, reason: str) -> None:
        self._has_failed = True
        self._log(reason)

    async def _take_turn(self) -> None:
        """Wait until another signature may begin. Raises KeyFault."""
        try:
            async with asyncio.timeout(SIGNER_TURN_S):
                await self._turns.acquire()
        except TimeoutError:
            if any(time.monotonic() - since > SIGNER_S for since in self._pending.values()):
                raise KeyFault(_HANGS) from None
            raise _Busy(f"no turn within {SIGNER_TURN_S} s: it got more requests than it can sign") from None

    def _begin(self, message: bytes) -> Future[bytes]:
        """Begin to sign in a thread. The turn ends when the thread returns, even if the caller has given up."""
        loop, signature = asyncio.get_running_loop(), apart(partial(self.sign, message), "signer")
        self._pending[signature] = time.monotonic()

        def end_turn() -> None:
            del self._pending[signature]
            self._turns.release()

        def on_done(_done: Future[bytes]) -> None:
            with suppress(RuntimeError):  # the loop has ended: the process is about to exit
                loop.call_soon_threadsafe(end_turn)

        signature.add_done_callback(on_done)
        return signature

    def _log(self, reason: str) -> None:
        """Log a reason at once, then with a count at most once a second."""
        now = self._clock()
        since, count = self._logged.get(reason, (now - COUNT_S, 0))
        if now - since < COUNT_S:
            self._logged[reason] = since, count + 1
            return
        _log.error("key did not sign", kid=self.kid, reason=reason, count=count + 1)
        self._logged[reason] = now, 0
