"""The sequencer, sentence by sentence of its design: order, idempotence, what latches it, and what failures leave."""

import random
import shutil
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pytest
from msgspec.structs import replace

from issuer.errors import SetupError, Undecided
from issuer.io import keyfile
from issuer.service.log.database.store import LogStore, Reader, StoredLeaf, TreeHead, in_dialect
from issuer.service.log.sequencer.records import Seal
from issuer.service.log.sequencer.sequencer import Sequencer, entry_of
from issuer.tlog.merkle import Peaks, leaf_hash, root, verify_consistency
from issuer.tlog.note import NoteSigner
from tests.support.log_store import EMPTY, ORIGIN, Place
from tests.support.sequencing import Log, key_leaf, tokens


@pytest.fixture
def log(place: Place, tmp_path: Path) -> Log:
    return Log(place, tmp_path)


def test_a_leaf_gets_its_place_and_a_proof_under_a_signed_checkpoint(log: Log) -> None:
    entries = [*tokens(1, 2), entry_of(key_leaf(5))]
    with log.open() as sequencer:
        places = sequencer.append(entries)
        checkpoint = log.demand_placed(entries, places)
    assert [place and (place.index, place.known) for place in places] == [(0, False), (1, False), (2, False)]
    assert checkpoint.size == 3
    assert checkpoint.root == root(entry.hash for entry in entries)
    assert log.leaves() == tuple(entry.leaf for entry in entries)


def test_a_retry_finds_its_leaf_and_never_makes_a_second_one(log: Log) -> None:
    first = [*tokens(1, 2), entry_of(key_leaf(5))]
    with log.open() as sequencer:
        before = sequencer.append(first)
        again = [*tokens(3, 2, 4, 3), entry_of(key_leaf(5)), *tokens(1)]
        places = sequencer.append(again)
        log.demand_placed(again, places)
    assert [place and (place.index, place.known) for place in places] == [
        (3, False), (1, True), (4, False), (3, False), (2, True), (0, True),
    ]  # fmt: skip
    assert [place and place.index for place in before] == [0, 1, 2]
    assert len(log.leaves()) == 5


def test_another_leaf_by_the_same_key_gets_no_place_and_disturbs_nobody(log: Log) -> None:
    (one,) = tokens(1)
    other = StoredLeaf(one.key, b"another", leaf_hash(b"another"))
    with log.open() as sequencer:
        sequencer.append([one])
        places = sequencer.append([other, *tokens(2)])
        assert places[0] is None
        log.demand_placed(tokens(2), places[1:])
        assert sequencer.append([*tokens(3), replace(other, key=tokens(3)[0].key)])[1] is None


def test_every_proof_is_good_whatever_the_batches_were(log: Log) -> None:
    number = 0
    with log.open() as sequencer:
        for size in (1, 1, 252, 1, 1, 1, 255, 256, 3, 500, 13):
            batch = tokens(*range(number, number + size))
            number += size
            assert log.demand_placed(batch, sequencer.append(batch)).size == number
        some = tokens(*random.Random(1).sample(range(number), 40))
        checkpoint = log.demand_placed(some, sequencer.append(some))
    assert checkpoint.root == root(leaf_hash(leaf) for leaf in log.leaves())


def test_any_two_checkpoints_are_consistent(log: Log) -> None:
    seen = []
    with log.open() as sequencer:
        for number in (1, 5, 2, 300, 1):
            batch = tokens(*range(len(log.leaves()), len(log.leaves()) + number))
            seen.append(log.demand_placed(batch, sequencer.append(batch)))
        for old, new in pairwise(seen):
            proof = sequencer.consistency(old.size, new.size)
            assert verify_consistency(old.size, new.size, old.root, new.root, proof)


def test_nothing_is_answered_that_is_not_on_record(log: Log) -> None:
    """The record is raised before anybody sees a proof: it can be shown after any restart."""
    with log.open() as sequencer:
        places = sequencer.append(tokens(1, 2))
        kept = log.file_record.read()
    assert kept is not None
    assert log.checkpoint(kept) == log.demand_placed(tokens(1, 2), places)


def test_without_a_record_nothing_is_answered_and_no_second_leaf_is_added(log: Log, tmp_path: Path) -> None:
    with log.open() as sequencer:
        sequencer.append(tokens(1))
        away = log.folder.rename(tmp_path / "away")
        with pytest.raises(Undecided, match=r"dependency\.log"):
            sequencer.append(tokens(2))
        with pytest.raises(Undecided):
            sequencer.append(tokens(3))
        assert len(log.leaves()) == 2
        away.rename(log.folder)
        places = sequencer.append(tokens(2, 3))
        assert [place and (place.index, place.known) for place in places] == [(1, True), (2, False)]
        assert not sequencer.latched


def test_no_leaves_say_whether_one_could_be_appended(log: Log) -> None:
    with log.open() as sequencer:
        assert sequencer.append(()) == ()
        assert sequencer.published is not None
        shutil.rmtree(log.folder)
        sequencer.append(())
        with pytest.raises(Undecided):
            sequencer.append(tokens(1))
        with pytest.raises(Undecided):
            sequencer.append(())


# -- two on one database ---------------------------------------------------------------------------------------------------


def test_two_sequencers_in_turn_make_one_tree(log: Log) -> None:
    """As two hosts do: each sees that the other's head extends its head."""
    with log.open() as first, log.open() as second:
        for number in range(6):
            mine, theirs = tokens(2 * number), tokens(2 * number + 1, 2 * number)
            log.demand_placed(mine, first.append(mine))
            log.demand_placed(theirs, second.append(theirs))
        assert not first.latched
        assert not second.latched
    assert len(log.leaves()) == 12


def test_who_finds_the_head_locked_answers_nothing_and_comes_back(log: Log) -> None:
    with log.open() as sequencer, closing(log.place.connect()) as other:
        sequencer.append(tokens(1))
        other.open()
        LogStore(other).begin()
        with pytest.raises(Undecided):
            sequencer.append(tokens(2))
        other.rollback()
        places = sequencer.append(tokens(2))
        assert [place and place.index for place in places] == [1]
        assert not sequencer.latched


# -- rollbacks, while it runs ----------------------------------------------------------------------------------------------


def write(log: Log, statement: str, *values: str | int | bytes) -> None:
    """Change what is committed, as our code never does."""
    with closing(log.place.connect()) as database:
        database.open()
        database.begin()
        assert database.write(in_dialect(database.dialect, statement), [values])
        database.commit()


def put_head(log: Log, head: TreeHead) -> None:
    """Write another head over the one that is there, and take away what lies beyond it."""
    if head.size < head_of(log).size:
        write(log, "DELETE FROM entries WHERE idx >= ?", head.size)
        write(log, "DELETE FROM hashes WHERE level = 0 AND idx >= ?", head.size)
    peaks = b"".join(head.peaks.hashes)
    write(log, "UPDATE head SET origin = ?, size = ?, root = ?, peaks = ?", head.origin, head.size, head.root, peaks)


def head_of(log: Log) -> TreeHead:
    head = Reader(log.place.read()).head()
    assert head is not None
    return head


def demand_refused(sequencer: Sequencer) -> None:
    with pytest.raises(Undecided, match=r"dependency\.log"):
        sequencer.append(tokens(1000))
    assert not sequencer.latched


def demand_latched(sequencer: Sequencer) -> None:
    with pytest.raises(Undecided, match=r"dependency\.log"):
        sequencer.append(tokens(1000))
    assert "log.rollback" in sequencer.latched
    assert sequencer.published is None
    with pytest.raises(Undecided):
        sequencer.append(())


def test_a_smaller_head_than_was_seen_latches(log: Log) -> None:
    with log.open() as sequencer:
        sequencer.append(tokens(1))
        before = head_of(log)
        sequencer.append(tokens(2))
        put_head(log, before)
        demand_latched(sequencer)


def test_a_latched_sequencer_stays_latched_though_the_head_comes_back(log: Log) -> None:
    with log.open() as sequencer:
        sequencer.append(tokens(1, 2))
        after = head_of(log)
        put_head(log, replace(after, root=bytes(32)))
        demand_latched(sequencer)
        put_head(log, after)
        demand_latched(sequencer)
    with log.open() as sequencer:
        sequencer.append(tokens(3))


def test_a_larger_head_that_did_not_grow_out_of_ours_latches(log: Log) -> None:
    """Another tree of more leaves, whole in itself: only its hashes show that ours is not a prefix."""
    with log.open() as sequencer:
        sequencer.append(tokens(1, 2, 3))
        put_head(log, EMPTY)
        log.file_record.write(log.seal.sign(EMPTY))
        with log.open() as other:
            other.append(tokens(1, 2, 4, 5))
        demand_latched(sequencer)


def test_a_log_that_was_away_is_used_again(log: Log) -> None:
    with log.open() as sequencer:
        sequencer.append(tokens(1, 2))
        for number in (3, 4):
            with log.place.away():
                for _ in range(2):
                    demand_refused(sequencer)
            log.demand_placed(tokens(number), sequencer.append(tokens(number)))


def test_an_older_log_that_comes_back_latches(log: Log) -> None:
    with log.open() as sequencer:
        sequencer.append(tokens(1))
        before = head_of(log)
        sequencer.append(tokens(2))
        with log.place.away():
            demand_refused(sequencer)
        put_head(log, before)
        demand_latched(sequencer)


def test_tables_that_are_empty_for_a_while_do_not_latch(log: Log, tmp_path: Path) -> None:
    """Also between the COMMIT of a batch and its publication, which waits for the record."""
    with log.open() as sequencer:
        away = log.folder.rename(tmp_path / "away")
        demand_refused(sequencer)
        away.rename(log.folder)
        head = head_of(log)
        write(log, "DELETE FROM head WHERE one = ?", 1)
        demand_refused(sequencer)
        columns = (head.origin, head.size, head.root, b"".join(head.peaks.hashes))
        write(log, "INSERT INTO head (one, version, origin, size, root, peaks) VALUES (1, 1, ?, ?, ?, ?)", *columns)
        log.demand_placed(tokens(2), sequencer.append(tokens(2)))


def test_a_head_whose_hashes_are_gone_latches(log: Log) -> None:
    with log.open() as sequencer:
        sequencer.append(tokens(*range(5)))
    write(log, "UPDATE hashes SET hash = ? WHERE level = 0 AND idx = 2", bytes(32))
    with log.open(start=False) as sequencer, pytest.raises(SetupError, match=r"log\.rollback"):
        sequencer.start()


def test_another_origin_is_never_appended_to(log: Log) -> None:
    with log.open() as sequencer:
        sequencer.append(tokens(1))
        put_head(log, replace(head_of(log), origin="issuer.example/log/other"))
        with pytest.raises(Undecided):
            sequencer.append(tokens(2))
        assert "its origin is issuer.example/log/other" in sequencer.latched
    with log.open(start=False) as sequencer, pytest.raises(SetupError, match=r"log\.absent"):
        sequencer.start()


# -- rollbacks, at start ---------------------------------------------------------------------------------------------------


def test_a_record_that_is_ahead_refuses_the_start(log: Log) -> None:
    with log.open() as sequencer:
        sequencer.append(tokens(1))
        before = head_of(log)
        sequencer.append(tokens(2))
    put_head(log, before)
    with log.open(start=False) as sequencer, pytest.raises(SetupError, match=r"log\.rollback.*1 fewer than") as refused:
        sequencer.start()
    assert "issuer log restore" in str(refused.value)
    assert str(log.folder) in str(refused.value)


def test_a_record_of_another_tree_refuses_the_start(log: Log) -> None:
    with log.open() as sequencer:
        sequencer.append(tokens(1, 2))
    log.file_record.write(log.seal.sign(replace(head_of(log), root=bytes(32))))
    with log.open(start=False) as sequencer, pytest.raises(SetupError, match=r"log\.rollback.*another"):
        sequencer.start()


def test_without_any_record_a_log_that_has_leaves_does_not_start(log: Log) -> None:
    with log.open() as sequencer:
        sequencer.append(tokens(1))
    shutil.rmtree(log.folder)
    log.folder.mkdir()
    with log.open(start=False) as sequencer, pytest.raises(SetupError, match=r"log\.unrecorded") as refused:
        sequencer.start()
    assert f"issuer log accept --size 1 --root {head_of(log).root.hex()}" in str(refused.value)


def test_what_the_log_did_not_sign_is_no_record(log: Log) -> None:
    with log.open() as sequencer:
        sequencer.append(tokens(1))
    for forged in (b"", b"issuer.example/log\n9\n", b"\xff" * 300):
        log.file_record.write(forged)
        with log.open(start=False) as sequencer, pytest.raises(SetupError, match=r"log\.unrecorded"):
            sequencer.start()


def test_a_number_that_somebody_wrote_does_not_stop_the_log(log: Log) -> None:
    """A writer to a record cannot forge a signature: otherwise it would be a way to end the log."""
    ahead = TreeHead(ORIGIN, bytes(32), Peaks(10**6))
    with log.open() as sequencer:
        sequencer.append(tokens(1))
        log.file_record.write(Seal(NoteSigner(ORIGIN, keyfile.generate())).sign(ahead))
        log.demand_placed(tokens(2), sequencer.append(tokens(2)))
    log.file_record.write(Seal(NoteSigner("issuer.example/log/other", log.signer.private_key)).sign(ahead))
    with log.open(start=False) as sequencer, pytest.raises(SetupError, match=r"log\.unrecorded"):
        sequencer.start()
