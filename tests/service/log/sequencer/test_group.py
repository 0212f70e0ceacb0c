"""Group commit: the questions that wait for a batch, its size, and the questions that it leaves out."""

import asyncio
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path

from issuer.service.log.bounds import LOG_BATCH_LEAVES, LOG_CALL_S, LOG_QUEUE_LEAVES
from issuer.service.log.sequencer.sequencer import CommittedHead, Placed, Sequencer
from issuer.service.log.sequencer.server import GroupCommit
from issuer.service.log.sequencer.setup import LogSettings, sequencer_of, turn
from tests.support.sequencing import new_log, tokens


class Group:
    """A group commit on a log, and the heads that it published."""

    def __init__(self, commit: GroupCommit, thread: ThreadPoolExecutor, logged: list[CommittedHead]) -> None:
        self.commit = commit
        self.thread = thread
        self.logged = logged

    def add(self, *numbers: int) -> asyncio.Future[tuple[Placed, ...] | None]:
        settled: asyncio.Future[tuple[Placed, ...] | None] = asyncio.get_running_loop().create_future()
        self.commit.add(tuple(tokens(*numbers)), settled.set_result)
        return settled


@asynccontextmanager
async def group(settings: LogSettings) -> AsyncIterator[Group]:
    logged: list[CommittedHead] = []
    with turn(settings), ThreadPoolExecutor(1) as thread:
        made = GroupCommit(sequencer_of(settings), thread, logged.append)
        try:
            await made.do(Sequencer.start)
            yield Group(made, thread, logged)
            await made.finish()
        finally:
            await made.do(Sequencer.close)


async def test_what_comes_while_a_batch_is_committed_is_the_next_batch(tmp_path: Path) -> None:
    async with group(new_log(tmp_path)) as each:
        first = each.add(0)
        await asyncio.sleep(0)  # it has begun
        more = [each.add(number) for number in range(1, 100)]
        await asyncio.gather(first, *more)
        assert [published.head.size for published in each.logged] == [1, 100]


async def test_a_batch_is_bounded_and_no_question_is_parted(tmp_path: Path) -> None:
    async with group(new_log(tmp_path)) as each:
        many = [each.add(*range(100 * number, 100 * number + 100)) for number in range(12)]
        await asyncio.gather(*many)
        sizes = [0, *(published.head.size for published in each.logged)]
        steps = [after - before for before, after in pairwise(sizes)]
        assert max(steps) <= LOG_BATCH_LEAVES
        assert not [step for step in steps if step % 100]


async def test_what_has_waited_too_long_gets_no_leaf(tmp_path: Path) -> None:
    """The caller has 503 by then: its leaf would have no token."""
    async with group(new_log(tmp_path)) as each:
        each.thread.submit(time.sleep, LOG_CALL_S + 0.3)  # a slow peer
        first = each.add(1)
        await asyncio.sleep(0)
        late = each.add(2)
        assert await first is not None
        assert await late is None
        (place,) = await each.add(3) or ()
        assert place.index == 1


async def test_more_than_may_wait_is_refused_at_once(tmp_path: Path) -> None:
    async with group(new_log(tmp_path)) as each:
        waiting = [each.add(*range(100 * number, 100 * number + 100)) for number in range(LOG_QUEUE_LEAVES // 100 + 2)]
        assert waiting[-1].done()
        assert waiting[-1].result() is None
        await asyncio.gather(*waiting)


async def test_another_head_is_told_once(tmp_path: Path) -> None:
    async with group(new_log(tmp_path)) as each:
        for _ in range(3):
            await each.add(1)
            await each.add()
        assert [published.head.size for published in each.logged] == [1]
        assert each.commit.newest is each.logged[0]
