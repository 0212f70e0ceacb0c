"""The sequencer process and its clients: real processes, a real socket, and what happens when one of them dies."""

import asyncio
import itertools
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from issuer.errors import SetupError, Undecided
from issuer.service.log.bounds import LOG_FRAME_BYTES
from issuer.service.log.client import Append, SequencerLog, framed
from issuer.service.log.sequencer.process import SequencerProcess
from issuer.service.log.sequencer.setup import LogSettings
from issuer.tlog.checkpoint import parse_checkpoint
from issuer.tlog.merkle import leaf_hash, verify_inclusion
from issuer.tlog.note import parse_note
from issuer.tlog.proof import parse_proof
from issuer.token.wire import LogEntry
from tests.support.processes import is_running
from tests.support.sequencing import key_leaf, listener_of, new_log, parent_of, token_leaf
from tests.support.waiting import until


@pytest.fixture
def settings(tmp_path: Path) -> LogSettings:
    return new_log(tmp_path)


@pytest.fixture(scope="module")
def unharmed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, LogSettings]]:
    """The socket of a process that its tests leave as it was."""
    settings = new_log(tmp_path_factory.mktemp("log"))
    with SequencerProcess(settings) as path:
        yield path, settings


@asynccontextmanager
async def client(path: Path, settings: LogSettings) -> AsyncIterator[SequencerLog]:
    log = SequencerLog(path, settings.origin)
    try:
        yield log
    finally:
        await log.aclose()


def size_of(entry: LogEntry, leaf: bytes) -> int:
    """Return the size of the tree that a proof is of, which must be good."""
    proof = parse_proof(entry.proof.encode())
    checkpoint = parse_checkpoint(parse_note(proof.checkpoint).text)
    assert checkpoint.origin == entry.origin
    assert proof.index == entry.index
    assert verify_inclusion(entry.index, checkpoint.size, leaf_hash(leaf), proof.hashes, checkpoint.root)
    return checkpoint.size


async def again(log: SequencerLog, *leaves: bytes) -> tuple[LogEntry, ...]:
    """Append, as often as a patient caller does."""
    answers: list[tuple[LogEntry, ...]] = []

    async def appended() -> object:
        with suppress(Undecided):
            answers.append(await log.append(leaves))
        return answers

    await until(appended)
    return answers[0]


async def gone(pid: int) -> None:
    await until(lambda: not is_running(pid))


async def test_leaves_get_places_over_a_private_socket_and_a_retry_gets_the_same(settings: LogSettings) -> None:
    leaves = (token_leaf(1), token_leaf(2), key_leaf(7))
    with SequencerProcess(settings) as path:
        async with client(path, settings) as log, client(path, settings) as other:
            assert log.origin == settings.origin
            places = await log.append(leaves)
            assert [place.index for place in places] == [0, 1, 2]
            assert {size_of(*each) for each in zip(places, leaves, strict=True)} == {3}
            assert await other.append(leaves) == places
            await other.append((key_leaf(7), key_leaf(8)))
            (place,) = await log.append((token_leaf(3),))
            assert place.index == 4
            assert parse_checkpoint(parse_note((await log.look()).checkpoint).text).size == 5
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        pid = listener_of(path)
    assert not is_running(pid)
    assert not path.parent.exists()


async def test_many_at_once_share_batches_and_no_index(unharmed: tuple[Path, LogSettings]) -> None:
    async with client(*unharmed) as one, client(*unharmed) as two:
        (before,) = await one.append((token_leaf(0),))
        leaves = [token_leaf(1000 + number) for number in range(200)]
        asked = [(one, two)[number % 2].append((leaf,)) for number, leaf in enumerate(leaves)]
        places = [place for (place,) in await asyncio.gather(*asked)]
    first = min(place.index for place in places)
    assert first > before.index
    assert sorted(place.index for place in places) == list(range(first, first + 200))
    sizes = {size_of(*each) for each in zip(places, leaves, strict=True)}
    assert len(sizes) < 200, "the next batch gathers while one is committed"


async def test_a_killed_process_is_back_and_has_forgotten_nothing(settings: LogSettings) -> None:
    with SequencerProcess(settings) as path:
        async with client(path, settings) as log:
            for number in range(2):
                (before,) = await again(log, token_leaf(number))
                os.kill(listener_of(path), signal.SIGKILL)
                (place,) = await again(log, token_leaf(number))
                assert place.index == before.index == number
                size_of(place, token_leaf(number))


async def test_what_was_asked_of_a_stopped_or_killed_process_is_undecided(settings: LogSettings) -> None:
    with SequencerProcess(settings) as path:
        async with client(path, settings) as log:
            await log.append((token_leaf(0),))
            pid = listener_of(path)
            os.kill(pid, signal.SIGSTOP)
            with pytest.raises(Undecided):
                await log.append((token_leaf(9),))
            asked = [asyncio.ensure_future(log.append((token_leaf(number),))) for number in range(1, 9)]
            await asyncio.sleep(0)
            os.kill(pid, signal.SIGKILL)
            answers = await asyncio.gather(*asked, return_exceptions=True)
            assert {type(answer) for answer in answers} == {Undecided}
            (place,) = await again(log, token_leaf(1))
            assert size_of(place, token_leaf(1)) == place.index + 1


@pytest.mark.long
async def test_a_stopped_process_is_killed_and_replaced(settings: LogSettings) -> None:
    with SequencerProcess(settings) as path:
        async with client(path, settings) as log:
            await log.append((token_leaf(1),))
            pid = listener_of(path)
            os.kill(pid, signal.SIGSTOP)
            await gone(pid)
            (place,) = await again(log, token_leaf(1))
            assert place.index == 0


# -- how it begins and ends ------------------------------------------------------------------------------------------------


def test_nothing_secret_is_on_a_command_line(unharmed: tuple[Path, LogSettings]) -> None:
    path, settings = unharmed
    assert settings.database.encode() not in Path(f"/proc/{listener_of(path)}/cmdline").read_bytes()


PARENT = """
import sys, msgspec
from issuer.service.log.sequencer.process import SequencerProcess
from issuer.service.log.sequencer.setup import LogSettings
with SequencerProcess(msgspec.json.decode(sys.argv[1], type=LogSettings)) as path:
    print(path, flush=True)
    sys.stdin.read()
"""


@contextmanager
def parent(settings: LogSettings) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    command = [sys.executable, "-c", PARENT, msgspec.json.encode(settings).decode()]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process, Path(process.stdout.readline().strip())
        finally:
            process.kill()


async def test_a_killed_parent_takes_it_along(settings: LogSettings) -> None:
    with parent(settings) as (process, path):
        pid = listener_of(path)
        process.kill()
        await until(lambda: not is_running(pid) and not path.parent.exists())


async def test_a_killed_watcher_takes_it_along_and_its_parent_sees_it(settings: LogSettings) -> None:
    process = SequencerProcess(settings)
    with process as path:
        pid = listener_of(path)
        watcher = parent_of(pid)
        process.demand_running()
        os.kill(watcher, signal.SIGKILL)
        await gone(watcher)
        with pytest.raises(SetupError, match="the log's watcher has ended"):
            process.demand_running()
        await gone(pid)
    assert not path.parent.exists()


async def test_only_the_parent_ends_it(unharmed: tuple[Path, LogSettings]) -> None:
    """A supervisor's signal goes to all processes of a service, and workers still finish what is in flight."""
    pid = listener_of(unharmed[0])
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        os.kill(pid, number)
    async with client(*unharmed) as log:
        await log.append((token_leaf(1),))
    assert listener_of(unharmed[0]) == pid


@pytest.mark.long
def test_a_second_process_on_one_file_is_refused(settings: LogSettings) -> None:
    with SequencerProcess(settings), pytest.raises(SetupError, match="another process writes"):
        SequencerProcess(settings).__enter__()


def test_a_start_that_is_refused_says_why(settings: LogSettings) -> None:
    with pytest.raises(SetupError, match=r"log\.absent"):
        SequencerProcess(replace(settings, origin="issuer.example/log/other")).__enter__()


# -- what is put under it --------------------------------------------------------------------------------------------------


async def test_an_old_copy_latches_it_and_refuses_the_next_start(settings: LogSettings, tmp_path: Path) -> None:
    folder = Path(settings.database).parent
    with SequencerProcess(settings) as path:
        async with client(path, settings) as log:
            await log.append((token_leaf(1),))
            shutil.copytree(folder, tmp_path / "kept")
            await log.append((token_leaf(2),))
            for file in folder.glob("log.sqlite*"):
                file.unlink()
            for file in (tmp_path / "kept").glob("log.sqlite*"):
                shutil.copy(file, folder)
            for _ in range(3):
                with pytest.raises(Undecided):
                    await log.append((token_leaf(3),))
            with pytest.raises(Undecided, match="appends no leaves until its operator acts"):
                await log.look()
    with pytest.raises(SetupError, match=r"log\.rollback"):
        SequencerProcess(settings).__enter__()


# -- clients that misbehave ------------------------------------------------------------------------------------------------


def raw_client(path: Path) -> socket.socket:
    client = socket.socket(socket.AF_UNIX)
    client.settimeout(60)
    client.connect(str(path))
    return client


async def test_what_is_no_question_closes_its_connection_and_no_other(unharmed: tuple[Path, LogSettings]) -> None:
    too_large = (LOG_FRAME_BYTES + 1).to_bytes(4, "big")
    async with client(*unharmed) as log:
        for sent in (too_large, b"\x00\x00\x00\x01\xc1", b"\x00\x00\x00\x02\x91\x01", b"GET / HTTP/1.1\r\n\r\n"):
            await log.append((token_leaf(1),))
            with raw_client(unharmed[0]) as stranger:
                stranger.sendall(sent)
                assert stranger.recv(1) == b"", sent
            await log.append((token_leaf(2),))


async def test_a_leaf_that_is_none_fails_alone(unharmed: tuple[Path, LogSettings]) -> None:
    async with client(*unharmed) as log:
        (before,) = await log.append((token_leaf(5000),))
        bad = [b"no leaf\n", b"eval-token-issuer/token/v2\na b\n", token_leaf(5001) + b"x y\n", b"x" * 5000]
        asked = [log.append((leaf,)) for leaf in (*bad, token_leaf(5001))]
        *refused, good = await asyncio.gather(*asked, return_exceptions=True)
        assert {type(answer) for answer in refused} == {Undecided}
        assert isinstance(good, tuple)
        assert good[0].index == before.index + 1


async def test_a_client_that_does_not_read_is_closed(unharmed: tuple[Path, LogSettings]) -> None:
    async def ask_without_reading(deaf: socket.socket) -> None:
        deaf.setblocking(False)
        for number in itertools.count():
            with suppress(BlockingIOError):
                deaf.sendall(framed(Append(number, leaves)))
            await asyncio.sleep(0)

    async with client(*unharmed) as log:
        leaves = tuple(token_leaf(6000 + number) for number in range(200))
        await log.append(leaves)
        with raw_client(unharmed[0]) as deaf, pytest.raises(ConnectionError):
            await ask_without_reading(deaf)
        await again(log, token_leaf(7000))
