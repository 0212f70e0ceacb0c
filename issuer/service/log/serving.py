"""The life of the sequencer process, from the start of the sequencer to its end: one event loop, one thread."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from issuer.service.bounds import BEAT_S, WITNESS_PACE_S, WITNESS_SYNC_PACE_S
from issuer.service.log.desk import Desk
from issuer.service.log.group import GroupCommit
from issuer.service.log.listener import Connection
from issuer.service.log.sequencer import Sequencer
from issuer.service.log.setup import LogSettings, read_seal, sequencer_of, turn
from issuer.service.log.witness import LogWitness
from issuer.service.log.witness_faults import Alarms
from issuer.service.log.witness_setup import PublishedLog, witnessing_of
from issuer.service.log.witness_start import shown_at_start, vouched_at_start
from issuer.service.log.witnesses import Witnesses


async def serve(
    settings: LogSettings, socket: Path, end: int, beats: int, listening: Callable[[], None], *, again: bool = False
) -> None:
    """Write one log for whoever connects to the socket, until the pipe `end` is closed.

    Beats on the pipe `beats` as long as the event loop turns; `listening` is called once, before the first beat. Raises
    SetupError where the log must not be written like this. `again`: it takes the place of one that has died.
    """
    os.umask(0o077)
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(end, ended.set)
    with turn(settings):
        async with _started(settings, again=again) as desk:
            server = await asyncio.get_running_loop().create_unix_server(lambda: Connection(desk), str(socket))
            os.chmod(socket, 0o600)
            listening()
            beating = asyncio.create_task(_beat(beats))
            await ended.wait()
            beating.cancel()
            server.close()
            await desk.finish()


@asynccontextmanager
async def _started(settings: LogSettings, *, again: bool) -> AsyncIterator[Desk]:
    """Start the sequencer, and have its heads cosigned until the block ends.

    At a start the witnesses are asked first, and again with the head. But `again` requests wait, and would wait for the
    slowest witness: what was published is in the records, and a witness that contradicts is an alarm, as it was before.
    """
    seal = read_seal(settings)
    witnessing = witnessing_of(settings.witnesses, seal.verifier)
    shown = () if again else await shown_at_start(witnessing.calls, witnessing.own)
    sequencer = sequencer_of(settings, seal, shown)
    with ThreadPoolExecutor(1, "sequencer") as thread:
        group = GroupCommit(sequencer, thread, lambda _: witnesses.committed())
        log = PublishedLog(group)
        asked = tuple(LogWitness(call, log, witnessing.own) for call in witnessing.calls)
        must_cosign = settings.witnesses is not None and settings.witnesses.must_cosign
        pace_s = WITNESS_SYNC_PACE_S if must_cosign else WITNESS_PACE_S
        witnesses = Witnesses(witnessing.policy, log, asked, pace_s, Alarms())
        try:
            await group.do(Sequencer.start)
            if not again:
                await vouched_at_start(asked, log)
            witnesses.committed()  # the head that it starts with may not be cosigned yet
            showing = asyncio.create_task(witnesses.run())
            yield Desk(sequencer, group, witnesses, must_cosign=must_cosign)
            showing.cancel()
            await witnesses.aclose()
        finally:
            await group.do(Sequencer.close)


async def _beat(beats: int) -> None:
    os.set_blocking(beats, False)
    while True:
        with suppress(BlockingIOError):  # the watcher is stopped
            os.write(beats, b".")
        await asyncio.sleep(BEAT_S / 2)
