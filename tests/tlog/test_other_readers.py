"""What our pure modules write is read and verified by programs that share no code with them: promise P5 of the log."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from issuer.tlog import merkle, tiles
from issuer.tlog.checkpoint import Checkpoint
from issuer.tlog.leaf import PolicyLeaf
from issuer.tlog.note import Cosigner, Note, NoteSigner
from tests.support.log_readers import NotVerifiedError, Seen, check_with_go, check_with_scales

ORIGIN = "issuer.example/log/2026-11-22-7f3a"
LOG = NoteSigner(ORIGIN, Ed25519PrivateKey.from_private_bytes(b"k" * 32))
WITNESS = Cosigner("witness.example", Ed25519PrivateKey.from_private_bytes(b"w" * 32))
VKEY = LOG.verifier.to_text()

Reader = Callable[..., Seen]
SCALES = pytest.param(check_with_scales, id="scales")
GO = pytest.param(check_with_go, id="go", marks=[pytest.mark.needs_tool("go"), pytest.mark.long])
READERS = pytest.mark.parametrize("read", [SCALES, GO])


def leaf(number: int) -> bytes:
    return PolicyLeaf("https://issuer.example", f"integration-{number}", f"sha256:{number:064x}").to_bytes()


def signed(peaks: merkle.Peaks) -> bytes:
    """Sign a checkpoint as the log and as a witness, whom these readers do not know."""
    text = Checkpoint(ORIGIN, peaks.size, peaks.root).to_text()
    return Note(text, (LOG.sign(text), WITNESS.cosign(text, 1_790_000_000))).to_bytes()


class Written:
    """A log as files. It grows by batches, and of each tree there is the checkpoint."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.peaks = folder, merkle.Peaks()
        self.leaves: list[bytes] = []
        self.kept: dict[tuple[int, int], bytes] = {}
        self.checkpoints: list[bytes] = []

    def grow(self, size: int) -> None:
        before, batch = self.peaks.size, [leaf(number) for number in range(self.peaks.size, size)]
        self.leaves += batch
        self.peaks, gained = tiles.extend(self.peaks, [merkle.leaf_hash(entry) for entry in batch])
        self.kept |= {(level, index): hashed for level, index, hashed in gained}
        for path in tiles.grown(before, size):
            file = self.folder / str(path)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(self._content(path))
        self.checkpoints.append(signed(self.peaks))
        (self.folder / "checkpoint").write_bytes(self.checkpoints[-1])

    def _content(self, path: tiles.TilePath) -> bytes:
        begin, end = path.index * 256, path.index * 256 + path.width
        if path.level == "entries":
            return tiles.write_entries(self.leaves[begin:end])
        return b"".join(self.kept[path.level, index] for index in range(begin, end))


def samples(size: int) -> set[int]:
    """Return the indexes where a tree of this size has its seams."""
    seams = {0, 1, 2, 255, 256, 257, size // 2, 65_535, 65_536, 65_537, size - 257, size - 256, size - 2, size - 1}
    return seams & set(range(size))


@READERS
@pytest.mark.parametrize(
    "sizes",
    [
        pytest.param((1, 2, 3, 254, 255, 256, 257, 258), id="around one tile"),
        pytest.param((1, 256, 65_534, 65_535, 65_536, 65_537, 65_538), id="around 256 tiles", marks=pytest.mark.long),
    ],
)
def test_a_tree_of_any_size_and_its_history_verify(tmp_path: Path, read: Reader, sizes: tuple[int, ...]) -> None:
    log = Written(tmp_path)
    for size in sizes:
        log.grow(size)
        seen = read(tmp_path, VKEY, samples(size), log.checkpoints)
        assert seen == Seen(ORIGIN, size, log.peaks.root, {index: log.leaves[index] for index in samples(size)})


def test_an_empty_log_verifies(tmp_path: Path) -> None:
    """By one of the readers: sumdb's empty tree has another root than that of RFC 6962."""
    Written(tmp_path).grow(0)
    assert check_with_scales(tmp_path, VKEY) == Seen(ORIGIN, 0, merkle.EMPTY_ROOT, {})


@pytest.fixture
def log(tmp_path: Path) -> Written:
    log = Written(tmp_path)
    log.grow(100)
    log.grow(300)
    return log


@READERS
@pytest.mark.parametrize(
    ("file", "at"),
    [
        pytest.param("tile/entries/000", 10, id="an entry"),
        pytest.param("tile/0/000", 32 * 4, id="a leaf hash"),
        pytest.param("tile/0/001.p/44", 0, id="a leaf hash at the edge"),
        pytest.param("tile/1/000.p/1", 31, id="the root of a tile"),
        pytest.param("checkpoint", len(ORIGIN) + 10, id="the root"),
        pytest.param("checkpoint", len(ORIGIN) + 80 + len(ORIGIN), id="the signature"),
    ],
)
def test_one_bit_that_is_changed_is_seen(log: Written, read: Reader, file: str, at: int) -> None:
    """So what the readers say about a tree that is right means something."""
    raw = bytearray((log.folder / file).read_bytes())
    raw[at] ^= 1
    (log.folder / file).write_bytes(raw)
    with pytest.raises(NotVerifiedError):
        read(log.folder, VKEY, [0, 4, 5, 299])


@READERS
def test_another_history_another_log_and_another_key_are_seen(log: Written, read: Reader) -> None:
    other = merkle.Peaks().extend([merkle.leaf_hash(b"another leaf"), *map(merkle.leaf_hash, log.leaves[1:100])])
    with pytest.raises(NotVerifiedError):
        read(log.folder, VKEY, older=[signed(other)])
    with pytest.raises(NotVerifiedError):
        read(log.folder, NoteSigner("issuer.example/log/2", LOG.private_key).verifier.to_text())
    with pytest.raises(NotVerifiedError):
        read(log.folder, NoteSigner(ORIGIN, WITNESS.private_key).verifier.to_text())
    (log.folder / "tile/0/001.p/44").unlink()
    with pytest.raises(NotVerifiedError):
        read(log.folder, VKEY)
