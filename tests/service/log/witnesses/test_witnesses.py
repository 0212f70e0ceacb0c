"""The log's witnesses over real HTTP: our own in processes, and others on raw sockets that lie, stall and flood."""

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from issuer.codes import Code
from issuer.errors import SetupError
from issuer.service.log.bounds import MAX_WITNESS_BYTES, WITNESS_S
from issuer.service.log.sequencer.setup import WitnessSettings
from issuer.service.log.witnesses.witness import Contradiction, LogWitness, WitnessedLog
from issuer.service.log.witnesses.witnesses import (
    Faults,
    Witnesses,
    WitnessRecord,
    own_keys,
    shown_at_start,
    vouched_at_start,
    witnesses_of,
)
from issuer.tlog.checkpoint import WitnessSubmission, parse_checkpoint
from issuer.tlog.note import Cosigner, SignatureLine, parse_note
from issuer.tlog.witness_policy import WitnessPolicy, parse_policy
from tests.support.scripted import Action, drip, hang_up, reply, stall
from tests.support.waiting import until
from tests.support.witnessing import (
    GrowingLog,
    RunningWitness,
    ScriptedWitness,
    TestLog,
    both_verify,
    cosigning,
    policy_text,
    witnessing,
)

PACE_S = 0.02
AnyWitness = RunningWitness | ScriptedWitness


def policy_of(log: TestLog, *witnesses: AnyWitness, demanded: str = "all") -> WitnessPolicy:
    """Name the witnesses w1, w2, ... of a policy that demands all of them, any, or a number."""
    names = [f"w{number}" for number in range(1, len(witnesses) + 1)]
    lines = [f"witness {name} {each.vkey} {each.url}" for name, each in zip(names, witnesses, strict=True)]
    lines.append(f"group needed {demanded} {' '.join(names)}")
    return parse_policy(policy_text([log.vkey], lines, "quorum needed").encode(), "policy")


def asking(**more: Any) -> WitnessSettings:
    return WitnessSettings("", development=True, **more)


def witnesses_asked(log: GrowingLog, policy: WitnessPolicy, **more: Any) -> tuple[LogWitness, ...]:
    own = own_keys(policy, log.log.signer.verifier)
    return witnesses_of(policy, asking(**more), own)


async def shown_of(log: GrowingLog, policy: WitnessPolicy) -> tuple[WitnessRecord, ...]:
    return await shown_at_start(witnesses_asked(log, policy))


class RecordedFaults(Faults):
    """Faults that keep what would be an alarm."""

    def __init__(self) -> None:
        super().__init__()
        self.alarms: list[tuple[str, Contradiction]] = []

    def alarm(self, name: str, contradiction: Contradiction) -> None:
        self.alarms.append((name, contradiction))


class Shown:
    """The task that runs in a test, and its alarms."""

    def __init__(
        self, log: WitnessedLog, policy: WitnessPolicy, witnesses: Sequence[LogWitness], pace_s: float
    ) -> None:
        self.task = Witnesses(policy, log, witnesses, pace_s)
        self.task.faults = faults = RecordedFaults()
        self.alarms = faults.alarms


@contextlib.asynccontextmanager
async def showing(log: GrowingLog, policy: WitnessPolicy, pace_s: float = PACE_S) -> AsyncIterator[Shown]:
    """Show a log's heads to the witnesses of a policy until the block ends."""
    shown = Shown(log, policy, witnesses_asked(log, policy), pace_s)
    running = asyncio.create_task(shown.task.run())
    try:
        yield shown
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await shown.task.aclose()


def grow(log: GrowingLog, shown: Shown, size: int) -> None:
    log.size = size
    shown.task.committed()


@pytest.fixture
def log(request: pytest.FixtureRequest) -> GrowingLog:
    return GrowingLog(TestLog("log.example/cosigned"))


@pytest.fixture
def witness(tmp_path: Path, log: GrowingLog) -> Iterator[RunningWitness]:
    with witnessing(tmp_path / "w", [log.log.vkey]) as running:
        yield running


# -- what is kept --------------------------------------------------------------------------------------------------------


async def test_a_head_is_kept_with_the_lines_of_its_quorum(log: GrowingLog, witness: RunningWitness) -> None:
    with ScriptedWitness(cosigning) as second:
        policy = policy_of(log.log, witness, second)
        async with showing(log, policy) as shown:
            for size in (1, 5, 300):
                grow(log, shown, size)
                await until(lambda size=size: size in log.kept)  # type: ignore[misc]
    for size, note in log.kept.items():
        assert policy.check(note, int(time.time())).checkpoint.size == size
        assert len(note.signatures) == 3, "the log's, and each witness's"
    assert shown.alarms == []
    assert both_verify(witness.shown(log.log.origin), log.log, witness).text == log.log.text(300)


async def test_a_head_that_did_not_change_is_shown_to_nobody_again(log: GrowingLog) -> None:
    with ScriptedWitness(cosigning) as witness:
        async with showing(log, policy_of(log.log, witness)) as shown:
            for size in (3, 4):
                grow(log, shown, size)
                await until(lambda size=size: size in log.kept)  # type: ignore[misc]
                for _ in range(5):
                    shown.task.committed()
                    await asyncio.sleep(0)
    sizes = [parse_checkpoint(parse_note(sent.note).text).size for sent in witness.submissions]
    assert sizes == [3, 4]


async def test_a_head_that_reached_no_quorum_is_shown_again(log: GrowingLog, witness: RunningWitness) -> None:
    witness.kill()
    with capture_logs() as logged:
        async with showing(log, policy_of(log.log, witness)) as shown:
            grow(log, shown, 4)
            await until(lambda: any(event["event"] == "witness fails" for event in logged))
            assert not log.kept
            witness.start()
            await until(lambda: 4 in log.kept)


async def test_where_no_witness_is_demanded_those_that_are_named_still_sign(log: GrowingLog) -> None:
    with ScriptedWitness(cosigning) as witness:
        lines = [f"witness w1 {witness.vkey} {witness.url}"]
        policy = parse_policy(policy_text([log.log.vkey], lines).encode(), "policy")
        async with showing(log, policy) as shown:
            grow(log, shown, 2)
            await until(lambda: 2 in log.kept)
    assert len(log.kept[2].signatures) == 2


# -- which size a witness knows ------------------------------------------------------------------------------------------


async def test_a_witness_is_shown_what_extends_its_head(log: GrowingLog, witness: RunningWitness) -> None:
    witness.submit(log.log.submission(0, 7))
    async with showing(log, policy_of(log.log, witness)) as shown:
        grow(log, shown, 12)
        await until(lambda: 12 in log.kept)
    assert shown.alarms == []


# -- witnesses that lie, stall and flood ---------------------------------------------------------------------------------

STRANGER = Cosigner("stranger.example/w", TestLog("x").key)


def line(cosigner: Cosigner, text: str, at: int = 0) -> bytes:
    return cosigner.cosign(text, int(time.time()) + at).to_text().encode()


def with_time(submission: WitnessSubmission, cosigner: Cosigner, at: int) -> bytes:
    return reply(200, line(cosigner, parse_note(submission.note).text, at))


def of_no_time(submission: WitnessSubmission, cosigner: Cosigner) -> bytes:
    signed = cosigner.private_key.sign(b"cosignature/v1\ntime 0\n" + parse_note(submission.note).text.encode())
    return reply(200, named(cosigner, bytes(8) + signed))


def of_another_key(submission: WitnessSubmission, cosigner: Cosigner) -> bytes:
    signed = STRANGER.cosign(parse_note(submission.note).text, int(time.time())).signature
    return reply(200, named(cosigner, signed))


def named(cosigner: Cosigner, signature: bytes) -> bytes:
    return SignatureLine(cosigner.name, cosigner.verifier.key_id, signature).to_text().encode()


def flood(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
        for _ in range(1000):
            connection.sendall(b"x" * MAX_WITNESS_BYTES)


LIES: dict[str, tuple[Callable[[WitnessSubmission, Cosigner], bytes | Action], str]] = {
    "another key's signature": (of_another_key, "is invalid"),
    "a line of an unknown key": (
        lambda sent, _: reply(200, line(STRANGER, parse_note(sent.note).text)),
        "no signature of its key",
    ),
    "another checkpoint's": (
        lambda _, own: reply(200, line(own, TestLog("log.example/cosigned").text(3))),
        "is invalid",
    ),
    "a good line and a bad one": (
        lambda sent, own: reply(200, line(own, parse_note(sent.note).text) + line(own, TestLog("x").text(1))),
        "is invalid",
    ),
    "no time": (of_no_time, "time of its cosignature"),
    "a time in the future": (lambda sent, own: with_time(sent, own, 3600), "time of its cosignature"),
    "a time long past": (lambda sent, own: with_time(sent, own, -3600), "time of its cosignature"),
    "nothing": (lambda *_: reply(200), "is invalid"),
    "no signature line": (lambda *_: reply(200, b"\xff\x1b[2Jverified\n"), "is invalid"),
    "a redirect": (lambda *_: reply(302, b"", Location="http://127.0.0.1:1/"), "answered 302"),
    "a server's error": (lambda *_: reply(500), "answered 500"),
    "an unknown log": (lambda *_: reply(404), "answered 404"),
    "409 without a size": (lambda *_: reply(409, b"many\n"), "409 without"),
    "409 with a size that has a leading zero": (lambda *_: reply(409, b"07\n"), "409 without"),
    "409 with the size that it was asked about": (lambda sent, _: reply(409, b"%d\n" % sent.old), "409 without"),
    "409 with another size each time": (
        lambda sent, _: reply(409, b"%d\n" % ((sent.old + 1) % 4)),
        "with another size",
    ),
    "409 with a size beyond all trees": (lambda *_: reply(409, b"9223372036854775807\n"), "has cosigned size"),
    "422": (lambda *_: reply(422), "does not extend"),
    "no HTTP": (lambda *_: b"hello\r\n\r\n", "cannot be reached"),
    "a compressed answer": (lambda *_: reply(200, b"x", Content_Encoding="gzip"), "compressed"),
    "a lost connection": (lambda *_: hang_up, "cannot be reached"),
    "a flood": (lambda *_: flood, "larger than"),
}


async def test_a_witness_that_lies_is_named_and_the_others_are_enough() -> None:
    for lie, (answering, reason) in LIES.items():
        log = GrowingLog(TestLog("log.example/cosigned"))
        with ScriptedWitness(answering) as liar, ScriptedWitness(cosigning, name="honest.example/w") as honest:
            policy = policy_of(log.log, liar, honest, demanded="any")
            with capture_logs() as logged:
                async with showing(log, policy) as shown:
                    grow(log, shown, 4)
                    await until(lambda: 4 in log.kept and any(event["event"] == "witness fails" for event in logged))  # noqa: B023
        (fault,) = [event for event in logged if event["event"] == "witness fails"]
        assert (fault["witness"], reason in fault["reason"], fault["reason"].isprintable()) == ("w1", True, True), lie
        assert {signed.name for signed in log.kept[4].signatures} == {log.log.origin, "honest.example/w"}, lie


async def test_no_lie_reaches_the_quorum() -> None:
    for lie in ("another key's signature", "no time", "a time in the future", "nothing", "422"):
        log = GrowingLog(TestLog("log.example/cosigned"))
        with ScriptedWitness(LIES[lie][0]) as liar:
            async with showing(log, policy_of(log.log, liar)) as shown:
                grow(log, shown, 4)
                await until(lambda: len(liar.submissions) > 2)
        assert log.kept == {}, lie


@pytest.mark.parametrize("slow", [stall, pytest.param(drip, marks=pytest.mark.long)], ids=["stalls", "drips"])
async def test_a_witness_that_stalls_delays_nobody_and_is_named(log: GrowingLog, slow: Action) -> None:
    with (
        ScriptedWitness(lambda *_: slow) as stalled,
        ScriptedWitness(cosigning, name="honest.example/w") as honest,
        capture_logs() as logged,
    ):
        async with showing(log, policy_of(log.log, stalled, honest, demanded="any")) as shown:
            for size in range(1, 6):
                grow(log, shown, size)
                await until(lambda size=size: size in log.kept)  # type: ignore[misc]
            await until(lambda: any(event["event"] == "witness fails" for event in logged))
    (fault,) = [event for event in logged if event["event"] == "witness fails"]
    assert (fault["witness"], f"within {WITNESS_S:.3g} s" in fault["reason"]) == ("w1", True)


@pytest.mark.long
async def test_after_a_request_that_hung_the_next_is_for_the_newest_head(log: GrowingLog) -> None:
    hangs = iter([True])

    def answer(submission: WitnessSubmission, cosigner: Cosigner) -> bytes | Action:
        return stall if next(hangs, False) else cosigning(submission, cosigner)

    with ScriptedWitness(answer) as witness:
        async with showing(log, policy_of(log.log, witness)) as shown:
            grow(log, shown, 1)
            await until(lambda: len(witness.submissions) == 1)
            for size in range(2, 12):
                grow(log, shown, size)
            await until(lambda: 11 in log.kept)
        sizes = [parse_checkpoint(parse_note(sent.note).text).size for sent in witness.submissions]
    assert sizes == [1, 11]
    assert sorted(log.kept) == [11]


async def test_a_fault_is_told_once_and_its_end(log: GrowingLog) -> None:
    faults = iter(range(5))

    def answer(submission: WitnessSubmission, cosigner: Cosigner) -> bytes:
        return reply(500) if next(faults, None) is not None else cosigning(submission, cosigner)

    with ScriptedWitness(answer) as witness, capture_logs() as logged:
        async with showing(log, policy_of(log.log, witness)) as shown:
            grow(log, shown, 1)
            await until(lambda: 1 in log.kept)
    assert [event["event"] for event in logged] == ["witness fails", "witness cosigns again"]


# -- a log that was set back, or forked ----------------------------------------------------------------------------------


async def test_running_only_what_the_log_has_signed_is_evidence(log: GrowingLog, witness: RunningWitness) -> None:
    witness.submit(log.log.submission(0, 9))
    async with showing(log, policy_of(log.log, witness)) as shown:
        grow(log, shown, 5)
        await until(lambda: bool(shown.alarms))
        name, why = shown.alarms[0]
        assert name == "w1"
        assert why.shown is not None
        assert why.shown.text == log.log.text(9)
    with ScriptedWitness(lambda *_: reply(409, b"9\n"), shown=TestLog("log.example/cosigned").checkpoint(9)) as liar:
        async with showing(log, policy_of(log.log, liar)) as shown:
            grow(log, shown, 5)
            await until(lambda: bool(shown.alarms))
            assert shown.alarms[0][1].shown is None


async def test_evidence_is_told_with_the_checkpoint_once_and_a_mere_word_is_not(log: GrowingLog) -> None:
    shown, tell = parse_note(log.log.checkpoint(7)), Faults().alarm
    with capture_logs() as logged:
        for evidence in (None, shown, shown):
            tell("w1", Contradiction("it shows size 7", evidence))
        tell("w2", Contradiction("it shows size 7", shown))
    assert [(event["event"], event["log_level"], event["witness"]) for event in logged] == [
        ("log contradicted", "critical", "w1"),
        ("log contradicted", "critical", "w2"),
    ]
    assert parse_note(logged[0]["checkpoint"].encode()) == shown


async def test_a_fork_is_shown_by_what_the_witness_has_cosigned(log: GrowingLog, witness: RunningWitness) -> None:
    forked = log.log.forked()
    witness.submit(forked.submission(0, 5))
    for size in (5, 8):
        async with showing(log, policy_of(log.log, witness)) as shown:
            grow(log, shown, size)
            await until(lambda: bool(shown.alarms))
        why = shown.alarms[0][1]
        assert why.shown is not None
        assert why.shown.text == forked.text(5)
    assert log.kept == {}


async def start(log: GrowingLog, policy: WitnessPolicy, **more: Any) -> int:
    return await vouched_at_start(witnesses_asked(log, policy, **more), log)


async def test_at_start_a_witness_vouches_for_what_extends_its_head(log: GrowingLog, witness: RunningWitness) -> None:
    log.size = 5
    policy = policy_of(log.log, witness)
    assert await start(log, policy) == 0, "it did not know the log: to it any head is good"
    log.size = 9
    assert await start(log, policy) == 1
    assert await start(log, policy) == 1, "again the same head"


async def test_at_start_a_witness_refuses_a_log_that_was_set_back(log: GrowingLog, witness: RunningWitness) -> None:
    witness.submit(log.log.submission(0, 9))
    policy = policy_of(log.log, witness)
    for size in (0, 5):
        log.size = size
        (record,) = await shown_of(log, policy)
        assert (record.name, parse_note(record.read() or b"").text) == ("witness w1", log.log.text(9))
        with pytest.raises(SetupError, match=r"witness w1: it shows .* size 9") as refused:
            await start(log, policy)
        assert refused.value.code is Code.LOG_ROLLBACK
    assert await start(log, policy, excluded=frozenset({"w1"})) == 0


async def test_at_start_another_history_is_refused(log: GrowingLog, witness: RunningWitness) -> None:
    witness.submit(log.log.forked().submission(0, 5))
    for size in (5, 9):
        log.size = size
        with pytest.raises(SetupError, match="size 5 that this log has signed and does not extend"):
            await start(log, policy_of(log.log, witness))


async def test_at_start_422_counts_where_nobody_vouches_though_nothing_is_shown(log: GrowingLog) -> None:
    log.size = 5
    with ScriptedWitness(lambda *_: reply(422)) as liar, ScriptedWitness(cosigning, name="b.example") as second:
        policy = policy_of(log.log, liar, second, demanded="any")
        with pytest.raises(SetupError, match="exclude it by its name"):
            await start(log, policy)
        assert await start(log, policy, excluded=frozenset({"w1"})) == 0


@pytest.mark.parametrize(
    ("lie", "why"), [(reply(409, b"9\n"), "it has cosigned size 9"), (reply(422), "size 5 does not extend the tree")]
)
async def test_at_start_a_bare_claim_counts_until_a_witness_vouches(
    log: GrowingLog, witness: RunningWitness, lie: bytes, why: str
) -> None:
    log.size = 5
    witness.submit(log.log.submission(0, 3))
    with ScriptedWitness(lambda *_: lie) as bare:
        with pytest.raises(SetupError, match=f"it says that {why}.*, but shows no evidence"):
            await start(log, policy_of(log.log, bare))
        assert await start(log, policy_of(log.log, bare, witness, demanded="any")) == 1


async def test_at_start_a_witness_that_does_not_answer_stops_nothing(log: GrowingLog) -> None:
    log.size = 5
    for answer in (reply(503), b"x"):
        with ScriptedWitness(lambda *_: answer) as silent:  # noqa: B023
            policy = policy_of(log.log, silent)
            assert await start(log, policy) == 0
            assert [record.read() for record in await shown_of(log, policy)] == [None]


async def test_what_a_witness_shows_counts_only_under_the_log_s_key_and_origin(log: GrowingLog) -> None:
    stranger, sibling = TestLog(log.log.origin), TestLog("log.example/other", log.log.key)
    for shown in (stranger.checkpoint(9), sibling.checkpoint(9), b"x", b"x" * (MAX_WITNESS_BYTES + 1)):
        with ScriptedWitness(cosigning, shown=shown) as liar:
            assert [record.read() for record in await shown_of(log, policy_of(log.log, liar))] == [None]


# -- waiting -------------------------------------------------------------------------------------------------------------


async def test_a_caller_waits_for_a_cosigned_checkpoint_or_gets_no(log: GrowingLog, witness: RunningWitness) -> None:
    async with showing(log, policy_of(log.log, witness)) as shown:
        grow(log, shown, 3)
        assert await shown.task.wait_for(3)
        assert await shown.task.wait_for(2)
        witness.kill()
        grow(log, shown, 4)
        assert not await shown.task.wait_for(4)
        witness.start()
        await until(lambda: 4 in log.kept)
        assert await shown.task.wait_for(4)


# -- put together --------------------------------------------------------------------------------------------------------


def test_settings_that_would_fail_silently_are_refused(log: GrowingLog) -> None:
    with ScriptedWitness(cosigning) as witness:
        policy = policy_of(log.log, witness)
        with pytest.raises(SetupError, match="not name a witness 'w2'"):
            witnesses_asked(log, policy, excluded=frozenset({"w2"}))
        with pytest.raises(SetupError, match=r"add `log log\.example/other"):
            own_keys(policy, TestLog("log.example/other").signer.verifier)
        lines = [f"witness w1 {witness.vkey}"]
        unreachable = parse_policy(policy_text([log.log.vkey], lines, "quorum w1").encode(), "policy")
        with pytest.raises(SetupError, match="not a quorum"):
            witnesses_asked(log, unreachable)
        with pytest.raises(SetupError, match="https"):
            witnesses_of(policy, WitnessSettings(""), ())
