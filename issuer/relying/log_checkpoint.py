"""The signed head of a log: fetched, and checked by the witness policy of who reads it (c2sp.org/tlog-checkpoint)."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from issuer import files
from issuer.codes import Code
from issuer.errors import FormatError, InputError, Place, Undecided
from issuer.relying.log_files import LogFiles, unverified
from issuer.tlog.checkpoint import Checkpoint, parse_checkpoint
from issuer.tlog.note import MAX_NOTE_BYTES, Note, parse_note
from issuer.tlog.witness_policy import MAX_POLICY_BYTES, WitnessPolicy, parse_policy

CHECKPOINT_PATH = "checkpoint"


class Head(Struct, frozen=True):
    """A checkpoint with its note. `time` is its witnessed time (Unix seconds), None where nothing proves one."""

    note: Note
    checkpoint: Checkpoint
    time: int | None = None


def read_witness_policy(path: Path) -> WitnessPolicy:
    """Read a policy file. Raises InputError(`log.policy`) with its line."""
    return parse_policy(files.read(path, MAX_POLICY_BYTES, pipe=True), str(path))


def read_head(log: LogFiles, policy: WitnessPolicy, now: int) -> Head:
    """Return a log's newest checkpoint, signed by a log of the policy and cosigned by its quorum.

    Raises VerificationError(`log.unverified`), and Undecided while there is no quorum (`log.quorum`), which takes a
    moment after every checkpoint, or no answer (`log.unavailable`). InputError where no log is.
    """
    head = read_unverified_head(log)
    return check_head(head.note, policy, now)


def check_head(note: Note, policy: WitnessPolicy, now: int) -> Head:
    """Check a signed checkpoint; the errors are those of `read_head`."""
    try:
        witnessed = policy.check(note, now)
    except FormatError as error:
        if error.code is Code.LOG_QUORUM:
            raise Undecided(Code.LOG_QUORUM, error.detail) from None
        raise unverified(error.detail) from None
    return Head(note, witnessed.checkpoint, witnessed.time)


def read_unverified_head(log: LogFiles) -> Head:
    """Return a log's newest checkpoint as it says itself: whose it is, nobody has checked."""
    raw = log.read(CHECKPOINT_PATH, MAX_NOTE_BYTES)
    if raw is None:
        raise InputError(Code.FILE_UNREADABLE, "there is no checkpoint: this is no log's prefix", Place(log.name))
    return parse_head(raw)


def parse_head(raw: bytes) -> Head:
    """Read the bytes of a signed checkpoint. Raises VerificationError(`log.unverified`)."""
    try:
        note = parse_note(raw)
        return Head(note, parse_checkpoint(note.text))
    except FormatError as error:
        raise unverified(f"the checkpoint does not parse: {error.detail}") from None
