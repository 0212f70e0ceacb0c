"""The cost of a durable store: an admission under each setting. `python -m tests.bench.store`, part of `make bench`.

A new store for each row, with a replica if the row needs it; wall time of one caller after the other and of 32
at once, and the CPU of this process, which is the client.
"""

import asyncio
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import redis
import uvloop

from issuer.service.admission.redis import RedisAdmission
from tests.bench.floor import admission
from tests.support.stores import Store
from tests.support.waiting import eventually

ROWS: dict[str, tuple[Sequence[str], bool, dict[str, Any]]] = {
    "an epoch bound to run_id (the default)": ((), False, {}),
    "the same, with a replica that follows": ((), True, {}),
    "wait_replicas: 1": ((), True, {"wait_replicas": 1}),
    "min-replicas-to-write 1": (("--min-replicas-to-write", "1"), True, {}),
    "appendfsync everysec": (("--appendonly", "yes", "--appendfsync", "everysec"), False, {}),
    "appendfsync always, durable_store": (
        ("--appendonly", "yes", "--appendfsync", "always"), False, {"durable_store": True}),
}  # fmt: skip


async def measured(url: str, count: int, callers: int, options: dict[str, Any]) -> tuple[float, float, float]:
    """Return the median and the 99th percentile of an admission in milliseconds, and its CPU in microseconds."""
    state, taken_s = RedisAdmission(url, leeway_s=0, **options), []
    await state.start()

    async def call(times: int) -> None:
        for _ in range(times):
            began = time.perf_counter()
            await state.admit(admission(int(time.time())))
            taken_s.append(time.perf_counter() - began)

    await call(50)
    taken_s.clear()
    cpu = time.process_time()
    await asyncio.gather(*(call(count // callers) for _ in range(callers)))
    cpu = time.process_time() - cpu
    await state.aclose()
    taken_s.sort()
    return taken_s[len(taken_s) // 2] * 1000, taken_s[len(taken_s) * 99 // 100] * 1000, cpu / len(taken_s) * 1e6


def takes_writes(store: Store) -> bool:
    with suppress(redis.RedisError), store.client as client:
        return bool(client.set("x", 1))
    return False


def main(count: int) -> None:
    """Print a row for each way."""
    print(f"{'admission':<42}{'one: p50':>10}{'p99 ms':>9}{'CPU us':>8}{'32: p50':>10}{'p99 ms':>9}{'CPU us':>8}")
    for name, (options, with_replica, ours) in ROWS.items():
        with (
            tempfile.TemporaryDirectory() as made,
            Store(Path(made) / "one", *options) as store,
            Store(Path(made) / "two") as replica,
        ):
            if with_replica:
                replica.is_replica_of(store)
                eventually(partial(takes_writes, store))  # a master counts replicas once a second
            one = uvloop.run(measured(store.url, count // 4, 1, ours))
            many = uvloop.run(measured(store.url, count, 32, ours))
        print(
            f"  {name:<40}{one[0]:>10.2f}{one[1]:>9.2f}{one[2]:>8.0f}{many[0]:>10.2f}{many[1]:>9.2f}{many[2]:>8.0f}",
            flush=True,
        )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 6400)
