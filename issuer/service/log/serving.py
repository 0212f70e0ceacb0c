"""The life of the sequencer process, from the start of the sequencer to its end: one event loop, one thread."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from issuer.service.bounds import BEAT_S
from issuer.service.log.group import GroupCommit
from issuer.service.log.listener import Connection
from issuer.service.log.sequencer import Published, Sequencer
from issuer.service.log.setup import LogSettings, sequencer_of, turn


async def serve(settings: LogSettings, socket: Path, end: int, beats: int, listening: Callable[[], None]) -> None:
    """Write one log for whoever connects to the socket, until the pipe `end` is closed.

    Beats on the pipe `beats` as long as the event loop turns; `listening` is called once, before the first beat. Raises
    SetupError where the log must not be written like this.
    """
    os.umask(0o077)
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(end, ended.set)
    with turn(settings), ThreadPoolExecutor(1, "sequencer") as thread:
        sequencer = sequencer_of(settings)
        group = GroupCommit(sequencer, thread, _tell_nobody)
        try:
            await group.do(Sequencer.start)
            server = await asyncio.get_running_loop().create_unix_server(lambda: Connection(group), str(socket))
            os.chmod(socket, 0o600)
            listening()
            beating = asyncio.create_task(_beat(beats))
            await ended.wait()
            beating.cancel()
            server.close()
            await group.finish()
        finally:
            await group.do(Sequencer.close)


def _tell_nobody(_published: Published) -> None:
    """No witness is asked."""


async def _beat(beats: int) -> None:
    os.set_blocking(beats, False)
    while True:
        with suppress(BlockingIOError):  # the watcher is stopped
            os.write(beats, b".")
        await asyncio.sleep(BEAT_S / 2)
