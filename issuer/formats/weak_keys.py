"""Tests for weak public keys: bad points of edwards25519 (RFC 8032 5.1) and RSA keys with the ROCA flaw. Pure.

The keys are public, so the arithmetic need not run in constant time. libsodium has the same test of points,
`crypto_core_ed25519_is_valid_point`, but we did not want a second cryptographic library for thirty lines.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import combinations
from math import gcd

_P = 2**255 - 19
_D = -121665 * pow(121666, -1, _P) % _P


@lru_cache(1024)  # the same few keys are read again and again, for a third of a millisecond each
def is_good_point(point: bytes) -> bool:
    """Say whether 32 bytes are the canonical encoding of a point of edwards25519 with a large order (RFC 8032 5.1.3).
    With a low-order key, one fixed signature is valid for every message. OpenSSL and PyJWT accept such keys."""
    if len(point) != 32:
        return False
    y = int.from_bytes(point, "little") & (2**255 - 1)  # the top bit is the sign of x; x and -x have the same order
    if y >= _P:
        return False
    x_squared = (y * y - 1) * pow(_D * y * y + 1, -1, _P) % _P
    if x_squared == 0:
        return False  # y = 1 or -1: order 1 or 2
    if pow(x_squared, (_P - 1) // 2, _P) != 1:
        return False  # not on the curve
    return not _doubles_to_identity(x_squared, y)


def _doubles_to_identity(x_squared: int, y: int) -> bool:
    """Say whether 8 times the point is the identity. The doubling needs only y and x squared."""
    for _ in range(3):
        # Doubling on -x^2 + y^2 = 1 + d x^2 y^2: y' = (y^2 + x^2) / (2 - y^2 + x^2), and x'^2 from the curve equation.
        y = (y * y + x_squared) * pow(2 - y * y + x_squared, -1, _P) % _P
        x_squared = (y * y - 1) * pow(_D * y * y + 1, -1, _P) % _P
    return y == 1 and x_squared == 0


# The ROCA flaw (CVE-2017-15361) lets an attacker compute the private key from the RSA modulus: Nemec, Sys, Svenda,
# Klinec, Matyas, "The Return of Coppersmith's Attack" (CCS 2017), section 2. A flawed library made every prime as k * M
# + (65537^a mod M), where M is the product of the first 39 primes or more. So modulo M, the RSA modulus is a power of
# 65537. Only one good modulus in 2^154 is such a power. The authors' `roca-detect` tests each prime separately, so it
# refuses one good key in 2^28.

_PRIMES = [n for n in range(2, 168) if all(n % smaller for smaller in range(2, n))]  # the first 39
_GENERATOR = 65537


# For each prime, the least exponent of each power of the generator.
_EXPONENTS = {prime: {pow(_GENERATOR, n, prime): n for n in reversed(range(prime - 1))} for prime in _PRIMES}


def is_roca(modulus: int) -> bool:
    """Say whether some exponent makes 65537 to that power equal to the modulus modulo each of the first 39 primes."""
    residues = []
    for prime, exponents in _EXPONENTS.items():
        exponent = exponents.get(modulus % prime)
        if exponent is None:
            return False
        residues.append((exponent, len(exponents)))
    # An exponent for all primes exists if each pair agrees (Chinese remainder theorem for moduli with common factors).
    return all((one - other) % gcd(order, size) == 0 for (one, order), (other, size) in combinations(residues, 2))
