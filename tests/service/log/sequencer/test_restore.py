"""A restore writes exactly the signed leaves, whatever a source and its reader say; on each engine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
import redis

from issuer.codes import Code
from issuer.errors import SetupError
from issuer.service.admission.embedded import EmbeddedValkey
from issuer.service.log.database.engines import SCHEME, reading_at
from issuer.service.log.database.store import Reader, TreeHead
from issuer.service.log.sequencer.restore import restore
from issuer.service.log.sequencer.setup import LogSettings, read_seal, records_of, sequencer_of, turn
from issuer.tlog.checkpoint import Checkpoint
from issuer.tlog.leaf import AuditLeaf
from issuer.tlog.merkle import Peaks, leaf_hash
from tests.support.log_store import Place
from tests.support.sequencing import new_log, token_leaf, tokens

LEAVES = [token_leaf(number) for number in range(1200)]


class Claimed:
    """A source with the given leaves; its reader compares nothing. Implements `restore.Source`."""

    name = "a source"

    def __init__(self, leaves: list[bytes], *, size: int | None = None, note: bytes | None = None) -> None:
        self.given = leaves
        self.size = len(leaves) if size is None else size
        self.note = note

    def tree(self, _: Checkpoint) -> Claimed:
        return self

    def leaves(self, start: int = 0, /) -> Iterator[tuple[int, bytes]]:
        return iter(list(enumerate(self.given))[start:])

    def peaks(self, size: int, /) -> Peaks:
        return Peaks().extend(map(leaf_hash, self.given[:size]))

    def cosigned(self) -> Iterable[tuple[int, bytes]]:
        return ()


class Honest(Claimed):
    """Says of any tree what the published one was, and returns other leaves."""

    def peaks(self, size: int, /) -> Peaks:
        return Peaks().extend(map(leaf_hash, LEAVES[:size]))


@pytest.fixture(scope="module")
def store() -> Iterator[str]:
    with EmbeddedValkey() as url:
        yield url


@pytest.fixture
def settings(place: Place, store: str, tmp_path: Path) -> LogSettings:
    """A log that was published up to 1,200 leaves, of which the database has the first 600."""
    forget(store)
    log = new_log(tmp_path, database=place.setting, store_url=store if place.setting.startswith(SCHEME) else "")
    appended(log, 600)
    return log


def forget(store: str) -> None:
    with redis.Redis.from_url(store, protocol=2) as client:
        client.flushall()


def appended(log: LogSettings, size: int) -> bytes:
    with turn(log), closing(sequencer_of(log)) as sequencer:
        sequencer.start()
        for start in range(0, size, 300):
            sequencer.append(tokens(*range(start, min(start + 300, size))))
        assert sequencer.published is not None
        return sequencer.published.note


def publish(log: LogSettings, leaves: list[bytes]) -> None:
    """Have the record say that this was published, as a sequencer would whose database is lost."""
    seal = read_seal(log)
    peaks = Peaks().extend(map(leaf_hash, leaves))
    with closing(records_of(log, seal)) as records:
        records.raise_to(seal.sign(TreeHead(log.origin, peaks.root, peaks)), lambda _: None)


def refused(log: LogSettings, source: Claimed) -> SetupError:
    with pytest.raises(SetupError) as error:
        restore(log, source)
    return error.value


def head_of(log: LogSettings) -> int:
    """Return how many leaves the database has, which must be the first of the published ones."""
    reading = reading_at(log.database)
    reader = Reader(reading)
    head = reader.head()
    assert head is not None
    assert list(reader.leaves(0, head.size)) == LEAVES[: head.size]
    reading.close()
    return head.size


def test_exactly_what_is_missing_is_appended_and_the_log_goes_on(settings: LogSettings) -> None:
    publish(settings, LEAVES)
    done = restore(settings, Claimed(LEAVES))
    assert (done.before, done.head.size, done.is_recorded) == (600, 1200, True)
    assert head_of(settings) == 1200
    assert restore(settings, Claimed(LEAVES)).before == 1200
    assert done.by.startswith(settings.records)
    with turn(settings), closing(sequencer_of(settings)) as sequencer:
        sequencer.start()
        places = sequencer.append(tokens(0, 1199, 1200))
    assert [place.index for place in places if place] == [0, 1199, 1200]


def test_what_a_source_has_beyond_the_record_is_left_there(settings: LogSettings) -> None:
    """It was committed and never published: its callers were answered that the outcome is unknown."""
    publish(settings, LEAVES[:900])

    class Beyond(Honest):
        def leaves(self, start: int = 0, /) -> Iterator[tuple[int, bytes]]:
            return iter(list(enumerate(LEAVES[:900]))[start:])

    assert restore(settings, Beyond(LEAVES)).head.size == 900
    assert head_of(settings) == 900


LIES: dict[str, Callable[[], Claimed]] = {
    "another leaf": lambda: Honest([*LEAVES[:700], token_leaf(5000), *LEAVES[701:]]),
    "a leaf at the end": lambda: Honest([*LEAVES[:1199], token_leaf(5000)]),
    "two leaves exchanged": lambda: Honest([*LEAVES[:700], LEAVES[701], LEAVES[700], *LEAVES[702:]]),
    "one leaf more": lambda: Honest([*LEAVES, token_leaf(5000)]),
    "another tree, all of it": lambda: Claimed([token_leaf(number) for number in range(1, 1201)]),
    "another tree behind ours": lambda: Claimed([*LEAVES[:600], *(token_leaf(number) for number in range(2000, 2600))]),
    "bytes that are not a leaf": lambda: Honest([*LEAVES[:700], b"x", *LEAVES[701:]]),
    "one leaf less than it says": lambda: Honest(LEAVES[:1199], size=1200),
}


def test_a_source_that_lies_is_refused_before_anything_of_it_counts(tmp_path: Path) -> None:
    for lie, source in LIES.items():
        (tmp_path / lie).mkdir()
        settings = new_log(tmp_path / lie)
        appended(settings, 600)
        publish(settings, LEAVES)
        assert refused(settings, source()).code == Code.LOG_ROLLBACK, lie
        assert head_of(settings) < 1200, lie
        assert restore(settings, Claimed(LEAVES)).head.size == 1200, lie


def test_without_any_signed_checkpoint_nothing_is_restored(settings: LogSettings, store: str) -> None:
    forget(store)
    for record in Path(settings.records).iterdir():
        record.unlink()
    assert refused(settings, Claimed(LEAVES)).code == Code.LOG_UNRECORDED
    assert head_of(settings) == 600


def test_a_checkpoint_of_another_key_is_none(settings: LogSettings, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = new_log(tmp_path / "other")
    note = appended(other, 1200)
    assert "not signed by this log" in refused(settings, Claimed(LEAVES, note=note)).detail


def test_a_leaf_of_a_kind_that_a_later_version_wrote_comes_back_as_it_is(settings: LogSettings) -> None:
    leaf = AuditLeaf("https://issuer.example", "f" * 32, "0" * 64).to_bytes().replace(b"audit/v1", b"audit/v9")
    leaves = [*LEAVES[:600], leaf]
    publish(settings, leaves)
    assert restore(settings, Claimed(leaves)).head.size == 601
