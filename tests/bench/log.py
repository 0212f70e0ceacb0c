"""The cost of the transparency log. `python -m tests.bench.log`, part of `make bench`.

One service with a log and one without are asked in turns, at the same loads. Then the sequencer's own work, without a
service: the cost of a leaf by the size of a batch.
"""

import contextlib
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from issuer.dev.provider import LocalProvider
from issuer.service.log.sequencer.setup import sequencer_of
from tests.support.http_load import Run, drive
from tests.support.logged import logged_service, sequencers
from tests.support.processes import cpu_s
from tests.support.running import Running, running, singles, write_folder
from tests.support.sequencing import new_log, tokens

TURNS, COUNT, WARM = 7, 600, 1500


class Side:
    """One of the two services, with its measurements."""

    def __init__(self, name: str, live: Running) -> None:
        self.name, self.live = name, live
        self.runs: list[Run] = []
        self.cpu_us: list[float] = []

    def turn(self, connections: int) -> None:
        made = singles(self.live, "ES256", COUNT)
        before = self._cpu_s()
        run = drive(self.live.settings.listen.port, made, connections)
        assert dict(run.statuses) == {201: COUNT}, run.statuses
        self.cpu_us.append((self._cpu_s() - before) / COUNT * 1e6)
        self.runs.append(run)

    def _cpu_s(self) -> float:
        return cpu_s(self.live.process.pid) + sum(cpu_s(pid) for pid in sequencers(self.live))

    def median(self, what: str) -> float:
        values = {
            "per_s": [run.per_s for run in self.runs],
            "p50": [run.quantile_ms(0.5) for run in self.runs],
            "p99": [run.quantile_ms(0.99) for run in self.runs],
            "cpu": self.cpu_us,
        }
        return statistics.median(values[what])


@contextlib.contextmanager
def both(folder: Path, provider: LocalProvider) -> Iterator[tuple[Side, Side]]:
    """Run a service without a log and one with it."""
    for name in ("without", "with"):
        write_folder(folder / name, provider, es256=True)
    with running(folder / "without", provider) as without, logged_service(folder / "with", provider) as with_log:
        yield Side("without a log", without), Side("with a log", with_log)


def bench_service(folder: Path, provider: LocalProvider) -> None:
    """Print rates, latencies and CPU with and without a log: medians of turns, and of the ratios of pairs."""
    for connections in (1, 8, 32):
        with both(folder / str(connections), provider) as sides:
            for side in sides:  # until SQLite's write-ahead log has its size: before that each sync lengthens a file
                drive(side.live.settings.listen.port, singles(side.live, "ES256", WARM), 4)
            for _ in range(TURNS):
                for side in sides:
                    side.turn(connections)
            for side in sides:
                print(
                    f"  {side.name:<14} {connections:3} connections {side.median('per_s'):6.0f}/s"
                    f"  p50 {side.median('p50'):6.2f} ms  p99 {side.median('p99'):6.2f} ms"
                    f"  {side.median('cpu'):5.0f} us CPU, the sequencer's included"
                )
            without, with_log = sides
            pairs = zip(without.runs, with_log.runs, strict=True)
            ratio = statistics.median(b.per_s / a.per_s for a, b in pairs)
            more = {what: with_log.median(what) - without.median(what) for what in ("p50", "p99")}
            print(f"      {ratio:.2f} x the rate (0.85), {more['p50']:+.1f} ms p50 (3), {more['p99']:+.1f} ms p99 (10)")


def bench_sequencer(folder: Path) -> None:
    """Print the cost of a batch to the sequencer alone, with its three writes to the disk."""
    sequencer = sequencer_of(new_log(folder))
    sequencer.start()
    number = 0
    for size in (1, 8, 32, 128, 512):
        taken, cpu = [], []
        for _ in range(20):
            entries = tokens(*range(number, number + size))
            number += size
            began, spent = time.perf_counter(), time.process_time()
            sequencer.append(entries)
            taken.append(time.perf_counter() - began)
            cpu.append(time.process_time() - spent)
        wall_ms, cpu_us = statistics.median(taken) * 1e3, statistics.median(cpu) / size * 1e6
        print(f"  a batch of {size:3}: {wall_ms:6.2f} ms, {cpu_us:6.1f} us CPU a leaf")
    sequencer.close()


def main() -> None:
    print(f"the transparency log; load average {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as made, LocalProvider() as provider:
        folder = Path(made)
        bench_service(folder, provider)
        (folder / "alone").mkdir()
        bench_sequencer(folder / "alone")


if __name__ == "__main__":
    main()
