"""What a witness cosigns, in the order of c2sp.org/tlog-witness: each number in the code is one of its demands.

Decides under the lock of its state, commits, and only then signs: a crash between the two leaves a log without an
answer, which asks again; the other order could leave a cosignature that the witness does not know of.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from http import HTTPStatus

from msgspec import Struct
from msgspec.structs import replace

from issuer.errors import FormatError
from issuer.tlog.checkpoint import (
    MAX_SUBMISSION_BYTES,
    SIZE_TYPE,
    Checkpoint,
    WitnessSubmission,
    parse_checkpoint,
    read_submission,
    size_body,
)
from issuer.tlog.merkle import EMPTY_ROOT, verify_consistency
from issuer.tlog.note import Cosigner, Note, Verifier, parse_note, verify_note
from issuer.witness.state import Latest, State

TEXT_TYPE = "text/plain; charset=utf-8"

# By origin: the keys that sign for it. Several while one replaces the other.
Logs = Mapping[str, tuple[Verifier, ...]]


class Reply(Struct, frozen=True):
    """An answer. `is_fork`: the log has signed two trees of one size, which its operator cannot explain."""

    status: HTTPStatus
    body: bytes
    media_type: str = TEXT_TYPE
    is_fork: bool = False


class WitnessRefusal(Exception):
    """Not cosigned. Its text is for the log's operator."""

    def __init__(self, status: HTTPStatus, why: str) -> None:
        super().__init__(why)
        self.reply = Reply(status, f"{why}\n".encode())


class StaleSize(Exception):
    """The log took another size for the one that was cosigned last."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.reply = Reply(HTTPStatus.CONFLICT, size_body(size), SIZE_TYPE)


NOTHING = Latest(0, EMPTY_ROOT, b"")


class Witness:
    """One witness of several logs. Blocks on its state; one thread at a time. `clock` gives Unix seconds."""

    def __init__(self, cosigner: Cosigner, logs: Logs, state: State, clock: Callable[[], int]) -> None:
        self._cosigner = cosigner
        self._logs = logs
        self._by_hash = {hashlib.sha256(origin.encode()).hexdigest(): origin for origin in logs}
        self._state = state
        self._clock = clock

    def add_checkpoint(self, raw: bytes) -> Reply:
        """Answer the body of an add-checkpoint request. Raises NotKept."""
        try:
            submission, checkpoint, note = self._read(raw)
            return self._judge(submission, checkpoint, note)
        except (WitnessRefusal, StaleSize) as refusal:
            return refusal.reply

    def checkpoint(self, origin_hash: str) -> Reply:
        """Show the checkpoint that was cosigned last for the log whose origin has this SHA-256 (lowercase hex). The
        cosignature is made now: it says what is true now, and nothing but the log's own note needs to be kept."""
        origin = self._by_hash.get(origin_hash)
        with self._state.turn():
            latest = None if origin is None else self._state.latest(origin)
            now = self._clock()
        if latest is None:
            return WitnessRefusal(HTTPStatus.NOT_FOUND, "nothing was cosigned for a log of this origin hash").reply
        note = parse_note(latest.note, MAX_SUBMISSION_BYTES)
        return Reply(HTTPStatus.OK, latest.note + self._cosigned(note, now))

    def _read(self, raw: bytes) -> tuple[WitnessSubmission, Checkpoint, Note]:
        """Return what a request says, once a key of its log has signed it; the note without all other signatures."""
        # (1) the form
        try:
            submission = read_submission(raw)
            note = parse_note(submission.note, MAX_SUBMISSION_BYTES)
            checkpoint = parse_checkpoint(note.text)
        except FormatError as error:
            raise WitnessRefusal(HTTPStatus.BAD_REQUEST, error.detail) from None
        # (2) the origin is known
        if (keys := self._logs.get(checkpoint.origin)) is None:
            raise WitnessRefusal(HTTPStatus.NOT_FOUND, "no log of this origin is witnessed here")
        # (3) a key of it has signed, and none of its keys wrongly
        try:
            verify_note(note, keys)
        except FormatError as error:
            raise WitnessRefusal(HTTPStatus.FORBIDDEN, error.detail) from None
        # (4) the order of the sizes
        if submission.old > checkpoint.size:
            raise WitnessRefusal(HTTPStatus.BAD_REQUEST, "the old size is larger than the checkpoint's")
        own = {(key.name, key.key_id) for key in keys}
        signed = tuple(line for line in note.signatures if (line.name, line.key_id) in own)
        return submission, checkpoint, Note(note.text, signed)

    def _judge(self, submission: WitnessSubmission, checkpoint: Checkpoint, note: Note) -> Reply:
        """Decide, commit and sign. What was cosigned last changes in here alone."""
        found = Latest(checkpoint.size, checkpoint.root, note.to_bytes())
        with self._state.turn():
            latest = self._state.latest(checkpoint.origin) or NOTHING
            if is_fork := 0 < latest.size == submission.old == found.size and latest.root != found.root:
                self._state.keep_fork(checkpoint.origin, found)
            else:
                demand_extension(latest, submission, checkpoint)
                if latest.size < found.size or not latest.note:
                    self._state.keep(checkpoint.origin, found)
            now = self._clock()  # under the lock: at this time no larger tree was known
        if is_fork:
            return replace(
                WitnessRefusal(HTTPStatus.CONFLICT, "another tree of this size was cosigned").reply, is_fork=True
            )
        return Reply(HTTPStatus.OK, self._cosigned(note, now))

    def _cosigned(self, note: Note, now: int) -> bytes:
        """Sign. To be called only for what has been committed."""
        return self._cosigner.cosign(note.text, now).to_text().encode()


def demand_extension(latest: Latest, submission: WitnessSubmission, checkpoint: Checkpoint) -> None:
    """Raise Stale or Refusal unless the checkpoint extends what was cosigned last, as the submission shows."""
    # (5) the log knows what was cosigned last
    if submission.old != latest.size:
        raise StaleSize(latest.size)
    # (6) there is one empty tree, every tree extends it, and nothing has to show that
    if checkpoint.size == 0 and checkpoint.root != EMPTY_ROOT:
        raise WitnessRefusal(HTTPStatus.UNPROCESSABLE_ENTITY, "the root of a tree without leaves is another one")
    if latest.size == 0:
        if submission.proof:
            raise WitnessRefusal(HTTPStatus.UNPROCESSABLE_ENTITY, "the proof from size 0 is empty")
    # (7) the proof
    elif not verify_consistency(latest.size, checkpoint.size, latest.root, checkpoint.root, submission.proof):
        raise WitnessRefusal(
            HTTPStatus.UNPROCESSABLE_ENTITY, "the proof does not show that what was cosigned is a prefix"
        )
