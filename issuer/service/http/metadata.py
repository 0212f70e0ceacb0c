"""`/.well-known/eval-token-issuer`: what a CI author and a relying party need to know about this service."""

from __future__ import annotations

import msgspec

from issuer.formats import jose
from issuer.formats.strict_json import JSON
from issuer.identity.table import describe_provider
from issuer.policy.match import PolicySet
from issuer.verify_token import MAX_TTL_S
from issuer.wire import ARCHIVE_PATH, JWKS_PATH, MAX_BYTES, REVOCATION_KEYS_PATH, REVOCATIONS_PATH


def metadata(url: str, policies: PolicySet, *, verifies: bool, log_origin: str = "", log_url: str = "") -> bytes:
    """Return the document: audience, providers, endpoints and lifetimes, and nothing of a policy.

    With a transparency log: its origin line, and the URL under which it is served.
    """
    providers: list[JSON] = [
        {"id": provider.id, **describe_provider(provider)} for provider in policies.providers.values()
    ]
    judging: dict[str, JSON] = {"verify_endpoint": f"{url}/verify"} if verifies else {}
    log: dict[str, JSON] = {"log_origin": log_origin, "log_url": log_url} if log_origin else {}
    return msgspec.json.encode({
        "issuer": url,
        "jwks_uri": f"{url}{JWKS_PATH}",
        "jwks_archive_uri": f"{url}{ARCHIVE_PATH}",
        "revocations_uri": f"{url}{REVOCATIONS_PATH}",
        "revocation_keys_uri": f"{url}{REVOCATION_KEYS_PATH}",
        "token_endpoint": f"{url}/tokens",
        "batch_endpoint": f"{url}/tokens/batch",
        "explain_endpoint": f"{url}/tokens/explain",
        **judging,
        **log,
        "schemas": f"{url}/schemas",
        "errors": f"{url}/errors",
        "openapi": f"{url}/openapi.json",
        "identity_audience": url,
        "identity_providers": providers,
        "token_type": jose.TOKEN_TYPE,
        "token_algorithms": [jose.EDDSA],
        "max_token_ttl_s": MAX_TTL_S,
        "max_body_bytes": {
            "/tokens": MAX_BYTES["single"],
            "/tokens/batch": MAX_BYTES["batch"],
            "/tokens/explain": MAX_BYTES["single"],
        },
    })  # fmt: skip
