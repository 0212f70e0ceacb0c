"""A proof is returned if it verifies and is for the given token."""

from functools import partial
from pathlib import Path

import pytest

from issuer.errors import FormatError, Refused, Undecided, VerificationError
from issuer.relying.logs.proof import ProofQuery, VerifiedProof, find_proof, sought_of
from issuer.relying.logs.reader import FolderFiles, HttpFiles
from issuer.tlog.leaf import TokenLeaf, token_digest
from issuer.tlog.proof import Proof, parse_proof
from issuer.tlog.witness_policy import parse_policy
from tests.support import make
from tests.support.answering import Handler
from tests.support.tlog import ANNOUNCED, ORIGIN, WITNESSES, Answer, LogSite, Tree, no_leaf, policy_text, token_leaf

POLICY = parse_policy(policy_text().encode(), "policy")
NOW = make.NOW + 10
TOKEN = make.token_for(make.submission(), log=ORIGIN)
LEAF = token_leaf(token=token_digest(TOKEN.rpartition(".")[0].encode()))
INDEX = 280
TREE = Tree([*ANNOUNCED, *map(token_leaf, range(INDEX - 2)), LEAF, *map(token_leaf, range(1000, 1300))])
SOUGHT = sought_of(TOKEN)
BARE = ProofQuery(SOUGHT.iat, SOUGHT.token)
by_either = pytest.mark.parametrize("sought", [SOUGHT, BARE], ids=["by the token", "by iat and digest"])
PATH = f"proof?iat={SOUGHT.iat}&token={SOUGHT.token.hex()}"


def ask(proof: Answer, sought: ProofQuery = SOUGHT, tree: Tree = TREE) -> VerifiedProof | None:
    with LogSite(tree.files(), {PATH: proof}) as site:
        return find_proof(HttpFiles(site.url, patience_s=1), POLICY, sought, NOW)


@by_either
def test_the_log_s_proof_is_returned_unchanged_or_built_from_a_folder(tmp_path: Path, sought: ProofQuery) -> None:
    assert SOUGHT.leaf is not None
    assert (SOUGHT.leaf.to_bytes(), SOUGHT.origin) == (LEAF, ORIGIN)
    for size in (INDEX + 1, 300, len(TREE.leaves)):
        found = ask(TREE.proof(INDEX, size), sought)
        assert found is not None
        assert (found.text, found.index, found.head.checkpoint.size) == (TREE.proof(INDEX, size), INDEX, size)
        assert found.leaf.to_bytes() == LEAF
        assert found.head.time == TREE.time
    found = find_proof(FolderFiles(TREE.write(tmp_path)), POLICY, sought, NOW)
    assert found is not None
    assert found.text == TREE.proof(INDEX)
    assert find_proof(FolderFiles(tmp_path), POLICY, ProofQuery(SOUGHT.iat, b"x" * 32), NOW) is None


def test_the_leaf_of_a_proof_is_found_at_the_edge_of_the_tree() -> None:
    for leaves in (TREE.leaves[INDEX:], TREE.leaves[: INDEX + 1], TREE.leaves[:300]):
        tree = Tree(leaves)
        found = ask(tree.proof(leaves.index(LEAF)), BARE, tree)
        assert found is not None
        assert found.leaf.to_bytes() == LEAF


def test_an_absent_token_differs_from_one_without_a_quorum_yet() -> None:
    assert ask(no_leaf) is None
    proof = parse_proof(TREE.proof(INDEX))
    early = Proof(INDEX, proof.hashes, TREE.note(witnesses=WITNESSES[:1]).to_bytes())
    with pytest.raises(Undecided, match="too few witnesses"):
        ask(early.to_bytes())


def test_a_mirror_without_proofs_is_searched_for_the_leaf() -> None:
    for body in (b"", b"[]", b"\xff", b'{"code": 1}'):
        answer = partial(Handler.reply, status=404, body=body)
        found = ask(answer)
        assert found is not None
        assert found.text == TREE.proof(INDEX)
    assert ask(None, tree=Tree(TREE.leaves[:INDEX])) is None


def forged(index: int = INDEX, **changed: object) -> bytes:
    proof = parse_proof(TREE.proof(INDEX))
    parts = {"index": index, "hashes": proof.hashes, "checkpoint": proof.checkpoint, **changed}
    return Proof(**parts).to_bytes()  # type: ignore[arg-type]


@by_either
def test_a_proof_that_does_not_verify_is_refused(sought: ProofQuery) -> None:
    fork = Tree([*TREE.leaves[:-1], token_leaf(9)])
    for proof in (
        TREE.proof(INDEX + 1), forged(INDEX + 1), forged(10**6), forged(len(TREE.leaves)), forged(hashes=()),
        forged(hashes=parse_proof(TREE.proof(INDEX)).hashes[::-1]), forged(checkpoint=TREE.note(300).to_bytes()),
        forged(checkpoint=fork.note().to_bytes()), Tree(TREE.leaves, origin="log.example/other").proof(INDEX), b"",
        b"c2sp.org/tlog-proof@v1\n",
        TREE.proof(INDEX).replace("— witness1.example ".encode(), "— witness2.example ".encode()),
    ):  # fmt: skip
        with pytest.raises((VerificationError, Undecided)):
            ask(proof, sought)


def test_a_proof_of_another_log_than_the_token_names_is_refused() -> None:
    token = make.token_for(make.submission(), log="log.example/other")
    sought = sought_of(token)
    assert isinstance(sought.leaf, TokenLeaf)
    tree = Tree([*ANNOUNCED, sought.leaf.to_bytes()])
    with LogSite(tree.files(), {f"proof?iat={sought.iat}&token={sought.token.hex()}": tree.proof(2)}) as site:
        with pytest.raises(VerificationError, match=r"the token names log\.example/other"):
            find_proof(HttpFiles(site.url), POLICY, sought, NOW)
        assert find_proof(HttpFiles(site.url), POLICY, ProofQuery(sought.iat, sought.token), NOW) is not None


def test_a_text_that_is_not_a_verify_token_has_no_leaf() -> None:
    no_thumbprint = make.token_for(make.submission(), header={**make.HEADER, "kid": "x"})
    for token in ("", "a.b.c", "x" * 20_000, make.signed(make.HEADER, b"{}"), no_thumbprint):
        with pytest.raises((FormatError, Refused)):
            sought_of(token)
