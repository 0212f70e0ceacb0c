"""The format of this service's personal access tokens (PATs). Pure.

    evi_pat_  0aB...  _  9xY...  3kQ...
    prefix    id: 12     secret: 43, 256 bits     checksum: 6, CRC-32 of everything before

All three parts are base62. The id is public. The checksum finds typing errors and a scanner's false alarms without a
look-up, but does not prove that a token exists: `service/authn/pats.py` knows which tokens exist.
"""

from __future__ import annotations

import hashlib
import re
import string
import zlib

PREFIX = "evi_pat_"
# Published for secret scanners (SECURITY.md). A match with a correct checksum is a token.
PATTERN = "evi_pat_[0-9A-Za-z]{12}_[0-9A-Za-z]{49}"
ID_PATTERN = "[0-9A-Za-z]{12}"
RANDOM_BYTES = 16 + 32

_BASE62 = string.digits + string.ascii_uppercase + string.ascii_lowercase
_ID_CHARS, _SECRET_CHARS, _CHECKSUM_CHARS = 12, 43, 6
_TOKEN = re.compile(PATTERN)


def make(random: bytes) -> str:
    """Return a token made of RANDOM_BYTES random bytes, which must be fresh and of cryptographic quality."""
    if len(random) != RANDOM_BYTES:
        raise ValueError(f"a token is made of {RANDOM_BYTES} bytes")
    # The id needs 71 bits and is taken from 128, so no id is more likely than another by more than 2^-56. The other 256
    # bits are the secret.
    public_id = _base62(int.from_bytes(random[:16]) % 62**_ID_CHARS, _ID_CHARS)
    body = f"{PREFIX}{public_id}_{_base62(int.from_bytes(random[16:]), _SECRET_CHARS)}"
    return body + _checksum(body)


def token_id(text: str) -> str | None:
    """Return the public id of a token with the right form and checksum, otherwise None."""
    body = text[:-_CHECKSUM_CHARS]
    if not _TOKEN.fullmatch(text) or text[-_CHECKSUM_CHARS:] != _checksum(body):
        return None
    return text[len(PREFIX) :][:_ID_CHARS]


def digest(token: str) -> bytes:
    """Return the SHA-256 of the whole token. The service stores only this. 256 random bits need no slower hash."""
    return hashlib.sha256(token.encode()).digest()


def _checksum(body: str) -> str:
    return _base62(zlib.crc32(body.encode()), _CHECKSUM_CHARS)


def _base62(number: int, width: int) -> str:
    """Write a number in `width` digits 0-9A-Za-z, the most significant digit first."""
    digits = ""
    for _ in range(width):
        number, digit = divmod(number, 62)
        digits = _BASE62[digit] + digits
    return digits
