"""Signed notes: the published example of the Go implementation, the grammar, and changed notes."""

import base64
import hashlib

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from issuer.codes import Code
from issuer.errors import FormatError
from issuer.tlog.checkpoint import Checkpoint
from issuer.tlog.note import (
    MAX_SIGNATURES,
    Cosigner,
    Kind,
    Note,
    NoteSigner,
    SignatureLine,
    Verified,
    parse_note,
    parse_signatures,
    parse_vkey,
    verify_note,
)

# The example of golang.org/x/mod/sumdb/note: its key pair, text and signature.
GO_VKEY = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW"
GO_SKEY = "PRIVATE+KEY+PeterNeumann+c74f20a3+AYEKFALVFGyNhPJEMzD1QIDr+Y7hfZx09iUvxdXHKDFz"
GO_TEXT = "If you think cryptography is the answer to your problem,\nthen you don't know what your problem is.\n"
GO_NOTE = (
    f"{GO_TEXT}\n"
    "— PeterNeumann x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM=\n"
)
# The public key of the Go checksum database, which every installation of Go holds; and that of a witness for tests.
SUMDB_VKEY = "sum.golang.org+033de0ae+Ac4zctda0e5eza+HJyk9SxEdh+s3Ux18htTTAD8OuAn8"
WITNESS_VKEY = "transparency.dev/DEV:witness-little-garden+d8042a87+BCtusOxINQNUTN5Oj8HObRkh2yHf/MwYaGX4CPdiVEPM"


def private(seed: int) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(bytes([seed]) * 32)


LOG = NoteSigner("example.com/log", private(1))
WITNESS = Cosigner("witness.example/w1", private(2))
CHECKPOINT = Checkpoint("example.com/log", 5, hashlib.sha256(b"root").digest())
TEXT = CHECKPOINT.to_text()
GOOD = Note(TEXT, (LOG.sign(TEXT), WITNESS.cosign(TEXT, 1_800_000_000)))


def stranger(number: int) -> SignatureLine:
    return SignatureLine(f"stranger.example/{number}", bytes(4), b"whatever a stranger writes")


def test_the_go_example_is_read_verified_and_signed_to_the_same_bytes() -> None:
    note = parse_note(GO_NOTE.encode())
    verifier = parse_vkey(GO_VKEY)
    assert note.text == GO_TEXT
    assert verify_note(note, [verifier]) == (Verified(verifier),)
    seed = base64.b64decode(GO_SKEY.split("+", 4)[4])[1:]
    peter = NoteSigner("PeterNeumann", Ed25519PrivateKey.from_private_bytes(seed))
    assert Note(GO_TEXT, (peter.sign(GO_TEXT),)).to_bytes() == GO_NOTE.encode()
    assert peter.verifier.to_text() == GO_VKEY
    for vkey, kind in ((SUMDB_VKEY, Kind.ED25519), (WITNESS_VKEY, Kind.COSIGNATURE)):
        verifier = parse_vkey(vkey)
        assert [verifier.name, verifier.key_id.hex()] == vkey.split("+")[:2]
        assert (verifier.kind, verifier.to_text()) == (kind, vkey)


def test_the_examples_of_the_specifications_are_read() -> None:
    """Their layout is published, not their keys: the cosignature of c2sp.org/tlog-cosignature bears its time."""
    example = (
        "example.com/behind-the-sofa\n20852163\nCsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=\n\n"
        "— example.com/behind-the-sofa Az3grlgtzPICa5OS8npVmf1Myq/5IZniMp+ZJurmRDeOoRDe4URYN7u5/Zhcyv2q1gGzGku9nTo+"
        "zyWE+xeMcTOAYQ8=\n"
        "— witness.example.com/w1 jWbPPwAAAABkGFDLEZMHwSRaJNiIDoe9DYn/zXcrtPHeolMI5OWXEhZCB9dlrDJsX3b2oyin1nPZqhf5nNo0"
        "xUe+mbIUBkBIfZ+qnA==\n"
    )
    log, witness = parse_note(example.encode()).signatures
    assert (log.name, log.key_id.hex(), len(log.signature)) == ("example.com/behind-the-sofa", "033de0ae", 64)
    assert (witness.name, witness.key_id.hex(), len(witness.signature)) == ("witness.example.com/w1", "8d66cf3f", 72)
    assert int.from_bytes(witness.signature[:8]) == 1679315147


def test_a_cosignature_signs_a_version_a_time_and_the_whole_text() -> None:
    """Computed by hand from c2sp.org/tlog-cosignature."""
    key = private(2)
    point = key.public_key().public_bytes_raw()
    line = WITNESS.cosign(TEXT, 1679315147)
    assert line.key_id == hashlib.sha256(b"witness.example/w1\n\x04" + point).digest()[:4]
    signed = b"cosignature/v1\ntime 1679315147\n" + TEXT.encode()
    assert line.signature == (1679315147).to_bytes(8, "big") + key.sign(signed)
    assert verify_note(Note(TEXT, (line,)), [WITNESS.verifier]) == (Verified(WITNESS.verifier, 1679315147),)


def test_lines_of_unknown_keys_are_ignored_and_one_of_a_known_key_is_needed() -> None:
    """A line with the name or the key id alone of a known key is a stranger's."""
    strangers = (
        *(stranger(number) for number in range(16)),
        SignatureLine(LOG.name, bytes(4), bytes(64)),
        SignatureLine("other", LOG.verifier.key_id, bytes(64)),
    )
    note = Note(TEXT, (*strangers, *GOOD.signatures))
    assert parse_note(note.to_bytes()) == note
    assert verify_note(note, [LOG.verifier]) == (Verified(LOG.verifier),)
    with pytest.raises(FormatError, match="no signature of a known key"):
        verify_note(GOOD, [NoteSigner("other.example/log", private(3)).verifier])


def test_one_bad_line_of_a_known_key_refuses_the_note() -> None:
    """A cosignature of another checkpoint is one, or with another time."""
    other = Checkpoint(CHECKPOINT.origin, 6, CHECKPOINT.root).to_text()
    line = WITNESS.cosign(TEXT, 1_800_000_000)
    for name, bad in (
        (LOG.name, SignatureLine(LOG.name, LOG.verifier.key_id, bytes(64))),
        (WITNESS.name, WITNESS.cosign(other, 1_800_000_000)),
        (WITNESS.name, SignatureLine(line.name, line.key_id, (1).to_bytes(8) + line.signature[8:])),
    ):
        note = Note(TEXT, (*(stranger(number) for number in range(16)), *GOOD.signatures, bad))
        with pytest.raises(FormatError, match=f"{name} does not fit") as caught:
            verify_note(note, [LOG.verifier, WITNESS.verifier])
        assert caught.value.code is Code.LOG_SIGNATURE


def test_one_key_cannot_pose_as_the_other_type_s() -> None:
    """One private key of a log and of a witness has two key ids and signs two messages."""
    log, witness = NoteSigner("same", private(7)), Cosigner("same", private(7))
    assert log.verifier.key_id != witness.verifier.key_id
    posed = SignatureLine("same", witness.verifier.key_id, (5).to_bytes(8) + log.sign(TEXT).signature)
    with pytest.raises(FormatError, match="does not fit"):
        verify_note(Note(TEXT, (posed,)), [log.verifier, witness.verifier])


def test_a_repeated_line_counts_once_and_two_times_of_one_key_count_both() -> None:
    early, late = WITNESS.cosign(TEXT, 10), WITNESS.cosign(TEXT, 20)
    found = verify_note(Note(TEXT, (late, late, early, late)), [WITNESS.verifier])
    assert [one.timestamp for one in found] == [20, 10]


LINE = GOOD.signatures[0].to_text()
NO_TEXTS = (
    "", f"{TEXT}\n", f"{TEXT}{LINE}", f"{TEXT}\n{LINE}".replace("\n", "\r\n"), f"a\tb\n\n{LINE}", f"a\0b\n\n{LINE}",
)  # fmt: skip
NO_LINES = (
    LINE[:-1], f"{LINE}\n", f"{LINE}more\n", LINE.replace("—", "-"), LINE.replace("— ", "—  "), f"—\u00a0{LINE[2:]}",
    f"{LINE[:-1]} \n", LINE.replace("example", "exam+ple"), f"— a\u2028{LINE[2:]}", f"— {LINE.split(' ')[2]}",
    LINE.replace("=", ""), LINE.replace("=", "=="), "— a __8-____\n", "— a AAAAAAB=\n", "— a AAAAAA==\n", "— a AAAA\n",
)  # fmt: skip


def test_a_text_that_is_not_a_signed_note_is_refused() -> None:
    others = (b"\xff\n\n", GOOD.to_bytes() + b"\xff\n", GO_NOTE.encode("utf-16"))
    for raw in (*map(str.encode, NO_TEXTS), *(f"{TEXT}\n{line}".encode() for line in NO_LINES), *others):
        with pytest.raises(FormatError) as caught:
            parse_note(raw)
        assert caught.value.code is Code.LOG_MALFORMED, raw


def test_a_note_has_64_lines_and_the_bytes_of_its_bound_at_most() -> None:
    raw = GOOD.to_bytes()
    assert parse_note(raw, len(raw)) == GOOD
    with pytest.raises(FormatError, match="over"):
        parse_note(raw, len(raw) - 1)
    assert GOOD.with_lines(GOOD.signatures) == GOOD, "a line that is there already"
    most = GOOD.with_lines(stranger(number) for number in range(MAX_SIGNATURES - 2))
    assert parse_note(most.to_bytes()) == most
    with pytest.raises(FormatError, match="1 to 64"):
        parse_note(most.to_bytes() + LINE.encode())


def test_a_text_may_have_signature_lines_and_a_witness_s_answer_has_them_alone() -> None:
    text = f"\n\na\n\n{LINE}\n\n"
    note = Note(text, (LOG.sign(text),))
    assert parse_note(note.to_bytes()) == note
    raw = "".join(line.to_text() for line in GOOD.signatures).encode()
    assert parse_signatures(raw) == GOOD.signatures
    for bad in (b"", b"\n", raw[:-1], raw + b"\n", b"\n" + raw, raw.replace(b"\n", b"\r\n")):
        with pytest.raises(FormatError):
            parse_signatures(bad)


def test_an_invalid_text_or_time_is_not_signed_and_only_a_checkpoint_is_cosigned() -> None:
    for text in ("", "a", "a\r\n", "a\0\n", "\ud800\n"):
        with pytest.raises(FormatError):
            LOG.sign(text)
        with pytest.raises(FormatError):
            Note(text, GOOD.signatures)
    for time in (-1, 0, 2**63, 2**64):
        with pytest.raises(FormatError, match="time of a cosignature"):
            WITNESS.cosign(TEXT, time)
    with pytest.raises(FormatError, match="three lines"):
        WITNESS.cosign("a\nb\n", 1)
    with pytest.raises(FormatError, match="three lines"):
        verify_note(Note("a\n", (SignatureLine(WITNESS.name, WITNESS.verifier.key_id, bytes(72)),)), [WITNESS.verifier])


# Names of keys: no control character, no space of Unicode, no plus.
NAMES = st.text(st.characters(exclude_categories=["Cs", "Cc", "Zs", "Zl", "Zp"], exclude_characters="+"), min_size=1)
LINES = st.builds(SignatureLine, NAMES, st.binary(min_size=4, max_size=4), st.binary(min_size=1, max_size=100))
TEXTS = st.text(st.characters(exclude_categories=["Cs", "Cc"]) | st.just("\n")).map(lambda text: f"{text}\n")


@given(TEXTS, st.lists(LINES, min_size=1, max_size=20))
def test_every_note_is_read_as_it_was_written(text: str, lines: list[SignatureLine]) -> None:
    note = Note(text, tuple(lines))
    assert parse_note(note.to_bytes()) == note


@given(st.binary(max_size=200) | st.text(st.sampled_from("a— \n=+A0")).map(str.encode))
def test_any_note_is_written_as_it_was_read(raw: bytes) -> None:
    try:
        note = parse_note(raw)
    except FormatError:
        return
    assert note.to_bytes() == raw
