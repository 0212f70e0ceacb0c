"""All answers of one log to its clients, and the promises about them, also after failures."""

from collections.abc import Iterable, Iterator, Sequence

from issuer.service.log.database.store import Reader
from issuer.service.log.sequencer.sequencer import is_whole
from issuer.tlog.checkpoint import Checkpoint, parse_checkpoint
from issuer.tlog.merkle import EMPTY_ROOT, Peaks, leaf_hash, root, verify_inclusion
from issuer.tlog.note import Verifier, parse_note, verify_note
from issuer.tlog.proof import parse_proof


class Received:
    """Leaves with their places, and the checkpoints over them."""

    def __init__(self, origin: str, verifier: Verifier) -> None:
        self._origin = origin
        self._verifier = verifier
        self.indexes: dict[bytes, int] = {}
        self.checkpoints: set[Checkpoint] = set()

    def take(self, leaf: bytes, index: int, proof: bytes) -> None:
        """Take an answer: its proof is good under a checkpoint of the log, and the leaf is where it was before."""
        place, checkpoint = proved(proof, leaf_hash(leaf), self._verifier)
        assert (checkpoint.origin, place) == (self._origin, index)
        assert self.indexes.setdefault(leaf, index) == index
        self.checkpoints.add(checkpoint)

    def demand_kept(self, reader: Reader) -> None:
        """Demand that the log still has all answers, and that its database is whole."""
        head = reader.head()
        assert head is not None
        assert is_whole(reader, head)
        leaves = reader.leaves(0, head.size)
        assert root(leaf_hash(leaf) for leaf in leaves) == head.root
        self.demand_one_tree(leaves)

    def demand_one_tree(self, leaves: Sequence[bytes]) -> None:
        """Demand that all checkpoints are over these leaves: no fork, no gap, no repeated and no lost leaf."""
        assert len(set(leaves)) == len(leaves)
        assert {leaf: leaves[index] for leaf, index in self.indexes.items()} == {leaf: leaf for leaf in self.indexes}
        after = [EMPTY_ROOT, *roots(leaf_hash(leaf) for leaf in leaves)]
        assert all(after[checkpoint.size] == checkpoint.root for checkpoint in self.checkpoints)


def proved(raw: bytes, hashed: bytes, *verifiers: Verifier) -> tuple[int, Checkpoint]:
    """Verify a leaf's proof, by its hash, under a checkpoint that all have signed; return its index and the checkpoint."""
    proof = parse_proof(raw)
    note = parse_note(proof.checkpoint)
    assert len(verify_note(note, verifiers)) == len(verifiers)
    checkpoint = parse_checkpoint(note.text)
    assert verify_inclusion(proof.index, checkpoint.size, hashed, proof.hashes, checkpoint.root)
    return proof.index, checkpoint


def roots(leaves: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the tree head after each leaf hash: of the first leaf, of the first two, and so on."""
    peaks = Peaks()
    for leaf in leaves:
        peaks = peaks.extend((leaf,))
        yield peaks.root
