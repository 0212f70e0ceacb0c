"""Programs that share no code with our pure modules read and verify their files: promise P5 of the log."""

from collections.abc import Callable
from pathlib import Path

import pytest

from issuer.tlog import merkle
from issuer.tlog.note import NoteSigner
from tests.support.log_readers import NotVerifiedError, Seen, check_with_go, check_with_scales
from tests.support.tlog import LOG_KEY, ORIGIN, WITNESS_KEYS, Tree, token_leaf

VKEY = NoteSigner(ORIGIN, LOG_KEY).verifier.to_text()

Reader = Callable[..., Seen]
SCALES = pytest.param(check_with_scales, id="scales")
GO = pytest.param(check_with_go, id="go", marks=[pytest.mark.needs_tool("go"), pytest.mark.long])
READERS = pytest.mark.parametrize("read", [SCALES, GO])


def tree_of(size: int) -> Tree:
    return Tree(list(map(token_leaf, range(size))))


def samples(size: int) -> set[int]:
    """Return the indexes at the borders of the tiles of a tree of this size."""
    borders = {0, 1, 2, 255, 256, 257, size // 2, 65_535, 65_536, 65_537, size - 257, size - 256, size - 2, size - 1}
    return borders & set(range(size))


@READERS
@pytest.mark.parametrize(
    "sizes",
    [
        pytest.param((1, 2, 3, 254, 255, 256, 257, 258), id="around one tile"),
        pytest.param((1, 256, 65_534, 65_535, 65_536, 65_537, 65_538), id="around 256 tiles", marks=pytest.mark.long),
    ],
)
def test_a_tree_of_any_size_and_its_history_verify(tmp_path: Path, read: Reader, sizes: tuple[int, ...]) -> None:
    tree, checkpoints = tree_of(sizes[-1]), list[bytes]()
    for size in sizes:
        tree.write(tmp_path, size)
        checkpoints.append((tmp_path / "checkpoint").read_bytes())
        seen = read(tmp_path, VKEY, samples(size), checkpoints)
        assert seen == Seen(ORIGIN, size, tree.root(size), {index: tree.leaves[index] for index in samples(size)})


def test_an_empty_log_verifies(tmp_path: Path) -> None:
    """By one of the readers: sumdb's empty tree has another root than that of RFC 6962."""
    assert check_with_scales(Tree([]).write(tmp_path), VKEY) == Seen(ORIGIN, 0, merkle.EMPTY_ROOT, {})


@pytest.fixture
def log(tmp_path: Path) -> Path:
    tree = tree_of(300)
    tree.write(tmp_path, 100)
    return tree.write(tmp_path)


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
def test_the_readers_notice_one_changed_bit(log: Path, read: Reader, file: str, at: int) -> None:
    raw = bytearray((log / file).read_bytes())
    raw[at] ^= 1
    (log / file).write_bytes(raw)
    with pytest.raises(NotVerifiedError):
        read(log, VKEY, [0, 4, 5, 299])


@READERS
def test_the_readers_notice_another_history_log_or_key(log: Path, read: Reader) -> None:
    other = Tree([b"another leaf", *tree_of(100).leaves[1:]])
    with pytest.raises(NotVerifiedError):
        read(log, VKEY, older=[other.note().to_bytes()])
    with pytest.raises(NotVerifiedError):
        read(log, NoteSigner("issuer.example/log/2", LOG_KEY).verifier.to_text())
    with pytest.raises(NotVerifiedError):
        read(log, NoteSigner(ORIGIN, WITNESS_KEYS[0]).verifier.to_text())
    (log / "tile/0/001.p/44").unlink()
    with pytest.raises(NotVerifiedError):
        read(log, VKEY)
