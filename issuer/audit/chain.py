"""The chains of an audit file: each line names the one that the same process wrote before it. Pure.

A chain shows that no line was changed, removed, added or moved within it. It cannot show that its last lines were
removed, or that all of it was written anew: for these its head, told outside the file, is compared (contract
section 5).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

# What the first line of a chain names.
NO_LINE = "0" * 64
# Chains of one reading: every process has one of its own.
MAX_CHAINS = 65_536
MAX_HEADS = 262_144

_Hex = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
_Worker = Annotated[str, Meta(min_length=1, max_length=64)]
_Number = Annotated[int, Meta(ge=1, le=2**53)]


def digest_of(line: bytes) -> str:
    """Return what the next line names: lowercase hex SHA-256 of a line without its line feed."""
    return hashlib.sha256(line).hexdigest()


class Head(Struct, frozen=True):
    """The end of a worker's chain at some time: the number of its last line, and that line's digest."""

    worker: _Worker
    seq: _Number
    head: _Hex


class _Linked(Struct, frozen=True):
    worker: _Worker
    seq: _Number
    prev: _Hex


class Chain(Struct):
    """What was read of one worker's chain: its first and last line, and what that first one names."""

    first: int
    prev: str
    seq: int
    head: str


Kind = Literal["torn", "unlinked", "changed", "missing", "moved", "begins", "ends", "absent"]
# What says that the lines are not those that were written; of the rest nobody can tell, and a torn line is no event.
BROKEN: frozenset[Kind] = frozenset({"unlinked", "changed", "missing", "moved", "ends"})
UNDECIDED: frozenset[Kind] = frozenset({"begins", "absent"})


class ChainFinding(Struct, frozen=True):
    """What is wrong or unknown: `line` counts from 1, over all that was read; 0 is no line's."""

    kind: Kind
    line: int
    worker: str
    detail: str


class TooMany(Exception):
    """There are more chains or heads than one reading takes."""


_decode = msgspec.json.Decoder(_Linked).decode
_decode_head = msgspec.json.Decoder(Head).decode


def read_heads(lines: Iterable[bytes]) -> dict[str, dict[int, str]]:
    """Read heads from lines of JSON, the log stream's or our own output's; passes over all others. Raises TooMany."""
    heads: dict[str, dict[int, str]] = {}
    count = 0
    for line in lines:
        try:
            head = _decode_head(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue
        count += 1
        if count > MAX_HEADS:
            raise TooMany
        heads.setdefault(head.worker, {})[head.seq] = head.head
    return heads


class Chains:
    """Follows the chains of all workers through the lines of an audit, oldest first; memory grows with the number of
    workers alone. `heads` were told outside the audit."""

    def __init__(self, heads: dict[str, dict[int, str]]) -> None:
        self._heads = heads
        self.chains: dict[str, Chain] = {}
        self.lines = 0
        self.linked = 0

    def read(self, line: bytes) -> Iterator[ChainFinding]:
        """Take the next line, without its line feed, and yield what is wrong with it. Raises TooMany."""
        self.lines += 1
        if not line:  # is left where a write failed
            return
        try:
            link = _decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            yield self._unread(line)
            return
        self.linked += 1
        head = digest_of(line)
        yield from self._place(link)
        told = self._heads.get(link.worker, {}).get(link.seq)
        if told is not None and told != head:
            yield self._finding("changed", link.worker, f"number {link.seq} is not the line whose head was told")
        if (chain := self.chains.get(link.worker)) is None:
            if len(self.chains) >= MAX_CHAINS:
                raise TooMany
            self.chains[link.worker] = Chain(link.seq, link.prev, link.seq, head)
        elif link.seq > chain.seq:
            chain.seq, chain.head = link.seq, head

    def end(self) -> Iterator[ChainFinding]:
        """Yield what the heads say of lines that were not read."""
        for worker, told in self._heads.items():
            last, chain = max(told), self.chains.get(worker)
            if chain is None:
                yield ChainFinding("absent", 0, worker, f"there is no line of this worker, which had {last}")
            elif chain.seq < last:
                yield ChainFinding("ends", 0, worker, f"numbers {chain.seq + 1} to {last} are not there")

    def _unread(self, line: bytes) -> ChainFinding:
        """Tell half a line, which a full disk leaves, from an event that is in no chain."""
        try:
            msgspec.json.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return self._finding("torn", "", "half a line, or none of ours")
        return self._finding("unlinked", "", "it is in no chain")

    def _place(self, link: _Linked) -> Iterator[ChainFinding]:
        chain = self.chains.get(link.worker)
        if chain is None:
            yield from self._begin(link)
        elif link.seq > chain.seq + 1:
            detail = f"numbers {chain.seq + 1} to {link.seq - 1} are not before it"
            yield self._finding("missing", link.worker, detail)
        elif link.seq <= chain.seq:
            yield self._finding("moved", link.worker, f"number {link.seq} comes after {chain.seq}")
        elif link.prev != chain.head:
            detail = f"number {chain.seq} is not the line that {link.seq} was written after"
            yield self._finding("changed", link.worker, detail)

    def _begin(self, link: _Linked) -> Iterator[ChainFinding]:
        if link.seq == 1:
            if link.prev != NO_LINE:
                yield self._finding("changed", link.worker, "its first line names one before it")
        elif (told := self._heads.get(link.worker, {}).get(link.seq - 1)) is None:
            detail = f"numbers 1 to {link.seq - 1} were not given, nor the head of them"
            yield self._finding("begins", link.worker, detail)
        elif told != link.prev:
            yield self._finding("changed", link.worker, f"number {link.seq - 1} is not the line whose head was told")

    def _finding(self, kind: Kind, worker: str, detail: str) -> ChainFinding:
        return ChainFinding(kind, self.lines, worker, detail)
