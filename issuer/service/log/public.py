"""What anybody may read of the log, out of its database: checkpoints, tiles, entries, and proofs of tokens.

Every method blocks, and is called in the threads of `readers.py`. What is returned never changes, but for the newest
checkpoint. "No such leaf" is a verdict, by which relying parties refuse a token: it is never said in doubt.
"""

from __future__ import annotations

from functools import partial

from issuer.codes import Code
from issuer.errors import Refused, Undecided
from issuer.service.log.readers import Readers
from issuer.service.log.store import Reader, StoreCorrupt
from issuer.tlog.checkpoint import Checkpoint, parse_checkpoint
from issuer.tlog.merkle import inclusion_proof, verify_inclusion
from issuer.tlog.note import parse_note
from issuer.tlog.proof import Proof
from issuer.tlog.tiles import HEIGHT, WIDTH, TilePath, node_of_tiles, write_entries


class PublicLog:
    """The public side of one log. Each method raises Undecided(`dependency.log_read`) where the database fails."""

    def __init__(self, readers: Readers) -> None:
        self._readers = readers

    def checkpoint(self) -> bytes:
        """Return the newest checkpoint that has reached the quorum, as a signed note.

        Raises Undecided(`log.pending`) where none has yet.
        """
        kept = self._readers.look(Reader.last_cosigned)
        if kept is None:
            raise Undecided(Code.LOG_PENDING)
        return kept[1]

    def tile(self, path: TilePath) -> bytes | None:
        """Return a tile or an entry bundle (tlog-tiles); None where the log does not have all of it yet."""
        if not self._readers.committed(_leaves_under(path)):
            return None
        return self._readers.look(partial(_read, path))

    def proof(self, iat: int, token: bytes, size: int | None = None) -> bytes:
        """Return the proof of a token's leaf (tlog-proof) under the first checkpoint over it that reached the quorum,
        or under that of a tree of `size` leaves.

        `iat` is Unix seconds, `token` the 32 bytes of the token's digest. Raises Refused(`log.no_leaf`), which its
        caller passes on only while the log is known to be what it was; Refused(`request.query`) where no checkpoint of
        this size over the leaf was kept; Undecided(`log.pending`) where none over it is yet.
        """
        index = self._index(iat, token)
        return self._readers.look(lambda reader: _proof(reader, index, size))

    def _index(self, iat: int, token: bytes) -> int:
        def find(reader: Reader) -> int | None:
            return reader.index_of_token(iat, token)

        # What is open may be a file or a server that is no longer the log's: only what is there now can say no.
        for anew in (False, True):
            if (index := self._readers.look(find, anew=anew)) is not None:
                return index
        raise Refused(Code.LOG_NO_LEAF)


def _leaves_under(path: TilePath) -> int:
    """Return the size of the smallest tree that has a tile."""
    level = 0 if path.level == "entries" else path.level
    return (path.index * WIDTH + path.width) << (HEIGHT * level)


def _read(path: TilePath, reader: Reader) -> bytes:
    if path.level == "entries":
        return write_entries(reader.leaves(path.index * WIDTH, path.width))
    return reader.tile(path.level, path.index, path.width)


def _proof(reader: Reader, index: int, size: int | None) -> bytes:
    checkpoint, note = _checkpoint_over(reader, index, size)
    node = node_of_tiles(reader.tile, checkpoint.size)
    hashes = inclusion_proof(index, checkpoint.size, node)
    if not verify_inclusion(index, checkpoint.size, node(0, index), hashes, checkpoint.root):
        raise StoreCorrupt(f"the hashes do not lead from leaf {index} to the checkpoint of {checkpoint.size} leaves")
    return Proof(index, hashes, note).to_bytes()


def _checkpoint_over(reader: Reader, index: int, size: int | None) -> tuple[Checkpoint, bytes]:
    kept = reader.cosigned_over(index + 1 if size is None else size)
    if size is not None and (size <= index or kept is None or kept[0] != size):
        raise Refused(Code.REQUEST_QUERY, f"There is no cosigned checkpoint of {size} leaves over this one")
    if kept is None:
        raise Undecided(Code.LOG_PENDING)
    return parse_checkpoint(parse_note(kept[1]).text), kept[1]
