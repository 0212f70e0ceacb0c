"""Inclusion proofs of tokens, fetched from the log or built from its tiles, and verified in both cases.

A log answers with the proof under the first checkpoint over the leaf that its witnesses cosigned, and keeps that proof
for ever, because a later one would show a later time. A mirror has one checkpoint, and all its leaves are searched.
"""

from __future__ import annotations

import msgspec
from msgspec import UNSET, Struct

from issuer.codes import Code
from issuer.errors import FormatError, SetupError, Undecided
from issuer.formats import jose
from issuer.io.http_client import HttpAnswer
from issuer.relying.folders import Lookup
from issuer.relying.logs.reader import (
    HttpFiles,
    LogFiles,
    TimedCheckpoint,
    Tree,
    check_head,
    read_bundle,
    read_head,
    unverified,
)
from issuer.tlog.leaf import TokenLeaf, read_leaf
from issuer.tlog.merkle import leaf_hash, verify_inclusion
from issuer.tlog.note import parse_note
from issuer.tlog.proof import MAX_PROOF_BYTES, Proof, parse_proof
from issuer.tlog.tiles import WIDTH
from issuer.tlog.witness_policy import WitnessPolicy
from issuer.token.verify_token import read_unverified, token_leaf
from issuer.verify.check_log import AtHand
from issuer.verify.trust import Trust


class _Problem(Struct, frozen=True):
    """The member of an error answer that distinguishes two kinds of 404 (issuer/token/wire.py)."""

    code: str = ""


class ProofQuery(Struct, frozen=True):
    """The token leaf to be proved: its `iat` (Unix seconds) and `token` digest (32 bytes). If the caller has the token,
    also the whole `leaf`, and the `origin` of the log that the token names."""

    iat: int
    token: bytes
    leaf: TokenLeaf | None = None
    origin: str | None = None


class VerifiedProof(Struct, frozen=True):
    """A verified proof: its text, the leaf's index, the leaf, and the proof's checkpoint."""

    text: bytes
    index: int
    leaf: TokenLeaf
    head: TimedCheckpoint


def sought_of(token: str) -> ProofQuery:
    """Return the query for the proof of a token. Raises FormatError or Refused if it is not a verify token."""
    jws = jose.parse_compact(token)
    claims, _ = read_unverified(jws.unverified_payload)
    leaf = token_leaf(claims, str(jws.header.get("kid", "")), jws.signing_input)
    leaf.to_bytes()
    return ProofQuery(leaf.iat, leaf.token, leaf, None if claims.log is UNSET else claims.log)


def find_proof(log: LogFiles, policy: WitnessPolicy, query: ProofQuery, now: int) -> VerifiedProof | None:
    """Return the proof of a leaf; None if the log answers, or a folder shows, that it has no such leaf. Raises
    VerificationError(`log.unverified`) if the proof does not verify or is for another leaf, and Undecided if the log is
    unavailable (`log.unavailable`) or no quorum has cosigned yet (`log.quorum`)."""
    if not isinstance(log, HttpFiles):
        return _build(log, policy, query, now)
    answer = _ask(log, query)
    if answer.status != 200:
        return None if says_no(answer) else _build(log, policy, query, now)
    try:
        proof = parse_proof(answer.body)
        head = check_head(parse_note(proof.checkpoint), policy, now)
    except FormatError as error:
        raise unverified(f"the proof does not parse: {error.detail}") from None
    if proof.index >= head.checkpoint.size:
        raise unverified(f"the proof is for leaf {proof.index} of {head.checkpoint.size}")
    return _verified(proof, head, query, _leaf_at(log, proof.index, head.checkpoint.size, query))


def _ask(log: HttpFiles, leaf: ProofQuery | TokenLeaf) -> HttpAnswer:
    return log.ask(f"proof?iat={leaf.iat}&token={leaf.token.hex()}", MAX_PROOF_BYTES)


_decode_problem = msgspec.json.Decoder(_Problem).decode


def says_no(answer: HttpAnswer) -> bool:
    """Say whether the log answers that it has no such leaf. A mirror serves files, so its 404 does not mean that."""
    try:
        return _decode_problem(answer.body).code == Code.LOG_NO_LEAF
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return False


def _leaf_at(log: LogFiles, index: int, size: int, query: ProofQuery) -> bytes:
    if query.leaf is not None:
        return query.leaf.to_bytes()
    number, within = divmod(index, WIDTH)
    return read_bundle(log, number, min(WIDTH, size - number * WIDTH))[within]


def _build(log: LogFiles, policy: WitnessPolicy, query: ProofQuery, now: int) -> VerifiedProof | None:
    """Search all leaves, and build the proof under the one available checkpoint."""
    head = read_head(log, policy, now)
    tree = Tree(log, head.checkpoint)
    for index, leaf in tree.leaves():
        if b"\niat %d\n" % query.iat in leaf and _match(leaf, query):
            return _verified(Proof(index, tree.prove(index), head.note.to_bytes()), head, query, leaf)
    return None


def _verified(proof: Proof, head: TimedCheckpoint, query: ProofQuery, raw: bytes) -> VerifiedProof:
    checkpoint = head.checkpoint
    if query.origin is not None and query.origin != checkpoint.origin:
        raise unverified(f"the proof is from the log {checkpoint.origin}, but the token names {query.origin}")
    if not verify_inclusion(proof.index, checkpoint.size, leaf_hash(raw), proof.hashes, checkpoint.root):
        raise unverified(f"the proof does not lead from leaf {proof.index} to the checkpoint's root")
    if (leaf := _match(raw, query)) is None:
        raise unverified(f"the proof is for leaf {proof.index}, which is another token's")
    return VerifiedProof(proof.to_bytes(), proof.index, leaf, head)


def _match(raw: bytes, query: ProofQuery) -> TokenLeaf | None:
    try:
        leaf = read_leaf(raw)
    except FormatError:
        return None
    return leaf if isinstance(leaf, TokenLeaf) and (leaf.iat, leaf.token) == (query.iat, query.token) else None


# A log learns which tokens interest the caller, so it is asked only if the trust file names its URL. Its proofs are
# verified like those beside a file; only its answer that it lacks the leaf is believed.

PATIENCE_S = 10.0
MAX_QUESTIONS = 100  # of one file, which may have a thousand tokens


class AskedLogs(Lookup[TokenLeaf, AtHand]):
    """The answers of the logs of trusted issuers. A log is asked if it has a URL and its answer may decide something:
    if the log is required, or the token has expired by `now` (Unix seconds). A log that failed to answer is not asked
    again."""

    def __init__(self, trust: Trust, now: int, *, patience_s: float = PATIENCE_S) -> None:
        self._urls = {name: issuer.log.url for name, issuer in trust.issuers.items() if issuer.log}
        self._required, self._now, self._patience_s = "log" in trust.require, now, patience_s
        self._left = MAX_QUESTIONS

    def __getitem__(self, leaf: TokenLeaf) -> AtHand:
        """Ask the log of the leaf's issuer. Raises KeyError if no log is asked."""
        url = self._urls.get(leaf.iss)
        if not url or not self._left or not (self._required or leaf.exp < self._now):
            raise KeyError(leaf)
        self._left -= 1
        try:
            answer = _ask(HttpFiles(url, self._patience_s), leaf)
        except Undecided as error:
            self._urls[leaf.iss] = ""
            return AtHand(fault=f"the log does not answer: {error.detail}")
        except SetupError as error:
            self._urls[leaf.iss] = ""
            return AtHand(fault=f"the log cannot be asked: {error.detail}")
        if answer.status == 200:
            return AtHand(answer.body)
        return AtHand(denied=True) if says_no(answer) else AtHand(fault="the log does not say whether it has the leaf")
