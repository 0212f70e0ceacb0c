"""Canonical base64 (RFC 4648 section 4), the one that every C2SP format writes. Pure."""

from __future__ import annotations

import binascii


def encode_base64(data: bytes) -> str:
    """Write bytes in the standard alphabet, padded, in one line."""
    return binascii.b2a_base64(data, newline=False).decode("ascii")


def decode_base64(text: str) -> bytes | None:
    """Read canonical base64; None for anything else: another alphabet, no padding, stray bits, line ends.

    Two texts for one value would be two notes, or two proofs, of one statement: RFC 4648 3.5.
    """
    try:
        data = binascii.a2b_base64(text, strict_mode=True)
    except ValueError:  # also for text that is not ASCII
        return None
    return data if encode_base64(data) == text else None
