"""A log's files are believed in nothing: every wrong byte in any of them is found, and named."""

import random
from pathlib import Path

import pytest

from issuer.codes import Code
from issuer.errors import InputError, VerificationError
from issuer.relying.logs.reader import FolderFiles, open_log, parse_head
from issuer.relying.logs.reader import Tree as Read
from issuer.tlog.tiles import WIDTH, tile_path, write_entries
from tests.support.tlog import ANNOUNCED, InMemory, Tree, token_leaf

SIZES = (1, 2, 254, 255, 256, 257, 258, 511, 512, 513)


def tree_of(count: int) -> Tree:
    return Tree([*ANNOUNCED, *map(token_leaf, range(count - 2))][:count])


BIG = tree_of(2 * WIDTH + 3)
FILES = BIG.files()


def read_all(files: dict[str, bytes], start: int = 0) -> list[bytes]:
    read = Read(InMemory(files), parse_head(files["checkpoint"]).checkpoint)
    return [leaf for _, leaf in read.leaves(start)]


def test_every_leaf_is_read_from_any_index_on_and_a_prefix_known_by_its_root() -> None:
    assert read_all(Tree([]).files()) == []
    for size in SIZES:
        files = BIG.files(size)
        read = Read(InMemory(files), parse_head(files["checkpoint"]).checkpoint)
        for start in {0, 1, size - 1, size, min(size, 256)}:
            assert list(read.leaves(start)) == list(enumerate(BIG.leaves[start:size], start))
    log = InMemory(FILES)
    read = Read(log, parse_head(FILES["checkpoint"]).checkpoint)
    assert list(read.leaves()) == list(enumerate(BIG.leaves))
    assert len(log.asked) == len(set(log.asked)) == len(FILES) - 1, "no file is read twice"
    assert [read.peaks(size).root for size in SIZES] == [BIG.root(size) for size in SIZES]


def test_a_tree_with_two_levels_of_full_tiles_is_read_and_a_wrong_byte_in_it_found() -> None:
    tree = Tree([b"%d" % number for number in range(WIDTH * WIDTH + WIDTH + 1)])
    files = tree.files()
    log = InMemory(files)
    read = Read(log, parse_head(files["checkpoint"]).checkpoint)
    assert [leaf for _, leaf in read.leaves()] == tree.leaves
    assert len(log.asked) == len(set(log.asked)), "no file is read twice"
    for path, start in {"tile/1/000": 0, "tile/0/256": WIDTH**2, "tile/1/001.p/1": 0, "tile/2/000.p/1": 0}.items():
        with pytest.raises(VerificationError):
            read_all({**files, path: files[path][:-1] + b"x"}, start)


def test_a_wrong_or_missing_byte_in_any_file_is_found_and_the_file_named() -> None:
    for path, raw in FILES.items():
        if path == "checkpoint":
            continue
        chosen = random.Random(path)
        for at in {0, 1, len(raw) - 1, *(chosen.randrange(len(raw)) for _ in range(8))}:
            damaged = raw[:at] + bytes([raw[at] ^ 1 << chosen.randrange(8)]) + raw[at + 1 :]
            with pytest.raises(VerificationError):
                read_all({**FILES, path: damaged})
        others = {name: other for name, other in FILES.items() if name != path}
        for changed in (others, *({**others, path: text} for text in (raw[:-1], b"", raw * 2))):
            with pytest.raises(VerificationError) as refused:
                read_all(changed)
            assert path.partition(".p")[0] in refused.value.detail or "leaf" in refused.value.detail


def test_a_wrong_leaf_is_named_by_its_index() -> None:
    other = [*BIG.leaves[:77], token_leaf(10_000), *BIG.leaves[78:WIDTH]]
    swapped = [BIG.leaves[1], BIG.leaves[0], *BIG.leaves[2:WIDTH]]
    for leaves, index in ((other, 77), (swapped, 0)):
        with pytest.raises(VerificationError, match=f"leaf {index} "):
            read_all({**FILES, tile_path("entries", 0): write_entries(leaves)})


def test_files_that_match_each_other_must_also_match_the_root() -> None:
    other = Tree([token_leaf(10_000), *BIG.leaves[1:]]).files()
    both = {path: other[path] for path in (tile_path("entries", 0), tile_path(0, 0))}
    with pytest.raises(VerificationError, match="tile/0/000 does not match its hash"):
        read_all({**FILES, **both})
    with pytest.raises(VerificationError, match="the checkpoint's root"):
        read_all({**other, "checkpoint": FILES["checkpoint"]})


def test_a_partial_file_may_have_become_full_and_has_as_many_entries_as_it_says() -> None:
    files = {**BIG.files(300)}
    for path in [path for path in files if "001.p" in path]:
        del files[path]
    files |= {path: raw for path, raw in BIG.files(512).items() if path in {tile_path("entries", 1), tile_path(0, 1)}}
    assert read_all(files) == BIG.leaves[:300]
    with pytest.raises(VerificationError, match="has 4 leaves"):
        read_all({**FILES, tile_path("entries", 2, 3): write_entries([*BIG.leaves[2 * WIDTH :], token_leaf(9)])})


def test_a_folder_is_read_by_its_path_and_by_a_file_url(tmp_path: Path) -> None:
    folder = BIG.write(tmp_path / "a log")
    quoted = str(folder).replace(" ", "%20")
    for source in (str(folder), f"file:{folder}", f"file://{quoted}", f"file://localhost{folder}"):
        assert open_log(source).read("checkpoint", 10_000) == FILES["checkpoint"]
    for source in (str(tmp_path / "none"), "file:///none", "ftp://x"):
        with pytest.raises(InputError, match="neither a folder"):
            open_log(source)


def test_links_and_large_files_in_a_folder_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x")
    (tmp_path / "checkpoint").symlink_to("secret")
    with pytest.raises(InputError, match="symbolic link"):
        FolderFiles(tmp_path).read("checkpoint", 100)
    with pytest.raises(InputError) as told:
        FolderFiles(tmp_path).read("secret", 0)
    assert told.value.code is Code.FILE_TOO_LARGE
