"""Inclusion proofs of tokens, to lie beside them: asked of the log, or built out of its tiles; verified either way.

A log answers with the proof under the first checkpoint that its witnesses cosigned over the leaf, and keeps it for
ever: a later one would show a later time. A mirror has one checkpoint alone, and all of its leaves are searched.
"""

from __future__ import annotations

import msgspec
from msgspec import UNSET, Struct

from issuer.codes import Code
from issuer.errors import FormatError
from issuer.formats import jose
from issuer.http_client import HttpAnswer
from issuer.relying.log_checkpoint import Head, check_head, read_head
from issuer.relying.log_files import HttpFiles, LogFiles, read_bundle, unverified
from issuer.relying.log_tree import Tree
from issuer.tlog.leaf import TokenLeaf, read_leaf
from issuer.tlog.merkle import leaf_hash, verify_inclusion
from issuer.tlog.note import parse_note
from issuer.tlog.proof import MAX_PROOF_BYTES, Proof, parse_proof
from issuer.tlog.tiles import WIDTH
from issuer.tlog.witness_policy import WitnessPolicy
from issuer.verify_token import read_unverified, token_leaf


class _Problem(Struct, frozen=True):
    """What tells one 404 from another (issuer/wire.py)."""

    code: str = ""


class Sought(Struct, frozen=True):
    """The token leaf that a proof is wanted for: its `iat` (Unix seconds) and `token` digest (32 bytes).

    Who has the token also knows the whole `leaf`, and the `origin` of the log that it names; None without it.
    """

    iat: int
    token: bytes
    leaf: TokenLeaf | None = None
    origin: str | None = None


class Proven(Struct, frozen=True):
    """A verified proof: its text, the leaf's index, the leaf, and the checkpoint that it is under."""

    text: bytes
    index: int
    leaf: TokenLeaf
    head: Head


def sought_of(token: str) -> Sought:
    """Return what to look for in order to prove a token. Raises FormatError or Refused where it is no verify token."""
    jws = jose.parse_compact(token)
    claims, _ = read_unverified(jws.unverified_payload)
    leaf = token_leaf(claims, str(jws.header.get("kid", "")), jws.signing_input)
    leaf.to_bytes()
    return Sought(leaf.iat, leaf.token, leaf, None if claims.log is UNSET else claims.log)


def find_proof(log: LogFiles, policy: WitnessPolicy, sought: Sought, now: int) -> Proven | None:
    """Return the proof of a leaf; None where the log says, or a folder shows, that it has no such leaf.

    Raises VerificationError(`log.unverified`) for a proof that does not verify or is for another leaf, and
    Undecided where no answer is to be had (`log.unavailable`), or no quorum has cosigned yet (`log.quorum`).
    """
    if not isinstance(log, HttpFiles):
        return _build(log, policy, sought, now)
    answer = log.ask(f"proof?iat={sought.iat}&token={sought.token.hex()}", MAX_PROOF_BYTES)
    if answer.status != 200:
        return None if says_no(answer) else _build(log, policy, sought, now)
    try:
        proof = parse_proof(answer.body)
        head = check_head(parse_note(proof.checkpoint), policy, now)
    except FormatError as error:
        raise unverified(f"the proof does not parse: {error.detail}") from None
    if proof.index >= head.checkpoint.size:
        raise unverified(f"the proof is for leaf {proof.index} of {head.checkpoint.size}")
    return _verified(proof, head, sought, _leaf_at(log, proof.index, head.checkpoint.size, sought))


def says_no(answer: HttpAnswer) -> bool:
    """Say whether a log denies that it has the leaf. A mirror, which is files, denies only that it has the page."""
    try:
        return msgspec.json.decode(answer.body, type=_Problem).code == Code.LOG_NO_LEAF
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return False


def _leaf_at(log: LogFiles, index: int, size: int, sought: Sought) -> bytes:
    if sought.leaf is not None:
        return sought.leaf.to_bytes()
    number, within = divmod(index, WIDTH)
    return read_bundle(log, number, min(WIDTH, size - number * WIDTH))[within]


def _build(log: LogFiles, policy: WitnessPolicy, sought: Sought, now: int) -> Proven | None:
    """Search all leaves, and build the proof under the one checkpoint that there is."""
    head = read_head(log, policy, now)
    tree = Tree(log, head.checkpoint)
    for index, leaf in tree.leaves():
        if b"\niat %d\n" % sought.iat in leaf and _is_sought(leaf, sought):
            return _verified(Proof(index, tree.prove(index), head.note.to_bytes()), head, sought, leaf)
    return None


def _verified(proof: Proof, head: Head, sought: Sought, raw: bytes) -> Proven:
    checkpoint = head.checkpoint
    if sought.origin is not None and sought.origin != checkpoint.origin:
        raise unverified(f"the proof is of the log {checkpoint.origin}, and the token names {sought.origin}")
    if not verify_inclusion(proof.index, checkpoint.size, leaf_hash(raw), proof.hashes, checkpoint.root):
        raise unverified(f"the proof does not lead from leaf {proof.index} to the checkpoint's root")
    leaf = _token_leaf(raw)
    if leaf is None or (leaf.iat, leaf.token) != (sought.iat, sought.token):
        raise unverified(f"leaf {proof.index}, which the proof is for, is another one")
    return Proven(proof.to_bytes(), proof.index, leaf, head)


def _is_sought(raw: bytes, sought: Sought) -> bool:
    leaf = _token_leaf(raw)
    return leaf is not None and (leaf.iat, leaf.token) == (sought.iat, sought.token)


def _token_leaf(raw: bytes) -> TokenLeaf | None:
    try:
        leaf = read_leaf(raw)
    except FormatError:
        return None
    return leaf if isinstance(leaf, TokenLeaf) else None
