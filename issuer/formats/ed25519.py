"""Points of edwards25519 (RFC 8032 5.1): which of them may be a public key. Pure arithmetic.

Public points only, so nothing here has to run in constant time. libsodium's `crypto_core_ed25519_is_valid_point` does
the same: a second cryptographic library for thirty lines.
"""

from __future__ import annotations

_P = 2**255 - 19
_D = -121665 * pow(121666, -1, _P) % _P


def is_good_point(point: bytes) -> bool:
    """Say whether 32 bytes encode, canonically, a point of edwards25519 whose order is not small (RFC 8032 5.1.3).

    Under a low-order key one fixed signature fits every message: OpenSSL, and so PyJWT, takes such keys.
    """
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
