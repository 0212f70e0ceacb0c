"""The body of a request for a verify token (contract section 5): from a run or a file, and with the nonce it needs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from issuer.adapters import Built
from issuer.client.credential import Credential, fresh_nonce
from issuer.codes import Code
from issuer.errors import InputError, Place, reading
from issuer.formats.strict_json import JSON, loads
from issuer.wire import MAX_BYTES

_MAX_DEPTH = 16


def request_of(built: Built) -> dict[str, JSON]:
    """Return the request for the token of a run's claims."""
    return {"claims": built.claims.to_json(), "details": built.details}


def read_request(raw: bytes, name: str) -> dict[str, JSON]:
    """Read a request as JSON: the body of `/tokens`, or the run claims alone. `name` is what errors call it.

    Its members are the issuer's to judge. Raises InputError for what is not a JSON object, or is larger than the issuer
    takes.
    """
    with reading(name):
        value = loads(raw, max_bytes=MAX_BYTES["single"], max_depth=_MAX_DEPTH)
    if not isinstance(value, dict):
        raise InputError(Code.FILE_SCHEMA, "must be a JSON object", Place(name))
    return value if "claims" in value else {"claims": value}


def with_nonce(request: Mapping[str, Any], credential: Credential) -> dict[str, Any]:
    """Return the request as this credential sends it: with a fresh nonce, if it is reusable and there is none yet.

    Who keeps the nonce can ask the same again, and gets the same token while that lives.
    """
    if not credential.reusable or request.get("nonce"):
        return dict(request)
    return {**request, "nonce": fresh_nonce()}
