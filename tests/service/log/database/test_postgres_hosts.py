"""Two hosts, each with its sequencer process, that write one log in one PostgreSQL; 64 clients; and what may go wrong.

Whatever any client ever got still holds at the end (tests/support/received.py).
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from issuer.errors import Undecided
from issuer.io import keyfile
from issuer.service.admission.embedded import EmbeddedValkey
from issuer.service.log.bounds import LOG_CALL_S, LOG_IDLE_S
from issuer.service.log.client import SequencerLog
from issuer.service.log.database.postgres import PostgresReading
from issuer.service.log.database.store import Reader
from issuer.service.log.sequencer.process import SequencerProcess
from issuer.tlog.note import NoteSigner
from issuer.token.wire import LogEntry
from tests.support.log_store import ORIGIN
from tests.support.postgresql import PostgreSQL, postgresql
from tests.support.received import Received
from tests.support.sequencing import listener_of, new_log, token_leaf

pytestmark = pytest.mark.long
CLIENTS = 64
WAIT_S = 120


class Hosts:
    """Two hosts with one log. They share its key and the store, and each has a record in a file of its own."""

    def __init__(self, server: PostgreSQL, sockets: tuple[Path, Path], received: Received) -> None:
        self.server = server
        self.sockets = sockets
        self.received = received

    async def append(self, log: SequencerLog, *leaves: bytes) -> None:
        """Append as a worker's caller does: again, until it is decided."""
        deadline = time.monotonic() + WAIT_S
        while (entries := await tried(log, leaves)) is None:
            assert time.monotonic() < deadline, "the log does not come back"
            await asyncio.sleep(0.1)
        for leaf, entry in zip(leaves, entries, strict=True):
            self.received.take(leaf, entry.index, entry.proof.encode())

    async def client(self, number: int, calls: int) -> None:
        """Append leaves, now here and now there: some of them a second time, or at the same time as another client."""
        dice = random.Random(number)
        logs = [SequencerLog(socket, ORIGIN) for socket in self.sockets]
        for call in range(calls):
            first = 1000 * (number // 2) + 3 * call  # two clients have the same leaves
            await self.append(dice.choice(logs), *map(token_leaf, range(first, first + dice.randint(1, 5))))
        for log in logs:
            await log.aclose()

    async def run(self, fault: Callable[[Hosts], Awaitable[None]], calls: int) -> None:
        """Let all clients work, and meanwhile the fault happen."""
        await asyncio.gather(fault(self), *(self.client(number, calls) for number in range(CLIENTS)))

    def demand_kept(self) -> int:
        """Demand that all that was received holds; return the size of the tree."""
        with closing(PostgresReading(self.server.url())) as reading:
            self.received.demand_kept(Reader(reading))
            head = Reader(reading).head()
        assert head is not None
        return head.size


async def tried(log: SequencerLog, leaves: tuple[bytes, ...]) -> tuple[LogEntry, ...] | None:
    begun = time.monotonic()
    try:
        return await log.append(leaves)
    except Undecided:
        return None
    finally:
        assert time.monotonic() - begun < LOG_CALL_S + 5, "a caller waits, and nobody tells"


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    with postgresql() as server, EmbeddedValkey() as store:
        one = new_log(tmp_path, database=server.url(), store_url=store)
        records = tmp_path / "other-records"
        records.mkdir(mode=0o700)
        key = keyfile.read(Path(one.key_file), None)
        received = Received(ORIGIN, NoteSigner(ORIGIN, key).verifier)
        with SequencerProcess(one) as here, SequencerProcess(replace(one, records=str(records))) as there:
            yield Hosts(server, (here, there), received)


async def nothing(_hosts: Hosts) -> None:
    """Let them work."""


async def sequencers_are_killed(hosts: Hosts) -> None:
    for number in range(6):
        await asyncio.sleep(0.5)
        os.kill(listener_of(hosts.sockets[number % 2]), signal.SIGKILL)
        await asyncio.sleep(0.5)


async def the_server_is_killed(hosts: Hosts) -> None:
    for _ in range(3):
        await asyncio.sleep(1)
        await asyncio.to_thread(hosts.server.kill)
        await asyncio.to_thread(hosts.server.start)


async def connections_are_ended(hosts: Hosts) -> None:
    for _ in range(20):
        await asyncio.sleep(0.1)
        ours = "FROM pg_stat_activity WHERE application_name = 'issuer-log'"
        await asyncio.to_thread(
            hosts.server.execute, f"SELECT pg_terminate_backend(pid) {ours} ORDER BY random() LIMIT 1"
        )


@pytest.mark.parametrize(
    "fault",
    [nothing, sequencers_are_killed, the_server_is_killed, connections_are_ended],
    ids=lambda fault: fault.__name__,
)
async def test_two_hosts_and_64_clients_make_one_log(hosts: Hosts, fault: Callable[[Hosts], Awaitable[None]]) -> None:
    await hosts.run(fault, 25)
    assert hosts.demand_kept() >= len(hosts.received.indexes) > CLIENTS // 2 * 50


async def test_a_host_that_is_stopped_in_the_critical_section_holds_up_the_other_for_seconds(hosts: Hosts) -> None:
    """The server undoes what it had begun, and it goes on when it is woken: with no leaf of its own in between."""
    stopped, other = (SequencerLog(socket, ORIGIN) for socket in hosts.sockets)
    pid = listener_of(hosts.sockets[0])

    async def stop(_hosts: Hosts) -> None:
        await stop_in_transaction(pid, hosts.server)
        begun = time.monotonic()
        await hosts.append(other, token_leaf(999_999))
        assert time.monotonic() - begun < LOG_IDLE_S + 3
        os.kill(pid, signal.SIGCONT)

    await hosts.run(stop, 25)
    await hosts.append(stopped, token_leaf(1_000_000))
    assert listener_of(hosts.sockets[0]) == pid
    hosts.demand_kept()
    await stopped.aclose()
    await other.aclose()


async def stop_in_transaction(pid: int, server: PostgreSQL) -> None:
    """Stop a sequencer that works, again and again, until the server sees that it has begun something."""
    for _ in range(500):
        await asyncio.sleep(0.05)
        os.kill(pid, signal.SIGSTOP)
        if await asyncio.to_thread(is_stuck, server):
            return
        os.kill(pid, signal.SIGCONT)
    raise AssertionError("it was never stopped within its transaction")


def is_stuck(server: PostgreSQL) -> bool:
    """Say whether somebody has begun something and does not go on with it."""
    begun = "SELECT pid, xact_start FROM pg_stat_activity WHERE application_name = 'issuer-log' AND state = 'idle in transaction'"
    before = set(server.execute(begun))
    time.sleep(0.2)
    return bool(before & set(server.execute(begun)))
