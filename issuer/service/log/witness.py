"""One witness of the log over time: which size it knows, and what it means where it does not cosign.

Only a checkpoint that this log's own key has signed, and that its tree does not extend, shows that the log was set back
or forked. The rest is the witness's word, which is told and proves nothing: a witness that lies must not stop a log.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from issuer.service.log.witness_call import Cosigned, Fault, NotExtended, SeenUpTo, WitnessCall
from issuer.tlog.checkpoint import Checkpoint, parse_checkpoint
from issuer.tlog.merkle import EMPTY_ROOT, verify_consistency
from issuer.tlog.note import Note, SignatureLine, Verifier

# The size that it knows, asked for; the head from there; and once more, as another host may have come between.
_TRIES = 3


class WitnessedLog(Protocol):
    """What witnessing needs of the log. Each method may wait for the database, and raise what that raises."""

    async def checkpoint(self) -> Note:
        """Read the newest committed head, and sign it: the note has signatures of the log's own keys alone."""
        ...

    async def consistency_proof(self, old: int, new: int) -> tuple[bytes, ...]:
        """Prove that the tree of `old` leaves is a prefix of that of `new`: 0 < old <= new, both committed."""
        ...

    async def keep_cosigned(self, size: int, note: bytes) -> None:
        """Keep a checkpoint that has reached the quorum. The first of its size stays."""
        ...


class Head(Struct, frozen=True):
    """A head of the log, and the note in which the log has signed it."""

    checkpoint: Checkpoint
    note: Note

    @classmethod
    async def newest(cls, log: WitnessedLog) -> Head:
        """Read the newest one."""
        note = await log.checkpoint()
        return cls(parse_checkpoint(note.text), note)

    @property
    def size(self) -> int:
        """Of its tree, in leaves."""
        return self.checkpoint.size


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
    """One witness of one log. `own` are the log's public keys."""

    def __init__(self, call: WitnessCall, log: WitnessedLog, own: Sequence[Verifier]) -> None:
        self.name = call.name
        self.verifier = call.verifier
        self._call = call
        self._log = log
        self._own = own
        self._size = 0  # that it cosigned last, as far as we know

    async def cosign(self, head: Head) -> Vouched:
        """Have a head cosigned. Raises Fault, Contradiction among them, and MovedOn."""
        for _ in range(_TRIES):
            old = self._size if self._size <= head.size else 0
            proof = await self._log.consistency_proof(old, head.size) if old else ()
            match await self._call.submit(old, proof, head.note):
                case Cosigned(line):
                    self._size = head.size
                    return Vouched(line, old)
                case SeenUpTo(size) if size > head.size:
                    self._size = 0
                    raise await self._ahead(size)
                case SeenUpTo(size):
                    self._size = size
                case NotExtended():
                    self._size = 0
                    why = f"it says that size {head.size} does not extend what it has cosigned"
                    raise await self._contradiction(why, is_fork=True)
        raise Fault("it names another size each time")

    async def _ahead(self, size: int) -> Contradiction | MovedOn:
        if size <= (await Head.newest(self._log)).size:
            self._size = size
            return MovedOn()
        return await self._contradiction(f"it says that it has cosigned size {size}", is_fork=False)

    async def _contradiction(self, why: str, *, is_fork: bool) -> Contradiction:
        shown = await self._call.shown(self._own)
        # Read after that: what it shows may be what another host has just committed.
        newest = await Head.newest(self._log)
        if shown is None or await self._extends(newest, earlier := parse_checkpoint(shown.text)):
            return Contradiction(f"{why}, and shows nothing against this log", None, is_fork=is_fork)
        why = f"it shows a checkpoint of size {earlier.size} that this log has signed and does not extend"
        return Contradiction(why, shown, is_fork=True)

    async def _extends(self, head: Head, earlier: Checkpoint) -> bool:
        """Say whether the log's tree has an earlier checkpoint's as a prefix."""
        if not earlier.size or earlier.size > head.size:
            return not earlier.size and earlier.root == EMPTY_ROOT
        proof = await self._log.consistency_proof(earlier.size, head.size)
        return verify_consistency(earlier.size, head.size, earlier.root, head.checkpoint.root, proof)
