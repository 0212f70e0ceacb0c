"""What the store is not told: a secret that seals what is kept there, and that scatters callers over buckets. Pure."""

from __future__ import annotations

import hashlib
import hmac

# How many buckets those share who only resemble one identity (contract section 5, who pays): enough that one job's
# refusals seldom meet another's, few enough that all of them together fill no store.
BUCKETS = 64
_MAC_BYTES = hashlib.sha256().digest_size


class StoreSecret:
    """The keys of a service, each of 32 random bytes and the same on all its hosts: who writes to the store has none.

    The first one seals; what any of them sealed is accepted, so that a key can be changed while templates live.
    """

    __slots__ = ("_keys",)

    def __init__(self, *keys: bytes) -> None:
        self._keys = keys

    def seal(self, record: str, request_digest: str, template: bytes) -> bytes:
        """Put an HMAC-SHA-256 before a template, which binds it to its place: the record and the request in it."""
        return _mac(self._keys[0], record, request_digest, template) + template

    def unseal(self, record: str, request_digest: str, sealed: bytes) -> bytes | None:
        """Return the template that was sealed for this place; None for anything else."""
        mac, template = sealed[:_MAC_BYTES], sealed[_MAC_BYTES:]
        for key in self._keys:
            if hmac.compare_digest(mac, _mac(key, record, request_digest, template)):
                return template
        return None

    def bucket(self, failing: str) -> int:
        """Return the bucket of callers who fail by these values. Keyed: nobody chooses with whom to share one."""
        digest = hmac.digest(self._keys[0], b"bucket\0" + failing.encode("utf-8", "surrogatepass"), "sha256")
        return int.from_bytes(digest[:8], "big") % BUCKETS


def _mac(key: bytes, record: str, request_digest: str, template: bytes) -> bytes:
    # Both names are SHA-256 in hexadecimal, so that no two places and templates are the same bytes.
    return hmac.digest(key, b"template\0%b\0%b\0%b" % (record.encode(), request_digest.encode(), template), "sha256")
