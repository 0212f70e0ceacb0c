"""Check 11 of contract section 6: is the token in its issuer's transparency log, and since when? Pure.

The leaf is rebuilt from the token, so a proof for another leaf cannot pass. Proofs beside a file are not trusted,
because anyone may put one there: an unusable proof counts like a missing one. Only the token itself or the log's answer
can make this check fail. `receipts.Moment` decides how the time of the witnesses is used.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from msgspec import UNSET, Struct

from issuer.errors import FormatError
from issuer.formats.times import show_span, show_time
from issuer.tlog.checkpoint import Checkpoint
from issuer.tlog.leaf import TokenLeaf
from issuer.tlog.merkle import leaf_hash, verify_inclusion
from issuer.tlog.note import parse_note
from issuer.tlog.proof import Proof, split_proof
from issuer.tlog.witness_policy import Witnessed
from issuer.token.verify_token import TokenClaims, token_leaf
from issuer.verify.report import Check, Status, check, rests_on
from issuer.verify.trust import TrustedLog

# How far the issuer's clock may run ahead of the witnesses'.
LEEWAY_S = 60
MAX_REMEMBERED = 1000


class AtHand(Struct, frozen=True):
    """The evidence for one token: the bytes of a tlog-proof, or the reason (`fault`) why the proof cannot be read.
    `denied`: the log answered that it has no such leaf."""

    proof: bytes = b""
    fault: str = ""
    denied: bool = False


Proofs = Mapping[TokenLeaf, AtHand]


class CheckedNotes:
    """A cache of signed checkpoints that passed. Many tokens share one checkpoint; its signatures cost ten times as
    much as a token's own proof. At most MAX_REMEMBERED, by the SHA-256 of their bytes, because a stranger may lengthen
    a good note to 256 KiB. A checkpoint that failed is checked again, because the times of more witnesses may have
    passed since."""

    def __init__(self) -> None:
        self._good: dict[tuple[str, bytes], Witnessed] = {}

    def __len__(self) -> int:
        return len(self._good)

    def check(self, raw: bytes, log: TrustedLog, now: int) -> Witnessed:
        """Check a checkpoint by the log's policy. Raises FormatError that says whether signature or quorum failed."""
        key = log.digest, hashlib.sha256(raw).digest()
        found = self._good.get(key)
        if found is None:
            found = log.policy.check(parse_note(raw), now)
            if len(self._good) >= MAX_REMEMBERED:
                self._good.pop(next(iter(self._good)))
            self._good[key] = found
        return found


class Inclusion(Struct, frozen=True):
    """The result of looking for a token in its log. `witnessed` (Unix seconds) is a time by which witnesses had seen
    the token; None if unknown or not usable. `origin` is the log that the token names, if it is not a trusted one."""

    status: Status
    evidence: str
    witnessed: int | None = None
    origin: str = ""


class Search(Struct, frozen=True):
    """The sources of a token's inclusion: the proofs at hand, then the answers of logs (`asked`); and the checkpoints
    that passed."""

    proofs: Proofs
    asked: Proofs
    notes: CheckedNotes

    def find(self, claims: TokenClaims, kid: str, signing_input: bytes, log: TrustedLog | None, now: int) -> Inclusion:
        """Look for the token with this signing input; the caller has verified its signature. `now` (Unix seconds) is
        the relying party's clock; witnesses may be a minute ahead of it."""
        if log is None:
            return Inclusion(Status.UNKNOWN, "the trust file names no log of this issuer")
        if claims.log is UNSET:
            return Inclusion(Status.FAIL, "the token names no log")
        if claims.log not in log.origins:
            return Inclusion(Status.FAIL, "the token names another log than its issuer's", origin=claims.log)
        try:
            leaf = token_leaf(claims, kid, signing_input)
            raw = leaf.to_bytes()
        except FormatError as error:
            return Inclusion(Status.FAIL, f"the token does not fit into a leaf: {error.detail}")
        return self._included(leaf, raw, claims.log, log, now)

    def _included(self, leaf: TokenLeaf, raw: bytes, origin: str, log: TrustedLog, now: int) -> Inclusion:
        found = Inclusion(Status.UNKNOWN, "no proof was found")
        for proofs in (self.proofs, self.asked):
            if found.status is Status.UNKNOWN and (at_hand := proofs.get(leaf)) is not None:
                found = self._judge(at_hand, leaf, raw, origin, log, now)
        return found

    def _judge(self, found: AtHand, leaf: TokenLeaf, raw: bytes, origin: str, log: TrustedLog, now: int) -> Inclusion:
        if found.denied:
            return Inclusion(Status.FAIL, "the log answered that it has no such leaf")
        if found.fault:
            return _unusable(found.fault)
        try:
            proof = split_proof(found.proof)
            witnessed = self.notes.check(proof.checkpoint, log, now)
        except FormatError as error:
            return _unusable(error.detail)
        if reason := objection(proof, witnessed.checkpoint, origin, raw):
            return _unusable(reason)
        return _included_at(proof.index, witnessed, leaf)


def objection(proof: Proof, checkpoint: Checkpoint, origin: str, leaf: bytes) -> str:
    """Return why a proof does not show a leaf in the log `origin` at its checkpoint, or "". The signatures on the
    checkpoint are not checked here."""
    if checkpoint.origin != origin:
        return f"its checkpoint is of the log {checkpoint.origin}"
    if not verify_inclusion(proof.index, checkpoint.size, leaf_hash(leaf), proof.hashes, checkpoint.root):
        return "its hashes do not lead from this token's leaf to the root of its checkpoint"
    return ""


def _unusable(reason: str) -> Inclusion:
    return Inclusion(Status.UNKNOWN, f"the proof at hand is not usable: {reason}")


def _included_at(index: int, witnessed: Witnessed, leaf: TokenLeaf) -> Inclusion:
    checkpoint, time = witnessed.checkpoint, witnessed.time
    evidence = f"leaf {index} of the {checkpoint.size} of {checkpoint.origin}"
    if time is None:
        return Inclusion(Status.PASS, f"{evidence}; the policy requires no witness, so this proves no time")
    if time > leaf.exp:
        late = f"logged late: witnessed {show_span(time - leaf.exp)} after it expired"
        return Inclusion(Status.PASS, f"{evidence}; {late}")
    if time < leaf.iat - LEEWAY_S:
        alarm = f"alarm: witnessed {show_span(leaf.iat - time)} before the time of issue that the token states"
        return Inclusion(Status.PASS, f"{evidence}; {alarm}")
    return Inclusion(Status.PASS, f"{evidence}, witnessed at {show_time(time)}", time)


def logged(inclusion: Inclusion | None, *, required: bool) -> Check:  # (11)
    """Return check 11 for an inclusion, None without a good signature. The check is skipped if it is not required."""
    if inclusion is None:
        return rests_on(11, 3) if required else check(11, Status.SKIP, "not required")
    if required:
        return check(11, inclusion.status, inclusion.evidence, token=inclusion.origin)
    return check(11, Status.SKIP, f"not required: {inclusion.evidence}", token=inclusion.origin)


def sidecar_name(file: str, token: bytes) -> str:
    """Return the name of a proof beside its result file; `token` is the digest in the leaf."""
    return f"{file}.{token.hex()[:16]}.tlog-proof"
