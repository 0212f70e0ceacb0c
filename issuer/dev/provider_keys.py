"""The keys of the local provider, of every algorithm that a real provider may sign with.

They sign with `cryptography` alone: what the provider gives `jose` to verify is not `jose`'s own work.
"""

from __future__ import annotations

import base64
import secrets
from collections.abc import Callable, Mapping

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from msgspec import Struct


class ProviderKey(Struct, frozen=True):
    """A key that signs: its JWS algorithm, its kid, the raw JWS signature of a signing input, and its public JWK."""

    alg: str
    kid: str
    signature: Callable[[bytes], bytes]
    jwk: Mapping[str, str]


_DIGESTS = {"256": hashes.SHA256(), "384": hashes.SHA384(), "512": hashes.SHA512()}
_CURVES: dict[str, tuple[ec.EllipticCurve, str, int]] = {  # RFC 7518 3.4, with the octets of a coordinate
    "256": (ec.SECP256R1(), "P-256", 32),
    "384": (ec.SECP384R1(), "P-384", 48),
    "512": (ec.SECP521R1(), "P-521", 66),
}


def make_key(alg: str) -> ProviderKey:
    """Make a key for RS, PS or ES with 256, 384 or 512 (RFC 7518 3.3 to 3.5), or EdDSA (RFC 8037).

    An RSA key has 2048 bits and takes about 0.1 s.
    """
    signature, jwk = _ed25519() if alg == "EdDSA" else _ecdsa(alg[2:]) if alg[:2] == "ES" else _rsa(alg)
    kid = secrets.token_hex(16)
    return ProviderKey(alg, kid, signature, {**jwk, "alg": alg, "kid": kid, "use": "sig"})


_Pair = tuple[Callable[[bytes], bytes], dict[str, str]]


def _rsa(alg: str) -> _Pair:
    private, digest = rsa.generate_private_key(public_exponent=65537, key_size=2048), _DIGESTS[alg[2:]]
    public = private.public_key().public_numbers()
    pss = padding.PSS(padding.MGF1(digest), padding.PSS.DIGEST_LENGTH)
    scheme = pss if alg[:2] == "PS" else padding.PKCS1v15()
    jwk = {"kty": "RSA", "n": base64url(_octets(public.n)), "e": base64url(_octets(public.e))}
    return lambda signing_input: private.sign(signing_input, scheme, digest), jwk


def _ecdsa(bits: str) -> _Pair:
    curve, name, size = _CURVES[bits]
    private = ec.generate_private_key(curve)
    public = private.public_key().public_numbers()

    def signature(signing_input: bytes) -> bytes:
        r, s = decode_dss_signature(private.sign(signing_input, ec.ECDSA(_DIGESTS[bits])))
        return _octets(r, size) + _octets(s, size)

    x, y = base64url(_octets(public.x, size)), base64url(_octets(public.y, size))
    return signature, {"kty": "EC", "crv": name, "x": x, "y": y}


def _ed25519() -> _Pair:
    private = ed25519.Ed25519PrivateKey.generate()
    return private.sign, {"kty": "OKP", "crv": "Ed25519", "x": base64url(private.public_key().public_bytes_raw())}


def base64url(raw: bytes) -> str:
    """Encode without padding (RFC 7515 section 2)."""
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def _octets(number: int, size: int = 0) -> bytes:
    return number.to_bytes(size or (number.bit_length() + 7) // 8, "big")
