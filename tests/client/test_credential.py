"""A credential's form, whether it needs a nonce, and that nothing shows it."""

from __future__ import annotations

import base64
import re
import traceback

import pytest

from issuer.client.credential import Credential, access_token, fresh_nonce, identity_token, is_bearer
from issuer.errors import SetupError
from issuer.formats import jose
from issuer.identity import pat
from issuer.token.wire import is_nonce

PAT = pat.make(bytes(range(pat.RANDOM_BYTES)))


def jwt(header: bytes) -> str:
    return ".".join(jose.base64url_encode(part) for part in (header, b"{}", b"signature"))


# -- one use, or many -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("typ", ["at+jwt", "AT+JWT", "application/at+jwt", "Application/At+Jwt"])
def test_an_identity_token_whose_header_says_access_token_is_reusable(typ: str) -> None:
    assert identity_token(jwt(b'{"alg":"ES256","typ":"%s"}' % typ.encode()), "x").reusable


@pytest.mark.parametrize(
    "header", [b'{"alg":"RS256","typ":"JWT"}', b"{}", b'{"typ":["at+jwt"]}', b'{"typ":"xat+jwt"}', b"x"]
)
def test_every_other_identity_token_is_limited(header: bytes) -> None:
    assert not identity_token(jwt(header), "x").reusable


def test_what_is_no_jwt_is_limited_where_an_identity_token_is_expected() -> None:
    assert not identity_token("opaque", "x").reusable
    # Two members of one name: a reader of the first sees another type than a reader of the last.
    assert not identity_token(jwt(b'{"typ":"JWT","typ":"at+jwt"}'), "x").reusable


@pytest.mark.parametrize("text", ["opaque", "hf_abc", PAT, jwt(b'{"typ":"JWT"}')])
def test_every_access_token_is_reusable(text: str) -> None:
    assert access_token(text, "x") == Credential(text, reusable=True)


def test_a_personal_access_token_is_known_wherever_it_is_given() -> None:
    assert identity_token(PAT, "x").reusable


# -- forms ----------------------------------------------------------------------------------------------------------------

NOT_SENT = [
    "",
    " ",
    "hush hush",
    "hush\nhush",
    "hush\r\nX: y",
    "hush\x00",
    "h\xfcsh",
    "hush\u20ac",
    "=",
    "hu=sh",
    '"hush"',
    "\u0661",
]


@pytest.mark.parametrize("text", [*NOT_SENT, "h" * (jose.MAX_TOKEN_BYTES + 1)])
def test_what_no_header_can_carry_is_refused_without_being_quoted(text: str) -> None:
    for read in (identity_token, access_token):
        with pytest.raises(SetupError, match="the place does not contain") as caught:
            read(text, "the place")
        assert "hush" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("text", ["a", "a=", "a==", "A.z_0~+/-", "x" * jose.MAX_TOKEN_BYTES])
def test_every_bearer_of_rfc_6750_is_sent(text: str) -> None:
    assert is_bearer(text)


@pytest.mark.parametrize(
    "wrong", [PAT[:-1], PAT + "0", PAT[:-1] + "_", PAT[:10] + PAT[11] + PAT[10] + PAT[12:], pat.PREFIX]
)
def test_a_personal_access_token_that_was_copied_wrong_is_found_before_it_is_sent(wrong: str) -> None:
    for read in (identity_token, access_token):
        with pytest.raises(SetupError, match="with a wrong checksum") as caught:
            read(wrong, "the place")
        assert PAT[12:30] not in str(caught.value)


def test_its_repr_has_no_secret() -> None:
    assert repr(Credential("hush", reusable=True)) == "Credential(reusable=True)"


# -- nonces ---------------------------------------------------------------------------------------------------------------


def test_a_nonce_is_128_random_bits_in_base64url() -> None:
    made = {fresh_nonce() for _ in range(1000)}
    assert len(made) == 1000
    assert all(re.fullmatch("[A-Za-z0-9_-]{22}", nonce) and is_nonce(nonce) for nonce in made)
    assert all(len(base64.urlsafe_b64decode(nonce + "==")) == 16 for nonce in made)


@pytest.mark.parametrize(
    "text", ["a" * 21, "a" * 129, "a" * 21 + "=", "a" * 21 + "+", "a" * 22 + "\n", "\u0661" * 22, ""]
)
def test_what_is_no_nonce(text: str) -> None:
    assert not is_nonce(text)
    assert is_nonce("a" * 22)
    assert is_nonce("a" * 128)
