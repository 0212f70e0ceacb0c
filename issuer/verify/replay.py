"""Which tokens have verified, so that two of one issuer with one jti are noticed (contract section 6). Pure.

Two different tokens with one jti are the issuer's fault, and both fail. A token is remembered only after all its checks
have passed: a copy in another place, or what a thief signs with a revoked key, burns nothing.
"""

from __future__ import annotations

import hashlib

from issuer.verify.report import Report

KEY_BYTES = 16  # of SHA-256: two keys that differ meet with a chance of 2^-128


def replay_key(report: Report) -> bytes:
    """Return what two tokens of one issuer must not share: 16 bytes for issuer and jti."""
    return hashlib.sha256(f"{report.issuer}\0{report.jti}".encode()).digest()[:KEY_BYTES]


def token_key(report: Report) -> bytes:
    """Return 16 bytes that differ for different tokens."""
    return bytes.fromhex(report.token_digest.removeprefix("sha256:")[: 2 * KEY_BYTES])


class ReplayIndex:
    """The first token of each issuer and jti, in a dict: 130 to 170 bytes for each, by the dict's room to grow."""

    def __init__(self) -> None:
        # One value, the token's key and the caller's number in 4 bytes: a tuple of two takes 80 bytes more.
        self._first: dict[bytes, bytes] = {}

    def __len__(self) -> int:
        return len(self._first)

    def add(self, report: Report, place: int) -> int | None:
        """Remember a verified report under the caller's number for it, below 2^32.

        Returns the number of the report whose token is another one with the same jti of the same issuer, or None. What
        is not verified is neither remembered nor compared.
        """
        return self.add_key(replay_key(report), token_key(report), place) if report.verdict == "verified" else None

    def add_key(self, key: bytes, token: bytes, place: int) -> int | None:
        """Do the same with the two keys of a verified report."""
        first = self._first.setdefault(key, token + place.to_bytes(4, "big"))
        return None if first[:KEY_BYTES] == token else int.from_bytes(first[KEY_BYTES:], "big")
