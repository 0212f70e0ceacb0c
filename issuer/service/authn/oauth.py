"""Authlib's validator of OAuth access tokens (RFC 9068, section 4), and the id of an OAuth credential.

It is a second opinion: `issuer.identity.check_token` has passed the same claims. Beyond it Authlib refuses a malformed
`auth_time` or `amr`, which nothing here reads. It never sees a token: header and claims have been parsed strictly, and
the signature verified under the provider's registered algorithms.
"""

from __future__ import annotations

from collections.abc import Mapping

from authlib.oauth2.rfc6750 import InvalidTokenError  # type: ignore[import-untyped]
from authlib.oauth2.rfc9068 import JWTBearerTokenValidator  # type: ignore[import-untyped]
from authlib.oauth2.rfc9068.claims import JWTAccessTokenClaims  # type: ignore[import-untyped]

from issuer.codes import Code
from issuer.errors import Refused
from issuer.formats import jcs
from issuer.formats.strict_json import JSON
from issuer.identity.provider import Provider
from issuer.identity.token import LEEWAY_S

_ESSENTIAL = ("exp", "sub", "client_id", "iat", "jti")  # RFC 9068, section 2.2, with iss and aud


class _Claims(JWTAccessTokenClaims):  # type: ignore[misc]
    """Claims that are judged at the request's time, not by the system's clock."""

    def validate(self) -> None:
        super().validate(now=self.params["now"], leeway=LEEWAY_S)


def validate_access_token(header: Mapping[str, JSON], claims: Mapping[str, JSON], provider: Provider, now: int) -> None:
    """Validate verified claims of an access token at `now`, Unix seconds. Raises Refused."""
    options = {
        **{name: {"essential": True} for name in _ESSENTIAL},
        "iss": {"essential": True, "value": provider.issuer},
        "aud": {"essential": True, "value": provider.audience},
    }
    validator = JWTBearerTokenValidator(provider.issuer, provider.audience)
    try:
        validator.validate_token(_Claims(dict(claims), dict(header), options, {"now": now}), scopes=None, request=None)
    except InvalidTokenError:
        raise Refused(Code.IDENTITY_MALFORMED) from None  # it quotes the claim


def credential_of(claims: Mapping[str, JSON]) -> str:
    """Name the credential behind an OAuth token: client and subject, which a fresh token of the same client shares."""
    return jcs.canonical([claims["client_id"], claims.get("sub")]).decode()
