"""A credential's form, whether it needs a nonce, and that it is not shown."""

import base64
import re

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


def test_an_identity_token_is_reusable_only_if_it_is_an_access_token() -> None:
    for typ in ("at+jwt", "AT+JWT", "application/at+jwt", "Application/At+Jwt"):
        assert identity_token(jwt(b'{"alg":"ES256","typ":"%s"}' % typ.encode()), "x").reusable
    # Two members of one name: a reader of the first sees another type than a reader of the last.
    twice = b'{"typ":"JWT","typ":"at+jwt"}'
    for header in (b'{"alg":"RS256","typ":"JWT"}', b"{}", b'{"typ":["at+jwt"]}', b'{"typ":"xat+jwt"}', b"x", twice):
        assert not identity_token(jwt(header), "x").reusable
    assert not identity_token("opaque", "x").reusable
    assert identity_token(PAT, "x").reusable
    for text in ("opaque", "hf_abc", PAT, jwt(b'{"typ":"JWT"}')):
        assert access_token(text, "x") == Credential(text, reusable=True)


# -- forms ----------------------------------------------------------------------------------------------------------------


def test_a_credential_that_no_header_can_carry_is_refused_and_not_quoted() -> None:
    wrong = [
        "", " ", "hush hush", "hush\nhush", "hush\r\nX: y", "hush\x00", "h\xfcsh", "hush\u20ac", "=", "hu=sh", '"hush"',
        "\u0661", "h" * (jose.MAX_TOKEN_BYTES + 1),
    ]  # fmt: skip
    copied = [PAT[:-1], PAT + "0", PAT[:-1] + "_", PAT[:10] + PAT[11] + PAT[10] + PAT[12:], pat.PREFIX]
    for texts, message, secret in (
        (wrong, "the place does not contain", "hush"),
        (copied, "with a wrong checksum", PAT[12:30]),
    ):
        for text in texts:
            for read in (identity_token, access_token):
                with pytest.raises(SetupError, match=message) as caught:
                    read(text, "the place")
                assert secret not in str(caught.value)
    for text in ("a", "a=", "a==", "A.z_0~+/-", "x" * jose.MAX_TOKEN_BYTES):
        assert is_bearer(text)  # RFC 6750


def test_its_repr_has_no_secret() -> None:
    assert repr(Credential("hush", reusable=True)) == "Credential(reusable=True)"


# -- nonces ---------------------------------------------------------------------------------------------------------------


def test_a_nonce_is_128_random_bits_in_base64url() -> None:
    made = {fresh_nonce() for _ in range(1000)}
    assert len(made) == 1000
    assert all(re.fullmatch("[A-Za-z0-9_-]{22}", nonce) and is_nonce(nonce) for nonce in made)
    assert all(len(base64.urlsafe_b64decode(nonce + "==")) == 16 for nonce in made)


def test_a_nonce_has_22_to_128_characters_of_base64url() -> None:
    for text in ("a" * 21, "a" * 129, "a" * 21 + "=", "a" * 21 + "+", "a" * 22 + "\n", "\u0661" * 22, ""):
        assert not is_nonce(text), text
    assert is_nonce("a" * 22)
    assert is_nonce("a" * 128)
