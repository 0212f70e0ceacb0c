"""A database that is too old gets exactly what is missing, or nothing: on every engine the tree that was published."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from issuer import keyfile
from issuer.errors import SetupError
from issuer.service.log.engines import reading_at
from issuer.service.log.record_places import FileRecord
from issuer.service.log.restore import Source, restore
from issuer.service.log.seal import Seal
from issuer.service.log.setup import LogSettings, read_seal, sequencer_of, turn
from issuer.service.log.store import Reader
from issuer.service.log.tree import Growth, empty_head
from issuer.tlog.merkle import leaf_hash
from issuer.tlog.note import NoteSigner
from tests.support.sequencing import new_log, token_leaf, tokens

SIZE, OLD = 700, 300
LEAVES = [token_leaf(number) for number in range(SIZE)]


def source(leaves: list[bytes]) -> Source:
    def between(first: int, end: int) -> Iterable[bytes]:
        return iter(leaves[first:end])

    return between


@pytest.fixture
def settings(tmp_path: Path) -> LogSettings:
    """A log of 700 leaves whose database was put back to 300."""
    made = new_log(tmp_path)
    folder = Path(made.database).parent
    append(made, range(OLD))
    shutil.copytree(folder, tmp_path / "old")
    append(made, range(OLD, SIZE))
    shutil.rmtree(folder)
    os.rename(tmp_path / "old", folder)
    return made


def append(settings: LogSettings, numbers: Iterable[int]) -> None:
    with turn(settings), closing(sequencer_of(settings)) as sequencer:
        sequencer.start()
        sequencer.append(tokens(*numbers))


def leaves_of(settings: LogSettings) -> list[bytes]:
    reader = Reader(reading_at(settings.database))
    head = reader.head()
    assert head is not None
    return list(reader.leaves(0, head.size))


def test_exactly_the_missing_leaves_come_back(settings: LogSettings) -> None:
    with pytest.raises(SetupError, match=r"log\.rollback"):
        append(settings, [1])
    asked: list[tuple[int, int]] = []

    def between(first: int, end: int) -> Iterable[bytes]:
        asked.append((first, end))
        return iter(LEAVES[first:end])

    assert restore(settings, between).size == SIZE
    assert asked == [(OLD, SIZE)]
    assert leaves_of(settings) == LEAVES
    append(settings, [5, SIZE])
    assert len(leaves_of(settings)) == SIZE + 1


def test_a_lost_database_comes_back_whole(settings: LogSettings) -> None:
    shutil.rmtree(Path(settings.database).parent)
    assert restore(settings, source(LEAVES)).size == SIZE
    append(settings, [SIZE])


def test_nothing_is_asked_for_where_nothing_is_missing(settings: LogSettings) -> None:
    restore(settings, source(LEAVES))

    def nothing(first: int, end: int) -> Iterable[bytes]:
        raise AssertionError

    assert restore(settings, nothing).size == SIZE


@pytest.mark.parametrize(
    "change",
    [
        lambda leaves: leaves[:-1],
        lambda leaves: [*leaves[:-1], token_leaf(10**6)],
        lambda leaves: [*leaves[:400], leaves[401], leaves[400], *leaves[402:]],
        lambda leaves: [*leaves[:400], b"no leaf", *leaves[401:]],
        lambda leaves: [*leaves[:400], leaves[1], *leaves[401:]],
        lambda leaves: leaves[:OLD],
    ],
    ids=["too few", "another last one", "in another order", "no leaf", "one that is there", "none"],
)
def test_a_source_with_another_tree_changes_nothing(
    settings: LogSettings, change: Callable[[list[bytes]], list[bytes]]
) -> None:
    with pytest.raises(SetupError, match=r"log\.rollback|state\.unreachable"):
        restore(settings, source(change(LEAVES)))
    assert leaves_of(settings) == LEAVES[:OLD]
    restore(settings, source(LEAVES))


def test_a_longer_source_gives_no_more_than_was_published(settings: LogSettings) -> None:
    restore(settings, source([*LEAVES, token_leaf(10**6)]))
    assert leaves_of(settings) == LEAVES


def test_leaves_of_a_later_version_come_back_as_they_are(tmp_path: Path) -> None:
    settings = new_log(tmp_path)
    leaves = [token_leaf(1), b"eval-token-issuer/later/v9\na b\n"]
    seal = read_seal(settings)
    with turn(settings), closing(sequencer_of(settings)) as sequencer:
        sequencer.start()
    grown = Growth(empty_head(settings.origin), [leaf_hash(leaf) for leaf in leaves])
    assert restore(settings, source(leaves), [seal.sign(grown.head)]).size == 2
    assert leaves_of(settings) == leaves


def test_without_a_record_the_source_s_own_checkpoint_will_do_if_the_log_signed_it(settings: LogSettings) -> None:
    (record,) = Path(settings.records).iterdir()
    note = record.read_bytes()
    record.unlink()
    with pytest.raises(SetupError, match=r"log\.unrecorded"):
        restore(settings, source(LEAVES))
    stranger = Seal(NoteSigner(settings.origin, keyfile.generate()))
    assert stranger.read(note) is None
    with pytest.raises(SetupError, match=r"log\.unrecorded"):
        restore(replace(settings), source(LEAVES), [note.replace(b"\n700\n", b"\n701\n")])
    assert restore(settings, source(LEAVES), [note]).size == SIZE
    assert FileRecord(Path(settings.records), settings.origin).read() == note
