"""A folder of data with a record of revocations and a list, and a key that signs it."""

from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from issuer.formats import jose
from issuer.io.common_documents import FolderHome
from issuer.service.revocation.ledger import Act, Ledger, SignedList, Signing
from issuer.verify.revocations import Revocations, RevokedInterval, parse_revocations
from tests.support.make import ISSUER, NOW, REVOCATION_KEY

JTIS = [jose.base64url_encode(bytes([number]) * 16) for number in range(9)]


def act(*jtis: str, time: int = NOW, **interval: Any) -> Act:
    """Return an act that revokes tokens, or an interval of the integration that the samples have."""
    return Act(time, "an operator", "a test", jtis, (interval_of(**interval),) if interval else ())


def interval_of(sub: str = "inspect-ai", **ends: int) -> RevokedInterval:
    """Return an interval; `from_` and perhaps `until`."""
    return RevokedInterval(sub, **ends)


def as_a_relying_party(folder: Path, key: Ed25519PrivateKey = REVOCATION_KEY) -> Revocations:
    """Read the list in a folder by the keys beside it, which must be the expected one."""
    keys = jose.parse_key_set((folder / "revocation-keys.json").read_bytes())
    assert [found.public for found in keys.keys.values()] == [key.public_key()]
    return parse_revocations((folder / "revocations.jwt").read_bytes(), ISSUER, keys)


def renew(folder: Path, now: int = NOW, key: Ed25519PrivateKey = REVOCATION_KEY, **how: Any) -> SignedList:
    return Ledger(FolderHome(folder), ISSUER).renew(Signing(key, **how), now)
