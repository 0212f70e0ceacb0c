"""The body of a request: read from a file, and given the nonce that its credential needs."""

from typing import Any

import pytest

from issuer.client import Credential, read_request, with_nonce
from issuer.codes import Code
from issuer.errors import InputError
from issuer.token.wire import MAX_BYTES, is_nonce

REUSABLE, LIMITED = Credential("a", reusable=True), Credential("a", reusable=False)


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
    first, second = with_nonce(request, REUSABLE), with_nonce(request, REUSABLE)
    assert is_nonce(first["nonce"])
    assert first["nonce"] != second["nonce"]
    assert with_nonce(first, REUSABLE) == first
    assert request == {"claims": {}}, "the given request is unchanged"
    assert with_nonce({"claims": {}}, LIMITED) == {"claims": {}}
