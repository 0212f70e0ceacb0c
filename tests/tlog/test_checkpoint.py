"""Checkpoints: the example of the specification, and texts near a good one."""

import base64
import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from issuer.codes import Code
from issuer.errors import FormatError
from issuer.tlog.checkpoint import Checkpoint, parse_checkpoint

# The example of c2sp.org/tlog-checkpoint.
EXAMPLE = "example.com/behind-the-sofa\n20852163\nCsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=\n"
ROOT = hashlib.sha256(b"a root").digest()
ENCODED = base64.b64encode(ROOT).decode()


def test_the_example_of_the_specification_is_read() -> None:
    checkpoint = parse_checkpoint(EXAMPLE)
    assert (checkpoint.origin, checkpoint.size) == ("example.com/behind-the-sofa", 20852163)
    assert checkpoint.root.hex() == "0ac5186a91863e8e1d90c808014aa89bf5da8e3ee1d9f07630f0378f68f1ab62"
    assert checkpoint.to_text() == EXAMPLE


def test_an_origin_may_have_spaces_and_a_checkpoint_lines_of_its_own() -> None:
    text = f"a log + more\n0\n{ENCODED}\none\n two\n"
    assert parse_checkpoint(text) == Checkpoint("a log + more", 0, ROOT, ("one", " two"))
    assert parse_checkpoint(text).to_text() == text


def test_a_size_is_canonical_decimal_and_a_root_canonical_base64_of_32_bytes() -> None:
    for good in ("0", "1", "9223372036854775807"):
        assert parse_checkpoint(f"o\n{good}\n{ENCODED}\n").size == int(good)
    sizes = (
        "", "00", "01", "+1", "-1", "1 ", " 1", "1_0", "1.0", "1e3", "0x1", "\u0661", "9223372036854775808", "1" * 5000,
    )  # fmt: skip
    roots = (
        "", ENCODED[:-1], f"{ENCODED}=", ENCODED[:-4], f"{ENCODED}AAAA", f" {ENCODED}", f"{ENCODED} ", ROOT.hex(),
        base64.urlsafe_b64encode(b"\xff" * 32).decode(), base64.b64encode(bytes(32)).decode().replace("A=", "B="),
    )  # fmt: skip
    texts = *(("size", f"o\n{size}\n{ENCODED}\n") for size in sizes), *(("root", f"o\n1\n{root}\n") for root in roots)
    for word, text in texts:
        with pytest.raises(FormatError, match=word) as caught:
            parse_checkpoint(text)
        assert caught.value.code is Code.LOG_MALFORMED, text
        assert caught.value.line == 3 or word == "size"


def test_another_text_or_value_is_no_checkpoint() -> None:
    for text in (
        "", "\n", "o\n1\n", f"o\n1\n{ENCODED}", f"\n1\n{ENCODED}\n", f"o\n1\n{ENCODED}\n\n", f"o\n1\n{ENCODED}\n\nx\n", f"\no\n1\n{ENCODED}\n",
        f"o\n\n1\n{ENCODED}\n", f"o\r\n1\r\n{ENCODED}\r\n", f"o\tp\n1\n{ENCODED}\n", f"o\n1\n{ENCODED}\n\ud800\n",
    ):  # fmt: skip
        with pytest.raises(FormatError):
            parse_checkpoint(text)
    for origin, size, root, extensions in (
        ("", 1, ROOT, ()), ("a\nb", 1, ROOT, ()), ("o", -1, ROOT, ()), ("o", 2**63, ROOT, ()), ("o", 1, ROOT[1:], ()), ("o", 1, ROOT, ("",)),
        ("o", 1, ROOT, ("a\nb",)),
    ):  # fmt: skip
        with pytest.raises(FormatError):
            Checkpoint(origin, size, root, extensions)


WORDS = st.text(st.characters(exclude_categories=["Cs"], min_codepoint=0x20), min_size=1)


@given(WORDS, st.integers(0, 2**63 - 1), st.binary(min_size=32, max_size=32), st.lists(WORDS, max_size=3))
def test_every_checkpoint_is_read_as_it_was_written(origin: str, size: int, root: bytes, extensions: list[str]) -> None:
    checkpoint = Checkpoint(origin, size, root, tuple(extensions))
    assert parse_checkpoint(checkpoint.to_text()) == checkpoint
