"""Records outside of the database: only signed heads count, a record never goes back, and silence is an error."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import redis
from msgspec.structs import replace

from issuer.codes import Code
from issuer.errors import SetupError, Undecided
from issuer.io import keyfile
from issuer.service.admission.embedded import EmbeddedValkey
from issuer.service.log.database.store import TreeHead
from issuer.service.log.sequencer.records import (
    Evidence,
    FileRecord,
    HeadRecord,
    Records,
    RecordSilent,
    RedisRecord,
    Seal,
)
from issuer.tlog.merkle import Peaks
from issuer.tlog.note import NoteSigner, parse_note
from tests.support.disk import disk_calls
from tests.support.log_store import EMPTY, ORIGIN, Place, sqlite_place
from tests.support.sequencing import Log, tokens
from tests.support.stores import Store as Valkey


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with EmbeddedValkey() as embedded:
        yield embedded


@pytest.fixture
def seal(url: str) -> Seal:
    with redis.Redis.from_url(url, protocol=2) as client:
        client.flushall()
    return Seal(NoteSigner(ORIGIN, keyfile.generate()))


def head(size: int) -> TreeHead:
    return TreeHead(ORIGIN, size.to_bytes(32, "big"), Peaks(size))


# -- the log's own hand ----------------------------------------------------------------------------------------------------


def test_a_head_has_one_checkpoint_whenever_it_is_signed(seal: Seal) -> None:
    note = seal.sign(head(7))
    assert seal.sign(head(7)) == note
    assert parse_note(note).to_bytes() == note
    found = seal.read(note)
    assert found is not None
    assert (found.origin, found.size, found.root) == (ORIGIN, 7, head(7).root)


def test_what_another_key_or_another_log_signed_is_not_read(seal: Seal) -> None:
    assert Seal(NoteSigner(ORIGIN, keyfile.generate())).read(seal.sign(head(7))) is None
    assert seal.read(seal.sign(replace(head(7), origin="issuer.example/log/other"))) is None
    assert seal.read(seal.sign(head(7)).replace(b"\n7\n", b"\n8\n")) is None
    assert seal.read(b"7") is None


# -- a file ----------------------------------------------------------------------------------------------------------------


def test_a_file_is_on_the_disk_with_its_name_before_it_counts(tmp_path: Path) -> None:
    record = FileRecord(tmp_path, ORIGIN)
    assert disk_calls(lambda: record.write(b"a note")) == ["file", "rename", "folder"]
    assert record.read() == b"a note"
    (file,) = tmp_path.iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    assert FileRecord(tmp_path, "issuer.example/log/other").read() is None, "each log has its own file"


def test_a_further_note_is_one_write_in_place_of_the_one_before_the_last(tmp_path: Path) -> None:
    record = FileRecord(tmp_path, ORIGIN)
    record.write(b"note 0")
    (file,) = tmp_path.iterdir()
    for number in range(1, 6):
        before = file.read_bytes()
        assert disk_calls(lambda: record.write(b"note %d" % number)) == ["file"]  # noqa: B023
        assert record.read() == FileRecord(tmp_path, ORIGIN).read() == b"note %d" % number
        halves = zip((before[:4096], before[4096:]), (file.read_bytes()[:4096], file.read_bytes()[4096:]), strict=True)
        assert [old == new for old, new in halves].count(True) == 1


def test_a_note_that_was_not_written_to_its_end_leaves_the_one_before_it(tmp_path: Path) -> None:
    for written in (0, 1, 86, 90, 100):
        folder = tmp_path / str(written)
        folder.mkdir()
        record = FileRecord(folder, ORIGIN)
        for note in (b"older", b"old"):
            record.write(note)
        (file,) = folder.iterdir()
        before = file.read_bytes()
        record.write(b"a new note")
        file.write_bytes(file.read_bytes()[:written] + before[written:])
        assert record.read() == b"old", written
        record.write(b"again")
        assert record.read() == b"again", written


def test_a_file_without_one_whole_note_is_silence_until_it_is_written_anew(tmp_path: Path) -> None:
    record = FileRecord(tmp_path, ORIGIN)
    record.write(b"a note")
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes().replace(b"a note", b"a vote"))
    with pytest.raises(RecordSilent, match="a complete checkpoint"):
        record.read()
    record.write(b"anew")
    assert record.read() == b"anew"


def test_a_note_without_room_and_a_link_in_its_place_are_refused(tmp_path: Path) -> None:
    record = FileRecord(tmp_path, ORIGIN)
    with pytest.raises(RecordSilent, match="too long"):
        record.write(b"x" * 4096)
    record.write(b"a note")
    (file,) = tmp_path.iterdir()
    file.rename(tmp_path / "elsewhere")
    file.symlink_to("elsewhere")
    with pytest.raises(RecordSilent):
        record.write(b"another")


def test_a_file_that_is_none_is_silence(tmp_path: Path) -> None:
    record = FileRecord(tmp_path, ORIGIN)
    assert record.read() is None
    record.write(b"x")
    (file,) = tmp_path.iterdir()
    file.unlink()
    file.mkdir()
    with pytest.raises(RecordSilent):
        record.read()
    with pytest.raises(RecordSilent):
        record.write(b"y")


# -- the store of limits ---------------------------------------------------------------------------------------------------


class Raised:
    """The records of one host, raised as its sequencer does: `found` are the sizes that were there, and not its own."""

    def __init__(self, seal: Seal, record: HeadRecord) -> None:
        self._seal, self._records, self.found = seal, Records(seal, [record]), list[int]()

    def to(self, at: TreeHead) -> None:
        self._records.raise_to(self._seal.sign(at), lambda kept: self.found.append(kept.checkpoint.size))


def test_the_store_keeps_the_newest_of_several_hosts(url: str, seal: Seal) -> None:
    with closing(RedisRecord(url, ORIGIN)) as one, closing(RedisRecord(url, ORIGIN)) as other:
        assert one.read() is None
        here, there = Raised(seal, one), Raised(seal, other)
        for host, size in ((here, 3), (there, 5), (here, 4), (here, 6)):
            host.to(head(size))
        assert (here.found, there.found) == ([5], [3])
        assert other.read() == seal.sign(head(6))


def test_what_somebody_else_has_published_is_never_replaced_unseen(url: str, seal: Seal) -> None:
    """Of a smaller tree, too: it may be the beginning of another history."""

    def demand(_: Evidence) -> None:
        raise SetupError(Code.LOG_ROLLBACK, "another tree")

    with closing(RedisRecord(url, ORIGIN)) as one, closing(RedisRecord(url, ORIGIN)) as other:
        Raised(seal, one).to(head(3))
        with pytest.raises(SetupError):
            Records(seal, [other]).raise_to(seal.sign(head(5)), demand)
        assert other.read() == seal.sign(head(3))


def test_another_note_of_the_same_size_is_handed_back(url: str, seal: Seal) -> None:
    """Two databases under one key: the second one to write learns of the first."""
    with closing(RedisRecord(url, ORIGIN)) as one, closing(RedisRecord(url, ORIGIN)) as other:
        assert one.write(seal.sign(head(5))) is None
        assert other.write(seal.sign(replace(head(5), root=bytes(32)))) == seal.sign(head(5))
        assert one.read() == seal.sign(head(5))


def test_what_a_writer_to_the_store_puts_there_does_not_delay_the_log(url: str, seal: Seal) -> None:
    with closing(RedisRecord(url, ORIGIN)) as record, redis.Redis.from_url(url, protocol=2) as client:
        host = Raised(seal, record)
        host.to(head(3))
        (key,) = client.keys("{evi1}:log:*")
        for junk in (b"999999", Seal(NoteSigner(ORIGIN, keyfile.generate())).sign(head(10**6)), b"\xff", None):
            client.delete(key) if junk is None else client.set(key, junk)
            assert Records(seal, [record]).ask() == ()
            host.to(head(4))
            assert client.get(key) == seal.sign(head(4))
        assert host.found == []


def test_a_store_that_is_away_or_silent_is_silence(tmp_path: Path, seal: Seal) -> None:
    with Valkey(tmp_path / "store", password="secret-word") as store, closing(RedisRecord(store.url, ORIGIN)) as record:
        record.write(seal.sign(head(3)))
        store.kill()
        with pytest.raises(RecordSilent) as silent:
            record.write(seal.sign(head(4)))
        assert "secret-word" not in str(silent.value) + record.name
        store.start()
        Raised(seal, record).to(head(4))
        assert record.read() == seal.sign(head(4))


# -- with a sequencer ------------------------------------------------------------------------------------------------------


@pytest.fixture
def log(place: Place, tmp_path: Path) -> Log:
    return Log(place, tmp_path)


def test_each_record_alone_refuses_a_rollback(log: Log, url: str, tmp_path: Path) -> None:
    with log.open(RedisRecord(url, ORIGIN)) as sequencer:
        sequencer.append(tokens(1))
    with closing(RedisRecord(url, ORIGIN)) as record:
        Raised(log.seal, record).to(head(9))
    for name in ("file and store", "store alone"):
        if name == "store alone":
            for file in log.folder.iterdir():
                file.unlink()
        again = log.open(RedisRecord(url, ORIGIN), start=False)
        with again as sequencer, pytest.raises(SetupError, match=r"log\.rollback.*the store at"):
            sequencer.start()


def test_one_record_that_answers_is_enough_to_start(log: Log, tmp_path: Path) -> None:
    with Valkey(tmp_path / "store") as store:
        with log.open(RedisRecord(store.url, ORIGIN)) as sequencer:
            sequencer.append(tokens(1))
        store.kill()
        with log.open(RedisRecord(store.url, ORIGIN)) as sequencer:
            with pytest.raises(Undecided):
                sequencer.append(tokens(2))
            store.start()
            places = sequencer.append(tokens(2))
            assert [place and place.index for place in places] == [1]


def test_two_databases_under_one_key_are_found_by_their_shared_record(url: str, tmp_path: Path) -> None:
    """A database that was copied to a second host: the second writer latches before it answers."""
    for name, numbers in (("as large", (2,)), ("larger", (2, 3, 4))):
        with redis.Redis.from_url(url, protocol=2) as client:
            client.flushall()
        with sqlite_place(tmp_path / name / "one") as here, sqlite_place(tmp_path / name / "two") as there:
            log = Log(here, tmp_path / name / "one")
            other = Log(there, tmp_path / name / "two", log.signer)
        with log.open(RedisRecord(url, ORIGIN)) as one, other.open(RedisRecord(url, ORIGIN)) as two:
            two.append(())  # it has read its records, which were empty
            one.append(tokens(1))
            with pytest.raises(Undecided):
                two.append(tokens(*numbers))
            assert "log.rollback" in two.latched
            own = other.file_record.read()
            assert own == log.seal.sign(EMPTY), "the refused head is on no record: the right tree can be restored"
            log.demand_placed(tokens(1, 5), one.append(tokens(1, 5)))
