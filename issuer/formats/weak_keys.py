"""Points of edwards25519 (RFC 8032 5.1): which of them may be a public key. Pure arithmetic.

Public points only, so nothing here has to run in constant time. libsodium's `crypto_core_ed25519_is_valid_point` does
the same: a second cryptographic library for thirty lines.
"""

from __future__ import annotations

from itertools import combinations
from math import gcd

_P = 2**255 - 19
_D = -121665 * pow(121666, -1, _P) % _P


def is_good_point(point: bytes) -> bool:
    """Say whether 32 bytes encode, canonically, a point of edwards25519 whose order is not small (RFC 8032 5.1.3).
    Under a low-order key one fixed signature fits every message: OpenSSL, and so PyJWT, takes such keys."""
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
    """Say whether 8 times the point is the identity, following only the y coordinate and x squared."""
    for _ in range(3):
        # Doubling on -x^2 + y^2 = 1 + d x^2 y^2: y' = (y^2 + x^2) / (2 - y^2 + x^2), and x'^2 from the curve equation.
        y = (y * y + x_squared) * pow(2 - y * y + x_squared, -1, _P) % _P
        x_squared = (y * y - 1) * pow(_D * y * y + 1, -1, _P) % _P
    return y == 1 and x_squared == 0


# RSA moduli of the ROCA flaw (CVE-2017-15361), whose private half can be computed: Nemec, Sys, Svenda, Klinec, Matyas,
# "The Return of Coppersmith's Attack" (CCS 2017), section 2. A flawed library made every prime as k * M + (65537^a mod
# M), M the product of the first 39 primes or of more. So the modulus, modulo M, is a power of 65537; of all others one
# in 2^154 is. The authors' `roca-detect` tests each prime for itself, and so takes one good key in 2^28 for a bad one.

_PRIMES = [n for n in range(2, 168) if all(n % smaller for smaller in range(2, n))]  # the first 39
_GENERATOR = 65537


def _powers(prime: int) -> dict[int, int]:
    """Return the exponent of each power of the generator modulo a prime."""
    exponents: dict[int, int] = {}
    power = 1
    while power not in exponents:
        exponents[power] = len(exponents)
        power = power * _GENERATOR % prime
    return exponents


_EXPONENTS = {prime: _powers(prime) for prime in _PRIMES}


def is_roca(modulus: int) -> bool:
    """Say whether a modulus is, modulo the first 39 primes at once, a power of 65537."""
    found = []
    for prime, exponents in _EXPONENTS.items():
        exponent = exponents.get(modulus % prime)
        if exponent is None:
            return False
        found.append((exponent, len(exponents)))
    # One exponent fits them all if it fits each two (Chinese remainder theorem for moduli with common factors).
    return all((one - other) % gcd(order, size) == 0 for (one, order), (other, size) in combinations(found, 2))
