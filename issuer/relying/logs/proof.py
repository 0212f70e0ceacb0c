"""Inclusion proofs of tokens, to lie beside them: asked of the log, or built out of its tiles; verified either way.

A log answers with the proof under the first checkpoint that its witnesses cosigned over the leaf, and keeps it for
ever: a later one would show a later time. A mirror has one checkpoint alone, and all of its leaves are searched.
"""

from __future__ import annotations

import msgspec
from msgspec import UNSET, Struct

from issuer.codes import Code
from issuer.errors import FormatError, SetupError, Undecided
from issuer.formats import jose
from issuer.io.http_client import HttpAnswer
from issuer.relying.folders import Lookup
from issuer.relying.logs.reader import Head, HttpFiles, LogFiles, Tree, check_head, read_bundle, read_head, unverified
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
    """What tells one 404 from another (issuer/token/wire.py)."""

    code: str = ""


class ProofQuery(Struct, frozen=True):
    """The token leaf that a proof is wanted for: its `iat` (Unix seconds) and `token` digest (32 bytes). Who has the
    token also knows the whole `leaf`, and the `origin` of the log that it names; None without it."""

    iat: int
    token: bytes
    leaf: TokenLeaf | None = None
    origin: str | None = None


class VerifiedProof(Struct, frozen=True):
    """A verified proof: its text, the leaf's index, the leaf, and the checkpoint that it is under."""

    text: bytes
    index: int
    leaf: TokenLeaf
    head: Head


def sought_of(token: str) -> ProofQuery:
    """Return what to look for in order to prove a token. Raises FormatError or Refused where it is no verify token."""
    jws = jose.parse_compact(token)
    claims, _ = read_unverified(jws.unverified_payload)
    leaf = token_leaf(claims, str(jws.header.get("kid", "")), jws.signing_input)
    leaf.to_bytes()
    return ProofQuery(leaf.iat, leaf.token, leaf, None if claims.log is UNSET else claims.log)


def find_proof(log: LogFiles, policy: WitnessPolicy, sought: ProofQuery, now: int) -> VerifiedProof | None:
    """Return the proof of a leaf; None where the log says, or a folder shows, that it has no such leaf. Raises
    VerificationError(`log.unverified`) for a proof that does not verify or is for another leaf, and Undecided where no
    answer is to be had (`log.unavailable`), or no quorum has cosigned yet (`log.quorum`)."""
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


def _leaf_at(log: LogFiles, index: int, size: int, sought: ProofQuery) -> bytes:
    if sought.leaf is not None:
        return sought.leaf.to_bytes()
    number, within = divmod(index, WIDTH)
    return read_bundle(log, number, min(WIDTH, size - number * WIDTH))[within]


def _build(log: LogFiles, policy: WitnessPolicy, sought: ProofQuery, now: int) -> VerifiedProof | None:
    """Search all leaves, and build the proof under the one checkpoint that there is."""
    head = read_head(log, policy, now)
    tree = Tree(log, head.checkpoint)
    for index, leaf in tree.leaves():
        if b"\niat %d\n" % sought.iat in leaf and _is_sought(leaf, sought):
            return _verified(Proof(index, tree.prove(index), head.note.to_bytes()), head, sought, leaf)
    return None


def _verified(proof: Proof, head: Head, sought: ProofQuery, raw: bytes) -> VerifiedProof:
    checkpoint = head.checkpoint
    if sought.origin is not None and sought.origin != checkpoint.origin:
        raise unverified(f"the proof is of the log {checkpoint.origin}, and the token names {sought.origin}")
    if not verify_inclusion(proof.index, checkpoint.size, leaf_hash(raw), proof.hashes, checkpoint.root):
        raise unverified(f"the proof does not lead from leaf {proof.index} to the checkpoint's root")
    leaf = _token_leaf(raw)
    if leaf is None or (leaf.iat, leaf.token) != (sought.iat, sought.token):
        raise unverified(f"leaf {proof.index}, which the proof is for, is another one")
    return VerifiedProof(proof.to_bytes(), proof.index, leaf, head)


def _is_sought(raw: bytes, sought: ProofQuery) -> bool:
    leaf = _token_leaf(raw)
    return leaf is not None and (leaf.iat, leaf.token) == (sought.iat, sought.token)


def _token_leaf(raw: bytes) -> TokenLeaf | None:
    try:
        leaf = read_leaf(raw)
    except FormatError:
        return None
    return leaf if isinstance(leaf, TokenLeaf) else None


# A log learns which tokens interest whom, so it is asked only where the trust file names its URL. Its answer is
# believed no more than a proof beside a file, except for its no.

PATIENCE_S = 10.0
MAX_QUESTIONS = 100  # of one file, which may have a thousand tokens


class AskedLogs(Lookup[TokenLeaf, AtHand]):
    """The answers of the logs of a trust's issuers, where these have a URL and the answer may decide something. That is
    where the log is required, and for a token that has ended by `now` (Unix seconds). A log that does not answer is not
    asked again."""

    def __init__(self, trust: Trust, now: int, *, patience_s: float = PATIENCE_S) -> None:
        self._urls = {name: issuer.log.url for name, issuer in trust.issuers.items() if issuer.log}
        self._required, self._now, self._patience_s = "log" in trust.require, now, patience_s
        self._left = MAX_QUESTIONS

    def __getitem__(self, leaf: TokenLeaf) -> AtHand:
        """Ask the log of the leaf's issuer. KeyError where nothing is asked."""
        url = self._urls.get(leaf.iss)
        if not url or not self._left or not (self._required or leaf.exp < self._now):
            raise KeyError(leaf)
        self._left -= 1
        try:
            answer = HttpFiles(url, self._patience_s).ask(
                f"proof?iat={leaf.iat}&token={leaf.token.hex()}", MAX_PROOF_BYTES
            )
        except Undecided as error:
            self._urls[leaf.iss] = ""
            return AtHand(fault=f"the log does not say: {error.detail}")
        except SetupError as error:
            self._urls[leaf.iss] = ""
            return AtHand(fault=f"the log cannot be asked: {error.detail}")
        if answer.status == 200:
            return AtHand(answer.body)
        return AtHand(denied=True) if says_no(answer) else AtHand(fault="the log does not say whether it has it")
