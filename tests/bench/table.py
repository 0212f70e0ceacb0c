"""What a table of a hub costs: CPU an entry of one process, of all cores and of a Dask cluster, and that memory is flat.

`python -m tests.bench.table 20000` makes fewer entries. CPU is that of all processes together, with their start.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections import deque
from pathlib import Path

from tests.bench.bulk import run
from tests.support.cluster import cluster
from tests.support.tree import write_tree, write_trust

COUNT = 200_000
MORE = 1.2  # the CPU of an entry by several processes, to that by one
BYTES_EACH = 170  # of the replay index, which alone grows
ROWS_MIB = 64  # by how much the peak varies: a row group, as rows and as it is written


def bench_table(count: int = COUNT) -> None:
    """Print what an entry costs by each engine, and what memory does with ten times the entries."""
    print(f"\nissuer verify DIR --to results.parquet, {count:,} entries")
    cores = len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as name:
        large, small = (Path(name) / each for each in ("large", "small"))
        for folder, entries in ((large, count), (small, count // 10)):
            deque(write_tree(folder / "tree", entries), maxlen=0)
            write_trust(folder)
        _, _, before = run(small, cores, *_table(small))
        _, plain, _ = run(large, 1)
        _, alone, _ = run(large, 1, *_table(large))
        size = (large / "results.parquet").stat().st_size
        print(f"  one process: {plain / count * 1e6:.0f} us CPU an entry without a table, {alone / count * 1e6:.0f} us with it,"
              f" which has {size / count:.0f} bytes an entry")  # fmt: skip
        wall, cpu, peak = run(large, cores, *_table(large))
        _say(f"{cores} processes", count, wall, cpu, alone)
        grown, allowed = peak - before, ROWS_MIB + 0.9 * count * BYTES_EACH / 2**20
        verdict = "ok" if grown <= allowed else "TOO MUCH"
        print(f"  memory: {before:.0f} MiB PSS of {count // 10:,} entries, {peak:.0f} MiB of {count:,}"
              f" (at most {allowed:.0f} more)  {verdict}")  # fmt: skip
        wall, cpu = _by_cluster(large, cores)
        _say(f"a cluster of {cores}", count, wall, cpu, alone)


def _table(folder: Path) -> tuple[str, str]:
    return "--to", str(folder / "results.parquet")


def _by_cluster(folder: Path, workers: int) -> tuple[float, float]:
    """Return wall and CPU seconds, the latter with those of scheduler and workers."""
    before = os.times()
    with cluster(folder, workers) as found:
        wall, _, _ = run(folder, 0, *_table(folder), "--engine", found.url)
    after = os.times()  # the cluster has ended, and counts
    return wall, after.children_user + after.children_system - before.children_user - before.children_system


def _say(who: str, count: int, wall: float, cpu: float, alone: float) -> None:
    verdict = "ok" if cpu <= MORE * alone else "TOO MUCH"
    print(f"  {who}: {count / wall:.0f} entries/s, {cpu / count * 1e6:.0f} us CPU each, {cpu / alone:.2f} x one process"
          f" (at most {MORE:g})  {verdict}")  # fmt: skip


if __name__ == "__main__":
    bench_table(*map(int, sys.argv[1:2]))
