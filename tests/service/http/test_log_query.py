"""The query for a proof has one spelling."""

from __future__ import annotations

import pytest

from issuer.codes import Code
from issuer.errors import Refused
from issuer.service.http.log import ProofQuery, read_query

TOKEN = "0123456789abcdef" * 4
DIGEST = bytes.fromhex(TOKEN)


@pytest.mark.parametrize(
    ("query", "read"),
    [
        (f"iat=1792000000&token={TOKEN}", ProofQuery(1_792_000_000, DIGEST)),
        (f"token={TOKEN}&iat=0", ProofQuery(0, DIGEST)),
        (f"size=9223372036854775807&iat=9999999999999999&token={TOKEN}", ProofQuery(10**16 - 1, DIGEST, 2**63 - 1)),
    ],
)
def test_parameters_come_in_any_order(query: str, read: ProofQuery) -> None:
    assert read_query(query.encode()) == read


@pytest.mark.parametrize(
    "query",
    [
        "",
        "iat=1",
        f"token={TOKEN}",
        f"iat=&token={TOKEN}",
        f"iat=01&token={TOKEN}",
        f"iat=+1&token={TOKEN}",
        f"iat=-1&token={TOKEN}",
        f"iat=1.0&token={TOKEN}",
        f"iat=1e3&token={TOKEN}",
        f"iat=1_0&token={TOKEN}",
        f"iat=%31&token={TOKEN}",
        f"iat=1%20&token={TOKEN}",
        f"iat=10000000000000000&token={TOKEN}",
        f"iat=\u0661&token={TOKEN}",
        f"iat=1&iat=1&token={TOKEN}",
        f"iat=1&token={TOKEN}&",
        f"&iat=1&token={TOKEN}",
        f"iat=1;token={TOKEN}",
        f"iat=1&token={TOKEN}&x=1",
        f"iat=1&token={TOKEN}&SIZE=1",
        f"iat=1&token={TOKEN.upper()}",
        f"iat=1&token={TOKEN[:-1]}",
        f"iat=1&token={TOKEN}0",
        f"iat=1&token={TOKEN}\n",
        f"iat=1\n&token={TOKEN}",
        f"iat=1&token={TOKEN}&size=0",
        f"iat=1&token={TOKEN}&size=",
        f"iat=1&token={TOKEN}&size=9223372036854775808",
        f"iat=1&token={TOKEN}&size=1&size=1",
    ],
)
def test_any_other_spelling_is_refused(query: str) -> None:
    with pytest.raises(Refused) as caught:
        read_query(query.encode())
    assert caught.value.code is Code.REQUEST_QUERY
