"""Counts a log's leaves by kind: those that are known, those that are listed by name, and those that are none. Pure."""

from __future__ import annotations

from collections import Counter

from issuer.errors import FormatError
from issuer.tlog.leaf import UnknownLeaf, read_leaf

# Of kinds that are not known here; the rest is counted together. Who writes leaves can make up as many as there are.
MAX_NAMES = 100
OTHERS = "(others)"


class Counts:
    """Leaves by their first line: `kinds` that are known and `unknown` ones; and `malformed`, how many are no leaves.

    `first_defect` says which leaf was the first of those, and why; "" where there is none.
    """

    def __init__(self) -> None:
        self.kinds: Counter[str] = Counter()
        self.unknown: Counter[str] = Counter()
        self.malformed = 0
        self.first_defect = ""

    def add(self, index: int, raw: bytes) -> None:
        """Count the entry at an index."""
        try:
            leaf = read_leaf(raw)
        except FormatError as error:
            self.malformed += 1
            self.first_defect = self.first_defect or f"leaf {index}: {error.detail}"
            return
        if isinstance(leaf, UnknownLeaf):
            name = leaf.first_line
            self.unknown[name if name in self.unknown or len(self.unknown) < MAX_NAMES else OTHERS] += 1
        else:
            self.kinds[leaf.first_line] += 1
