"""The public documents of the active policies and keys: written when these are loaded, not for each request."""

from __future__ import annotations

from collections.abc import Mapping

from issuer.service.http.documents import Document, document
from issuer.service.http.metadata import metadata
from issuer.service.http.requirements import requirements
from issuer.service.reload import Active

KEY_SET_CACHE = "public, max-age=300, stale-if-error=3600"


class Published(Active, frozen=True):
    """The active policies and keys, and the documents that publish them."""

    metadata: Document
    requirements: Mapping[str, Document]
    jwks: Document

    @classmethod
    def of(cls, active: Active, *, verifies: bool) -> Published:
        """Write the documents. `verifies`: this service answers `POST /verify`."""
        url, policies = active.authority.issuer_url, active.authority.policies
        return cls(
            authority=active.authority,
            loaded_at=active.loaded_at,
            keyring=active.keyring,
            metadata=document(metadata(url, policies, verifies=verifies)),
            requirements=requirements(url, policies),
            jwks=document(active.keyring.jwks, "application/jwk-set+json", cache=KEY_SET_CACHE),
        )
