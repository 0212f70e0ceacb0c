"""RSA moduli of the ROCA flaw (CVE-2017-15361), made by the formula that was published."""

import math
from random import Random

PRIMES = [n for n in range(2, 1428) if all(n % smaller for smaller in range(2, n))]


def roca_modulus(bits: int, primes: int, draw: Random) -> int:
    """Return p * q, each factor k * M + (65537^a mod M): the form of a flawed key. The factors need not be
    prime: the fingerprint does not depend on it."""
    product = math.prod(PRIMES[:primes])
    return math.prod(
        draw.randrange(2 ** (bits // 2 - 1) // product + 1, 2 ** (bits // 2) // product) * product
        + pow(65537, draw.randrange(product), product)
        for _ in range(2)
    )
