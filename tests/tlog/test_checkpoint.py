"""Checkpoints: the example of the specification, and texts near a good one."""

from __future__ import annotations

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


@pytest.mark.parametrize("size", ["0", "1", "9223372036854775807"])
def test_a_size_is_read_to_the_largest(size: str) -> None:
    assert parse_checkpoint(f"o\n{size}\n{ENCODED}\n").size == int(size)


SIZES = [
    "",
    "00",
    "01",
    "+1",
    "-1",
    "1 ",
    " 1",
    "1_0",
    "1.0",
    "1e3",
    "0x1",
    "\u0661",
    "9223372036854775808",
    "1" * 5000,
]


@pytest.mark.parametrize("size", SIZES)
def test_a_size_that_is_not_canonical_decimal_is_refused(size: str) -> None:
    with pytest.raises(FormatError, match="size") as caught:
        parse_checkpoint(f"o\n{size}\n{ENCODED}\n")
    assert caught.value.code is Code.LOG_MALFORMED


@pytest.mark.parametrize(
    "root",
    [
        "", ENCODED[:-1], f"{ENCODED}=", ENCODED[:-4], f"{ENCODED}AAAA", f" {ENCODED}", f"{ENCODED} ", ROOT.hex(),
        base64.urlsafe_b64encode(b"\xff" * 32).decode(), base64.b64encode(bytes(32)).decode().replace("A=", "B="),
    ],
)  # fmt: skip
def test_a_root_that_is_not_canonical_base64_of_32_bytes_is_refused(root: str) -> None:
    with pytest.raises(FormatError, match="root") as caught:
        parse_checkpoint(f"o\n1\n{root}\n")
    assert caught.value.line == 3


@pytest.mark.parametrize(
    "text",
    [
        "", "\n", "o\n1\n", f"o\n1\n{ENCODED}", f"\n1\n{ENCODED}\n", f"o\n1\n{ENCODED}\n\n", f"o\n1\n{ENCODED}\n\nx\n",
        f"\no\n1\n{ENCODED}\n", f"o\n\n1\n{ENCODED}\n", f"o\r\n1\r\n{ENCODED}\r\n", f"o\tp\n1\n{ENCODED}\n",
        f"o\n1\n{ENCODED}\n\ud800\n",
    ],
)  # fmt: skip
def test_a_text_that_is_no_checkpoint_is_refused(text: str) -> None:
    with pytest.raises(FormatError):
        parse_checkpoint(text)


@pytest.mark.parametrize(
    "values",
    [("", 1, ROOT), ("a\nb", 1, ROOT), ("o", -1, ROOT), ("o", 2**63, ROOT), ("o", 1, ROOT[1:]), ("o", 1, ROOT, ("",)),
     ("o", 1, ROOT, ("a\nb",))],
)  # fmt: skip
def test_values_that_have_no_text_make_no_checkpoint(values: tuple[str, int, bytes]) -> None:
    with pytest.raises(FormatError):
        Checkpoint(*values)


WORDS = st.text(st.characters(exclude_categories=["Cs"], min_codepoint=0x20), min_size=1)


@given(WORDS, st.integers(0, 2**63 - 1), st.binary(min_size=32, max_size=32), st.lists(WORDS, max_size=3))
def test_every_checkpoint_is_read_as_it_was_written(origin: str, size: int, root: bytes, extensions: list[str]) -> None:
    checkpoint = Checkpoint(origin, size, root, tuple(extensions))
    assert parse_checkpoint(checkpoint.to_text()) == checkpoint


@given(st.text(st.sampled_from("o01\n=A+ ")).map(lambda text: text.replace("=", ENCODED)))
def test_whatever_is_read_as_a_checkpoint_is_written_as_it_was_read(text: str) -> None:
    try:
        checkpoint = parse_checkpoint(text)
    except FormatError:
        return
    assert checkpoint.to_text() == text
