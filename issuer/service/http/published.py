"""The public documents of the active policies and keys: written when these change, not for each request."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from issuer.service.bounds import KEY_SET_AGE_S, KEY_SET_STALE_S
from issuer.service.http.documents import Document, document
from issuer.service.http.landing import Landing
from issuer.service.http.log_info import log_urls
from issuer.service.http.metadata import metadata
from issuer.service.http.requirements import requirements
from issuer.service.reload import Active
from issuer.service.signing.keyring import KeyringSigner
from issuer.service.signing.life import Lives, archive
from issuer.service.signing.live import LiveSigner
from issuer.wire import ARCHIVE_PATH, JWKS_PATH

_KEY_SET_TYPE = "application/jwk-set+json"
KEY_SET_CACHE = f"public, max-age={KEY_SET_AGE_S}, stale-if-error={KEY_SET_STALE_S}"


class Published(Active, frozen=True):
    """The active policies, and the documents that publish them."""

    landing: Landing
    metadata: Document
    requirements: Mapping[str, Document]

    @classmethod
    def of(cls, active: Active, *, verifies: bool, ui: bool) -> Published:
        """Write the documents. `verifies`: this service answers `POST /verify`; `ui`: it has the pages for people."""
        url, policies = active.authority.issuer_url, active.authority.policies
        origin = active.authority.log.origin or ""
        log_url = log_urls(url, origin)[0] if origin else ""
        about = metadata(url, policies, verifies=verifies, log_origin=origin, log_url=log_url)
        return cls(
            authority=active.authority,
            loaded_at=active.loaded_at,
            landing=Landing.of(url, policies.providers.values(), about, verifies=verifies, log_url=log_url, ui=ui),
            metadata=document(about),
            requirements=requirements(url, policies),
        )


class PublishedKeys:
    """The key set of the keys that sign now, and the archive of all that ever did, as documents: each is written anew
    where what it is made of has changed."""

    def __init__(self, signer: LiveSigner) -> None:
        self._signer = signer
        self._of, self._of_lives = signer.keyring, signer.lives
        self._document, self._archive = _key_set(self._of), _archive(self._of_lives)

    @property
    def by_path(self) -> Mapping[str, Callable[[], bytes]]:
        """Both as they are now, each when it is asked for, by the path at which they are published."""
        return {JWKS_PATH: lambda: self._signer.keyring.jwks, ARCHIVE_PATH: lambda: archive(self._signer.lives)}

    @property
    def document(self) -> Document:
        """The key set."""
        if self._signer.keyring is not self._of:
            self._of = self._signer.keyring
            self._document = _key_set(self._of)
        return self._document

    @property
    def archive(self) -> Document:
        """The archive (contract section 6). It is made of the history alone: all hosts serve the same bytes."""
        if self._signer.lives is not self._of_lives:
            self._of_lives = self._signer.lives
            self._archive = _archive(self._of_lives)
        return self._archive


def _key_set(keyring: KeyringSigner) -> Document:
    return document(keyring.jwks, _KEY_SET_TYPE, cache=KEY_SET_CACHE)


def _archive(lives: Lives) -> Document:
    return document(archive(lives), _KEY_SET_TYPE, cache=KEY_SET_CACHE)
