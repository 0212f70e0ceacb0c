"""The query for a proof has one spelling."""

from issuer.codes import Code
from issuer.errors import Refused
from issuer.service.http.log import ProofQuery, read_query

TOKEN = "0123456789abcdef" * 4
DIGEST = bytes.fromhex(TOKEN)


READ = {
    f"iat=1792000000&token={TOKEN}": ProofQuery(1_792_000_000, DIGEST),
    f"token={TOKEN}&iat=0": ProofQuery(0, DIGEST),
    f"size=9223372036854775807&iat=9999999999999999&token={TOKEN}": ProofQuery(10**16 - 1, DIGEST, 2**63 - 1),
}
NUMBERS = ("", "01", "+1", "-1", "1.0", "1e3", "1_0", "%31", "1%20", "10000000000000000", "\u0661", "1\n")
REFUSED = (
    "", "iat=1", f"token={TOKEN}", f"iat=1;token={TOKEN}",
    *(f"iat={number}&token={TOKEN}" for number in NUMBERS),
    *(f"iat=1&token={token}" for token in (TOKEN.upper(), TOKEN[:-1], f"{TOKEN}0", f"{TOKEN}\n")),
    *(f"iat=1&token={TOKEN}&{more}" for more in ("", "x=1", "SIZE=1", "iat=1", "size=0", "size=", "size=9223372036854775808", "size=1&size=1")),
    f"&iat=1&token={TOKEN}",
)  # fmt: skip


def is_refused(query: str) -> bool:
    try:
        read_query(query.encode())
    except Refused as error:
        return error.code is Code.REQUEST_QUERY
    return False


def test_a_query_has_one_spelling_in_any_order_of_its_parameters() -> None:
    assert {query: read_query(query.encode()) for query in READ} == READ
    assert [query for query in REFUSED if not is_refused(query)] == []
