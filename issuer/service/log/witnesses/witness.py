"""One witness of the log: requests to it (c2sp.org/tlog-witness), the size that it knows, and checks of its answers.

Only signatures are trusted: the witness's cosignature of the checkpoint that we sent, with the current time; and a
checkpoint that the witness shows, if a key of our log has signed it. If our tree does not extend such a checkpoint, the
log was rolled back or forked. While the log runs, a status or a number from a witness is only logged: a lying witness
must not stop the log.
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
# One request to learn the witness's size, one with the proof from there, one more if another host came in between.
_TRIES = 3


class WitnessFault(Exception):
    """A witness failed. The text is ours, for the operator, and does not quote the witness."""


class SeenUpTo(Struct, frozen=True):
    """Status 409: the witness says which size it has cosigned last, and that differs from our assumption."""

    size: int


class NotExtended(Struct, frozen=True):
    """Status 422, or 409 for the size that the witness knows: it denies that our tree extends its cosigned one."""


Outcome = SignatureLine | SeenUpTo | NotExtended


class SignedHead(Struct, frozen=True):
    """A head of the log, and the note with the log's signature."""

    checkpoint: Checkpoint
    note: Note


class WitnessedLog(Protocol):
    """The operations of the log for witnessing. Each method may wait for the database, and raise its errors."""

    async def head(self) -> SignedHead:
        """Read and sign the newest committed head. The note has only signatures of the log's keys."""

    async def consistency_proof(self, old: int, new: int) -> tuple[bytes, ...]:
        """Return the proof that the tree of `old` leaves is a prefix of the tree of `new`, 0 < old <= new, both
        committed."""

    async def keep_cosigned(self, size: int, note: bytes) -> None:
        """Keep a checkpoint that has reached the quorum, unless there is one of this size."""


class Vouched(Struct, frozen=True):
    """A witness's cosignature of a head. The witness knew the log at size `since` before; 0 means not at all."""

    line: SignatureLine
    since: int


class Contradiction(WitnessFault):
    """A witness says that the log was rolled back or forked. `shown` is its evidence, signed by the log's key, or
    None."""

    def __init__(self, why: str, shown: Note | None) -> None:
        super().__init__(why)
        self.shown = shown


class MovedOn(Exception):
    """The witness knows a later head of this log, which another host has committed."""


class LogWitness:
    """One witness of a log that has the public keys `own`. The URL in the policy is the witness's submission prefix;
    `monitoring` is its monitoring prefix, if that differs. Belongs to one event loop."""

    def __init__(self, key: WitnessKey, fetcher: Fetcher, monitoring: str, own: Sequence[Verifier]) -> None:
        self.name = key.name
        self.verifier = key.verifier
        self._submission = key.url.rstrip("/")
        self._monitoring = monitoring.rstrip("/") or self._submission
        self._fetcher = fetcher
        self._own = own
        self._size = 0  # the size that it cosigned last, as far as we know

    async def shown(self) -> Note | None:
        """Return the log's checkpoint that the witness shows; None unless one of the log's keys has signed it."""
        origin = self._own[0].name
        try:
            status, answer = await self._send("GET", self._monitoring + checkpoint_path(origin), (), b"")
            if status != 200:
                return None
            note = parse_note(answer, MAX_WITNESS_BYTES)
            verify_note(note, self._own)
            return note if parse_checkpoint(note.text).origin == origin else None
        except (WitnessFault, FormatError):
            return None

    async def cosign(self, head: SignedHead, log: WitnessedLog) -> Vouched:
        """Have the witness cosign a head of the log. Raises WitnessFault (also as Contradiction) and MovedOn."""
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
                    why = f"it says that size {own_size} does not extend the tree that it cosigned"
                    raise await self._contradiction(why, log)
        raise WitnessFault("it answers each request with another size")

    async def _ahead(self, size: int, log: WitnessedLog) -> Contradiction | MovedOn:
        if size <= (await log.head()).checkpoint.size:
            self._size = size
            return MovedOn()
        return await self._contradiction(f"it says that it has cosigned size {size}", log)

    async def _contradiction(self, why: str, log: WitnessedLog) -> Contradiction:
        shown = await self.shown()
        # Read the head only now: the witness may show a checkpoint that another host has just committed.
        newest = (await log.head()).checkpoint
        if shown is None or await _extends(log, newest, earlier := parse_checkpoint(shown.text)):
            return Contradiction(f"{why}, but shows no evidence", None)
        why = f"it shows a checkpoint of size {earlier.size} that this log has signed and does not extend"
        return Contradiction(why, shown)

    async def _submit(self, old: int, proof: Sequence[bytes], note: Note) -> Outcome:
        """Request a cosignature. Raises WitnessFault, at the latest after WITNESS_S."""
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
                raise WitnessFault(f"it answered {status}")

    def _good_line(self, answer: bytes, note: Note) -> SignatureLine:
        """Return the witness's line of an answer. Lines of other keys are ignored."""
        known = (self.verifier.name, self.verifier.key_id)
        try:
            own = [line for line in parse_signatures(answer, MAX_WITNESS_BYTES) if (line.name, line.key_id) == known]
            if not own:
                raise WitnessFault("its answer has no signature of its key")
            verified = verify_note(Note(note.text, tuple(own)), [self.verifier])
        except FormatError as error:
            raise WitnessFault(f"its answer is invalid: {error.detail}") from None
        # A wrong time would be the witnessed time of every token under this checkpoint, for ever.
        if not all(each.timestamp and abs(each.timestamp - int(time.time())) <= MAX_AHEAD_S for each in verified):
            raise WitnessFault("the time of its cosignature is not the current time")
        return own[0]

    async def _send(
        self, method: str, uri: str, headers: Sequence[tuple[str, str]], content: bytes
    ) -> tuple[int, bytes]:
        try:
            async with asyncio.timeout(WITNESS_S):
                return await self._fetcher.send(method, uri, headers, content, MAX_WITNESS_BYTES)
        except TimeoutError:
            raise WitnessFault(f"it did not complete its answer within {WITNESS_S:.3g} s") from None
        except FAILURES as failure:
            raise WitnessFault(f"it cannot be reached: {reason(failure)}") from None


def _conflict(size: int | None, old: int, new: int) -> Outcome:
    """Interpret a 409. If we sent the size that the witness knows, a 409 means that its tree of that size has another
    root."""
    if old == new and size in {None, old}:
        return NotExtended()
    if size is None or size == old:
        raise WitnessFault("it answered 409 without another size")
    return SeenUpTo(size)


async def _extends(log: WitnessedLog, head: Checkpoint, earlier: Checkpoint) -> bool:
    """Return whether the log's tree extends the tree of an earlier checkpoint."""
    if not earlier.size or earlier.size > head.size:
        return not earlier.size and earlier.root == EMPTY_ROOT
    proof = await log.consistency_proof(earlier.size, head.size)
    return verify_consistency(earlier.size, head.size, earlier.root, head.root, proof)
