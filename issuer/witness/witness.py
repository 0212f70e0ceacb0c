"""The decision whether to cosign a checkpoint, by the numbered requirements of c2sp.org/tlog-witness.

The witness decides under the lock of its state, commits, and then signs. After a crash in between, the log gets no
answer and sends the checkpoint again. In the other order, a crash could leave an unrecorded cosignature.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from http import HTTPStatus

from msgspec import Struct

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
from issuer.witness.state import Latest, WitnessState

TEXT_TYPE = "text/plain; charset=utf-8"

# By origin: the log's keys. A log has several while one replaces the other.
Logs = Mapping[str, tuple[Verifier, ...]]


class Reply(Struct, frozen=True):
    """An answer. `is_fork` means that the log signed two trees of the same size, which is never legitimate."""

    status: HTTPStatus
    body: bytes
    media_type: str = TEXT_TYPE
    is_fork: bool = False


class WitnessRefusal(Exception):
    """The checkpoint is not cosigned. The text is for the log's operator."""

    def __init__(self, status: HTTPStatus, why: str, *, is_fork: bool = False) -> None:
        super().__init__(why)
        self.reply = Reply(status, f"{why}\n".encode(), is_fork=is_fork)


class StaleSize(Exception):
    """The submission's old size is not the size that was cosigned last."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.reply = Reply(HTTPStatus.CONFLICT, size_body(size), SIZE_TYPE)


NOTHING = Latest(0, EMPTY_ROOT, b"")


class Witness:
    """A witness of several logs, for one thread at a time. It blocks on its state. `clock` returns Unix seconds."""

    def __init__(self, cosigner: Cosigner, logs: Logs, state: WitnessState, clock: Callable[[], int]) -> None:
        self._cosigner = cosigner
        self._logs = logs
        self._by_hash = {hashlib.sha256(origin.encode()).hexdigest(): origin for origin in logs}
        self._state = state
        self._clock = clock

    def add_checkpoint(self, raw: bytes) -> Reply:
        """Return the answer to the body of an add-checkpoint request. Raises NotKept."""
        try:
            return self._judge(*self._read(raw))
        except (WitnessRefusal, StaleSize) as refusal:
            return refusal.reply

    def checkpoint(self, origin_hash: str) -> Reply:
        """Return the last cosigned checkpoint of the log with this SHA-256 of its origin (lowercase hex). The
        cosignature is made anew with the present time, so that only the log's note must be recorded."""
        origin = self._by_hash.get(origin_hash)
        with self._state.turn():
            latest = None if origin is None else self._state.latest(origin)
            now = self._clock()
        if latest is None:
            return WitnessRefusal(HTTPStatus.NOT_FOUND, "no checkpoint was cosigned for this origin hash").reply
        note = parse_note(latest.note, MAX_SUBMISSION_BYTES)
        return Reply(HTTPStatus.OK, latest.note + self._cosigned(note, now))

    def _read(self, raw: bytes) -> tuple[WitnessSubmission, Checkpoint, Note]:
        """Parse a request and verify its log's signature. The note is returned without other signatures."""
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
        # (3) one of its keys has signed, and no signature of its keys is invalid
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
        """Decide, commit and sign. Only this method changes the last cosigned checkpoint."""
        submitted = Latest(checkpoint.size, checkpoint.root, note.to_bytes())
        with self._state.turn():
            latest = self._state.latest(checkpoint.origin) or NOTHING
            if is_fork := 0 < latest.size == submission.old == submitted.size and latest.root != submitted.root:
                self._state.keep_fork(checkpoint.origin, submitted)
            else:
                demand_extension(latest, submission, checkpoint)
                if latest.size < submitted.size or not latest.note:
                    self._state.keep(checkpoint.origin, submitted)
            now = self._clock()  # under the lock: at this time the witness knew no larger tree
        if is_fork:
            raise WitnessRefusal(HTTPStatus.CONFLICT, "another tree of this size was cosigned", is_fork=True)
        return Reply(HTTPStatus.OK, self._cosigned(note, now))

    def _cosigned(self, note: Note, now: int) -> bytes:
        """Return the cosignature of a note, which must be committed already."""
        return self._cosigner.cosign(note.text, now).to_text().encode()


def demand_extension(latest: Latest, submission: WitnessSubmission, checkpoint: Checkpoint) -> None:
    """Raise StaleSize or WitnessRefusal unless the submission proves that the checkpoint extends `latest`."""
    # (5) the log knows the last cosigned size
    if submission.old != latest.size:
        raise StaleSize(latest.size)
    fault = ""
    # (6) there is only one empty tree, and every tree extends it without a proof
    if checkpoint.size == 0 and checkpoint.root != EMPTY_ROOT:
        fault = "this is not the root of the empty tree"
    elif latest.size == 0:
        fault = "the proof from size 0 must be empty" if submission.proof else ""
    # (7) the proof
    elif not verify_consistency(latest.size, checkpoint.size, latest.root, checkpoint.root, submission.proof):
        fault = "the proof does not show that the cosigned tree is a prefix of this tree"
    if fault:
        raise WitnessRefusal(HTTPStatus.UNPROCESSABLE_ENTITY, fault)
