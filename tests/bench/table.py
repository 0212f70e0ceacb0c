"""The cost of a table of a hub: CPU an entry of one process, of all cores and of a Dask cluster, and that memory is flat.

`python -m tests.bench.table 20000` makes fewer entries. CPU is the sum of all processes, with their start.
"""

import os
import sys
import tempfile
from collections import deque
from itertools import islice
from pathlib import Path

from tests.bench.bulk import run
from tests.support.cluster import cluster
from tests.support.tree import write_tree, write_trust

COUNT = 200_000
ROUNDS = 2
MORE = 1.2  # the CPU of an entry by several processes, to that by one
BYTES_EACH = 170  # of the replay index, which alone grows
ROWS_MIB = 64  # by how much the peak varies: a row group, as rows and as it is written


def bench_table(count: int = COUNT) -> None:
    """Print the cost of an entry by each engine, and the growth of memory with ten times as many entries."""
    print(f"\nissuer verify DIR --to results.parquet, {count:,} entries", flush=True)
    cores = len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        made = write_tree(folder / "tree", count)
        write_trust(folder)
        few = count // 10
        deque(islice(made, few), maxlen=0)
        _, plain, _ = run(folder, 1)
        _, with_table, _ = run(folder, 1, *_table(folder))
        print(f"  {few:,} entries, one process: {plain / few * 1e6:.0f} us CPU each without a table,"
              f" {with_table / few * 1e6:.0f} us with it", flush=True)  # fmt: skip
        before = _tell_peak(few, run(folder, cores, *_table(folder))[2])
        deque(islice(made, count // 2 - few), maxlen=0)
        _tell_peak(count // 2, run(folder, cores, *_table(folder))[2], before, count // 2 - few)
        deque(made, maxlen=0)
        # In turn, and the least of each: the machine may be busy with other things.
        rounds = [
            (run(folder, 1, *_table(folder)), run(folder, cores, *_table(folder)), _by_cluster(folder, cores))
            for _ in range(ROUNDS)
        ]
        alone, here, there = (min(each, key=lambda one: one[1]) for each in zip(*rounds, strict=True))
        _tell_peak(count, here[2], before, count - few)
        size = (folder / "results.parquet").stat().st_size
        print(
            f"  one process: {alone[1] / count * 1e6:.0f} us CPU an entry, {size / count:.0f} bytes of it in the table"
        )
        _say(f"{cores} processes", count, here, alone[1])
        _say(f"a cluster of {cores}", count, there, alone[1])


def _tell_peak(count: int, peak: float, before: float | None = None, more: int = 0) -> float:
    """Print the peak of all processes beside what it may be with so many more entries than before; return it."""
    allowed = ROWS_MIB + more * BYTES_EACH / 2**20
    verdict = "" if before is None else "ok" if peak - before <= allowed else f"TOO MUCH, over {allowed:.0f} MiB more"
    print(f"  {count:,} entries, all cores: at most {peak:.0f} MiB PSS  {verdict}", flush=True)
    return peak


def _table(folder: Path) -> tuple[str, str]:
    return "--to", str(folder / "results.parquet")


def _by_cluster(folder: Path, workers: int) -> tuple[float, float, float]:
    """Return wall and CPU seconds, the latter with those of scheduler and workers, and the peak of the process that asks."""
    before = os.times()
    with cluster(folder, workers) as found:
        wall, _, peak = run(folder, 0, *_table(folder), "--engine", found.url)
    after = os.times()  # the cluster has ended, and counts
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return wall, cpu, peak


def _say(who: str, count: int, took: tuple[float, float, float], alone: float) -> None:
    wall, cpu, _ = took
    verdict = "ok" if cpu <= MORE * alone else "TOO MUCH"
    print(f"  {who}: {count / wall:.0f} entries/s, {cpu / count * 1e6:.0f} us CPU each, {cpu / alone:.2f} x one process"
          f" (at most {MORE:g})  {verdict}", flush=True)  # fmt: skip


if __name__ == "__main__":
    bench_table(*map(int, sys.argv[1:2]))
