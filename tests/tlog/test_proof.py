"""Proofs of inclusion in a file: the layout of the specification, and files near a good one."""

from __future__ import annotations

import base64
import hashlib

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from issuer.codes import Code
from issuer.errors import FormatError
from issuer.tlog import merkle
from issuer.tlog.checkpoint import Checkpoint
from issuer.tlog.note import Note, NoteSigner
from issuer.tlog.proof import MAX_EXTRA_BYTES, MAX_HASHES, MAX_PROOF_BYTES, Proof, ProofWriter, parse_proof
from tests.support.tlog import Tree, token_leaf

LOG = NoteSigner("example.com/fancylog", Ed25519PrivateKey.from_private_bytes(bytes(32)))
TEXT = Checkpoint(LOG.name, 109482, hashlib.sha256(b"root").digest()).to_text()
CHECKPOINT = Note(TEXT, (LOG.sign(TEXT),)).to_bytes()
HASHES = tuple(hashlib.sha256(bytes([number])).digest() for number in range(3))
LINES = [base64.b64encode(hashed).decode() for hashed in HASHES]
# The layout of the example of c2sp.org/tlog-proof, written by hand.
WRITTEN = (
    f"c2sp.org/tlog-proof@v1\nextra AQI=\nindex 73894\n{LINES[0]}\n{LINES[1]}\n{LINES[2]}\n\n".encode() + CHECKPOINT
)
PLAIN = WRITTEN.replace(b"extra AQI=\n", b"")


def test_a_proof_is_laid_out_as_the_specification_says() -> None:
    assert parse_proof(WRITTEN) == Proof(73894, HASHES, CHECKPOINT, b"\x01\x02")
    assert parse_proof(PLAIN) == Proof(73894, HASHES, CHECKPOINT)
    assert parse_proof(WRITTEN).to_bytes() == WRITTEN
    assert parse_proof(PLAIN).to_bytes() == PLAIN


def test_the_only_leaf_of_a_tree_has_a_proof_without_hashes() -> None:
    proof = Proof(0, (), CHECKPOINT)
    assert proof.to_bytes() == b"c2sp.org/tlog-proof@v1\nindex 0\n\n" + CHECKPOINT
    assert parse_proof(proof.to_bytes()) == proof


@pytest.mark.parametrize("size", [1, 2, 3, 8, 11, 16, 29])
def test_many_proofs_under_one_checkpoint_are_those_that_are_made_one_by_one(size: int) -> None:
    tree = Tree(list(map(token_leaf, range(29))))
    proofs = ProofWriter(size, tree.node, CHECKPOINT)
    for index in reversed(range(size)):
        alone = Proof(index, merkle.inclusion_proof(index, size, tree.node), CHECKPOINT)
        assert proofs.write(index) == alone.to_bytes()


def test_what_many_proofs_share_is_hashed_once() -> None:
    tree, asked = Tree(list(map(token_leaf, range(29)))), []

    def node(level: int, index: int) -> bytes:
        asked.append((level, index))
        return tree.node(level, index)

    proofs = ProofWriter(29, node, CHECKPOINT)
    for index in range(29):
        proofs.write(index)
    assert len(asked) < 2 * 29 + 5 * 5


SPELT = {
    "nothing": b"",
    "another version": PLAIN.replace(b"@v1", b"@v2"),
    "no index": PLAIN.replace(b"index 73894\n", b""),
    "two indexes": PLAIN.replace(b"index 73894\n", b"index 73894\nindex 73894\n"),
    "a leading zero": PLAIN.replace(b"73894", b"073894"),
    "a sign": PLAIN.replace(b"73894", b"+73894"),
    "a number that is too large": PLAIN.replace(b"73894", b"9223372036854775807"),
    "a space behind the index": PLAIN.replace(b"73894", b"73894 "),
    "two spaces": PLAIN.replace(b"index ", b"index  "),
    "extra behind the index": PLAIN.replace(b"index 73894\n", b"index 73894\nextra AQI=\n"),
    "extra twice": WRITTEN.replace(b"extra AQI=\n", b"extra AQI=\nextra AQI=\n"),
    "empty extra": WRITTEN.replace(b"AQI=", b""),
    "stray bits in extra": WRITTEN.replace(b"AQI=", b"AQJ="),
    "a hash cut": PLAIN.replace(LINES[1].encode(), LINES[1][:-4].encode()),
    "a hash without padding": PLAIN.replace(LINES[1].encode(), LINES[1][:-1].encode()),
    "a space behind a hash": PLAIN.replace(LINES[1].encode(), LINES[1].encode() + b" "),
    "a letter that is not ASCII": PLAIN.replace(LINES[1].encode(), "é".encode()),
    "no empty line": PLAIN.replace(b"\n\n", b"\n", 1),
    "two empty lines": PLAIN.replace(b"\n\n", b"\n\n\n", 1),
    "an empty line among the hashes": PLAIN.replace(LINES[1].encode(), b""),
    "CRLF": PLAIN.replace(b"\n", b"\r\n"),
    "CRLF before the checkpoint": PLAIN.removesuffix(CHECKPOINT).replace(b"\n", b"\r\n") + CHECKPOINT,
    "a byte behind": PLAIN + b" ",
    "an empty line behind": PLAIN + b"\n",
    "another proof behind": PLAIN + PLAIN,
    "no last LF": PLAIN[:-1],
    "an empty line before": b"\n" + PLAIN,
    "a byte order mark": b"\xef\xbb\xbf" + PLAIN,
    "no checkpoint": PLAIN.removesuffix(CHECKPOINT),
    "a checkpoint without signature": PLAIN.removesuffix(CHECKPOINT) + TEXT.encode(),
    "another note": PLAIN.removesuffix(CHECKPOINT) + Note("a\n", (LOG.sign("a\n"),)).to_bytes(),
    "too many hashes": PLAIN.replace(LINES[0].encode() + b"\n", (LINES[0].encode() + b"\n") * MAX_HASHES),
}


@pytest.mark.parametrize("what", SPELT)
def test_what_is_no_proof_is_refused(what: str) -> None:
    assert SPELT[what] not in (PLAIN, WRITTEN)
    with pytest.raises(FormatError) as caught:
        parse_proof(SPELT[what])
    assert caught.value.code is Code.LOG_MALFORMED


def test_a_proof_over_the_bound_is_refused_before_its_lines_are_read() -> None:
    flood = PLAIN.replace(LINES[0].encode(), b"\n".join([LINES[0].encode()] * 10_000))
    with pytest.raises(FormatError, match=f"over {MAX_PROOF_BYTES} bytes"):
        parse_proof(flood)


def test_an_error_names_the_line() -> None:
    for raw, line in ((WRITTEN.replace(b"@v1", b""), 1), (WRITTEN.replace(b"AQI=", b"A"), 2),
                      (WRITTEN.replace(b"index", b"place"), 3), (PLAIN.replace(b"index", b"place"), 2),
                      (WRITTEN.replace(LINES[2].encode(), b"A"), 6), (PLAIN.replace(LINES[2].encode(), b"A"), 5)):  # fmt: skip
        with pytest.raises(FormatError) as caught:
            parse_proof(raw)
        assert caught.value.line == line


@pytest.mark.parametrize(
    "proof",
    [
        (-1, (), CHECKPOINT), (2**63 - 1, (), CHECKPOINT), (0, (b"short",), CHECKPOINT), (0, HASHES[:1] * 64, CHECKPOINT),
        (0, (), CHECKPOINT + b"\n"), (0, (), b""), (0, (), CHECKPOINT, bytes(MAX_EXTRA_BYTES + 1)),
    ],
)  # fmt: skip
def test_values_that_have_no_text_make_no_proof(proof: tuple[int, tuple[bytes, ...], bytes]) -> None:
    with pytest.raises(FormatError):
        Proof(*proof)


@given(
    st.integers(0, 2**63 - 2),
    st.lists(st.binary(min_size=32, max_size=32), max_size=MAX_HASHES),
    st.binary(max_size=300),
)
def test_every_proof_is_read_as_it_was_written(index: int, hashes: list[bytes], extra: bytes) -> None:
    proof = Proof(index, tuple(hashes), CHECKPOINT, extra)
    assert parse_proof(proof.to_bytes()) == proof


@given(
    st.integers(0, len(WRITTEN) - 1),
    st.sampled_from([b"", b"\n", b"\r", b" ", b"=", b"0", b"A", b"\xff"]),
    st.booleans(),
)
def test_whatever_is_read_as_a_proof_is_written_as_it_was_read(place: int, put: bytes, instead: bool) -> None:
    raw = WRITTEN[:place] + put + WRITTEN[place + instead :]
    try:
        proof = parse_proof(raw)
    except FormatError:
        return
    assert proof.to_bytes() == raw
