"""Tiles: their paths in one spelling, the tiles of a tree and of its growth, entry bundles, and proofs from tiles."""

from collections.abc import Iterator
from functools import cache
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from issuer.codes import Code
from issuer.errors import FormatError
from issuer.tlog import merkle, tiles
from issuer.tlog.tiles import TilePath, parse_tile_path, tile_path

LEAVES = [merkle.leaf_hash(b"leaf %d" % number) for number in range(70_000)]


def test_a_path_has_one_spelling_and_another_one_is_no_path() -> None:
    for path, text in (
        (TilePath(0, 0), "tile/0/000"),
        (TilePath(0, 0, 1), "tile/0/000.p/1"),
        (TilePath(63, 999, 255), "tile/63/999.p/255"),
        (TilePath(1, 1000), "tile/1/x001/000"),
        (TilePath("entries", 1234067, 8), "tile/entries/x001/x234/067.p/8"),
        (TilePath("entries", 10**15), "tile/entries/x001/x000/x000/x000/x000/000"),
    ):
        assert str(path) == tile_path(path.level, path.index, path.width) == text
        assert parse_tile_path(text) == path
    spelled = (
        "", "tile", "tile/0", "tile/0/", "/tile/0/000", "tile/0/000/", "tile//000", "tile/0//000", " tile/0/000",
        "tile/0/0", "tile/0/00", "tile/0/0000", "tile/0/1000", "tile/0/001/000", "tile/0/x001", "tile/0/x001/x000",
        "tile/0/x000/000", "tile/0/x000/001", "tile/0/x000/x001/000", "tile/0/X001/000", "tile/0/x01/000",
        "tile/0/../000", "tile/../0/000", "tile/0/..", "tile/0/.", "tile/0/x001/..", "tile/0/x001/../x001/000",
        "tile/0/000.p/0", "tile/0/000.p/256", "tile/0/000.p/257", "tile/0/000.p/999", "tile/0/000.p/1000",
        "tile/0/000.p/01", "tile/0/000.p/001", "tile/0/000.p/-1", "tile/0/000.p/+1", "tile/0/000.p/", "tile/0/000.p",
        "tile/0/000.p/1/", "tile/0/000.P/1", "tile/0/000p/1", "tile/0/000/p/1", "tile/0/000.p/1.p/1",
        "tile/00/000", "tile/01/000", "tile/64/000", "tile/99/000", "tile/100/000", "tile/-1/000", "tile/+1/000",
        "tile/8/0/000", "tile/Entries/000", "tile/data/000", "tile/entries", "tile/entries/0", "tile/entries/x000/000",
        "tile/entries/000.p/0", "tile/entries/000.p/256", "tile/0/000\n", "tile/0/000\x00", "tile/0/%30%30%30",
        "tile/\N{ARABIC-INDIC DIGIT ONE}/000", "tile/0/00\N{ARABIC-INDIC DIGIT ONE}", "tile/0/\N{FULLWIDTH DIGIT ZERO}00",
        "tile/0/" + "x999/" * 6 + "999", "tile/0/x001/" + "x000/" * 6 + "000", "tile/0/" + "x001/" * 5000 + "000",
    )  # fmt: skip
    assert [text for text in spelled if parse_tile_path(text)] == []


@given(
    st.text("tile/entris0123x.p-", max_size=30)
    | st.from_regex(r"tile/[0-9]{1,3}/(x?[0-9]{3}/){0,3}[0-9]{3}(\.p/[0-9]+)?")
)
def test_every_path_is_written_as_it_was_read(text: str) -> None:
    path = parse_tile_path(text)
    assert path is None or str(path) == text


def test_a_tree_has_the_tiles_of_the_specification_s_example_and_small_growth_few() -> None:
    found = [path for path in tiles.tiles_between(0, 70_000) if path.level != "entries"]
    partial = ["tile/0/273.p/112", "tile/1/001.p/17", "tile/2/000.p/1"]
    assert [str(path) for path in found if path.width < 256] == partial
    assert [str(path) for path in found if path.level == 1] == ["tile/1/000", "tile/1/001.p/17"]
    assert [path.index for path in found if path.level == 0] == list(range(274))
    assert [str(path) for path in tiles.tiles_between(0, 256)] == ["tile/entries/000", "tile/0/000", "tile/1/000.p/1"]
    assert list(tiles.tiles_between(0, 0)) == []
    assert [str(path) for path in tiles.tiles_between(10**12, 10**12 + 1)] == [
        "tile/entries/x003/x906/x250/000.p/1", "tile/0/x003/x906/x250/000.p/1",
    ]  # fmt: skip
    assert next(tiles.tiles_between(0, 10**12)) == TilePath("entries", 0)


def is_within(path: TilePath, size: int) -> bool:
    """Return whether a tree of `size` leaves has all of a tile."""
    return path.index * tiles.WIDTH + path.width <= tiles.hashes_at(path.level, size)


def test_a_tree_has_all_its_tiles_and_none_beyond() -> None:
    for size in (1, 255, 256, 257, 65_535, 65_536, 65_537, 70_000):
        found = list(tiles.tiles_between(0, size))
        places = {(tile.level, tile.index) for tile in found}
        for path in found:
            assert is_within(path, size)
            assert path.width == 256 or not is_within(TilePath(path.level, path.index, path.width + 1), size)
            behind = TilePath(path.level, path.index + 1, 1)
            assert is_within(behind, size) == ((behind.level, behind.index) in places)
        assert not is_within(TilePath(7, 0, 1), size)
        assert not is_within(TilePath(63, 0, 1), size)


SIZES = st.integers(0, 2**16)


@given(SIZES, SIZES)
def test_a_tree_and_its_growth_have_the_tiles_of_the_larger_tree(one: int, other: int) -> None:
    size1, size2 = sorted((one, other))
    before, gained, after = (list(tiles.tiles_between(*sizes)) for sizes in ((0, size1), (size1, size2), (0, size2)))
    assert len(set(gained)) == len(gained)
    assert not set(before) & set(gained)
    full = {path for path in before if path.width == 256}
    assert full | set(gained) | set(before) & set(after) == set(after)


def stored(*batches: list[bytes]) -> dict[tuple[int, int], bytes]:
    """Build a tree by batches of leaf hashes, and return the hashes of its tiles."""
    peaks, kept = merkle.Peaks(), {}
    for batch in batches:
        peaks, gained = tiles.extend(peaks, batch)
        for level, index, hashed in gained:
            assert (level, index) not in kept
            kept[level, index] = hashed
        assert peaks == grown(peaks.size)
    return kept


@cache
def grown(size: int) -> merkle.Peaks:
    return merkle.Peaks().extend(LEAVES[:size])


class Tiles:
    """Tiles out of kept hashes, with the paths that were asked for."""

    def __init__(self, kept: dict[tuple[int, int], bytes]) -> None:
        self.kept, self.asked = kept, list[str]()

    def __call__(self, level: int, index: int, width: int) -> bytes:
        self.asked.append(tile_path(level, index, width))
        return b"".join(self.kept[level, index * 256 + number] for number in range(width))


KEPT = stored(LEAVES)


def test_batches_of_any_size_give_the_hashes_of_the_whole_tree() -> None:
    ends = (0, 1, 2, 255, 256, 257, 511, 1234, 65_536, 70_000)
    assert stored(*(LEAVES[start:end] for start, end in pairwise(ends))) == KEPT
    assert all(KEPT[1, index] == merkle.root(LEAVES[index * 256 : index * 256 + 256]) for index in range(273))


def test_proofs_out_of_tiles_verify() -> None:
    for size in (1, 2, 255, 256, 257, 65_535, 65_536, 65_537, 65_793):
        node, head = tiles.node_of_tiles(Tiles(KEPT), size), grown(size).root
        assert merkle.peaks_of(size, node).root == head
        for index in {0, 1, size // 2, size - 257, size - 256, size - 1} & set(range(size)):
            proof = merkle.inclusion_proof(index, size, node)
            assert merkle.verify_inclusion(index, size, LEAVES[index], proof, head)
        for before in {1, 255, 256, 257, size - 1, size} & set(range(1, size + 1)):
            proof = merkle.consistency_proof(before, size, node)
            assert merkle.verify_consistency(before, size, grown(before).root, head, proof)


def test_a_proof_asks_for_each_tile_once_and_refuses_one_of_another_width() -> None:
    read = Tiles(KEPT)
    node = tiles.node_of_tiles(read, 70_000)
    for index in range(69_990, 70_000):
        merkle.inclusion_proof(index, 70_000, node)
    assert sorted(read.asked) == ["tile/0/273.p/112", "tile/1/001.p/17", "tile/2/000.p/1"]
    for hashes in (0, 111, 113, 256):
        for raw in (bytes(32 * hashes), bytes(32 * hashes + 31)):
            node = tiles.node_of_tiles(lambda *_, raw=raw: raw, 112)
            with pytest.raises(FormatError) as caught:
                merkle.inclusion_proof(0, 112, node)
            assert caught.value.code is Code.LOG_MALFORMED
            assert "tile/0/000.p/112" in caught.value.detail


def test_entries_have_their_length_in_two_bytes_and_are_read_as_they_were_written() -> None:
    for count in (1, 2, 255, 256):
        leaves = [bytes([count % 7]) * (number % 80) for number in range(count)]
        assert tiles.read_entries(tiles.write_entries(leaves)) == tuple(leaves)
    assert tiles.write_entries([b"a", b"", b"b" * 258]) == b"\x00\x01a\x00\x00\x01\x02" + b"b" * 258
    assert tiles.read_entries(tiles.write_entries([b"c" * 65_535])) == (b"c" * 65_535,)
    with pytest.raises(FormatError):
        tiles.write_entries([b"c" * 65_536])


def torn(raw: bytes) -> Iterator[bytes]:
    yield from (raw[:end] for end in range(len(raw)) if end != 3)
    yield raw + b"\x00"


def test_a_bundle_that_is_torn_empty_or_too_long_is_refused() -> None:
    bundles = (*torn(b"\x00\x01a\x00\x02bc"), *torn(b"\x00\x01a\x00\x00"))
    for raw in (*bundles, b"\x00\x00" * 257, b"\xff\xff" + b"a" * 65_534):
        with pytest.raises(FormatError) as caught:
            tiles.read_entries(raw)
        assert caught.value.code is Code.LOG_MALFORMED
