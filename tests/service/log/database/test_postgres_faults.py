"""PostgreSQL killed, restarted and failed over under a running sequencer. Each time: what any client ever got still holds
(tests/support/received.py), and the log goes on by itself or refuses loudly."""

import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from issuer.errors import SetupError, Undecided
from issuer.service.admission.embedded import EmbeddedValkey
from issuer.service.log.database.store import LogStore, Reader, StoredLeaf
from issuer.service.log.sequencer.records import FileRecord, Records, RedisRecord
from issuer.service.log.sequencer.sequencer import Placed, Sequencer
from tests.support.log_store import ORIGIN, Place
from tests.support.postgresql import PostgreSQL, postgresql
from tests.support.postgresql_proxy import Proxy, is_cut, passes
from tests.support.received import Received
from tests.support.sequencing import Log, tokens
from tests.support.waiting import ask_until

pytestmark = pytest.mark.long


@pytest.fixture
def primary() -> Iterator[PostgreSQL]:
    with postgresql() as server:
        yield server


@pytest.fixture
def proxy(primary: PostgreSQL) -> Iterator[Proxy]:
    with Proxy(primary) as between:
        yield between


@pytest.fixture
def log(proxy: Proxy, tmp_path: Path) -> Iterator[Log]:
    with closing(Place(proxy.url())) as place:
        yield Log(place, tmp_path)


@pytest.fixture
def received(log: Log) -> Received:
    return Received(ORIGIN, log.signer.verifier)


def append(sequencer: Sequencer, received: Received, entries: list[StoredLeaf]) -> None:
    """Append, as often as it takes: each time the answer is to try again."""
    places = ask_until(lambda: tried(sequencer, entries), lambda places: places is not None or sequencer.latched)
    assert places is not None
    for entry, place in zip(entries, places, strict=True):
        assert place is not None
        received.take(entry.leaf, place.index, place.proof)


def tried(sequencer: Sequencer, entries: list[StoredLeaf]) -> tuple[Placed | None, ...] | None:
    try:
        return sequencer.append(entries)
    except Undecided:
        return None


@pytest.mark.parametrize("fault", ["killed", "stopped", "cut"])
def test_a_commit_whose_answer_is_lost_adds_no_second_leaf(
    primary: PostgreSQL, proxy: Proxy, log: Log, received: Received, fault: str
) -> None:
    stopping = threading.Thread(target=primary.stop)

    def kills() -> bool:
        primary.kill()
        return False

    def stops() -> bool:
        stopping.start()
        return False

    with log.open() as sequencer:
        append(sequencer, received, tokens(1, 2))
        before = sequencer.published
        proxy.at_commit = {"killed": kills, "stopped": stops, "cut": is_cut}[fault]
        with pytest.raises(Undecided):
            sequencer.append(tokens(3, 4))
        proxy.at_commit = passes
        if fault != "cut":
            with pytest.raises(Undecided):
                sequencer.append(tokens(3, 4))
            assert sequencer.published == before
            if fault == "stopped":
                stopping.join()
            primary.start()
        append(sequencer, received, tokens(4, 3, 5))
    assert [received.indexes[entry.leaf] for entry in tokens(3, 4, 5)] == [2, 3, 4]
    received.demand_kept(Reader(log.place.read()))


def lagging(primary: PostgreSQL, more: Callable[[], object]) -> PostgreSQL:
    """Return a replica that was promoted after the primary died, and lacks what `more` has done."""
    replica = primary.replica("second")
    replica.caught_up_with(primary)
    replica.stop()
    more()
    primary.kill()
    replica.start()
    replica.promote()
    return replica


def test_a_failover_that_lost_commits_latches_the_log(
    primary: PostgreSQL, proxy: Proxy, log: Log, received: Received
) -> None:
    with log.open() as sequencer:
        append(sequencer, received, tokens(1, 2, 3))
        leaves: list[bytes] = []

        def more() -> None:
            append(sequencer, received, tokens(4, 5))
            leaves.extend(log.leaves())

        proxy.lead_to(lagging(primary, more))
        for _ in range(3):
            with pytest.raises(Undecided):
                sequencer.append(tokens(6))
        assert "log.rollback" in sequencer.latched
        assert sequencer.published is None
    received.demand_one_tree(leaves)
    assert len(log.leaves()) == 3

    # A process that starts now has seen nothing; its record has.
    with pytest.raises(SetupError, match=r"log\.rollback.*3 leaves, 2 fewer"), log.open():
        pass


def test_after_a_failover_a_host_with_an_older_head_is_stopped_by_the_store(
    primary: PostgreSQL, proxy: Proxy, log: Log, tmp_path: Path
) -> None:
    """Its own commits are all there. All records are asked again before it adds a leaf by the new connection."""
    (tmp_path / "own").mkdir(mode=0o700)
    with EmbeddedValkey() as store, log.open(RedisRecord(store, ORIGIN)) as busy:
        records = Records(log.seal, (FileRecord(tmp_path / "own", ORIGIN), RedisRecord(store, ORIGIN)))
        idle = Sequencer(LogStore(log.place.connect()), log.seal, records)
        with closing(idle):
            idle.start()
            idle.append(tokens(1))
            proxy.lead_to(lagging(primary, lambda: busy.append(tokens(2, 3))))
            for _ in range(3):
                with pytest.raises(Undecided):
                    idle.append(tokens(*range(10, 20)))
            assert "2 fewer than the store at" in idle.latched
    assert len(log.leaves()) == 1, "no leaf was added to the other tree"


def test_a_failover_loses_no_answered_leaf(primary: PostgreSQL, proxy: Proxy, log: Log, received: Received) -> None:
    """The primary has committed, and waits for a replica that is gone. No client has an answer, so the commit may be lost."""
    with log.open() as sequencer:
        replica = primary.replica("second")
        primary.wait_for("second")
        append(sequencer, received, tokens(1, 2, 3))
        replica.stop()
        with pytest.raises(Undecided):
            sequencer.append(tokens(4, 5))
        primary.kill()
        replica.start()
        replica.promote()
        proxy.lead_to(replica)
        assert len(log.leaves()) == 3
        append(sequencer, received, tokens(6))
        append(sequencer, received, tokens(4, 5))
    received.demand_kept(Reader(log.place.read()))
    assert received.indexes[tokens(6)[0].leaf] == 3


def test_after_a_restart_nothing_is_published_before_a_replica_has_it(
    primary: PostgreSQL, proxy: Proxy, log: Log, received: Received
) -> None:
    """After the restart everybody sees what was committed, though no replica has it."""
    with log.open() as sequencer:
        replica = primary.replica("second")
        primary.wait_for("second")
        append(sequencer, received, tokens(1, 2, 3))
        replica.stop()
        with pytest.raises(Undecided):
            sequencer.append(tokens(4, 5))
        primary.kill()
        primary.start()
        assert len(log.leaves()) == 5
        with pytest.raises(Undecided):
            sequencer.append(tokens(4, 5))
        replica.start()
        append(sequencer, received, tokens(4, 5))
        replica.caught_up_with(primary)
        primary.kill()
        replica.promote()
        proxy.lead_to(replica)
        append(sequencer, received, tokens(6))
    received.demand_kept(Reader(log.place.read()))
    assert len(log.leaves()) == 6
