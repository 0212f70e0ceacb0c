"""Compact JWS, keys and key sets (RFC 7515, 7517, 7518, 7638, 8037, 8725). Pure; the only file that imports jwt.

Of PyJWT, only the signature arithmetic is used: the rest accepts duplicate members, padded signatures, weak RSA keys
and low-order Ed25519 points (SECURITY.md). `parse_compact` reads every token, `parse_key` every key.
"""

from __future__ import annotations

import binascii
import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Final, TypeAlias

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import get_default_algorithms
from msgspec import Struct

from issuer.codes import Code
from issuer.errors import FormatError
from issuer.formats import jcs
from issuer.formats.strict_json import JSON, loads
from issuer.formats.weak_keys import is_good_point, is_roca

# PyJWT 2.15 knows only this name; RFC 9864 renames it `Ed25519`. We verify both names, with an Ed25519 key only.
EDDSA: Final = "EdDSA"
EDDSA_NAMES: Final = frozenset({"EdDSA", "Ed25519"})
TOKEN_TYPE: Final = "eval-verify+jwt"  # noqa: S105  (a media type)

MAX_TOKEN_BYTES = 16 * 1024
MAX_HEADER_BYTES = 4 * 1024
MAX_KEY_SET_BYTES = 256 * 1024
MAX_KEYS = 64

_ALGORITHMS = get_default_algorithms()
# Padding and the characters of the standard base64 alphabet become `!`, which is in neither alphabet.
_TO_BASE64 = bytes.maketrans(b"-_+/=", b"+/!!!")
_PADDING = (b"", b"===", b"==", b"=")  # by length modulo 4
KID = re.compile(r"[\x21-\x7e]{1,256}")

# -- compact JWS ------------------------------------------------------------------------------------------------------


class UnverifiedJws(Struct, frozen=True):
    """A well-formed compact JWS. Do not trust any part of it until the signature has been verified."""

    header: Mapping[str, JSON]
    unverified_payload: bytes
    signature: bytes
    signing_input: bytes


def parse_compact(token: str, max_bytes: int = MAX_TOKEN_BYTES) -> UnverifiedJws:
    """Split a compact JWS (RFC 7515 7.1) of canonical base64url, with a header without duplicate members. Raises
    FormatError(`jws.malformed`). The caller must check each header member, the payload and the signature."""
    if len(token) > max_bytes:
        raise _malformed(f"longer than {max_bytes} bytes")
    head, _, rest = token.partition(".")
    payload, dot, signature = rest.partition(".")
    if not dot or "." in signature:
        raise _malformed(f"{token.count('.') + 1} segments; a signed JWT has 3")
    if len(head) > MAX_HEADER_BYTES:
        raise _malformed(f"a header longer than {MAX_HEADER_BYTES} bytes")
    parts = _header_of(head), base64url_decode(payload), base64url_decode(signature)
    return UnverifiedJws(*parts, f"{head}.{payload}".encode("ascii"))


@lru_cache(64)
def _header_of(segment: str) -> Mapping[str, JSON]:
    """Read a header. All tokens of one key have the same header; a flood of other headers only empties the cache."""
    raw = base64url_decode(segment)
    try:
        header = loads(raw, max_bytes=MAX_HEADER_BYTES, max_depth=8)
    except FormatError as error:
        raise FormatError(Code.JWS_MALFORMED, error.detail, error.pointer) from None
    if not isinstance(header, dict):
        raise _malformed("a header that is not a JSON object")
    return MappingProxyType(header)


def base64url_decode(segment: str) -> bytes:
    """Decode unpadded, canonical base64url (RFC 7515 section 2). Raises FormatError."""
    try:
        base64 = segment.encode("ascii").translate(_TO_BASE64) + _PADDING[len(segment) % 4]
        raw = binascii.a2b_base64(base64)
    except ValueError:
        raise _malformed("a segment is not base64url, or has an impossible length") from None
    # The decoder skips junk and accepts non-zero trailing bits, so several texts decode to the same bytes.
    if not segment or binascii.b2a_base64(raw, newline=False) != base64:
        raise _malformed("a segment is empty, or is not the canonical base64url of its bytes")
    return raw


def base64url_encode(raw: bytes) -> str:
    """Encode as unpadded base64url (RFC 7515 section 2)."""
    return segment(raw).decode("ascii")


def segment(raw: bytes) -> bytes:
    """Encode as unpadded base64url, in bytes."""
    # `replace` searches 16 bytes at once; `translate` looks up each byte.
    return binascii.b2a_base64(raw, newline=False).replace(b"+", b"-").replace(b"/", b"_").rstrip(b"=")


def signing_input(header: Mapping[str, JSON], payload: bytes) -> bytes:
    """Return the JWS signing input (RFC 7515 5.1) of a header, which is written canonically, and payload bytes."""
    return signing_input_of(segment(jcs.canonical(header)), payload)


def signing_input_of(header: bytes, payload: bytes) -> bytes:
    """Return the JWS signing input (RFC 7515 5.1) of an encoded header and payload bytes."""
    return header + b"." + segment(payload)


def compact(signed_input: bytes, signature: bytes) -> str:
    """Join a signing input and its signature (RFC 7515 7.1)."""
    return f"{signed_input.decode('ascii')}.{base64url_encode(signature)}"


def _malformed(detail: str) -> FormatError:
    return FormatError(Code.JWS_MALFORMED, detail)


# -- keys -------------------------------------------------------------------------------------------------------------


PublicKey: TypeAlias = ed25519.Ed25519PublicKey | ec.EllipticCurvePublicKey | rsa.RSAPublicKey


class Key(Struct, frozen=True):
    """A public key that may verify. `algorithms` are the JWS names that its type and its `alg` member allow."""

    kid: str
    algorithms: frozenset[str]
    public: PublicKey

    def verifies(self, algorithm: str, signed_input: bytes, signature: bytes) -> bool:
        """Say whether a signature is valid. False also for an algorithm that this key does not allow."""
        if algorithm not in self.algorithms:
            return False
        name = EDDSA if algorithm in EDDSA_NAMES else algorithm
        return bool(_ALGORITHMS[name].verify(signed_input, self.public, signature))


class KeySet(Struct, frozen=True):
    """The usable keys of a JWK set by kid, and the number of members that were skipped."""

    keys: dict[str, Key]
    skipped: int

    def get(self, kid: object) -> Key | None:
        """Return the key of a kid. None if there is no such key, or if the kid is not text."""
        return self.keys.get(kid) if isinstance(kid, str) else None


def parse_key_set(raw: bytes) -> KeySet:
    """Read a JWK set (RFC 7517 section 5) of at most 256 KiB and 64 keys. Skip unusable keys: private or symmetric,
    for encryption, weak, with the ROCA flaw, off their curve, of low order or without a kid. Skip all keys that share
    one kid. Raises FormatError if the set itself is malformed."""
    value = loads(raw, max_bytes=MAX_KEY_SET_BYTES, max_depth=8, number=_any_number)
    members = value.get("keys") if isinstance(value, dict) else None
    if not isinstance(members, list):
        raise FormatError(Code.FILE_SCHEMA, "not a JWK set: no `keys` array")
    if len(members) > MAX_KEYS:
        raise FormatError(Code.FILE_TOO_LARGE, f"more than {MAX_KEYS} keys", "/keys")
    found = [key for key in map(parse_key, members) if key is not None]
    kids = [key.kid for key in found]
    keys = {key.kid: key for key in found if kids.count(key.kid) == 1}
    return KeySet(keys, len(members) - len(keys))


def _any_number(text: str) -> float:
    """Read a number of any size: only ignored members of a key set are numbers. NaN and Infinity are refused."""
    if not text[-1].isdigit():
        raise ValueError("not a JSON number")
    return float(text)


def parse_key(jwk: JSON) -> Key | None:
    """Read one JWK (RFC 7517, 7518 section 6, 8037). None if the key must not verify anything."""
    if not isinstance(jwk, Mapping) or not _may_verify(jwk):
        return None
    try:
        public, algorithms = _READERS[str(jwk.get("kty"))](jwk)
    except (ValueError, KeyError, FormatError):
        return None
    if (named := jwk.get("alg")) is not None:
        algorithms &= EDDSA_NAMES if str(named) in EDDSA_NAMES else {str(named)}  # str(): a list cannot be hashed
    return Key(str(jwk["kid"]), algorithms, public) if algorithms else None


_PRIVATE_MEMBERS = frozenset({"d", "p", "q", "dp", "dq", "qi", "oth", "k"})


def _may_verify(jwk: Mapping[str, JSON]) -> bool:
    kid, operations = jwk.get("kid"), jwk.get("key_ops")
    return (
        isinstance(kid, str)
        and KID.fullmatch(kid) is not None
        and not _PRIVATE_MEMBERS & jwk.keys()
        and jwk.get("use", "sig") == "sig"
        and (operations is None or (isinstance(operations, list) and "verify" in operations))
    )


def _number(jwk: Mapping[str, JSON], member: str) -> int:
    return int.from_bytes(_octets(jwk, member), "big")


def _octets(jwk: Mapping[str, JSON], member: str) -> bytes:
    text = jwk[member]
    if not isinstance(text, str):
        raise ValueError(member)  # noqa: TRY004  (one exception for every unusable member)
    return base64url_decode(text)


def _read_rsa(jwk: Mapping[str, JSON]) -> tuple[rsa.RSAPublicKey, frozenset[str]]:
    modulus, exponent = _number(jwk, "n"), _number(jwk, "e")
    # With small exponents such as 3, mistakes in padding make forgery practical. Huge keys make verification expensive.
    if not 2048 <= modulus.bit_length() <= 8192 or not 65537 <= exponent < 2**32:
        raise ValueError("weak or oversized RSA key")
    if is_roca(modulus):
        raise ValueError("an RSA key with the ROCA flaw")
    names = frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"})
    return rsa.RSAPublicNumbers(exponent, modulus).public_key(), names


_CURVES: dict[str, tuple[type[ec.EllipticCurve], int, str]] = {
    "P-256": (ec.SECP256R1, 32, "ES256"),
    "P-384": (ec.SECP384R1, 48, "ES384"),
    "P-521": (ec.SECP521R1, 66, "ES512"),
}


def _read_ec(jwk: Mapping[str, JSON]) -> tuple[ec.EllipticCurvePublicKey, frozenset[str]]:
    curve, size, name = _CURVES[str(jwk.get("crv"))]
    x, y = _octets(jwk, "x"), _octets(jwk, "y")
    if len(x) != size or len(y) != size:  # RFC 7518 6.2.1.2: full size octet strings
        raise ValueError("wrong coordinate size")
    numbers = ec.EllipticCurvePublicNumbers(int.from_bytes(x, "big"), int.from_bytes(y, "big"), curve())
    return numbers.public_key(), frozenset({name})


def _read_okp(jwk: Mapping[str, JSON]) -> tuple[ed25519.Ed25519PublicKey, frozenset[str]]:
    if jwk.get("crv") != "Ed25519":
        raise ValueError("not an Ed25519 key")
    point = _octets(jwk, "x")
    if not is_good_point(point):
        raise ValueError("not a good Ed25519 point")
    return ed25519.Ed25519PublicKey.from_public_bytes(point), EDDSA_NAMES


_READERS: dict[str, Callable[[Mapping[str, JSON]], tuple[PublicKey, frozenset[str]]]] = {
    "RSA": _read_rsa,
    "EC": _read_ec,
    "OKP": _read_okp,
}


# -- our own keys -----------------------------------------------------------------------------------------------------


def public_jwk(public: ed25519.Ed25519PublicKey) -> dict[str, JSON]:
    """Return an Ed25519 public key as the JWK to publish. Its `kid` is its RFC 7638 thumbprint."""
    point = public.public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
    members: dict[str, JSON] = {"crv": "Ed25519", "kty": "OKP", "x": base64url_encode(point)}
    return {**members, "alg": EDDSA, "kid": thumbprint(members), "use": "sig"}


_THUMBPRINT_MEMBERS: dict[str, Sequence[str]] = {
    "OKP": ("crv", "kty", "x"), "EC": ("crv", "kty", "x", "y"), "RSA": ("e", "kty", "n"),
}  # fmt: skip


def thumbprint(jwk: Mapping[str, JSON]) -> str:
    """Return the RFC 7638 SHA-256 thumbprint in base64url."""
    members = {name: jwk[name] for name in _THUMBPRINT_MEMBERS[str(jwk["kty"])]}
    return base64url_encode(hashlib.sha256(jcs.canonical(members)).digest())


def sign(private: ed25519.Ed25519PrivateKey, signed_input: bytes) -> bytes:
    """Sign with Ed25519 (RFC 8037 3.1). The same input always gives the same 64 bytes."""
    return _ALGORITHMS[EDDSA].sign(signed_input, private)
