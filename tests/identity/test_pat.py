"""The format of personal access tokens: canonical, with a published pattern and a checksum against typing errors."""

from __future__ import annotations

import re
import string
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from issuer.identity import pat
from issuer.identity.profiles import PROFILES
from issuer.results.secret import secret_in
from tests.support.shared import ROOT

RANDOM = bytes(range(pat.RANDOM_BYTES))
TOKEN = pat.make(RANDOM)
BASE62 = string.digits + string.ascii_uppercase + string.ascii_lowercase


def valued(digits: str) -> int:
    """Read base62 in another way than the code writes it."""
    return sum(BASE62.index(sign) * 62**place for place, sign in enumerate(reversed(digits)))


# -- the form ------------------------------------------------------------------------------------------------------------


def test_a_token_is_always_the_same_text_of_the_same_bytes() -> None:
    """Tokens of earlier versions have this form: prefix, id, secret, CRC-32."""
    assert TOKEN == "evi_pat_xkEgOGusQGwp_3oDH4mEVFvp7u7ED6UzpF5eHPrBI5AHumY7UBpOQIJz2Tg35O"
    prefix, public_id, rest = TOKEN[:8], TOKEN[8:20], TOKEN[21:]
    assert (prefix, TOKEN[20], len(TOKEN)) == ("evi_pat_", "_", 70)
    assert valued(public_id) == int.from_bytes(RANDOM[:16], "big") % 62**12
    assert valued(rest[:43]) == int.from_bytes(RANDOM[16:], "big")
    assert valued(rest[43:]) == zlib.crc32(TOKEN[:-6].encode())


@given(st.binary(min_size=pat.RANDOM_BYTES, max_size=pat.RANDOM_BYTES))
def test_every_token_has_the_published_pattern_and_its_id(random: bytes) -> None:
    token = pat.make(random)
    assert re.fullmatch(pat.PATTERN, token)
    assert pat.token_id(token) == token[8:20]
    assert re.fullmatch(pat.ID_PATTERN, token[8:20])


@pytest.mark.parametrize("random", [bytes(pat.RANDOM_BYTES), b"\xff" * pat.RANDOM_BYTES])
def test_the_least_and_the_largest_bytes_have_the_same_width(random: bytes) -> None:
    assert pat.token_id(pat.make(random))


def test_every_bit_of_the_secret_counts() -> None:
    number = int.from_bytes(RANDOM, "big")
    tokens = {pat.make((number ^ 1 << bit).to_bytes(pat.RANDOM_BYTES, "big")) for bit in range(256)}
    assert len(tokens) == 256
    assert {token[8:20] for token in tokens} == {TOKEN[8:20]}


@pytest.mark.parametrize("size", [0, 1, 32, pat.RANDOM_BYTES - 1, pat.RANDOM_BYTES + 1])
def test_too_few_random_bytes_make_no_token(size: int) -> None:
    with pytest.raises(ValueError, match="48 bytes"):
        pat.make(b"\x01" * size)


def test_the_digest_is_the_sha_256_of_the_whole_token() -> None:
    assert pat.digest("abc").hex() == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert pat.digest(TOKEN) != pat.digest(TOKEN[:-1])


# -- typing errors -------------------------------------------------------------------------------------------------------


def test_no_wrong_character_goes_unnoticed() -> None:
    """CRC-32 sees every error burst of up to 32 bits: each wrong character, and each pair."""
    for place in range(len(TOKEN)):
        for sign in BASE62 + "_-.~+/=":
            if sign != TOKEN[place]:
                assert pat.token_id(TOKEN[:place] + sign + TOKEN[place + 1 :]) is None


def test_no_two_swapped_characters_go_unnoticed() -> None:
    for place in range(len(TOKEN) - 1):
        one, other = TOKEN[place], TOKEN[place + 1]
        if one != other:
            assert pat.token_id(TOKEN[:place] + other + one + TOKEN[place + 2 :]) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "evi_pat_",
        TOKEN[:-1],
        TOKEN[1:],
        TOKEN[:-6],
        TOKEN + "0",
        TOKEN + "\n",
        " " + TOKEN,
        TOKEN + TOKEN,
        TOKEN.upper(),
        TOKEN.swapcase(),
        TOKEN.replace("_", "-"),
        TOKEN.replace("evi_pat_", "evi_key_"),
        TOKEN[:8] + "０" + TOKEN[9:],
        TOKEN[:8] + "../../../../x" + TOKEN[20:],
        TOKEN[:20] + "\x00" + TOKEN[21:],
    ],
)
def test_what_is_not_a_whole_token_has_no_id(text: str) -> None:
    assert pat.token_id(text) is None


@pytest.mark.parametrize("more", ["x", "\n", "/../x", "\x00" * 6])
def test_a_right_checksum_makes_no_token_of_another_form(more: str) -> None:
    body = TOKEN + more
    assert pat.token_id(body + pat._checksum(body)) is None


# -- other places with the format ----------------------------------------------------------------------------------------


def test_the_profile_of_such_tokens_names_the_same_prefix() -> None:
    assert PROFILES["pat"].prefix == pat.PREFIX


@pytest.mark.parametrize("page", ["SECURITY.md", "deploy/CREDENTIALS.md"])
def test_the_pattern_is_published_as_it_is(page: str) -> None:
    assert f"`{pat.PATTERN}`" in (ROOT / page).read_text("utf-8")


@pytest.mark.parametrize(
    "command",
    [
        TOKEN,
        f"curl -H 'X-Api: {TOKEN}' https://example.org",
        f"inspect eval gsm8k -T x={TOKEN},y=1",
        f"run {TOKEN[:-6]}",  # without the checksum, the text still has the whole secret
        f"run '{TOKEN[:-1]}",
    ],
)
def test_a_token_in_a_command_is_found(command: str) -> None:
    what = secret_in(command)
    assert what
    assert TOKEN[21:29] not in what


@pytest.mark.parametrize("command", [f"run --as {TOKEN[:20]}", "run evi_pat_", f"run {TOKEN[8:20]}"])
def test_a_public_id_in_a_command_is_no_secret(command: str) -> None:
    assert secret_in(command) is None


@given(st.binary(min_size=pat.RANDOM_BYTES, max_size=pat.RANDOM_BYTES))
def test_every_token_in_a_command_is_found(random: bytes) -> None:
    assert secret_in(f"run {pat.make(random)}")
