"""The list of revocations and its key as documents: the bytes of the files, the same on all hosts that share them."""

from __future__ import annotations

from issuer.codes import Code
from issuer.errors import Refused
from issuer.service.bounds import LIST_AGE_S
from issuer.service.http.documents import Document, document
from issuer.service.revocation.ledger import SignedList
from issuer.service.revocation.live import LiveRevocations, RevocationsStatus
from issuer.verify.revocations import REVOCATIONS_TYPE

_CACHE = f"public, max-age={LIST_AGE_S}"


class PublishedRevocations:
    """What a process publishes of its revocations; written anew when that has changed."""

    def __init__(self, live: LiveRevocations) -> None:
        self._live = live
        self._of: SignedList | None = None
        self._documents: tuple[Document, Document] | None = None

    @property
    def status(self) -> RevocationsStatus:
        """What health shows."""
        return self._live.status

    @property
    def signed_list(self) -> Document:
        """The list. Raises Refused(`request.not_found`) where there is none: relying parties take that for an issuer
        that has revoked nothing, unless they have seen one."""
        return self._written()[0]

    @property
    def keys(self) -> Document:
        """The JWK set with the key of the list. Raises as `signed_list` does."""
        return self._written()[1]

    def _written(self) -> tuple[Document, Document]:
        published = self._live.in_force.published
        if published is None:
            raise Refused(Code.REQUEST_NOT_FOUND)
        if self._documents is None or published is not self._of:
            self._documents = (
                document(published.raw, f"application/{REVOCATIONS_TYPE}", cache=_CACHE),
                document(published.keys, "application/jwk-set+json", cache=_CACHE),
            )
            self._of = published
        return self._documents
