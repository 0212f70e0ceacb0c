"""Signed statements other than tokens: receipts and revocation lists (contract section 6). Pure.

Both are compact JWS. Each kind has its own `typ`, and keys that never sign tokens. This file knows the form and the
signature; `receipts` and `revocations` read the payload.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from issuer.codes import Code
from issuer.errors import FormatError
from issuer.formats import jcs, jose
from issuer.formats.strict_json import JSON, loads


def write_statement(typ: str, payload: Mapping[str, JSON], key: Ed25519PrivateKey) -> bytes:
    """Sign a payload in its canonical form; `kid` is the key's RFC 7638 thumbprint."""
    kid = jose.public_jwk(key.public_key())["kid"]
    signing_input = jose.signing_input({"alg": jose.EDDSA, "kid": kid, "typ": typ}, jcs.canonical(payload))
    return jose.compact(signing_input, jose.sign(key, signing_input)).encode("ascii")


def read_statement(text: str, typ: str, keys: jose.KeySet, max_bytes: int) -> JSON:
    """Return the payload of a statement that one of the keys has signed. The header has exactly `alg` (EdDSA or
    Ed25519), `kid` and `typ`. Raises FormatError otherwise. The caller must still judge every member of the payload."""
    jws = jose.parse_compact(text, max_bytes)
    if jws.header.keys() != {"alg", "kid", "typ"} or jws.header["typ"] != typ:
        raise _refused(f"its header is not alg, kid and the typ {typ}")
    algorithm, key = jws.header["alg"], keys.get(jws.header["kid"])
    if not isinstance(algorithm, str) or algorithm not in jose.EDDSA_NAMES:
        raise _refused("its algorithm is not EdDSA (Ed25519)")
    if key is None:
        raise _refused("its kid is not the kid of a listed key that never signs tokens")
    if not key.verifies(algorithm, jws.signing_input, jws.signature):
        raise _refused("its signature does not verify")
    return loads(jws.unverified_payload, max_bytes=max_bytes, max_depth=8)


def without_token_keys(keys: jose.KeySet, token_keys: Iterable[jose.Key]) -> jose.KeySet:
    """Return the keys without those that sign tokens, under any kid: an issuer must not also vouch for the time."""
    taken = [key.public for key in token_keys]
    kept = {kid: key for kid, key in keys.keys.items() if key.public not in taken}
    return jose.KeySet(kept, keys.skipped + len(keys.keys) - len(kept))


def _refused(detail: str) -> FormatError:
    return FormatError(Code.FILE_RULE, detail)
