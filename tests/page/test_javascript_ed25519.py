"""Signatures and keys that engines judge differently, if they judge them at all: each engine answers as Python does.

The standards do not decide these cases: points of low order, points spelled twice, S above the group's order, and keys with a part of
low order ("Taming the many EdDSAs", Chalkias and others, 2020).
"""

import hashlib
from collections import Counter
from collections.abc import Iterator
from itertools import count

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from issuer.formats.weak_keys import is_good_point
from tests.support.javascript import Calls, Engine

pytestmark = [pytest.mark.needs_tool("node"), pytest.mark.long]

P, ORDER = 2**255 - 19, 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, -1, P) % P
Point = tuple[int, int]
IDENTITY: Point = (0, 1)


def add(one: Point, other: Point) -> Point:
    (x1, y1), (x2, y2) = one, other
    both = D * x1 * x2 * y1 * y2 % P
    return (x1 * y2 + x2 * y1) * pow(1 + both, -1, P) % P, (y1 * y2 + x1 * x2) * pow(1 - both, -1, P) % P


def times(factor: int, point: Point) -> Point:
    result = IDENTITY
    for bit in bin(factor)[2:]:
        result = add(result, result)
        result = add(result, point) if bit == "1" else result
    return result


def at_height(y: int) -> Point | None:
    """Return a point with this y, if the curve has one: of the two, that of the even x."""
    square = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    root = pow(square, (P + 3) // 8, P)
    root = root if root * root % P == square else root * pow(2, (P - 1) // 4, P) % P
    return (root if root % 2 == 0 else P - root, y) if root * root % P == square else None


def encoded(point: Point) -> bytes:
    return (point[1] | (point[0] & 1) << 255).to_bytes(32, "little")


BASE = next(point for point in [at_height(4 * pow(5, -1, P) % P)] if point)
# A point of order 8: what a point of the curve is without its part of prime order.
TORSION = next(
    part for y in count(2) for point in [at_height(y)] if point
    for part in [times(ORDER, point)] if times(4, part) != IDENTITY
)  # fmt: skip
LOW = [times(number, TORSION) for number in range(8)]
# The command of the engine that has its signatures from libgcrypt.
LIBGCRYPT = "xvfb-run"
SECRET, NONCE = 2**251 + 8 * 12345, 2**250 + 54321


def signed(key: bytes, nonce: int, start: bytes, message: bytes) -> bytes:
    """Sign as in RFC 8032 5.1.6, except that the caller gives the bytes of R."""
    challenge = int.from_bytes(hashlib.sha512(start + key + message).digest(), "little")
    return start + ((nonce + challenge * SECRET) % ORDER).to_bytes(32, "little")


def signatures() -> Iterator[tuple[str, bytes, bytes, bytes]]:
    """Yield a name, a key that is taken, a signature and a message."""
    plain, nonce = times(SECRET, BASE), times(NONCE, BASE)
    for part in range(8):
        key = encoded(add(plain, LOW[part]))
        for of_start in range(8):
            start = encoded(add(nonce, LOW[of_start]))
            for number in range(4):
                message = bytes([number])
                yield "parts of low order", key, signed(key, NONCE, start, message), message
            yield "R of low order", key, signed(key, 0, encoded(LOW[of_start]), b""), b""
    key = encoded(plain)
    good = signed(key, NONCE, encoded(nonce), b"")
    scalar = int.from_bytes(good[32:], "little")
    for more in range(16):
        if scalar + more * ORDER < 2**256:
            yield "S above the order", key, good[:32] + (scalar + more * ORDER).to_bytes(32, "little"), b""
    for y in range(P, 2**255):  # spelled a second time, or no point at all
        for sign in (0, 1 << 255):
            yield "R in another spelling", key, signed(key, 0, (y | sign).to_bytes(32, "little"), b""), b""
    yield "R in another spelling", key, signed(key, 0, (1 | 1 << 255).to_bytes(32, "little"), b""), b""
    yield "no signature", key, bytes(64), b""


def in_python(key: bytes, signature: bytes, message: bytes) -> bool:
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, message)
    except InvalidSignature:
        return False
    return True


def test_a_signature_that_libraries_disagree_about_is_judged_as_in_python(engine: Engine) -> None:
    """Under a key with a part of low order libgcrypt, and so WebKit, judges otherwise: only its holder can make one."""
    of_prime_order = encoded(times(SECRET, BASE))
    calls, cases = Calls(), [case for case in signatures() if LIBGCRYPT not in engine or case[1] == of_prime_order]
    for _, key, signature, message in cases:
        calls.add("ed25519.js", "verifies", key, signature, message)
    outcomes, others = Counter[bool](), []
    for (name, key, signature, message), answer in zip(cases, calls.run(engine), strict=True):
        wanted = in_python(key, signature, message)
        outcomes[wanted] += 1
        if answer != wanted:
            others.append((name, key.hex(), signature.hex(), message, answer))
    assert others == []
    assert min(outcomes[True] * 10, outcomes[False]) > 40


def test_a_point_of_low_order_or_in_another_spelling_is_no_key(engine: Engine) -> None:
    heights = [*range(P, 2**255), *(y for _, y in LOW)]
    points = [(y | sign).to_bytes(32, "little") for y in heights for sign in (0, 1 << 255)]
    points += [encoded(add(BASE, part)) for part in LOW]
    calls = Calls()
    for point in points:
        calls.add("ed25519.js", "isGoodPoint", point)
    assert calls.run(engine) == [is_good_point(point) for point in points]
    assert [is_good_point(point) for point in points] == [False] * (len(points) - 8) + [True] * 8
