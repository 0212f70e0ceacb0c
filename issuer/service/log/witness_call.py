"""One request to a witness, and what of the answer is believed (c2sp.org/tlog-witness).

Believed are signatures: the witness's own, over the checkpoint that it was sent, with the time of now; and a checkpoint
that it shows, if a key of our own log has signed that. A status and a number are what anybody may say.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from msgspec import Struct

from issuer.errors import FormatError
from issuer.service.authn.fetch import FAILURES, Fetcher, reason
from issuer.service.bounds import MAX_WITNESS_BYTES, WITNESS_S
from issuer.tlog.add_checkpoint import ADD_CHECKPOINT_PATH, Submission, checkpoint_path, read_size
from issuer.tlog.checkpoint import parse_checkpoint
from issuer.tlog.note import Note, SignatureLine, Verifier, parse_note, parse_signatures, verify_note
from issuer.tlog.quorum import MAX_AHEAD_S, WitnessKey

_TYPE = (("Content-Type", "text/plain; charset=utf-8"),)


class Fault(Exception):
    """A witness did not do its part. The text is ours, for the operator: it quotes nothing of the witness."""


class Cosigned(Struct, frozen=True):
    """200: its line over the checkpoint, verified."""

    line: SignatureLine


class SeenUpTo(Struct, frozen=True):
    """409: it says that it has cosigned this size last, and not the one that it was told."""

    size: int


class NotExtended(Struct, frozen=True):
    """422, or 409 for a tree of a size that it knows: it says that ours does not extend what it has cosigned."""


Outcome = Cosigned | SeenUpTo | NotExtended


class WitnessCall:
    """Asks one witness at the URL that the policy has for it, its submission prefix. Belongs to one event loop.

    `monitoring` is the prefix where it shows checkpoints, if that is another one. `clock` gives Unix seconds.
    """

    def __init__(self, key: WitnessKey, fetcher: Fetcher, clock: Callable[[], int], monitoring: str = "") -> None:
        self.name = key.name
        self.verifier = key.verifier
        self._submission = key.url.rstrip("/")
        self._monitoring = monitoring.rstrip("/") or self._submission
        self._fetcher = fetcher
        self._clock = clock

    async def submit(self, old: int, proof: Sequence[bytes], note: Note) -> Outcome:
        """Ask for a cosignature. Raises Fault, at the latest after WITNESS_S."""
        body = Submission(old, tuple(proof), note.to_bytes()).to_bytes()
        status, answer = await self._send("POST", self._submission + ADD_CHECKPOINT_PATH, _TYPE, body)
        match status:
            case 200:
                return Cosigned(self._good_line(answer, note))
            case 409:
                return _conflict(read_size(answer), old, parse_checkpoint(note.text).size)
            case 422:
                return NotExtended()
            case _:
                raise Fault(f"it answered {status}")

    async def shown(self, own: Sequence[Verifier]) -> Note | None:
        """Return the checkpoint that it shows of a log, if one of the log's `own` keys has signed that; else None."""
        origin = own[0].name
        try:
            status, answer = await self._send("GET", self._monitoring + checkpoint_path(origin), (), b"")
            if status != 200:
                return None
            note = parse_note(answer, MAX_WITNESS_BYTES)
            verify_note(note, own)
            return note if parse_checkpoint(note.text).origin == origin else None
        except (Fault, FormatError):
            return None

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
        if not all(found.timestamp and abs(found.timestamp - self._clock()) <= MAX_AHEAD_S for found in verified):
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
