"""Proofs of inclusion in a file: the layout of the specification, and files near a good one."""

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
    proof = Proof(0, (), CHECKPOINT)  # of the only leaf of a tree
    assert proof.to_bytes() == b"c2sp.org/tlog-proof@v1\nindex 0\n\n" + CHECKPOINT
    assert parse_proof(proof.to_bytes()) == proof


def test_many_proofs_under_one_checkpoint_are_the_single_ones_and_share_their_nodes() -> None:
    tree, asked = Tree(list(map(token_leaf, range(29)))), list[tuple[int, int]]()

    def node(level: int, index: int) -> bytes:
        asked.append((level, index))
        return tree.node(level, index)

    for size in (1, 2, 3, 8, 11, 29):
        proofs = ProofWriter(size, node, CHECKPOINT)
        asked.clear()
        for index in reversed(range(size)):
            alone = Proof(index, merkle.inclusion_proof(index, size, tree.node), CHECKPOINT)
            assert proofs.write(index) == alone.to_bytes()
        assert len(asked) < 2 * size + 5 * 5


FIRST, SECOND, HEAD = LINES[0].encode(), LINES[1].encode(), PLAIN.removesuffix(CHECKPOINT)
NO_PROOFS = (
    *(PLAIN.replace(old, new) for old, new in (
        (b"@v1", b"@v2"), (b"index 73894\n", b""), (b"index 73894\n", b"index 73894\nindex 73894\n"), (b"73894", b"073894"),
        (b"73894", b"+73894"), (b"73894", b"9223372036854775807"), (b"73894", b"73894 "), (b"index ", b"index  "),
        (b"index 73894\n", b"index 73894\nextra AQI=\n"), (SECOND, SECOND[:-4]), (SECOND, SECOND[:-1]), (SECOND, SECOND + b" "),
        (SECOND, "é".encode()), (SECOND, b""), (b"\n", b"\r\n"), (FIRST + b"\n", (FIRST + b"\n") * MAX_HASHES),
    )),
    *(WRITTEN.replace(*change) for change in ((b"extra AQI=\n", b"extra AQI=\nextra AQI=\n"), (b"AQI=", b""), (b"AQI=", b"AQJ="))),
    b"", PLAIN.replace(b"\n\n", b"\n", 1), PLAIN.replace(b"\n\n", b"\n\n\n", 1), HEAD.replace(b"\n", b"\r\n") + CHECKPOINT,
    PLAIN + b" ", PLAIN + b"\n", PLAIN + PLAIN, PLAIN[:-1], b"\n" + PLAIN, b"\xef\xbb\xbf" + PLAIN, HEAD, HEAD + TEXT.encode(),
    HEAD + Note("a\n", (LOG.sign("a\n"),)).to_bytes(),
)  # fmt: skip


def test_another_text_or_one_over_the_bound_is_no_proof() -> None:
    for raw in NO_PROOFS:
        assert raw not in (PLAIN, WRITTEN)
        with pytest.raises(FormatError) as caught:
            parse_proof(raw)
        assert caught.value.code is Code.LOG_MALFORMED, raw
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


def test_values_without_a_text_make_no_proof() -> None:
    for index, hashes, checkpoint, extra in (
        (-1, (), CHECKPOINT, b""), (2**63 - 1, (), CHECKPOINT, b""), (0, (b"short",), CHECKPOINT, b""), (0, HASHES[:1] * 64, CHECKPOINT, b""),
        (0, (), CHECKPOINT + b"\n", b""), (0, (), b"", b""), (0, (), CHECKPOINT, bytes(MAX_EXTRA_BYTES + 1)),
    ):  # fmt: skip
        with pytest.raises(FormatError):
            Proof(index, hashes, checkpoint, extra)


@given(
    st.integers(0, len(WRITTEN) - 1),
    st.sampled_from([b"", b"\n", b"\r", b" ", b"=", b"0", b"A", b"\xff"]),
    st.booleans(),
)
def test_any_proof_is_written_as_it_was_read(place: int, put: bytes, instead: bool) -> None:
    raw = WRITTEN[:place] + put + WRITTEN[place + instead :]
    try:
        proof = parse_proof(raw)
    except FormatError:
        return
    assert proof.to_bytes() == raw
