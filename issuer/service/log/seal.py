"""The log's own hand: it signs the checkpoints of committed heads, and knows its signature again. Pure."""

from __future__ import annotations

from issuer.errors import FormatError
from issuer.service.log.store import Head
from issuer.tlog.checkpoint import Checkpoint, parse_checkpoint
from issuer.tlog.note import Note, NoteSigner, Verifier, parse_note, verify_note


class Seal:
    """The key of one log, whose name is the log's origin line."""

    def __init__(self, signer: NoteSigner) -> None:
        self._signer = signer
        self._verifiers = (signer.verifier,)

    @property
    def origin(self) -> str:
        """The log's origin line."""
        return self._signer.name

    @property
    def verifier(self) -> Verifier:
        """The log's public key."""
        return self._signer.verifier

    @property
    def vkey(self) -> str:
        """Its public side, as policies name it (signed-note)."""
        return self.verifier.to_text()

    def sign(self, head: Head) -> bytes:
        """Return the signed checkpoint of a head, which the caller has seen committed.

        Always the same bytes for one head: Ed25519 is deterministic.
        """
        text = Checkpoint(head.origin, head.size, head.root).to_text()
        return Note(text, (self._signer.sign(text),)).to_bytes()

    def read(self, raw: bytes) -> Checkpoint | None:
        """Return the checkpoint that this log signed; None for anything else."""
        try:
            note = parse_note(raw)
            verify_note(note, self._verifiers)
            checkpoint = parse_checkpoint(note.text)
        except FormatError:
            return None
        return checkpoint if checkpoint.origin == self.origin else None
