"""Check 11 of contract section 6: is the token in its issuer's transparency log, and since when? Pure.

The leaf is rebuilt from the token, so that no proof can be of another one. Whatever lies beside a file is believed in
nothing: anyone may put a proof there, so one that does not serve is as good as none, and only the token itself or the
log can make this check a no. What the time of the witnesses serves is `moment`'s affair.
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
    """What there is for one token: the bytes of a tlog-proof, or the reason (`fault`) why those there cannot be read.
    `denied`: its log was asked, and answered that it has no such leaf."""

    proof: bytes = b""
    fault: str = ""
    denied: bool = False


Proofs = Mapping[TokenLeaf, AtHand]


class CheckedNotes:
    """The signed checkpoints that were good: many tokens have one, whose signatures cost ten times their own proof. At
    most MAX_REMEMBERED, by the SHA-256 of their bytes: a stranger may lengthen a good note to 256 KiB. What was not
    good is checked again: more witnesses' times may have passed since."""

    def __init__(self) -> None:
        self._good: dict[tuple[str, bytes], Witnessed] = {}

    def __len__(self) -> int:
        return len(self._good)

    def check(self, raw: bytes, log: TrustedLog, now: int) -> Witnessed:
        """Check a checkpoint by the log's policy. Raises FormatError, which says if signature or quorum failed."""
        key = log.digest, hashlib.sha256(raw).digest()
        found = self._good.get(key)
        if found is None:
            found = log.policy.check(parse_note(raw), now)
            if len(self._good) >= MAX_REMEMBERED:
                self._good.pop(next(iter(self._good)))
            self._good[key] = found
        return found


class Inclusion(Struct, frozen=True):
    """What is known of a token in its log, required or not. `witnessed` (Unix seconds) is by when witnesses had seen
    the token; None where that is not known, or serves nothing. `origin` is the token's log, where it is not a trusted
    one."""

    status: Status
    evidence: str
    witnessed: int | None = None
    origin: str = ""


class Search(Struct, frozen=True):
    """Where to look for a token's inclusion: the proofs at hand, then the answers of logs that are `asked`; and the
    notes that were good."""

    proofs: Proofs
    asked: Proofs
    notes: CheckedNotes

    def find(self, claims: TokenClaims, kid: str, signing_input: bytes, log: TrustedLog | None, now: int) -> Inclusion:
        """Look for the token with this signing input, whose signature the caller has found good. `now` (Unix seconds)
        is the verifier's clock, which witnesses may be ahead of by a minute."""
        if log is None:
            return Inclusion(Status.UNKNOWN, "the trust names no log of this issuer")
        if claims.log is UNSET:
            return Inclusion(Status.FAIL, "the token names no log, so it is in none")
        if claims.log not in log.origins:
            return Inclusion(Status.FAIL, "the token is of another log than its issuer's", origin=claims.log)
        try:
            leaf = token_leaf(claims, kid, signing_input)
            raw = leaf.to_bytes()
        except FormatError as error:
            return Inclusion(Status.FAIL, f"no leaf can say what this token says: {error.detail}")
        return self._included(leaf, raw, claims.log, log, now)

    def _included(self, leaf: TokenLeaf, raw: bytes, origin: str, log: TrustedLog, now: int) -> Inclusion:
        found = Inclusion(Status.UNKNOWN, "no proof is at hand")
        for proofs in (self.proofs, self.asked):
            if found.status is Status.UNKNOWN and (at_hand := proofs.get(leaf)) is not None:
                found = self._judge(at_hand, leaf, raw, origin, log, now)
        return found

    def _judge(self, found: AtHand, leaf: TokenLeaf, raw: bytes, origin: str, log: TrustedLog, now: int) -> Inclusion:
        if found.denied:
            return Inclusion(Status.FAIL, "the log was asked, and has no such leaf")
        if found.fault:
            return _as_good_as_none(found.fault)
        try:
            proof = split_proof(found.proof)
            witnessed = self.notes.check(proof.checkpoint, log, now)
        except FormatError as error:
            return _as_good_as_none(error.detail)
        if reason := objection(proof, witnessed.checkpoint, origin, raw):
            return _as_good_as_none(reason)
        return _included_at(proof.index, witnessed, leaf)


def objection(proof: Proof, checkpoint: Checkpoint, origin: str, leaf: bytes) -> str:
    """Return why a proof does not show a leaf in the log `origin` as of its checkpoint, or "". Whether the log has
    signed the checkpoint, and who has cosigned it, is another question."""
    if checkpoint.origin != origin:
        return f"its checkpoint is of the log {checkpoint.origin}"
    if not verify_inclusion(proof.index, checkpoint.size, leaf_hash(leaf), proof.hashes, checkpoint.root):
        return "its hashes do not lead from this token's leaf to the root of its checkpoint"
    return ""


def _as_good_as_none(reason: str) -> Inclusion:
    return Inclusion(Status.UNKNOWN, f"the proof at hand does not serve: {reason}")


def _included_at(index: int, witnessed: Witnessed, leaf: TokenLeaf) -> Inclusion:
    checkpoint, time = witnessed.checkpoint, witnessed.time
    evidence = f"leaf {index} of the {checkpoint.size} of {checkpoint.origin}"
    if time is None:
        return Inclusion(Status.PASS, f"{evidence}; no witness is asked for, so this proves no time")
    if time > leaf.exp:
        late = f"logged late: witnessed {show_span(time - leaf.exp)} after its end"
        return Inclusion(Status.PASS, f"{evidence}; {late}")
    if time < leaf.iat - LEEWAY_S:
        alarm = f"an alarm: witnessed {show_span(leaf.iat - time)} before the time of issue that it states"
        return Inclusion(Status.PASS, f"{evidence}; {alarm}")
    return Inclusion(Status.PASS, f"{evidence}, witnessed at {show_time(time)}", time)


def logged(inclusion: Inclusion | None, *, required: bool) -> Check:  # (11)
    """Make the check of what was found, None without a good signature. Not required, it is skipped, whatever it is."""
    if inclusion is None:
        return rests_on(11, 3) if required else check(11, Status.SKIP, "not required")
    if required:
        return check(11, inclusion.status, inclusion.evidence, token=inclusion.origin)
    return check(11, Status.SKIP, f"not required: {inclusion.evidence}", token=inclusion.origin)


def sidecar_name(file: str, token: bytes) -> str:
    """Return what the proof of a token is called beside its result file; `token` is the digest in the leaf."""
    return f"{file}.{token.hex()[:16]}.tlog-proof"
