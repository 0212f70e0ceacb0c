"""One witness of the log: requests to it (c2sp.org/tlog-witness), the size that it knows, judgement of its answers.

Signatures are believed: the witness's own, over the checkpoint that it was sent, with the time of now; and a checkpoint
that it shows, if a key of our own log has signed that. A status and a number prove nothing. Only a checkpoint that our
key has signed, and that our tree does not extend, shows that the log was set back or forked: the witness's word alone
is logged, because a witness that lies must not stop a log.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from issuer.errors import FormatError
from issuer.io.fetch import FAILURES, Fetcher, reason
from issuer.service.log.bounds import MAX_WITNESS_BYTES, WITNESS_S
from issuer.tlog.checkpoint import (
    ADD_CHECKPOINT_PATH,
    Checkpoint,
    WitnessSubmission,
    checkpoint_path,
    parse_checkpoint,
    read_size,
)
from issuer.tlog.merkle import EMPTY_ROOT, verify_consistency
from issuer.tlog.note import Note, SignatureLine, Verifier, parse_note, parse_signatures, verify_note
from issuer.tlog.witness_policy import MAX_AHEAD_S, WitnessKey

_TYPE = (("Content-Type", "text/plain; charset=utf-8"),)
# The size that it knows, asked for; the head from there; and once more, as another host may have come between.
_TRIES = 3


class Fault(Exception):
    """A witness did not do its part. The text is ours, for the operator: it quotes nothing of the witness."""


class SeenUpTo(Struct, frozen=True):
    """409: it says that it has cosigned this size last, and not the one that it was told."""

    size: int


class NotExtended(Struct, frozen=True):
    """422, or 409 for a tree of a size that it knows: it says that ours does not extend what it has cosigned."""


Outcome = SignatureLine | SeenUpTo | NotExtended


class SignedHead(Struct, frozen=True):
    """A head of the log, and the note in which the log has signed it."""

    checkpoint: Checkpoint
    note: Note


class WitnessedLog(Protocol):
    """What witnessing needs of the log. Each method may wait for the database, and raise what that raises."""

    async def head(self) -> SignedHead:
        """Read the newest committed head, and sign it: the note has signatures of the log's own keys alone."""

    async def consistency_proof(self, old: int, new: int) -> tuple[bytes, ...]:
        """Prove that the tree of `old` leaves is a prefix of that of `new`: 0 < old <= new, both committed."""

    async def keep_cosigned(self, size: int, note: bytes) -> None:
        """Keep a checkpoint that has reached the quorum. The first of its size stays."""


class Vouched(Struct, frozen=True):
    """A witness cosigned a head: its line. It knew the log at size `since` before; 0: as good as not at all."""

    line: SignatureLine
    since: int


class Contradiction(Fault):
    """A witness says that this log is not as it was. `shown` is its evidence, signed by the log's own key, or None.

    `is_fork`: it means another history, and not only a size that this log does not have.
    """

    def __init__(self, why: str, shown: Note | None, *, is_fork: bool) -> None:
        super().__init__(why)
        self.shown = shown
        self.is_fork = is_fork


class MovedOn(Exception):
    """The witness knows a later head of this log: another host's, which is the newest one now."""


class LogWitness:
    """One witness of a log that has the public keys `own`. Belongs to one event loop.

    It is asked at the URL that the policy has for it, its submission prefix; `monitoring` is the prefix where it shows
    checkpoints, if that is another one.
    """

    def __init__(self, key: WitnessKey, fetcher: Fetcher, monitoring: str, own: Sequence[Verifier]) -> None:
        self.name = key.name
        self.verifier = key.verifier
        self._submission = key.url.rstrip("/")
        self._monitoring = monitoring.rstrip("/") or self._submission
        self._fetcher = fetcher
        self._own = own
        self._size = 0  # that it cosigned last, as far as we know

    async def shown(self) -> Note | None:
        """Return the checkpoint that it shows of the log, if one of the log's keys has signed that; else None."""
        origin = self._own[0].name
        try:
            status, answer = await self._send("GET", self._monitoring + checkpoint_path(origin), (), b"")
            if status != 200:
                return None
            note = parse_note(answer, MAX_WITNESS_BYTES)
            verify_note(note, self._own)
            return note if parse_checkpoint(note.text).origin == origin else None
        except (Fault, FormatError):
            return None

    async def cosign(self, head: SignedHead, log: WitnessedLog) -> Vouched:
        """Have a head of the log cosigned. Raises Fault, Contradiction among them, and MovedOn."""
        own_size = head.checkpoint.size
        for _ in range(_TRIES):
            old = self._size if self._size <= own_size else 0
            proof = await log.consistency_proof(old, own_size) if old else ()
            match await self._submit(old, proof, head.note):
                case SignatureLine() as line:
                    self._size = own_size
                    return Vouched(line, old)
                case SeenUpTo(size) if size > own_size:
                    self._size = 0
                    raise await self._ahead(size, log)
                case SeenUpTo(size):
                    self._size = size
                case NotExtended():
                    self._size = 0
                    why = f"it says that size {own_size} does not extend what it has cosigned"
                    raise await self._contradiction(why, log, is_fork=True)
        raise Fault("it names another size each time")

    async def _ahead(self, size: int, log: WitnessedLog) -> Contradiction | MovedOn:
        if size <= (await log.head()).checkpoint.size:
            self._size = size
            return MovedOn()
        return await self._contradiction(f"it says that it has cosigned size {size}", log, is_fork=False)

    async def _contradiction(self, why: str, log: WitnessedLog, *, is_fork: bool) -> Contradiction:
        shown = await self.shown()
        # Read after that: what it shows may be what another host has just committed.
        newest = (await log.head()).checkpoint
        if shown is None or await _extends(log, newest, earlier := parse_checkpoint(shown.text)):
            return Contradiction(f"{why}, and shows nothing against this log", None, is_fork=is_fork)
        why = f"it shows a checkpoint of size {earlier.size} that this log has signed and does not extend"
        return Contradiction(why, shown, is_fork=True)

    async def _submit(self, old: int, proof: Sequence[bytes], note: Note) -> Outcome:
        """Ask for a cosignature. Raises Fault, at the latest after WITNESS_S."""
        body = WitnessSubmission(old, tuple(proof), note.to_bytes()).to_bytes()
        status, answer = await self._send("POST", self._submission + ADD_CHECKPOINT_PATH, _TYPE, body)
        match status:
            case 200:
                return self._good_line(answer, note)
            case 409:
                return _conflict(read_size(answer), old, parse_checkpoint(note.text).size)
            case 422:
                return NotExtended()
            case _:
                raise Fault(f"it answered {status}")

    def _good_line(self, answer: bytes, note: Note) -> SignatureLine:
        """Return the witness's line of an answer. Lines of other keys are nobody's here, and not looked at."""
        known = (self.verifier.name, self.verifier.key_id)
        try:
            own = [line for line in parse_signatures(answer, MAX_WITNESS_BYTES) if (line.name, line.key_id) == known]
            if not own:
                raise Fault("its answer has no signature of its key")
            verified = verify_note(Note(note.text, tuple(own)), [self.verifier])
        except FormatError as error:
            raise Fault(f"its answer is not good: {error.detail}") from None
        # Another time would be the witnessed time of every token below this checkpoint, for ever.
        if not all(found.timestamp and abs(found.timestamp - int(time.time())) <= MAX_AHEAD_S for found in verified):
            raise Fault("the time of its cosignature is not now")
        return own[0]

    async def _send(
        self, method: str, uri: str, headers: Sequence[tuple[str, str]], content: bytes
    ) -> tuple[int, bytes]:
        try:
            async with asyncio.timeout(WITNESS_S):
                return await self._fetcher.send(method, uri, headers, content, MAX_WITNESS_BYTES)
        except TimeoutError:
            raise Fault(f"it gave no whole answer within {WITNESS_S:.3g} s") from None
        except FAILURES as failure:
            raise Fault(f"it cannot be asked: {reason(failure)}") from None


def _conflict(size: int | None, old: int, new: int) -> Outcome:
    """Judge a 409. Where we sent the size that it knows, it says that the root is another, with a size or without."""
    if old == new and size in {None, old}:
        return NotExtended()
    if size is None or size == old:
        raise Fault("it answered 409 without another size")
    return SeenUpTo(size)


async def _extends(log: WitnessedLog, head: Checkpoint, earlier: Checkpoint) -> bool:
    """Say whether the log's tree has an earlier checkpoint's as a prefix."""
    if not earlier.size or earlier.size > head.size:
        return not earlier.size and earlier.root == EMPTY_ROOT
    proof = await log.consistency_proof(earlier.size, head.size)
    return verify_consistency(earlier.size, head.size, earlier.root, head.root, proof)
