"""Verifier keys: their text and ids, keys that verify everything, and ML-DSA-44 as its specification writes it."""

import hashlib
import subprocess
import sys

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from issuer.codes import Code
from issuer.errors import FormatError
from issuer.tlog.checkpoint import Checkpoint
from issuer.tlog.note import Kind, Note, Verified, Verifier, parse_vkey, verify_note
from tests.support.ml_dsa import MlDsaWitness, needs_ml_dsa, spell_vkey
from tests.support.shared import ROOT

NAME = "example.com/log"
POINT = Ed25519PrivateKey.from_private_bytes(bytes([1]) * 32).public_key().public_bytes_raw()
KINDS = (Kind.ED25519, Kind.COSIGNATURE)
CHECKPOINT = Checkpoint(NAME, 5, hashlib.sha256(b"root").digest())
# Points of small order, and an encoding that is not canonical; tests/formats/test_jose.py has all of them.
LOW_ORDER = [
    "01" + "00" * 31,
    "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
    "ed" + "ff" * 30 + "7f",
]


def test_a_key_is_written_by_the_specification_and_takes_signatures_of_one_length() -> None:
    for kind in KINDS:
        assert Verifier(NAME, kind, POINT).to_text() == spell_vkey(NAME, bytes([kind]) + POINT)
        assert parse_vkey(spell_vkey(NAME, bytes([kind]) + POINT)) == Verifier(NAME, kind, POINT)
        for signature in (b"", bytes(7), bytes(8), bytes(63), bytes(71), bytes(73), b"\xff" * 72):
            assert Verifier(NAME, kind, POINT).verify(CHECKPOINT.to_text(), signature) is None, "of another length"


def test_a_key_of_low_order_another_type_or_another_length_is_refused() -> None:
    keys = [(bytes([kind]) + bytes.fromhex(point), "low order") for kind in KINDS for point in LOW_ORDER]
    types = (0x00, 0x02, 0x03, 0x05, 0x07, 0xFF)
    keys += [(bytes([kind]) + POINT, f"0x{kind:02x}; known here: 0x01, 0x04, 0x06") for kind in types]
    keys += [(key, "bytes") for key in (b"\x01" + POINT[:-1], b"\x01" + POINT + b"\0", b"\x01", b"\x06" + POINT)]
    for key, words in keys:
        with pytest.raises(FormatError, match=words) as caught:
            parse_vkey(spell_vkey(NAME, key))
        assert caught.value.code is Code.LOG_MALFORMED


GOOD = spell_vkey(NAME, b"\x01" + POINT)
HASHED, ENCODED = GOOD.split("+", 2)[1:]


def test_a_part_of_a_verifier_key_or_a_changed_one_is_none() -> None:
    for text in (
        "", "++", NAME, f"{NAME}+{HASHED}", f"+{HASHED}+{ENCODED}", f"{NAME}+{HASHED}+", f" {GOOD}", f"{GOOD}\n",
        f"{NAME}+{HASHED[:-1]}+{ENCODED}", f"{NAME}+0{HASHED}+{ENCODED}", f"{NAME}+{HASHED.upper()}x+{ENCODED}",
        f"{NAME}+00000000+{ENCODED}", f"other+{HASHED}+{ENCODED}", f"{GOOD}=", f"{GOOD}AAAA",
        spell_vkey("a b", b"\x01" + POINT), spell_vkey("a\u2003b", b"\x01" + POINT), spell_vkey("a\tb", b"\x01" + POINT),
        spell_vkey("a\0b", b"\x01" + POINT), f"\ud800+{HASHED}+{ENCODED}", f"PRIVATE+KEY+{GOOD}",
    ):  # fmt: skip
        with pytest.raises(FormatError) as caught:
            parse_vkey(text)
        assert caught.value.code is Code.LOG_MALFORMED
    for start in range(len(GOOD)):
        for end in range(start, len(GOOD) + 1):
            if (start, end) != (0, len(GOOD)):
                with pytest.raises(FormatError):
                    parse_vkey(GOOD[start:end])
    for place, sign in enumerate(GOOD):
        with pytest.raises(FormatError):
            parse_vkey(GOOD[:place] + chr(ord(sign) + 1) + GOOD[place + 1 :])


@needs_ml_dsa
def test_an_ml_dsa_cosignature_verifies_with_its_time_and_for_its_checkpoint_alone() -> None:
    witness = MlDsaWitness("witness.example/w1")
    verifier, text = parse_vkey(witness.vkey), CHECKPOINT.to_text()
    assert (verifier.kind, verifier.to_text()) == (Kind.COSIGNATURE_ML_DSA_44, witness.vkey)
    for time in (0, 1_800_000_000, 2**63 - 1):
        note = Note(text, (witness.cosign(CHECKPOINT, time),))
        assert verify_note(note, [verifier]) == (Verified(verifier, time),)
    good = witness.cosign(CHECKPOINT, 9).signature
    others = [
        MlDsaWitness("witness.example/w1", seed=2).cosign(CHECKPOINT, 9),
        MlDsaWitness("witness.example/w2").cosign(CHECKPOINT, 9),
        witness.cosign(Checkpoint("example.com/other", 5, CHECKPOINT.root), 9),
        witness.cosign(Checkpoint(NAME, 6, CHECKPOINT.root), 9),
        witness.cosign(Checkpoint(NAME, 5, bytes(32)), 9),
        witness.cosign(CHECKPOINT, 9, start=1),
        witness.cosign(CHECKPOINT, 9, label=b"subtree/v2\n\0"),
        witness.cosign(CHECKPOINT, 2**63),
    ]
    assert verifier.verify(text, good) == Verified(verifier, 9)
    for other in others:
        assert verifier.verify(text, other.signature) is None
    for changed in (good[:-1], good + b"\0", (8).to_bytes(8) + good[8:], good[:8], b""):
        assert verifier.verify(text, changed) is None
    extended = Checkpoint(NAME, 5, CHECKPOINT.root, ("written by a thief",))
    assert verifier.verify(extended.to_text(), good) is None, "extension lines are not cosigned"


@needs_ml_dsa
def test_a_name_or_an_origin_that_the_signed_message_cannot_hold_does_not_fit() -> None:
    long_origin = Checkpoint("o" * 256, 5, CHECKPOINT.root)
    for name, checkpoint in (("w" * 256, CHECKPOINT), ("w", long_origin)):
        assert parse_vkey(MlDsaWitness(name).vkey).verify(checkpoint.to_text(), bytes(2428)) is None


WITHOUT = """
import sys
sys.modules["cryptography.hazmat.primitives.asymmetric.mldsa"] = None  # as in a `cryptography` from before it
from issuer.errors import IssuerError
from issuer.tlog.checkpoint import Checkpoint
from issuer.tlog.note import parse_vkey
from issuer.tlog.witness_policy import parse_policy

vkey = sys.argv[1]
text = Checkpoint("o", 1, bytes(32)).to_text()
steps = (lambda: parse_policy(f"witness a {vkey}\\nquorum none\\n".encode(), "policy"), lambda: parse_vkey(vkey).verify(text, bytes(2428)))
for step in steps:
    try:
        step()
    except IssuerError as error:
        print(error)
"""


@needs_ml_dsa
def test_an_installation_without_ml_dsa_refuses_its_keys_and_says_so() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, MlDsaWitness("w").vkey], capture_output=True, text=True, check=True, cwd=ROOT
    )
    refused, unverified = done.stdout.splitlines()
    assert refused.startswith("policy:1:1: log.policy: this installation cannot verify ML-DSA-44")
    assert unverified.startswith("log.malformed: this installation cannot verify ML-DSA-44")
