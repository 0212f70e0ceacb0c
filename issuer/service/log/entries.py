"""From a leaf's bytes to an entry of the log: what it is found by, and there once by. Pure."""

from __future__ import annotations

from issuer.codes import Code
from issuer.errors import FormatError
from issuer.service.log.store import Entry, Key
from issuer.tlog.leaf import TokenLeaf, UnknownLeaf, read_leaf
from issuer.tlog.merkle import leaf_hash


def entry_of(raw: bytes) -> Entry:
    """Read a leaf of a known kind: nothing else is ever appended. Raises FormatError(`log.malformed`)."""
    leaf = read_leaf(raw)
    if isinstance(leaf, UnknownLeaf):
        raise FormatError(Code.LOG_MALFORMED, f"leaves of {leaf.first_line} are not known here")
    kind = leaf.first_line.split("/")[1]
    key = Key(kind, iat=leaf.iat, token=leaf.token) if isinstance(leaf, TokenLeaf) else Key(kind, name=leaf.name)
    return Entry(key, raw, leaf_hash(raw))


def restored_entry(raw: bytes) -> Entry:
    """Read a leaf that is brought back, also of a kind that a later version appended. Raises as `entry_of`."""
    leaf = read_leaf(raw)
    if isinstance(leaf, UnknownLeaf):
        hashed = leaf_hash(raw)
        return Entry(Key(leaf.first_line, name=hashed), raw, hashed)
    return entry_of(raw)
