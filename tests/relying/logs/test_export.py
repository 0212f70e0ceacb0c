"""An export is a complete tree after every run and every kill, and never becomes another tree."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from issuer.errors import VerificationError
from issuer.relying.logs.reader import FolderFiles, LogFiles, TimedCheckpoint, export, parse_head, read_unverified_head
from issuer.relying.logs.reader import Tree as Read
from tests.support.log_readers import Seen as Other
from tests.support.log_readers import check_with_go, check_with_scales
from tests.support.tlog import ANNOUNCED, InMemory, Tree, token_leaf

TREE = Tree([*ANNOUNCED, *map(token_leaf, range(598))])
FILES = TREE.files()


class Stops(Exception):
    """The process is killed here."""


class Served(InMemory):
    """A log; `after` so many reads its reader is killed."""

    def __init__(self, files: dict[str, bytes], after: int = 10_000) -> None:
        super().__init__(files)
        self._after = after

    def read(self, path: str, max_bytes: int) -> bytes | None:
        if len(self.asked) >= self._after:
            raise Stops
        return super().read(path, max_bytes)


def bring(log: LogFiles, folder: Path) -> int:
    return export(log, read_unverified_head(log), folder)


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def assert_whole(folder: Path, leaves: list[bytes]) -> None:
    log = FolderFiles(folder)
    read = Read(log, read_unverified_head(log).checkpoint)
    assert [leaf for _, leaf in read.leaves()] == leaves


def test_an_export_is_the_log_s_files_byte_for_byte_for_a_web_server_of_another_user(tmp_path: Path) -> None:
    for size in (0, 1, 2, 256, 600):
        assert bring(Served(TREE.files(size)), tmp_path / str(size)) == 0
        assert files_of(tmp_path / str(size)) == TREE.files(size)
    before = os.umask(0o022)
    try:
        bring(Served(FILES), tmp_path / "new")
    finally:
        os.umask(before)
    folders = [tmp_path / "new", *(path for path in (tmp_path / "new").rglob("*") if path.is_dir())]
    assert {path.stat().st_mode & 0o777 for path in folders} == {0o755}
    assert (tmp_path / "new/tile/0/000").stat().st_mode & 0o777 == 0o644


def test_an_export_grows_and_full_files_replace_partial_ones(tmp_path: Path) -> None:
    for small, large in ((0, 1), (1, 2), (2, 256), (255, 257), (256, 512), (300, 301), (300, 600)):
        folder = tmp_path / f"{small}-{large}"
        bring(Served(TREE.files(small)), folder)
        assert bring(Served(TREE.files(large)), folder) == small
        left = files_of(folder).keys() - TREE.files(large).keys()
        assert all(".p/" in path and path in TREE.files(small) for path in left), "partial files, until they are full"
        assert not [path for path in left if path.partition(".p/")[0] in TREE.files(large)]
        assert_whole(folder, TREE.leaves[:large])


WITH_GO = pytest.param(check_with_go, marks=[pytest.mark.needs_tool("go"), pytest.mark.long])


@pytest.mark.parametrize("read", [check_with_scales, WITH_GO], ids=["scales", "go"])
def test_an_export_is_read_by_programs_of_others(tmp_path: Path, read: Callable[..., Other]) -> None:
    vkey = TREE.signer.verifier.to_text()
    notes = []
    for size in (5, 256, 300, 600):
        bring(Served(TREE.files(size)), tmp_path)
        notes.append((tmp_path / "checkpoint").read_bytes())
        seen = read(tmp_path, vkey, {0, size - 1}, notes)
        assert (seen.size, seen.root, seen.entries[size - 1]) == (size, TREE.root(size), TREE.leaves[size - 1])


@pytest.mark.long
def test_an_export_grows_over_256_full_tiles(tmp_path: Path) -> None:
    tree = Tree(list(map(token_leaf, range(65_538))))
    for size in (65_534, 65_535, 65_536, 65_537, 65_538):
        bring(Served(tree.files(size)), tmp_path)
        assert_whole(tmp_path, tree.leaves[:size])


def test_existing_files_are_not_fetched_again(tmp_path: Path) -> None:
    bring(Served(TREE.files(512)), tmp_path)
    again, more = Served(TREE.files(512)), Served(TREE.files(600))
    bring(again, tmp_path)
    assert again.asked == ["checkpoint"]
    bring(more, tmp_path)
    assert len(more.asked) <= 8, "the edge, twice, and a bundle"


def test_a_killed_export_leaves_a_complete_tree_and_the_next_one_continues(tmp_path: Path) -> None:
    bring(Served(TREE.files(300)), tmp_path)
    fetched = []
    for after in range(1, 30):
        log = Served(FILES, after)
        try:
            export(log, parse_head(FILES["checkpoint"]), tmp_path)
        except Stops:
            assert_whole(tmp_path, TREE.leaves[:300])
            fetched += [path for path in log.asked if ".p/" not in path]
            continue
        break
    assert_whole(tmp_path, TREE.leaves)
    assert len(fetched) >= 2


def test_a_kill_between_any_two_files_is_survived(tmp_path: Path) -> None:
    for stop in range(1, 8):
        folder = tmp_path / str(stop)
        bring(Served(TREE.files(10)), folder)

        def tick(done: int, stop: int = stop) -> None:
            if done == stop:
                raise Stops

        log = Served(FILES)
        with pytest.raises(Stops):
            export(log, read_unverified_head(log), folder, tick)
        assert_whole(folder, TREE.leaves[:10])
        again = Served(FILES)
        assert bring(again, folder) == 10
        assert files_of(folder).items() >= FILES.items()
        assert len([path for path in again.asked if "entries" in path]) <= 3 - min(stop, 3)


def test_an_export_never_becomes_another_tree_and_reads_no_damaged_file(tmp_path: Path) -> None:
    forked = Tree([*TREE.leaves[:299], token_leaf(9999), *TREE.leaves[300:]])
    cases: list[tuple[dict[str, bytes], str]] = [
        (forked.files(), "first 300 leaves differ from those"),
        (forked.files(300), "first 300 leaves differ from those"),
        (TREE.files(299), "only 299"),
        (Tree(TREE.leaves, origin="log.example/other").files(), "log.example/other"),
        ({**FILES, "tile/entries/001": b"\0\1x"}, "tile/entries/001"),
    ]
    bring(Served(TREE.files(300)), tmp_path)
    for files, why in cases:
        with pytest.raises(VerificationError, match=why):
            bring(Served(files), tmp_path)
        assert_whole(tmp_path, TREE.leaves[:300])
    for size, why in ((8192, "does not match its hash"), (8193, f"of memory, or {tmp_path}: larger than 8192")):
        (tmp_path / "tile/0/001").write_bytes(b"x" * size)
        with pytest.raises(VerificationError, match=f"tile/0/001 {why}"):
            bring(Served(FILES), tmp_path)
    (tmp_path / "tile/0/001").unlink()
    bring(Served(FILES), tmp_path)
    assert_whole(tmp_path, TREE.leaves)


def test_a_folder_may_be_a_link_but_no_link_in_it_is_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "disk").mkdir()
    (tmp_path / "mirror").symlink_to("disk")
    bring(Served(FILES), tmp_path / "mirror")
    assert_whole(tmp_path / "disk", TREE.leaves)
    (tmp_path / "planted/tile").mkdir(parents=True)
    (tmp_path / "planted/tile/entries").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic link"):
        bring(Served(FILES), tmp_path / "planted")
    assert not list((tmp_path / "elsewhere").iterdir())


def test_a_malformed_checkpoint_is_refused() -> None:
    for raw in (b"", b"x", FILES["checkpoint"].replace(b"\n600\n", b"\n0600\n"), b"\xff\n\n"):
        with pytest.raises(VerificationError, match="checkpoint"):
            read_unverified_head(Served({"checkpoint": raw}))
    assert isinstance(read_unverified_head(Served(FILES)), TimedCheckpoint)
