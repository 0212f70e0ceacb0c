"""The format of personal access tokens: canonical, with a published pattern and a checksum against typing errors."""

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


def test_a_token_is_always_the_same_text_of_the_same_48_bytes() -> None:
    """Tokens of earlier versions have this form: prefix, id, secret, CRC-32."""
    assert TOKEN == "evi_pat_xkEgOGusQGwp_3oDH4mEVFvp7u7ED6UzpF5eHPrBI5AHumY7UBpOQIJz2Tg35O"
    prefix, public_id, rest = TOKEN[:8], TOKEN[8:20], TOKEN[21:]
    assert (prefix, TOKEN[20], len(TOKEN)) == ("evi_pat_", "_", 70)
    assert valued(public_id) == int.from_bytes(RANDOM[:16], "big") % 62**12
    assert valued(rest[:43]) == int.from_bytes(RANDOM[16:], "big")
    assert valued(rest[43:]) == zlib.crc32(TOKEN[:-6].encode())
    assert pat.digest("abc").hex() == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert pat.digest(TOKEN) != pat.digest(TOKEN[:-1])
    for random in (bytes(pat.RANDOM_BYTES), b"\xff" * pat.RANDOM_BYTES):
        assert pat.token_id(pat.make(random))
    for size in (0, 1, 32, pat.RANDOM_BYTES - 1, pat.RANDOM_BYTES + 1):
        with pytest.raises(ValueError, match="48 bytes"):
            pat.make(b"\x01" * size)
    assert PROFILES["pat"].prefix == pat.PREFIX
    for page in ("SECURITY.md", "deploy/CREDENTIALS.md"):
        assert f"`{pat.PATTERN}`" in (ROOT / page).read_text("utf-8")


@given(st.binary(min_size=pat.RANDOM_BYTES, max_size=pat.RANDOM_BYTES))
def test_every_token_has_the_published_pattern_and_its_id(random: bytes) -> None:
    token = pat.make(random)
    assert re.fullmatch(pat.PATTERN, token)
    assert pat.token_id(token) == token[8:20]
    assert re.fullmatch(pat.ID_PATTERN, token[8:20])
    assert secret_in(f"run {token}")


def test_every_bit_of_the_secret_counts_and_no_wrong_or_swapped_sign_goes_unnoticed() -> None:
    """CRC-32 sees every error burst of up to 32 bits: each wrong character, and each pair."""
    number = int.from_bytes(RANDOM, "big")
    tokens = {pat.make((number ^ 1 << bit).to_bytes(pat.RANDOM_BYTES, "big")) for bit in range(256)}
    assert len(tokens) == 256
    assert {token[8:20] for token in tokens} == {TOKEN[8:20]}
    wrong = [TOKEN[:place] + sign + TOKEN[place + 1 :] for place in range(len(TOKEN)) for sign in BASE62 + "_-.~+/="]
    wrong += [TOKEN[:place] + TOKEN[place + 1] + TOKEN[place] + TOKEN[place + 2 :] for place in range(len(TOKEN) - 1)]
    assert [text for text in wrong if text != TOKEN and pat.token_id(text) is not None] == []


def test_what_is_not_a_whole_token_has_no_id() -> None:
    texts = [
        "", "evi_pat_", TOKEN[:-1], TOKEN[1:], TOKEN[:-6], TOKEN + "0", TOKEN + "\n", " " + TOKEN, TOKEN + TOKEN, TOKEN.upper(),
        TOKEN.replace("_", "-"), TOKEN.replace("evi_pat_", "evi_key_"), TOKEN[:8] + "０" + TOKEN[9:],
        TOKEN[:8] + "../../../../x" + TOKEN[20:], TOKEN[:20] + "\x00" + TOKEN[21:],
    ]  # fmt: skip
    longer = [TOKEN + "x", TOKEN + "\n", TOKEN + "/../x", TOKEN + "\x00" * 6]
    texts += [text + pat._checksum(text) for text in longer]
    assert [text for text in texts if pat.token_id(text) is not None] == []


def test_a_token_in_a_command_is_found_and_a_public_id_is_not_a_secret() -> None:
    for command in (
        f"curl -H 'X-Api: {TOKEN}' https://example.org", f"inspect eval gsm8k -T x={TOKEN},y=1",
        f"run {TOKEN[:-6]}",  # without the checksum, the text still has the whole secret
        f"run '{TOKEN[:-1]}",
    ):  # fmt: skip
        what = secret_in(command)
        assert what
        assert TOKEN[21:29] not in what
    for command in (f"run --as {TOKEN[:20]}", "run evi_pat_", f"run {TOKEN[8:20]}"):
        assert secret_in(command) is None
