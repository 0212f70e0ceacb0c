"""A worker's side of the log: frames that are read the same wherever they are cut, and, by a real sequencer, the key and the policy of
a token are in the log before it, and the ones in force soon after."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from issuer.codes import Code
from issuer.errors import Undecided
from issuer.formats import jose
from issuer.io.bounds import COUNTED_S
from issuer.service.log.bounds import LOG_FRAME_BYTES, LOG_NARROWED_S
from issuer.service.log.client import (
    Announcer,
    AnnouncingLog,
    Answer,
    Append,
    Failed,
    Frames,
    LeafPlaces,
    LogCondition,
    Look,
    Newest,
    NotAMessage,
    Question,
    SequencerLog,
    framed,
    key_leaves,
    policy_leaves,
    read_answer,
    read_question,
)
from issuer.service.log.database.sqlite import SqliteReading
from issuer.service.log.database.store import Reader
from issuer.service.log.sequencer.sequencer import Placed
from issuer.service.log.sequencer.setup import LogSettings
from issuer.service.signing.lifecycle import KeyLife, What
from issuer.tlog.leaf import AuditLeaf, KeyLeaf, KnownLeaf, Leaf, PolicyLeaf, RevocationsLeaf, TokenLeaf, read_leaf
from tests.support import make
from tests.support.clock import Clock
from tests.support.policies import POLICY as POLICY_TEXT
from tests.support.policies import load
from tests.support.sequencing import new_log, served_here

SIGNING = KeyLife(make.KID, str(jose.public_jwk(make.KEY.public_key())["x"]), 1000, "active", 1000)
POLICY = "sha256:" + "1" * 64


class House:
    """A log with a running sequencer, and the log clients of its workers."""

    def __init__(self, settings: LogSettings, socket: Path) -> None:
        self.settings, self.socket = settings, socket
        self.lives = {SIGNING.kid: SIGNING}
        self.workers: list[AnnouncingLog] = []
        self.log = self.worker()

    def worker(self, socket: Path | None = None) -> AnnouncingLog:
        log = SequencerLog(socket or self.socket, self.settings.origin)
        self.workers.append(AnnouncingLog(log, make.ISSUER, lambda: self.lives))
        return self.workers[-1]

    def leaves(self) -> list[Leaf]:
        database = SqliteReading(Path(self.settings.database))
        try:
            reader = Reader(database)
            head = reader.head()
            return [read_leaf(raw) for raw in reader.leaves(0, head.size if head else 0)]
        finally:
            database.close()

    def kinds(self) -> list[type[Leaf]]:
        return [type(leaf) for leaf in self.leaves()]


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    settings = new_log(tmp_path)
    async with served_here(settings) as socket:
        made = House(settings, socket)
        yield made
        for worker in made.workers:
            await worker.aclose()


async def test_the_key_and_the_policy_of_a_token_are_in_the_log_before_it_and_once(house: House) -> None:
    (place,) = await house.log.append(make.template(policy=POLICY), (b"one",))
    key, policy, token = house.leaves()
    assert key == KeyLeaf(make.ISSUER, SIGNING.kid, SIGNING.x, "active", SIGNING.since)
    assert policy == PolicyLeaf(make.ISSUER, make.template().terms.sub, POLICY)
    assert isinstance(token, TokenLeaf)
    assert (place.origin, place.index) == (house.settings.origin, 2)
    house.lives = {SIGNING.kid: replace(SIGNING, what="retiring", since=2000)}
    logs = [house.log, house.worker()] * 4
    await asyncio.gather(*(log.append(make.template(), (b"%d" % number,)) for number, log in enumerate(logs)))
    assert house.kinds()[3:5] == [KeyLeaf, PolicyLeaf], "the changed key and the other policy"
    assert house.kinds()[5:] == [TokenLeaf] * 8, "by however many workers"


async def test_a_key_that_is_out_of_use_gets_no_leaf(house: House) -> None:
    """Between admission and log a key may be revoked. A leaf behind that would be an alarm, and have no token."""
    ends: tuple[What, ...] = ("revoked", "archived", "removed")
    for lives in ({}, *({SIGNING.kid: replace(SIGNING, what=what, since=2000)} for what in ends)):
        house.lives = lives
        with pytest.raises(Undecided) as refused:
            await house.log.append(make.template(), (b"one",))
        assert refused.value.code is Code.DEPENDENCY_SIGNER
    assert house.leaves() == []
    (leaf,) = key_leaves(make.ISSUER, [replace(SIGNING, what="removed", since=3000)])
    assert (leaf.state, leaf.since) == ("archived", 3000), "it is announced as out of use"


async def test_where_nobody_listens_nothing_is_appended_and_announced_at_a_later_turn(
    house: House, tmp_path: Path
) -> None:
    nobody = house.socket.with_name("nobody")
    away, in_force = house.worker(nobody), InForce(house.worker(nobody), tmp_path / "policies")
    with pytest.raises(Undecided):
        await away.append(make.template(), (b"one",))
    with pytest.raises(Undecided):
        await away.check()
    await in_force.announcer.turn()
    await house.log.check()
    assert house.leaves() == []
    nobody.symlink_to(house.socket)
    await in_force.announcer.turn()
    assert PolicyLeaf in house.kinds()


class InForce:
    """The policies and the revocation list that a worker has in force, and its announcer."""

    def __init__(self, log: AnnouncingLog, folder: Path) -> None:
        folder.mkdir()
        self.policies, self.served = load(folder, inspect_ai=POLICY_TEXT), b"list"
        self.head, self.clock = "a" * 64, Clock()
        self.announcer = Announcer(
            log, lambda: self.policies, lambda: self.served, lambda: ("worker", self.head), self.now
        )

    def now(self) -> int:
        return int(self.clock())


async def test_what_is_in_force_is_announced_before_anybody_uses_it_and_once(house: House, tmp_path: Path) -> None:
    in_force = InForce(house.log, tmp_path / "policies")
    assert not house.log.has_announced(SIGNING)
    await in_force.announcer.turn()
    assert house.log.has_announced(SIGNING)
    assert not house.log.has_announced(replace(SIGNING, what="retiring", since=2000))
    await in_force.announcer.turn()
    expected: list[KnownLeaf] = [
        *key_leaves(make.ISSUER, [SIGNING]),
        *dict.fromkeys(policy_leaves(make.ISSUER, in_force.policies)),
    ]
    assert house.leaves()[:-1] == expected
    assert isinstance(house.leaves()[-1], RevocationsLeaf)
    await house.worker().announce(expected)
    assert len(house.leaves()) == len(expected) + 1


async def test_a_revoked_key_is_announced_when_no_worker_uses_it_any_more(house: House, tmp_path: Path) -> None:
    """Another worker hears of it a moment later: its last token is in the log by then."""
    in_force, late = InForce(house.log, tmp_path / "policies"), house.worker()
    late.lives = lambda: {SIGNING.kid: SIGNING}
    house.lives = {SIGNING.kid: replace(SIGNING, what="revoked", since=2000)}
    states = [["active"], ["active", "revoked"]]
    for passed_s, expected in zip((LOG_NARROWED_S - 1, 1), states, strict=True):
        await in_force.announcer.turn()
        in_force.clock.s += passed_s
        await in_force.announcer.turn()
        await late.append(make.template(), (b"one",)) if expected == ["active"] else None
        assert [leaf.state for leaf in house.leaves() if isinstance(leaf, KeyLeaf)] == expected


async def test_the_audit_s_head_is_announced_once_a_minute_if_it_has_grown(house: House, tmp_path: Path) -> None:
    in_force = InForce(house.log, tmp_path / "policies")
    for head, later in (("b", COUNTED_S - 1), ("c", 1), ("c", COUNTED_S), ("d", COUNTED_S)):
        in_force.head = head * 64
        in_force.clock.s += later
        await in_force.announcer.turn()
    assert [leaf.head[0] for leaf in house.leaves() if isinstance(leaf, AuditLeaf)] == ["c", "d"]


QUESTIONS: list[Question] = [Append(1, (b"a leaf\n", b"")), Look(2), Append(3, ())]
ANSWERS: list[Answer] = [
    LeafPlaces(1, (Placed(7, b"a proof", True), Placed(8, b"", False))),
    Newest(2, b"a note"),
    Newest(2, b"a note", LogCondition((5, 1), ("w1",), ("a failover",), must_wait=True)),
    Failed(3),
    Failed(4, latched=True),
]


@given(st.lists(st.integers(1, 40), min_size=1))
def test_where_a_stream_is_cut_makes_no_difference(cuts: list[int]) -> None:
    stream, frames, found = b"".join(map(framed, QUESTIONS)), Frames(), []
    while stream:
        for size in cuts:
            found += [read_question(raw) for raw in frames.feed(stream[:size])]
            stream = stream[size:]
    assert found == QUESTIONS


def test_a_bad_question_or_a_long_frame_is_refused_and_answers_are_read_as_written() -> None:
    for raw in (b"", b"\xc1", b"\x90", b"\x92\xa4look\xa11", b"\x92\xa5place\x01", framed(Failed(1))[4:]):
        with pytest.raises(NotAMessage):
            read_question(raw)
    with pytest.raises(NotAMessage):  # by its length alone
        list(Frames().feed((LOG_FRAME_BYTES + 1).to_bytes(4, "big")))
    with pytest.raises(NotAMessage):
        framed(Append(1, (bytes(LOG_FRAME_BYTES),)))
    assert [read_answer(raw) for raw in Frames().feed(b"".join(map(framed, ANSWERS)))] == ANSWERS
