"""Which logs and witnesses are trusted, and how many witnesses must have cosigned (c2sp.org/tlog-policy). Pure.

A policy as a value, and what it says of a signed checkpoint. Its file is read in `witness_policy.py`; the clock is the
caller's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

from issuer.codes import Code
from issuer.errors import FormatError
from issuer.tlog.checkpoint import Checkpoint, parse_checkpoint
from issuer.tlog.note import Note, verify_note
from issuer.tlog.vkey import Verified, Verifier

NO_QUORUM = "none"
MAX_AHEAD_S = 60  # how far a witness's clock may be ahead of ours


class LogKey(Struct, frozen=True):
    """A key of a log whose origin is the key's name. `url` is "" where the file has none."""

    verifier: Verifier
    url: str = ""


class WitnessKey(Struct, frozen=True):
    """A witness. `name` is the policy file's own word for it; its key has another name, that of its signature lines."""

    name: str
    verifier: Verifier
    url: str = ""


class Group(Struct, frozen=True):
    """A group has cosigned if at least `threshold` of its members have: witnesses, or groups before it in the file."""

    name: str
    threshold: int
    members: tuple[str, ...]


class Witnessed(Struct, frozen=True):
    """A checkpoint that a trusted log signed and the quorum cosigned, and its witnessed time in Unix seconds.

    None: the policy asks for no witness, so nothing here proves a time.
    """

    checkpoint: Checkpoint
    log: LogKey
    time: int | None


class WitnessPolicy(Struct, frozen=True):
    """Trusted logs and witnesses; `quorum` is the name of a witness or a group, or `none`."""

    logs: tuple[LogKey, ...]
    witnesses: tuple[WitnessKey, ...]
    groups: tuple[Group, ...]
    quorum: str

    @property
    def verifiers(self) -> tuple[Verifier, ...]:
        """Every key of the policy: the logs', then the witnesses'."""
        return (*(log.verifier for log in self.logs), *(witness.verifier for witness in self.witnesses))

    @property
    def asks_for_witnesses(self) -> bool:
        """Whether a checkpoint needs cosignatures, and so has a witnessed time."""
        return self.quorum != NO_QUORUM

    def met_by(self, cosigners: Iterable[Verifier]) -> bool:
        """Say whether these keys, whose cosignatures the caller has verified, are a quorum. Each counts once."""
        keys = set(cosigners)
        cosigned = {NO_QUORUM} | {witness.name for witness in self.witnesses if witness.verifier in keys}
        for group in self.groups:  # members come before their group, so one pass is enough
            if len(cosigned.intersection(group.members)) >= group.threshold:
                cosigned.add(group.name)
        return self.quorum in cosigned

    def check(self, note: Note, now: int) -> Witnessed:
        """Check a signed checkpoint at `now` (Unix seconds).

        Raises FormatError: `log.malformed` if the text is no checkpoint, `log.signature` if no log of the policy whose
        origin it names has signed it or any signature of a known key is bad, `log.quorum` if too few witnesses have
        cosigned it. A time of zero, or over a minute ahead of `now`, is no witness's.
        """
        checkpoint = parse_checkpoint(note.text)
        verified = verify_note(note, self.verifiers)
        signers = {found.verifier for found in verified}
        log = next(
            (log for log in self.logs if log.verifier in signers and log.verifier.name == checkpoint.origin), None
        )
        if not log:
            raise FormatError(Code.LOG_SIGNATURE, "the checkpoint is not signed by a log of the policy with its origin")
        times = self._cosigned_at(verified, now)
        if not self.met_by(times):
            names = ", ".join(sorted(key.name for key in times)) or "nobody"
            raise FormatError(Code.LOG_QUORUM, f"too few witnesses of the policy have cosigned: {names}")
        return Witnessed(checkpoint, log, self._smallest(times))

    def witnessed_time(self, note: Note, now: int) -> int | None:
        """Return the smallest t for which the cosignatures with a time up to t are a quorum; None for `quorum none`.

        Raises FormatError as `check`.
        """
        return self.check(note, now).time

    def _cosigned_at(self, verified: Iterable[Verified], now: int) -> dict[Verifier, int]:
        """Return the earliest time that counts of each witness that cosigned."""
        witnesses = {witness.verifier for witness in self.witnesses}
        times: dict[Verifier, int] = {}
        for key, time in ((found.verifier, found.timestamp or 0) for found in verified):
            if key in witnesses and 0 < time <= now + MAX_AHEAD_S:
                times[key] = min(time, times.get(key, time))
        return times

    def _smallest(self, times: Mapping[Verifier, int]) -> int | None:
        """Return the smallest time up to which those that cosigned are a quorum. All of them are one."""
        if not self.asks_for_witnesses:
            return None
        return next(
            time
            for time in sorted({*times.values()})
            if self.met_by(key for key, cosigned in times.items() if cosigned <= time)
        )
