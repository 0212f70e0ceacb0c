"""Hash chains in an audit file: each line has the digest of the line that the same process wrote before. Pure.

A chain shows whether a line within it was changed, removed, added or moved. It does not show whether its last lines
were removed or all of it was rewritten: that needs a head of the chain from outside the file (contract section 5).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

NO_LINE = "0" * 64  # the predecessor of the first line of a chain
MAX_CHAINS = 65_536  # in one reading; each process has one chain
MAX_HEADS = 262_144

_Hex = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
_Worker = Annotated[str, Meta(min_length=1, max_length=64)]
_Number = Annotated[int, Meta(ge=1, le=2**53)]


def digest_of(line: bytes) -> str:
    """Return the digest of a line without its line feed, for the next line: SHA-256 in lowercase hex."""
    return hashlib.sha256(line).hexdigest()


class ChainHead(Struct, frozen=True):
    """The end of a worker's chain at some time: number and digest of its last line."""

    worker: _Worker
    seq: _Number
    head: _Hex


class _Linked(Struct, frozen=True):
    worker: _Worker
    seq: _Number
    prev: _Hex


class Chain(Struct):
    """The lines of one worker's chain that were read: the number of the `first` line and the digest in it (`prev`), the
    number (`seq`) and the digest (`head`) of the last one."""

    first: int
    prev: str
    seq: int
    head: str


Kind = Literal["torn", "unlinked", "changed", "missing", "moved", "begins", "ends", "absent"]
# BROKEN proves that the lines are not those that were written. UNDECIDED does not show either way. A torn line is half
# an event, which a failed write leaves.
BROKEN: frozenset[Kind] = frozenset({"unlinked", "changed", "missing", "moved", "ends"})
UNDECIDED: frozenset[Kind] = frozenset({"begins", "absent"})


class ChainFinding(Struct, frozen=True):
    """A fault or an unknown of a chain. `line` counts all lines that were read, from 1; 0: not about a line."""

    kind: Kind
    line: int
    worker: str
    detail: str


class TooMany(Exception):
    """There are more chains or heads than one reading can hold."""


_decode = msgspec.json.Decoder(_Linked).decode
_decode_head = msgspec.json.Decoder(ChainHead).decode


def read_heads(lines: Iterable[bytes]) -> dict[str, dict[int, str]]:
    """Read heads from JSON lines of the log stream or of `issuer audit`; ignore all other lines. Raises TooMany."""
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
    """A check of the chains of all workers through the lines of an audit, oldest first. Memory grows only with the
    number of workers. `heads` are known from outside the audit, by worker and number."""

    def __init__(self, heads: dict[str, dict[int, str]]) -> None:
        self._heads = heads
        self.chains: dict[str, Chain] = {}
        self.lines = 0
        self.linked = 0

    def read(self, line: bytes) -> Iterator[ChainFinding]:
        """Check the next line, without its line feed, and yield its faults. Raises TooMany."""
        self.lines += 1
        if not line:  # left by a failed write
            return
        try:
            link = _decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            yield self._unread(line)
            return
        self.linked += 1
        head = digest_of(line)
        if fault := self._fault(link):
            yield self._finding(fault[0], link.worker, fault[1])
        known = self._heads.get(link.worker, {}).get(link.seq)
        if known is not None and known != head:
            yield self._finding("changed", link.worker, f"the digest of number {link.seq} is not the known head")
        if (chain := self.chains.get(link.worker)) is None:
            if len(self.chains) >= MAX_CHAINS:
                raise TooMany
            self.chains[link.worker] = Chain(link.seq, link.prev, link.seq, head)
        elif link.seq > chain.seq:
            chain.seq, chain.head = link.seq, head

    def end(self) -> Iterator[ChainFinding]:
        """Yield findings about lines that the heads prove and that were not read."""
        for worker, heads in self._heads.items():
            last, chain = max(heads), self.chains.get(worker)
            if chain is None:
                yield ChainFinding("absent", 0, worker, f"this worker has no lines here, but wrote {last}")
            elif chain.seq < last:
                yield ChainFinding("ends", 0, worker, f"numbers {chain.seq + 1} to {last} are missing")

    def _unread(self, line: bytes) -> ChainFinding:
        """Distinguish half a line, which a full disk leaves, from an event without a chain."""
        try:
            msgspec.json.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return self._finding("torn", "", "half a line, or not a line of an audit")
        return self._finding("unlinked", "", "it is not in a chain")

    def _fault(self, link: _Linked) -> tuple[Kind, str] | None:
        chain = self.chains.get(link.worker)
        if chain is None:
            return self._fault_of_first(link)
        if link.seq > chain.seq + 1:
            return "missing", f"numbers {chain.seq + 1} to {link.seq - 1} are missing before it"
        if link.seq <= chain.seq:
            return "moved", f"number {link.seq} comes after {chain.seq}"
        if link.prev != chain.head:
            return "changed", f"the digest in number {link.seq} does not match number {chain.seq}"
        return None

    def _fault_of_first(self, link: _Linked) -> tuple[Kind, str] | None:
        if link.seq == 1:
            return None if link.prev == NO_LINE else ("changed", "its first line names a line before it")
        known = self._heads.get(link.worker, {}).get(link.seq - 1)
        if known is None:
            return "begins", f"numbers 1 to {link.seq - 1} were not given, nor a head of them"
        return None if known == link.prev else ("changed", f"the digest of number {link.seq - 1} is not the known head")

    def _finding(self, kind: Kind, worker: str, detail: str) -> ChainFinding:
        return ChainFinding(kind, self.lines, worker, detail)
