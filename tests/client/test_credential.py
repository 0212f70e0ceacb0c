"""A credential's form, whether it needs a nonce, and that it is not shown; and the body of a request, read from a file."""

import base64
import re
from typing import Any

import pytest

from issuer.client import read_request, with_nonce
from issuer.client.credential import Credential, access_token, fresh_nonce, identity_token, is_bearer
from issuer.codes import Code
from issuer.errors import InputError, SetupError
from issuer.formats import jose
from issuer.identity import pat
from issuer.token.wire import MAX_BYTES, is_nonce

PAT = pat.make(bytes(range(pat.RANDOM_BYTES)))


def jwt(header: bytes) -> str:
    return ".".join(jose.base64url_encode(part) for part in (header, b"{}", b"signature"))


def test_an_identity_token_is_reusable_only_if_it_is_an_access_token() -> None:
    for typ in ("at+jwt", "AT+JWT", "application/at+jwt", "Application/At+Jwt"):
        assert identity_token(jwt(b'{"alg":"ES256","typ":"%s"}' % typ.encode()), "x").reusable
    # Two members of one name: a reader of the first sees another type than a reader of the last.
    twice = b'{"typ":"JWT","typ":"at+jwt"}'
    for header in (b'{"alg":"RS256","typ":"JWT"}', b"{}", b'{"typ":["at+jwt"]}', b'{"typ":"xat+jwt"}', b"x", twice):
        assert not identity_token(jwt(header), "x").reusable
    assert (identity_token("opaque", "x").reusable, identity_token(PAT, "x").reusable) == (False, True)
    for text in ("opaque", "hf_abc", PAT, jwt(b'{"typ":"JWT"}')):
        assert access_token(text, "x") == Credential(text, reusable=True)


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


def test_a_nonce_is_128_random_bits_in_base64url_and_may_be_longer() -> None:
    made = {fresh_nonce() for _ in range(1000)}
    assert len(made) == 1000
    assert all(re.fullmatch("[A-Za-z0-9_-]{22}", nonce) and is_nonce(nonce) for nonce in made)
    assert all(len(base64.urlsafe_b64decode(nonce + "==")) == 16 for nonce in made)
    wrong = ("a" * 21, "a" * 129, "a" * 21 + "=", "a" * 21 + "+", "a" * 22 + "\n", "\u0661" * 22, "")
    assert [text for text in (*wrong, "a" * 22, "a" * 128) if is_nonce(text)] == ["a" * 22, "a" * 128]


def test_a_file_has_a_request_or_its_claims_alone() -> None:
    assert read_request(b'{"model_repo": "a/b"}', "c.json") == {"claims": {"model_repo": "a/b"}}
    body = {"claims": {}, "nonce": "n", "unknown": 1}
    assert read_request(b'{"claims": {}, "nonce": "n", "unknown": 1}', "c.json") == body, "the issuer judges it"
    for raw, code in (
        (b"[]", Code.FILE_SCHEMA), (b"1", Code.FILE_SCHEMA),
        (b'{"claims": {}, "claims": {}}', Code.FILE_DUPLICATE_KEY),
        (b'{"claims": "' + b"a" * MAX_BYTES["single"] + b'"}', Code.FILE_TOO_LARGE),
    ):  # fmt: skip
        with pytest.raises(InputError) as caught:
            read_request(raw, "c.json")
        assert (caught.value.code, caught.value.place.file) == (code, "c.json")


def test_a_request_gets_a_nonce_if_its_credential_is_reusable_and_it_has_none() -> None:
    request: dict[str, Any] = {"claims": {}}
    reusable = Credential("hush", reusable=True)
    assert repr(reusable) == "Credential(reusable=True)"
    first, second = with_nonce(request, reusable), with_nonce(request, reusable)
    assert is_nonce(first["nonce"])
    assert first["nonce"] != second["nonce"]
    assert with_nonce(first, reusable) == first
    assert request == {"claims": {}}, "the given request is unchanged"
    assert with_nonce({"claims": {}}, Credential("a", reusable=False)) == {"claims": {}}
