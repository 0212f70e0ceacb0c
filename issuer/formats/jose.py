"""Compact JWS, keys and key sets (RFC 7515, 7517, 7518, 7638, 8037, 8725). Pure; the only file that imports jwt.

PyJWT's algorithm objects do the signature arithmetic, and nothing else of PyJWT is used: it accepts duplicate members,
padded signatures, weak RSA keys and low-order Ed25519 points (SECURITY.md). `parse_compact` is the only reader of
tokens, `parse_key_set` the only judge of keys.
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

# PyJWT 2.15 knows no other name; RFC 9864 renames it `Ed25519`. Verifiers take both, on an Ed25519 key only.
EDDSA: Final = "EdDSA"
EDDSA_NAMES: Final = frozenset({"EdDSA", "Ed25519"})
TOKEN_TYPE: Final = "eval-verify+jwt"  # noqa: S105  (a media type)

MAX_TOKEN_BYTES = 16 * 1024
MAX_HEADER_BYTES = 4 * 1024
MAX_KEY_SET_BYTES = 256 * 1024
MAX_KEYS = 64

_ALGORITHMS = get_default_algorithms()
# Characters of the other base64 alphabet, and padding, become a character of none.
_TO_BASE64 = bytes.maketrans(b"-_+/=", b"+/!!!")
_PADDING = (b"", b"===", b"==", b"=")  # by length modulo 4
KID = re.compile(r"[\x21-\x7e]{1,256}")  # of any key that may verify

# -- compact JWS ------------------------------------------------------------------------------------------------------


class UnverifiedJws(Struct, frozen=True):
    """A well-formed compact JWS. Nothing in it is true before its signature has been verified."""

    header: Mapping[str, JSON]
    unverified_payload: bytes
    signature: bytes
    signing_input: bytes


def parse_compact(token: str, max_bytes: int = MAX_TOKEN_BYTES) -> UnverifiedJws:
    """Take a compact JWS apart (RFC 7515 7.1): size, alphabet, canonical base64url, a header object without duplicates.
    Raises FormatError(`jws.malformed`). The caller must still judge every header member, the payload and the
    signature."""
    if len(token) > max_bytes:
        raise _malformed(f"longer than {max_bytes} bytes")
    head, _, rest = token.partition(".")
    payload, dot, signature = rest.partition(".")
    if not dot or "." in signature:
        raise _malformed(f"{token.count('.') + 1} segments where a signed JWT has 3")
    if len(head) > MAX_HEADER_BYTES:
        raise _malformed(f"a header longer than {MAX_HEADER_BYTES} bytes")
    parts = _header_of(head), base64url_decode(payload), base64url_decode(signature)
    return UnverifiedJws(*parts, f"{head}.{payload}".encode("ascii"))


@lru_cache(64)
def _header_of(segment: str) -> Mapping[str, JSON]:
    """Read a header. All tokens under one key have the same; a flood of others only makes this slower."""
    raw = base64url_decode(segment)
    try:
        header = loads(raw, max_bytes=MAX_HEADER_BYTES, max_depth=8)
    except FormatError as error:
        raise FormatError(Code.JWS_MALFORMED, error.detail, error.pointer) from None
    if not isinstance(header, dict):
        raise _malformed("a header that is not a JSON object")
    return MappingProxyType(header)


def base64url_decode(segment: str) -> bytes:
    """Decode unpadded base64url (RFC 7515 section 2) in its one canonical spelling. Raises FormatError."""
    try:
        base64 = segment.encode("ascii").translate(_TO_BASE64) + _PADDING[len(segment) % 4]
        raw = binascii.a2b_base64(base64)
    except ValueError:
        raise _malformed("a segment that is not base64url, or whose length no such text has") from None
    # The decoder skips junk and accepts non-zero trailing bits: other spellings of the same bytes.
    if not segment or binascii.b2a_base64(raw, newline=False) != base64:
        raise _malformed("a segment that is empty, or not the canonical base64url of its bytes")
    return raw


def base64url_encode(raw: bytes) -> str:
    """Encode as unpadded base64url (RFC 7515 section 2)."""
    return segment(raw).decode("ascii")


def segment(raw: bytes) -> bytes:
    """Do the same for a part of a JWS, which is bytes."""
    # `replace` looks for 16 bytes at once, `translate` looks each of them up.
    return binascii.b2a_base64(raw, newline=False).replace(b"+", b"-").replace(b"/", b"_").rstrip(b"=")


def signing_input(header: Mapping[str, JSON], payload: bytes) -> bytes:
    """Return the JWS signing input (RFC 7515 5.1) over the canonical header and the payload bytes as they are."""
    return signing_input_of(segment(jcs.canonical(header)), payload)


def signing_input_of(header: bytes, payload: bytes) -> bytes:
    """Return the JWS signing input (RFC 7515 5.1) over the segment of a header and the payload bytes."""
    return header + b"." + segment(payload)


def compact(signed_input: bytes, signature: bytes) -> str:
    """Join a signing input and its signature (RFC 7515 7.1)."""
    return f"{signed_input.decode('ascii')}.{base64url_encode(signature)}"


def _malformed(detail: str) -> FormatError:
    return FormatError(Code.JWS_MALFORMED, detail)


# -- keys -------------------------------------------------------------------------------------------------------------


PublicKey: TypeAlias = ed25519.Ed25519PublicKey | ec.EllipticCurvePublicKey | rsa.RSAPublicKey


class Key(Struct, frozen=True):
    """A public key that may verify: `algorithms` are the JWS names that it fits and is meant for."""

    kid: str
    algorithms: frozenset[str]
    public: PublicKey

    def verifies(self, algorithm: str, signed_input: bytes, signature: bytes) -> bool:
        """Check a signature. False for a wrong one, and for an algorithm that is not this key's."""
        if algorithm not in self.algorithms:
            return False
        name = EDDSA if algorithm in EDDSA_NAMES else algorithm
        return bool(_ALGORITHMS[name].verify(signed_input, self.public, signature))


class KeySet(Struct, frozen=True):
    """The usable keys of a JWK set by kid, all of the right form, and the number of skipped members."""

    keys: dict[str, Key]
    skipped: int

    def get(self, kid: object) -> Key | None:
        """Look up a kid; None for anything that is not text."""
        return self.keys.get(kid) if isinstance(kid, str) else None


def parse_key_set(raw: bytes) -> KeySet:
    """Read a JWK set (RFC 7517 section 5) of at most 256 KiB and 64 keys. Unusable keys are skipped: private or
    symmetric, for encryption, weak, of the ROCA flaw, off their curve, of low order, without a kid; of two keys with
    one kid, both. Raises FormatError where the set itself is malformed."""
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
    """Read a number beside the keys, where its size does no harm; NaN and Infinity are not JSON."""
    if not text[-1].isdigit():
        raise ValueError("no JSON number")
    return float(text)


def parse_key(jwk: JSON) -> Key | None:
    """Read one JWK (RFC 7517, 7518 section 6, 8037); None for one that must not verify anything."""
    if not isinstance(jwk, Mapping) or not _may_verify(jwk):
        return None
    try:
        public, algorithms = _READERS[str(jwk.get("kty"))](jwk)
    except (ValueError, KeyError, FormatError):
        return None
    if (named := jwk.get("alg")) is not None:
        algorithms &= EDDSA_NAMES if str(named) in EDDSA_NAMES else {str(named)}  # text, where it may be a list
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
    # Small exponents such as 3 make forgery by padding mistakes practical; huge keys make verification expensive.
    if not 2048 <= modulus.bit_length() <= 8192 or not 65537 <= exponent < 2**32:
        raise ValueError("weak or oversized RSA key")
    if is_roca(modulus):
        raise ValueError("an RSA key of the ROCA flaw")
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
    """Return an Ed25519 public key as the JWK to publish; `kid` is its RFC 7638 thumbprint."""
    point = public.public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
    members: dict[str, JSON] = {"crv": "Ed25519", "kty": "OKP", "x": base64url_encode(point)}
    return {**members, "alg": EDDSA, "kid": thumbprint(members), "use": "sig"}


_THUMBPRINT_MEMBERS: dict[str, Sequence[str]] = {
    "OKP": ("crv", "kty", "x"), "EC": ("crv", "kty", "x", "y"), "RSA": ("e", "kty", "n"),
}  # fmt: skip


def thumbprint(jwk: Mapping[str, JSON]) -> str:
    """Return the RFC 7638 SHA-256 thumbprint, base64url."""
    members = {name: jwk[name] for name in _THUMBPRINT_MEMBERS[str(jwk["kty"])]}
    return base64url_encode(hashlib.sha256(jcs.canonical(members)).digest())


def sign(private: ed25519.Ed25519PrivateKey, signed_input: bytes) -> bytes:
    """Sign with Ed25519 (RFC 8037 3.1). Deterministic: the same input gives the same 64 bytes."""
    return _ALGORITHMS[EDDSA].sign(signed_input, private)
