"""Canonical base64 (RFC 4648 section 4), the one that every C2SP format writes. Pure."""

from __future__ import annotations

import base64
import binascii


def encode_base64(data: bytes) -> str:
    """Write bytes in the standard alphabet, padded, in one line."""
    return base64.b64encode(data).decode()


def decode_base64(text: str) -> bytes | None:
    """Read canonical base64; None for anything else: another alphabet, no padding, stray bits, line ends.

    Two texts for one value would be two notes, or two proofs, of one statement: RFC 4648 3.5.
    """
    try:
        data = base64.b64decode(text.encode("ascii"), validate=True)
    except (UnicodeEncodeError, binascii.Error):
        return None
    return data if encode_base64(data) == text else None
