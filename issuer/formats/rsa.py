"""RSA moduli of the ROCA flaw (CVE-2017-15361): keys whose private half can be computed. Pure arithmetic.

Nemec, Sys, Svenda, Klinec, Matyas, "The Return of Coppersmith's Attack" (CCS 2017), section 2: a flawed library made
every prime as k * M + (65537^a mod M), M the product of the first 39 primes or of more. So the modulus, modulo M, is a
power of 65537, which of all others one in 2^154 is. The authors' `roca-detect` asks each prime for itself, and so
takes one good key in 2^28 for a flawed one.
"""

from __future__ import annotations

from itertools import combinations
from math import gcd

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
