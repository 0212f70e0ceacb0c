"""The query of `GET /log/proof`: `iat`, `token` and perhaps `size`, each once and in its one spelling."""

from __future__ import annotations

import re

from msgspec import Struct

from issuer.codes import Code
from issuer.errors import Refused
from issuer.tlog.tiles import MAX_SIZE

# The largest time has fewer digits than the largest integer of a database.
_SPELLING = {"iat": r"0|[1-9][0-9]{0,15}", "token": r"[0-9a-f]{64}", "size": r"[1-9][0-9]{0,18}"}


class ProofQuery(Struct, frozen=True):
    """Which token's leaf: its `iat` in Unix seconds and the 32 bytes of its digest; and under which tree size, if not
    the first that there is."""

    iat: int
    token: bytes
    size: int | None = None


def read_query(query: bytes) -> ProofQuery:
    """Read a query as it was sent. Raises Refused(`request.query`)."""
    values: dict[str, str] = {}
    for part in query.decode("latin-1").split("&"):
        name, _, value = part.partition("=")
        if name in values or not re.fullmatch(_SPELLING.get(name, r"[^\s\S]"), value):
            raise _misspelt()
        values[name] = value
    if not {"iat", "token"} <= values.keys():
        raise _misspelt()
    size = int(values["size"]) if "size" in values else None
    if size is not None and size > MAX_SIZE:
        raise _misspelt()
    return ProofQuery(int(values["iat"]), bytes.fromhex(values["token"]), size)


def _misspelt() -> Refused:
    detail = "It is `iat=` and Unix seconds, `token=` and 64 lowercase hex characters, and perhaps `size=` and a size"
    return Refused(Code.REQUEST_QUERY, detail)
