"""The promises of the log against kill -9 of the sequencer at any moment, under load.

P1 what was answered is in every later tree; P2 no two checkpoints disagree; P3 nothing is answered that is not durable;
P4 it comes back by itself.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections import Counter
from contextlib import closing, suppress
from pathlib import Path

import pytest

from issuer.errors import Undecided
from issuer.service.log.client import SequencerLog
from issuer.service.log.database.sqlite import SqliteReading
from issuer.service.log.database.store import Reader
from issuer.service.log.sequencer.process import SequencerProcess
from issuer.service.log.sequencer.setup import LogSettings
from issuer.tlog.checkpoint import Checkpoint, parse_checkpoint
from issuer.tlog.merkle import leaf_hash, verify_inclusion
from issuer.tlog.note import parse_note
from issuer.tlog.proof import parse_proof
from issuer.token.wire import LogEntry
from tests.support.received import roots
from tests.support.sequencing import listener_of, new_log, token_leaf

SECONDS = 15.0
CLIENTS = 8


class Seen:
    """Everything that any client ever received."""

    def __init__(self) -> None:
        self.places: dict[bytes, set[int]] = {}
        self.checkpoints: set[Checkpoint] = set()

    def take(self, leaf: bytes, entry: LogEntry) -> None:
        proof = parse_proof(entry.proof.encode())
        checkpoint = parse_checkpoint(parse_note(proof.checkpoint).text)
        assert verify_inclusion(entry.index, checkpoint.size, leaf_hash(leaf), proof.hashes, checkpoint.root)
        self.places.setdefault(leaf, set()).add(entry.index)
        self.checkpoints.add(checkpoint)


async def ask(path: Path, settings: LogSettings, number: int, seen: Seen, until: float) -> Counter[str]:
    """Append a leaf after another, each until it is answered; now and then an old one again."""
    log, said, chance = SequencerLog(path, settings.origin), Counter[str](), random.Random(number)
    count = 0
    while time.monotonic() < until:
        old = chance.random() < 0.2 and count > 0
        leaf = token_leaf(number * 10**6 + (chance.randrange(count) if old else count))
        count += not old
        while True:
            with suppress(Undecided):
                (entry,) = await log.append((leaf,))
                seen.take(leaf, entry)
                said["answered"] += 1
                break
            said["failed"] += 1
            await asyncio.sleep(0.02)
    await log.aclose()
    return said


async def kill(path: Path, until: float) -> int:
    """Kill whoever listens, a moment after it began to."""
    killed, chance = 0, random.Random(7)
    while time.monotonic() < until:
        await asyncio.sleep(chance.uniform(0.02, 0.6))
        with suppress(OSError):
            os.kill(listener_of(path), signal.SIGKILL)
            killed += 1
    return killed


@pytest.mark.long
async def test_every_promise_holds_while_the_sequencer_is_killed(tmp_path: Path) -> None:
    settings, seen = new_log(tmp_path), Seen()
    with SequencerProcess(settings) as path:
        until = time.monotonic() + SECONDS
        asking = [ask(path, settings, number, seen, until) for number in range(CLIENTS)]
        killed, said = await asyncio.gather(kill(path, until - 2), asyncio.gather(*asking))
    assert killed > 3
    assert sum(said, Counter())["failed"], "the kills were felt"

    with closing(SqliteReading(Path(settings.database))) as reading:
        head = Reader(reading).head()
        assert head is not None
        leaves = Reader(reading).leaves(0, head.size)
    assert len(set(leaves)) == len(leaves), "no leaf is there twice"
    assert all(places == {leaves.index(leaf)} for leaf, places in seen.places.items())
    by_size = dict(enumerate(roots(map(leaf_hash, leaves)), 1))
    assert by_size[head.size] == head.root
    assert all(by_size[checkpoint.size] == checkpoint.root for checkpoint in seen.checkpoints)
