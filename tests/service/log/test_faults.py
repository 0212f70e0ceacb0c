"""Every write, sync, rename, cut and removal of the sequencer fails once, or is its last, in a short session.

After each fault the log is up again by itself, and what any client ever got still holds (tests/support/received.py):
P1 every place, P2 every checkpoint, P3 nothing was answered that is not in the tree, P4 no fork, P5 a whole tree.
"""

import itertools
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import msgspec
import pytest

from issuer.errors import Undecided
from issuer.io import keyfile
from issuer.service.log.bounds import LOG_BATCH_LEAVES, LOG_BATCH_PAGES, LOG_PAGE_ROWS, LOG_WAL_PAGES
from issuer.service.log.client import SequencerLog
from issuer.service.log.database.sqlite import SqliteReading
from issuer.service.log.database.store import Reader
from issuer.service.log.sequencer.process import SequencerProcess, Word
from issuer.service.log.sequencer.setup import LogSettings, sequencer_of
from issuer.tlog.note import NoteSigner
from tests.support.received import Received
from tests.support.sequencing import key_leaf, listener_of, new_log, token_leaf, tokens
from tests.support.struck import FAULTS, Call, calls_in, injection, struck_command, thread_of, traced, was_struck
from tests.support.waiting import until

pytestmark = [pytest.mark.long, pytest.mark.needs_tool("strace"), pytest.mark.timeout(900)]
WAIT_S = 60


class Client:
    """A client of one log, which keeps all that it got. `outcomes` counts what its questions came to."""

    def __init__(self, settings: LogSettings) -> None:
        self.settings = settings
        key = keyfile.read(Path(settings.key_file), None)
        self.received = Received(settings.origin, NoteSigner(settings.origin, key).verifier)
        self.outcomes: Counter[str] = Counter()
        self.numbers = itertools.count()
        self._open: list[tuple[bytes, ...]] = []

    async def ask(self, log: SequencerLog, *leaves: bytes) -> None:
        """Ask once. `settle` asks a refused question again."""
        try:
            entries = await log.append(leaves)
        except Undecided:
            self.outcomes["refused"] += 1
            self._open.append(leaves)
        else:
            self.outcomes["answered"] += 1
            for leaf, entry in zip(leaves, entries, strict=True):
                self.received.take(leaf, entry.index, entry.proof.encode())

    async def settle(self, log: SequencerLog) -> None:
        """Ask for everything again that was refused, and for all that was ever got: until it is answered."""
        deadline = time.monotonic() + WAIT_S
        waiting = [*self._open, tuple(self.received.indexes)[-LOG_BATCH_LEAVES:]]
        while waiting:
            self._open = []
            for leaves in waiting:
                await self.ask(log, *leaves)
            waiting = self._open
            assert time.monotonic() < deadline, "the log does not come back"
        self._open = []

    def fresh(self, count: int = 1) -> list[bytes]:
        return [token_leaf(number) for number in itertools.islice(self.numbers, count)]

    def demand_promises(self) -> None:
        """Demand P1 to P5 of all that was ever got."""
        with closing(SqliteReading(Path(self.settings.database))) as reading:
            self.received.demand_kept(Reader(reading))


Session = Callable[[Client, SequencerLog], Awaitable[None]]


async def short(client: Client, log: SequencerLog) -> None:
    """One leaf, a batch, both again, an announcement, the head; then the file is touched, and all is opened anew."""
    (leaf,) = client.fresh()
    await client.ask(log, leaf)
    await client.ask(log, *client.fresh(5))
    await client.ask(log, leaf)
    await client.ask(log, key_leaf(next(client.numbers)), *client.fresh())
    with suppress(Undecided):
        await log.look()
    os.utime(client.settings.database)
    await client.ask(log, *client.fresh(2))


async def tidying(client: Client, log: SequencerLog) -> None:
    """So much is written ahead by now that the next batch has it put into the database."""
    await client.ask(log, *client.fresh(LOG_BATCH_LEAVES))
    await client.ask(log, *client.fresh())
    with suppress(Undecided):
        await log.look()


async def nearly_full(client: Client, log: SequencerLog) -> None:
    """Append as much as may be written ahead but for a batch."""
    pages = LOG_BATCH_PAGES + 2 * LOG_BATCH_LEAVES // LOG_PAGE_ROWS
    for _ in range(LOG_WAL_PAGES // pages):
        await client.ask(log, *client.fresh(LOG_BATCH_LEAVES))


async def nothing(_client: Client, _log: SequencerLog) -> None:
    """Need nothing before."""


SESSIONS: dict[str, tuple[Session, Session]] = {"short": (nothing, short), "tidying": (nearly_full, tidying)}
# Every call of the short session is struck; of the other, which makes a thousand writes, so many of each name.
AT_MOST = {"short": 1000, "tidying": 5}


async def run(client: Client, name: str, trace: Path, *inject: str) -> Counter[str]:
    """Run a session with a fault in a fresh process, then without, then in another process: return the outcomes of the
    first."""
    prepare, session = SESSIONS[name]
    with SequencerProcess(client.settings) as socket:
        thread, log = thread_of(listener_of(socket)), SequencerLog(socket, client.settings.origin)
        await log.look()
        await prepare(client, log)
        await until_kept(client.settings)
        client.outcomes.clear()
        with traced(thread, trace, *inject):
            await session(client, log)
        outcomes = Counter(client.outcomes)
        await client.settle(log)
        await log.aclose()
    client.demand_promises()
    return outcomes


async def until_kept(settings: LogSettings) -> None:
    """Wait until the newest checkpoint is kept, which the sequencer does at its own pace."""
    with closing(SqliteReading(Path(settings.database))) as reading:
        reader = Reader(reading)
        await until(lambda: (head := reader.head()) and (kept := reader.last_cosigned()) and kept[0] == head.size)


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", SESSIONS)
async def test_whatever_call_fails_or_is_the_last_no_promise_is_broken(name: str, fault: str, tmp_path: Path) -> None:
    trace, felt = tmp_path / "trace", Counter[str]()
    for call in to_strike(await calls_of(name, tmp_path / "plain", trace), AT_MOST[name]):
        outcomes = await struck(tmp_path / f"{call.name}-{call.number}", name, call, fault, trace)
        felt[call.name] += bool(outcomes["refused"])
    assert felt["fdatasync"], "an answer waits for the disk"


async def calls_of(name: str, folder: Path, trace: Path) -> list[Call]:
    """Return the calls of a session in which nothing fails, of each name so many as every one of three sessions makes.

    The sequencer keeps checkpoints at its own pace, so a session of a slow machine may make a few calls more.
    """
    sessions = []
    for number in range(3):
        assert not (await run(Client(new_log(folder / str(number))), name, trace))["refused"]
        sessions.append(calls_in(trace))
    fewest = [Counter(call.name for call in calls) for calls in sessions]
    return [call for call in sessions[0] if all(call.number <= made[call.name] for made in fewest)]


async def struck(folder: Path, name: str, call: Call, fault: str, trace: Path) -> Counter[str]:
    """Run a session in which a call is struck: if it comes to fewer calls of this name, then the last one of the next."""
    number = call.number
    for attempt in range(5):
        outcomes = await run(Client(new_log(folder / str(attempt))), name, trace, injection(call.name, fault, number))
        if was_struck(trace):
            return outcomes
        number = len(calls_in(trace))
    raise AssertionError(f"{call} is never made")


@pytest.mark.parametrize("fault", ["EIO", "ENOSPC", "killed"])
@pytest.mark.parametrize("call", ["pwrite64", "fdatasync", "ftruncate"])
async def test_a_start_that_fails_anywhere_is_told_and_the_next_one_goes_on(
    call: str, fault: str, tmp_path: Path
) -> None:
    trace, refused, word = tmp_path / "trace", 0, Word()
    for number in itertools.count(1):
        settings = left_behind(tmp_path / str(number))
        word = first_word(settings, struck_command(trace, call, fault, number))
        if not was_struck(trace):
            break
        assert word.socket or word.code == ("" if fault == "killed" else "state.unreachable")
        refused += not word.socket
        client = Client(settings)
        assert (await run(client, "short", trace))["answered"], "a machine that stalls refuses one, and then answers"
        assert client.received.indexes[token_leaf(0)] == 0
        assert min(client.received.indexes[token_leaf(number)] for number in range(LEFT, LEFT + 2)) == LEFT
    assert refused
    assert word.socket


LEFT = 4


def left_behind(folder: Path) -> LogSettings:
    """Make the log of a process that was killed: all of its leaves are only written ahead."""
    settings = new_log(folder)
    database = Path(settings.database).parent
    with closing(sequencer_of(settings)) as writing:
        writing.start()
        writing.append(tokens(*range(LEFT)))
        shutil.copytree(database, folder / "killed")
    shutil.copytree(folder / "killed", database, dirs_exist_ok=True)
    return settings


def first_word(settings: LogSettings, before: list[str]) -> Word:
    """Start the sequencer's program by another one; return what it says to its parent, and end it."""
    command = [*before, sys.executable, "-P", "-m", "issuer.service.log.sequencer.process"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(msgspec.json.encode(settings) + b"\n")
        process.stdin.flush()
        line = process.stdout.readline()
        process.stdin.close()
    return msgspec.json.decode(line, type=Word) if line else Word()


def to_strike(calls: list[Call], at_most: int) -> Iterator[Call]:
    """Return of each name's calls all, or so many that are evenly spread, and the last."""
    by_name: dict[str, list[Call]] = {}
    for call in calls:
        by_name.setdefault(call.name, []).append(call)
    for each in by_name.values():
        step = -(-len(each) // at_most)
        yield from [*each[:-1:step], each[-1]]
