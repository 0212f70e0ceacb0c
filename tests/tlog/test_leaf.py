"""Leaves: one spelling each, everything else refused with its line, and unknown kinds by name alone."""

import base64
import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from issuer.codes import Code
from issuer.errors import FormatError
from issuer.formats.times import MAX_UNIX_S
from issuer.tlog.leaf import (
    MAX_LEAF_BYTES,
    AuditLeaf,
    KeyLeaf,
    KnownLeaf,
    PolicyLeaf,
    RevocationsLeaf,
    TokenLeaf,
    UnknownLeaf,
    read_leaf,
    token_digest,
)

ISS, SUB = "https://issuer.example", "inspect-ai"
KID, X = "A" * 42 + "I", "-_" * 21 + "8"
DIGEST = "sha256:" + "0a" * 32
TOKEN = TokenLeaf(ISS, SUB, KID, 1_790_000_000, 1_790_003_600, DIGEST, bytes(range(32)))
TOKEN_TEXT = f"""eval-token-issuer/token/v1
iss {ISS}
sub {SUB}
kid {KID}
iat 1790000000
exp 1790003600
policy {DIGEST}
token AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=
"""
KEY = KeyLeaf(ISS, KID, X, "active", 0)
POLICY = PolicyLeaf(ISS, SUB, DIGEST)
WRITTEN: list[tuple[KnownLeaf, str]] = [
    (TOKEN, TOKEN_TEXT),
    (KEY, f"eval-token-issuer/key/v1\niss {ISS}\nkid {KID}\nx {X}\nstate active\nfrom 0\n"),
    (POLICY, f"eval-token-issuer/policy/v1\niss {ISS}\nsub {SUB}\npolicy {DIGEST}\n"),
    (RevocationsLeaf(ISS, DIGEST), f"eval-token-issuer/revocations/v1\niss {ISS}\ndigest {DIGEST}\n"),
    (AuditLeaf(ISS, "0af1", "ff" * 32), f"eval-token-issuer/audit/v1\niss {ISS}\nworker 0af1\nhead {'ff' * 32}\n"),
]


def refused(raw: bytes) -> FormatError:
    with pytest.raises(FormatError) as caught:
        read_leaf(raw)
    assert caught.value.code is Code.LOG_MALFORMED
    return caught.value


def test_a_leaf_has_one_spelling_and_the_digest_of_a_token_is_over_a_prefix_too() -> None:
    for leaf, text in WRITTEN:
        assert leaf.to_bytes() == text.encode()
        assert read_leaf(text.encode()) == leaf
    signing_input = b"eyJhbGciOiJFZERTQSJ9.e30"
    prefixed = b"eval-token-issuer/token-digest/v1\n" + signing_input
    assert token_digest(signing_input) == hashlib.sha256(prefixed).digest()


def test_another_spelling_of_a_known_leaf_is_refused_with_its_first_wrong_line() -> None:
    for _, text in WRITTEN:
        first, *lines = text.splitlines(keepends=True)
        last = lines[-1]
        for parts in (
            [first, *lines[1:]], [first, *lines[:-1]], [first], [first, lines[0], *lines], [first, *lines[::-1]], [first, *lines, "more 1\n"],
            [first, *lines, "\n"], [text[:-1]], [text.replace("\n", "\r\n")], [first, "\n", *lines], [text[:-1], "\0\n"],
            [first, *lines[:-1], last.upper()], [first, *lines[:-1], last.replace(" ", "  ")], [first, *lines[:-1], last.replace(" ", "\t")],
            [first, *lines[:-1], last.replace("\n", " \n")], [first, *lines[:-1], last.split()[0] + " \n"],
            [first, lines[0].replace("\n", "é\n"), *lines[1:]], ["\ufeff", text],
        ):  # fmt: skip
            refused("".join(parts).encode())
        for end in range(len(text)):
            refused(text[:end].encode())
    for text, number in (
        (TOKEN_TEXT.replace(" 1790003600", " soon"), 6), (TOKEN_TEXT.replace("iss ", "sub "), 2), (TOKEN_TEXT[:-1], 8),
        (TOKEN_TEXT + "more 1\n", 8), (TOKEN_TEXT[:60], 4), (TOKEN_TEXT.partition("\niss")[0], 2), ("x", 0),
    ):  # fmt: skip
        assert refused(text.encode()).line == number, text


def line(name: str, value: str) -> bytes:
    """Return the leaf that has a line of this name, with another value there."""
    text = next(text for _, text in WRITTEN if f"\n{name} " in text)
    return "".join(f"{name} {value}\n" if old.startswith(f"{name} ") else old for old in text.splitlines(True)).encode()


LAST_BITS = [
    char for char in base64.urlsafe_b64encode(bytes(range(0, 256, 3))).decode() if char not in "AEIMQUYcgkosw048-_="
]
BAD_VALUES = {
    "iss": ["", " ", "a b", "\x7f", "a\tb", "é"],
    "sub": ["", "a b"],
    "kid": ["A" * 42, "A" * 44, "A" * 43 + "=", "A" * 42 + "+", "A" * 42 + "/", *("A" * 42 + char for char in LAST_BITS[:9])],
    "x": ["A" * 42, "A" * 42 + "B"],
    "iat": ["", "-1", "+1", "01", "00", "1.0", "1e3", "0x1", "1_0", " 1", "99999999999", str(MAX_UNIX_S + 1), "٣"],
    "exp": ["-1", "01", str(MAX_UNIX_S + 1), "9" * 4000],
    "from": ["-1", "01", str(MAX_UNIX_S + 1)],
    "state": ["published", "Active", "removed", ""],
    "policy": ["0a" * 32, "sha256:" + "0A" * 32, "sha256:" + "0a" * 31, "sha256:" + "0a" * 33, "sha512:" + "0a" * 32],
    "digest": ["sha256:", "SHA256:" + "0a" * 32],
    "token": ["A" * 43, "A" * 44, "A" * 42 + "B=", "A" * 43 + "==", "A" * 42 + "-=", "_" * 43 + "=", "A" * 40 + "===="],
    "head": ["", "a b"],
    "worker": ["", "a b"],
}  # fmt: skip


def test_a_value_that_does_not_fit_its_line_is_refused_with_its_place() -> None:
    for name, value in ((name, value) for name, values in BAD_VALUES.items() for value in values):
        raw = line(name, value)
        error = refused(raw)
        if raw.isascii() and len(raw) <= MAX_LEAF_BYTES and not value.isdecimal():
            assert error.pointer == f"/{name}"
            assert raw.split(b"\n")[error.line - 1].startswith(f"{name} ".encode())
            assert f"`{name}`" in error.detail
    for name, value in (("iat", "0"), ("iat", str(MAX_UNIX_S)), ("kid", "_" * 42 + "8"), ("iss", "!~")):
        good = read_leaf(line(name, value))
        assert not isinstance(good, UnknownLeaf)
        assert good.to_bytes() == line(name, value)


def test_a_leaf_whose_values_do_not_fit_is_not_written() -> None:
    for leaf in (
        replace(TOKEN, iss=""), replace(TOKEN, iss="a b"), replace(TOKEN, iss="é"), replace(TOKEN, iss="\ud800"),
        replace(TOKEN, sub=f"a\nkid {KID}"), replace(TOKEN, sub="x\n"), replace(TOKEN, iat=-1), replace(TOKEN, exp=MAX_UNIX_S + 1),
        replace(TOKEN, token=bytes(31)), replace(TOKEN, token=bytes(33)), replace(TOKEN, token=b""),
        replace(TOKEN, kid="a-key-of-another-name"), replace(TOKEN, policy="none"), replace(TOKEN, sub="a" * MAX_LEAF_BYTES),
        replace(KEY, x=KID + "="), replace(POLICY, policy=DIGEST + "\n"),
    ):  # fmt: skip
        with pytest.raises(FormatError) as caught:
            leaf.to_bytes()
        assert caught.value.code is Code.LOG_MALFORMED


def test_the_longest_leaf_has_4096_bytes() -> None:
    assert MAX_LEAF_BYTES == 4096
    room = MAX_LEAF_BYTES - len(replace(TOKEN, iss="").first_line) - len(TOKEN_TEXT.partition("\n")[2]) - 1 + len(ISS)
    longest = replace(TOKEN, iss="a" * room)
    assert len(longest.to_bytes()) == MAX_LEAF_BYTES
    assert read_leaf(longest.to_bytes()) == longest
    with pytest.raises(FormatError, match="4096"):
        replace(longest, iss="a" * (room + 1)).to_bytes()
    assert "4096" in refused(longest.to_bytes().replace(b"iss a", b"iss aa")).detail
    unknown = b"unknown/v1\n" + b"a %s\n" % (b"b" * 4082)
    assert read_leaf(unknown) == UnknownLeaf("unknown/v1")
    assert len(unknown) == MAX_LEAF_BYTES
    refused(unknown.replace(b"a b", b"a bb"))


def test_a_leaf_of_an_unknown_kind_is_known_by_its_first_line_alone() -> None:
    for first in ("eval-token-issuer/token/v2", "eval-token-issuer/token/v1x", "Eval-token-issuer/token/v1", "x"):
        for rest in ("", "token b\niss a\n"):
            assert read_leaf(f"{first}\n{rest}".encode()) == UnknownLeaf(first)
    for raw in (
        b"", b"\n", b"x", b"x y\n", b"x\ny\n", b"x\n\n", b"x\ny z", b"x\ny z \n", b"\x1b[31m\n", b"x\r\n", b"\xff\n", b"x\ny \x00\n",
        b"x\n" * 2048 + b"x",
    ):  # fmt: skip
        refused(raw)


@given(st.binary(max_size=300) | st.text("eval-tokenissuer/v12 \n", max_size=80).map(str.encode))
def test_any_bytes_are_a_leaf_or_refused(raw: bytes) -> None:
    try:
        leaf = read_leaf(raw)
    except FormatError:
        return
    assert isinstance(leaf, UnknownLeaf) or leaf.to_bytes() == raw


def test_the_name_of_an_announcement_covers_every_member() -> None:
    announced = [leaf for leaf, _ in WRITTEN[1:]]
    others = [replace(KEY, state="retiring"), replace(KEY, since=1), replace(KEY, iss="b"), replace(POLICY, sub="b")]
    names = [leaf.name for leaf in [*announced, *others]]
    assert len(set(names)) == len(names)
    assert all(isinstance(name, bytes) and len(name) == 32 for name in names)
    assert replace(KEY).name == KEY.name
    assert TOKEN.name is None
