"""Which tokens have verified, so that two of one issuer with one jti are noticed (contract section 6). Pure.

Two different tokens with one jti are the issuer's fault, and both fail. A token is remembered only after all its checks
have passed: a copy in another place, or what a thief signs with a revoked key, burns nothing.
"""

from __future__ import annotations

import hashlib
from array import array

from issuer.verify.report import Report

_KEY = 16  # bytes of SHA-256: two keys that differ meet with a chance of 2^-128


def replay_key(report: Report) -> bytes:
    """Return what two tokens of one issuer must not share: 16 bytes for issuer and jti."""
    return hashlib.sha256(f"{report.issuer}\0{report.jti}".encode()).digest()[:_KEY]


def token_key(report: Report) -> bytes:
    """Return 16 bytes that tell tokens apart."""
    return bytes.fromhex(report.token_digest.removeprefix("sha256:")[: 2 * _KEY])


class ReplayIndex:
    """An open hash table in flat arrays: 36 bytes for each token, 6 to 12 for its slot; with room to grow, 41 to 53."""

    def __init__(self) -> None:
        self._slots = array("I", bytes(4 * 64))  # 1 + the number of a token, 0 where free
        self._keys, self._tokens, self._places = bytearray(), bytearray(), array("I")

    def __len__(self) -> int:
        return len(self._places)

    @property
    def size(self) -> int:
        """How many bytes it holds."""
        parts = (self._slots, self._keys, self._tokens, self._places)
        return sum(part.__sizeof__() for part in parts)

    def add(self, report: Report, place: int) -> int | None:
        """Remember a verified report under the caller's number for it, below 2^32.

        Returns the number of the report whose token is another one with the same jti of the same issuer, or None. What
        is not verified is neither remembered nor compared.
        """
        return self.add_key(replay_key(report), token_key(report), place) if report.verdict == "verified" else None

    def add_key(self, key: bytes, token: bytes, place: int) -> int | None:
        """Do the same with the two keys of a verified report."""
        slot = self._slot_of(key)
        if known := self._slots[slot]:
            same = self._part(self._tokens, known - 1) == token
            return None if same else self._places[known - 1]
        self._keys += key
        self._tokens += token
        self._places.append(place)
        self._slots[slot] = len(self)
        if 3 * len(self) > 2 * len(self._slots):
            self._grow()
        return None

    def _slot_of(self, key: bytes) -> int:
        """Return the slot that holds the key, or the free one where it belongs."""
        last = len(self._slots) - 1
        slot = int.from_bytes(key[:8], "big") & last
        while (known := self._slots[slot]) and self._part(self._keys, known - 1) != key:
            slot = (slot + 1) & last
        return slot

    def _grow(self) -> None:
        self._slots = array("I", bytes(8 * len(self._slots)))
        for number in range(len(self)):
            self._slots[self._slot_of(bytes(self._part(self._keys, number)))] = number + 1

    @staticmethod
    def _part(parts: bytearray, number: int) -> bytearray:
        return parts[number * _KEY : (number + 1) * _KEY]
