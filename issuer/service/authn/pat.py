"""Personal access tokens of this service: form, registration, state, network; in this order, cheap first.

`pats.py` knows which tokens exist. A token of an unknown id is answered as one whose secret is wrong, after the same
work; only the holder of the secret learns that it was revoked, has expired or came from elsewhere.
"""

from __future__ import annotations

import structlog

from issuer.codes import Code
from issuer.errors import Refused
from issuer.identity import pat
from issuer.identity.caller import Caller
from issuer.identity.provider import Provider
from issuer.service.authn.pat_records import Record
from issuer.service.authn.pats import Pats
from issuer.service.authn.sources import Allowance

_log = structlog.get_logger("issuer")
_REFUSED = {
    "revoked": Code.IDENTITY_INACTIVE,
    "expired": Code.IDENTITY_EXPIRED,
    "future": Code.IDENTITY_NOT_YET_VALID,
}


class PatVerifier:
    """Verifies the tokens of the one `pat` provider. Asks nobody, so a source over its limit is served as well."""

    def __init__(self, pats: Pats) -> None:
        self._pats = pats

    async def verify(self, bearer: str, provider: Provider, now: int, allowance: Allowance) -> Caller:
        """Verify a token at `now`, Unix seconds, sent from `allowance.source`.

        Raises Refused (401 `identity.*`, 403 `identity.network_forbidden`) and Undecided(`dependency.credentials`).
        """
        token_id = pat.token_id(bearer)  # (1) form and checksum
        if token_id is None:
            raise Refused(Code.IDENTITY_MALFORMED)
        record = self._pats.find(token_id, pat.digest(bearer))  # (2) id and secret
        if record is None:
            raise Refused(Code.IDENTITY_CREDENTIAL_UNKNOWN)
        state = record.state(now)  # (3) state
        if state != "active":
            raise _refused(record, _REFUSED[state])
        if not record.may_come_from(allowance.source):  # (4) network
            raise _refused(record, Code.IDENTITY_NETWORK_FORBIDDEN)
        self._pats.mark_used(token_id, now)
        claims = {"account": record.account, "token_id": token_id, "scope": " ".join(record.scopes)}
        return Caller(provider, claims, ("nonce", provider.id, token_id), record.created, record.expires)


def _refused(record: Record, code: Code) -> Refused:
    """Refuse a token with the right secret, and log its id: it may have leaked, and no event names its account."""
    _log.warning("personal access token refused", token_id=record.id, code=str(code))
    return Refused(code)
